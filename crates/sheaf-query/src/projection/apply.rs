//! Applies a projection to a document by copying bytes element by element.

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::{DocBuilder, ElementType, Error, RawArray, RawDoc, RawElement, RawValue};

use smallvec::{SmallVec, smallvec};

use super::{Action, ElemMatch, Field, Kind, MetaField, Metadata, Node, Projection, Slice};
use crate::matcher::MatchDetails;

/// Deeper than any valid document.
const DEPTH_MAX: usize = 250;

/// The inputs of an application.
#[derive(Clone, Copy)]
struct Input<'a> {
    root: RawDoc<'a>,
    details: Option<&'a MatchDetails>,
    meta: Metadata<'a>,
    /// Whether the positional operator has not reached its array yet.
    positional: bool,
}

/// Where to append an element.
#[derive(Clone, Copy)]
enum Target {
    /// Under its own name.
    Named,
    /// As the next value of the open array.
    Pushed,
}

impl Projection {
    /// Appends to `out` what the projection keeps of `doc`.
    ///
    /// If [`Projection::needs_match_details`], `details` must come from the match; `meta` must have
    /// the metadata that the projection needs ([`Projection::needs_record_id`],
    /// [`Projection::needs`]).
    ///
    /// Errors: 51246 if the positional operator reaches an array and no element matched, 51247 if
    /// the array is too short for it, and the errors of expressions and regular expressions. After
    /// an error, `out` is unusable.
    pub fn apply(
        &self,
        doc: RawDoc<'_>,
        details: Option<&MatchDetails>,
        meta: Metadata<'_>,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let input = Input {
            root: doc,
            details,
            meta,
            positional: self.positional.is_some(),
        };
        let depth = 0;
        match self.kind {
            Kind::Inclusion => include(&self.root, doc, input, depth, out)?,
            Kind::Exclusion => exclude(&self.root, doc, input, depth, out)?,
        }
        if let Some(id) = meta.record_id
            && self.show_record_id
        {
            out.append("$recordId", id.as_raw());
        }
        Ok(())
    }
}

/// Appends the named fields of `doc`, then the computed ones.
fn include(
    node: &Node,
    doc: RawDoc<'_>,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    // Once all are found, the rest of the document is skipped.
    let mut wanted = node.fields.len();
    let mut seen: SmallVec<[u64; 1]> = smallvec![0; node.fields.len().div_ceil(64)];
    // The arrays that `$elemMatch` tests, by the position of their field.
    let mut arrays: Vec<(usize, RawArray<'_>)> = Vec::new();
    for element in doc.iter() {
        if wanted == 0 {
            break;
        }
        let Some(at) = node.place(element.key_bytes()) else {
            continue;
        };
        // If two fields have the same name, the first one is used.
        if seen[at / 64] >> (at % 64) & 1 == 1 {
            continue;
        }
        seen[at / 64] |= 1 << (at % 64);
        wanted -= 1;
        let field = &node.fields[at];
        match &field.action {
            Action::Include | Action::Nested(_)
                if input.positional
                    && field.positional
                    && element.element_type() == ElementType::Array =>
            {
                positional(field, element, input, depth, out)?;
            }
            Action::Include => {
                out.append_raw_element(element);
            }
            Action::Nested(inner) => {
                include_within(inner, element, Target::Named, input, depth + 1, out)?;
            }
            Action::Slice(slice) => append_slice(element, *slice, Target::Named, out),
            // Computed fields follow; the document's value of that name is dropped.
            Action::Computed(_) | Action::Meta(_) | Action::Exclude => {}
            Action::ElemMatch(_) => {
                if let RawValue::Array(array) = element.value() {
                    arrays.push((at, array));
                }
            }
        }
    }
    arrays.sort_by_key(|(at, _)| *at);
    for (at, field) in node.fields.iter().enumerate() {
        match &field.action {
            Action::ElemMatch(condition) => {
                if let Ok(found) = arrays.binary_search_by_key(&at, |(at, _)| *at) {
                    elem_match(field, condition, arrays[found].1, out)?;
                }
            }
            Action::Nested(inner) if inner.has_computed => {
                let seen = seen[at / 64] >> (at % 64) & 1 == 1;
                if !seen {
                    out.begin_document(&*field.name);
                    computed(inner, input, depth + 1, out)?;
                    out.end();
                }
            }
            Action::Computed(_) | Action::Meta(_) => one_computed(field, input, out)?,
            _ => {}
        }
    }
    Ok(())
}

/// The computed fields at a level that the document does not have.
fn computed(
    node: &Node,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    include(node, RawDoc::EMPTY, input, depth, out)
}

fn one_computed(field: &Field, input: Input<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    match &field.action {
        Action::Meta(MetaField::RandVal) => {
            out.append(&*field.name, crate::expression::random_number());
        }
        Action::Meta(meta) => {
            let known = match meta {
                MetaField::RecordId => input.meta.record_id.map(|id| id.as_raw()),
                MetaField::IndexKey => input.meta.index_key.map(RawValue::Document),
                MetaField::SortKey => input.meta.sort_key.map(RawValue::Array),
                MetaField::RandVal => None,
            };
            if let Some(known) = known {
                out.append(&*field.name, known);
            }
        }
        Action::Computed(expression) => {
            let value = expression.evaluate_on(input.root)?;
            if let Some(value) = value.as_raw() {
                out.append(&*field.name, value);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Projects an element on the path of an inclusion: documents are projected, nested arrays are
/// traversed, everything else is dropped (or replaced by computed fields).
fn include_within(
    node: &Node,
    element: RawElement<'_>,
    target: Target,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    match element.value() {
        RawValue::Document(doc) => {
            begin_document(element, target, out);
            include(node, doc, input, depth, out)?;
            out.end();
        }
        RawValue::Array(array) => {
            begin_array(element, target, out);
            if depth < DEPTH_MAX {
                for inner in array.elements() {
                    include_within(node, inner, Target::Pushed, input, depth + 1, out)?;
                }
            }
            out.end();
        }
        _ if node.has_computed => {
            begin_document(element, target, out);
            computed(node, input, depth, out)?;
            out.end();
        }
        _ => {}
    }
    Ok(())
}

/// Appends all fields of `doc` except the named ones.
fn exclude(
    node: &Node,
    doc: RawDoc<'_>,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    for element in doc.iter() {
        match node.find(element.key_bytes()) {
            None => {
                out.append_raw_element(element);
            }
            Some(field) => match &field.action {
                Action::Include => {
                    out.append_raw_element(element);
                }
                Action::Nested(inner) => {
                    exclude_within(inner, element, Target::Named, input, depth + 1, out)?;
                }
                Action::Slice(slice) => append_slice(element, *slice, Target::Named, out),
                Action::ElemMatch(condition) => {
                    if let RawValue::Array(array) = element.value() {
                        elem_match(field, condition, array, out)?;
                    }
                }
                Action::Exclude | Action::Computed(_) | Action::Meta(_) => {}
            },
        }
    }
    for field in &node.fields {
        if let Action::Meta(_) = field.action {
            one_computed(field, input, out)?;
        }
    }
    Ok(())
}

/// Projects an element on the path of an exclusion: documents are projected, nested arrays are
/// traversed, everything else is kept.
fn exclude_within(
    node: &Node,
    element: RawElement<'_>,
    target: Target,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    match element.value() {
        RawValue::Document(doc) => {
            begin_document(element, target, out);
            exclude(node, doc, input, depth, out)?;
            out.end();
        }
        RawValue::Array(array) if depth < DEPTH_MAX => {
            begin_array(element, target, out);
            for inner in array.elements() {
                exclude_within(node, inner, Target::Pushed, input, depth + 1, out)?;
            }
            out.end();
        }
        _ => append(element, target, out),
    }
    Ok(())
}

/// Applies the positional operator to its first array: keeps only the element that matched, or
/// projects it further.
fn positional(
    field: &Field,
    element: RawElement<'_>,
    input: Input<'_>,
    depth: usize,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let RawValue::Array(array) = element.value() else {
        return Ok(());
    };
    let Some(index) = input.details.and_then(|details| details.array_index) else {
        return Err(Error::new(
            ErrorCode(51246),
            "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching element in the array",
        ));
    };
    let Some(chosen) = array.elements().nth(index as usize) else {
        return Err(Error::new(
            ErrorCode(51247),
            "Executor error during find command :: caused by :: positional operator '.$' element mismatch: the array that matched and the array that is projected differ",
        ));
    };
    let input = Input {
        positional: false,
        ..input
    };
    out.begin_array(element.key());
    match &field.action {
        Action::Nested(inner) => {
            include_within(inner, chosen, Target::Pushed, input, depth + 1, out)?;
        }
        _ => push(chosen, out),
    }
    out.end();
    Ok(())
}

/// Appends the first matching element of the field's array as an array of one; nothing if no
/// element matches.
fn elem_match(
    field: &Field,
    condition: &ElemMatch,
    array: RawArray<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut details = MatchDetails::default();
    let matched = condition
        .filter
        .matches_value_with_details(RawValue::Array(array), &mut details)?;
    if let (true, Some(index)) = (matched, details.array_index)
        && let Some(element) = array.elements().nth(index as usize)
    {
        out.begin_array(&*field.name);
        push(element, out);
        out.end();
    }
    Ok(())
}

/// Applies `$slice`: appends part of an array, and any other value unchanged.
fn append_slice(element: RawElement<'_>, slice: Slice, target: Target, out: &mut DocBuilder) {
    let RawValue::Array(array) = element.value() else {
        return append(element, target, out);
    };
    begin_array(element, target, out);
    let (skip, take) = slice.range(array);
    for kept in array.elements().skip(skip).take(take) {
        push(kept, out);
    }
    out.end();
}

impl Slice {
    /// Number of elements to skip and to keep.
    fn range(self, array: RawArray<'_>) -> (usize, usize) {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        match self.skip {
            Some(skip @ 0..) => (size(skip as u64), size(self.limit.unsigned_abs())),
            // A position before the start means the start.
            Some(skip) => {
                let from_end = size(skip.unsigned_abs());
                (
                    array.count().saturating_sub(from_end),
                    size(self.limit.unsigned_abs()),
                )
            }
            None if self.limit >= 0 => (0, size(self.limit as u64)),
            None => {
                let last = size(self.limit.unsigned_abs());
                (array.count().saturating_sub(last), last)
            }
        }
    }
}

fn begin_document(element: RawElement<'_>, target: Target, out: &mut DocBuilder) {
    match target {
        Target::Named => out.begin_document(element.key()),
        Target::Pushed => out.push_begin_document(),
    };
}

fn begin_array(element: RawElement<'_>, target: Target, out: &mut DocBuilder) {
    match target {
        Target::Named => out.begin_array(element.key()),
        Target::Pushed => out.push_begin_array(),
    };
}

fn append(element: RawElement<'_>, target: Target, out: &mut DocBuilder) {
    match target {
        Target::Named => {
            out.append_raw_element(element);
        }
        Target::Pushed => push(element, out),
    }
}

fn push(element: RawElement<'_>, out: &mut DocBuilder) {
    out.push_element(element);
}
