//! The values that a dotted path reaches.
//!
//! ```text
//!   "a.b"   {a: {b: 1}}             1
//!           {a: [{b: 1}, {}, 5]}    1, missing          (5 is not a document: nothing)
//!           {a: []}                                     (nothing at all)
//!           {a: 5}, {}              missing
//!   "a.0"   {a: [{b: 1}]}           missing, {b: 1}     (as name in every document; as position)
//! ```

use sheaf_bson::{RawDoc, RawValue, Value};

use super::compare;

/// Whether an array at the end of a path also yields its elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The elements of the array, then the array.
    Entered,
    /// Only the array.
    Whole,
}

/// All values that `path` reaches in `doc`; `None` is "missing".
pub(super) fn reached<'d>(doc: RawDoc<'d>, path: &str, leaf: Leaf) -> Vec<Option<RawValue<'d>>> {
    let parts: Vec<&str> = path.split('.').collect();
    let mut found = Vec::new();
    in_document(doc, &parts, leaf, &mut found);
    found
}

fn in_document<'d>(
    doc: RawDoc<'d>,
    parts: &[&str],
    leaf: Leaf,
    found: &mut Vec<Option<RawValue<'d>>>,
) {
    let (first, rest) = (parts[0], &parts[1..]);
    match doc.get(first) {
        None => found.push(None),
        Some(RawValue::Array(array)) if rest.is_empty() => {
            if leaf == Leaf::Entered {
                found.extend(array.iter().map(Some));
            }
            found.push(Some(RawValue::Array(array)));
        }
        Some(value) if rest.is_empty() => found.push(Some(value)),
        Some(RawValue::Document(inner)) => in_document(inner, rest, leaf, found),
        Some(RawValue::Array(array)) => in_array(array.iter().collect(), rest, leaf, found),
        Some(_) => found.push(None),
    }
}

fn in_array<'d>(
    elements: Vec<RawValue<'d>>,
    parts: &[&str],
    leaf: Leaf,
    found: &mut Vec<Option<RawValue<'d>>>,
) {
    let position = position(parts[0]);
    for (i, element) in elements.into_iter().enumerate() {
        if let RawValue::Document(inner) = element {
            in_document(inner, parts, leaf, found);
        }
        if position == Some(i) {
            match (element, &parts[1..]) {
                (_, []) => found.push(Some(element)),
                (RawValue::Document(inner), rest) => in_document(inner, rest, leaf, found),
                (RawValue::Array(inner), rest) => {
                    in_array(inner.iter().collect(), rest, leaf, found)
                }
                _ => {}
            }
        }
    }
}

/// An array position: `"0"`, `"12"`, but not `"01"`.
fn position(part: &str) -> Option<usize> {
    let n: usize = part.parse().ok()?;
    (n.to_string() == part).then_some(n)
}

/// The distinct values of a path, in the order of values. An array contributes its elements.
pub fn distinct<'d>(docs: impl IntoIterator<Item = RawDoc<'d>>, path: &str) -> Vec<Value> {
    let mut values: Vec<RawValue<'_>> = Vec::new();
    for doc in docs {
        for item in reached(doc, path, Leaf::Whole).into_iter().flatten() {
            match item {
                RawValue::Array(array) => values.extend(array.iter()),
                value => values.push(value),
            }
        }
    }
    values.sort_by(|a, b| compare(*a, *b));
    values.dedup_by(|a, b| compare(*a, *b).is_eq());
    values.into_iter().map(RawValue::to_value).collect()
}
