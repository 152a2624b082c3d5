//! The replacement form of an update: a whole new document that keeps its `_id`.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue, Timestamp};

use super::ApplyContext;
use super::document_rules;
use super::modified_paths::ModifiedPaths;

/// Checks a replacement. Errors: DollarPrefixedFieldName for a top-level name that begins with a
/// dollar sign.
pub(super) fn check(replacement: RawDoc<'_>) -> Result<()> {
    for element in replacement {
        let name = element.key();
        if name.starts_with('$') {
            return Err(Error::new(
                ErrorCode::DOLLAR_PREFIXED_FIELD_NAME,
                format!(
                    "the dollar ($) prefixed field '{name}' is not allowed in the context of an update's replacement document; use operators alone, or a pipeline with $replaceWith"
                ),
            ));
        }
    }
    if let Some(id) = replacement.get("_id") {
        document_rules::check_id(id)?;
    }
    document_rules::check_depth(replacement)
}

/// The replacement with the `_id` of `old` as the first field, and the top-level fields that
/// differ.
///
/// Errors: ImmutableField if the replacement has a different `_id`.
pub(super) fn apply(
    replacement: RawDoc<'_>,
    old: RawDoc<'_>,
    context: &ApplyContext,
) -> Result<(DocBuf, ModifiedPaths)> {
    let mut out = DocBuilder::with_vec(Vec::with_capacity(replacement.len_bytes() + 32));
    match (old.get_element("_id"), replacement.get_element("_id")) {
        (Some(old), new) => {
            if let Some(new) = new {
                document_rules::check_same_id(old.value(), new.value())?;
            }
            out.append_raw_element(old);
        }
        (None, Some(new)) => {
            out.append_raw_element(new);
        }
        (None, None) => {}
    }
    for element in replacement.iter().filter(|e| e.key_bytes() != b"_id") {
        append_stamped(&mut out, element, context);
    }
    let new = out.finish();
    let modified = differences(old, new.as_raw());
    Ok((new, modified))
}

/// Copies an element; replaces a zero timestamp by the current one.
pub(super) fn append_stamped(
    out: &mut DocBuilder,
    element: RawElement<'_>,
    context: &ApplyContext,
) {
    match element.value() {
        RawValue::Timestamp(Timestamp {
            time: 0,
            increment: 0,
        }) if !context.keeps_empty_timestamps => {
            out.append(element.key(), context.timestamp);
        }
        _ => {
            out.append_raw_element(element);
        }
    }
}

/// The name and the bytes of an element.
type Field<'d> = (&'d [u8], &'d [u8]);

/// The top-level fields, sorted by name.
fn fields(doc: RawDoc<'_>) -> Vec<Field<'_>> {
    let mut fields: Vec<_> = doc.iter().map(|e| (e.key_bytes(), e.as_bytes())).collect();
    fields.sort_unstable();
    fields
}

/// The top-level fields whose values differ. If only the order of fields differs, the result has at
/// least one field, because the bytes of the documents differ.
pub(super) fn differences(old: RawDoc<'_>, new: RawDoc<'_>) -> ModifiedPaths {
    let mut modified = ModifiedPaths::default();
    if old.as_bytes() == new.as_bytes() {
        return modified;
    }
    let (old_fields, new_fields) = (fields(old), fields(new));
    let mut add = |from: &[Field<'_>], other: &[Field<'_>]| {
        for field in from {
            if other.binary_search(field).is_err() {
                modified.add(&String::from_utf8_lossy(field.0));
            }
        }
    };
    add(&old_fields, &new_fields);
    add(&new_fields, &old_fields);
    if modified.is_empty()
        && let Some(first) = new.first()
    {
        modified.add(first.key());
    }
    modified
}
