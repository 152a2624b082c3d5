//! `changeStreamPreAndPostImages`: whether the oplog stores the document before each change.

use sheaf_bson::fields::{missing_field, unknown_field, wrong_type};
use sheaf_bson::{DocBuilder, RawDoc, RawValue, Result};

/// Name of the option.
pub(crate) const NAME: &str = "changeStreamPreAndPostImages";

/// Parses `{enabled}`, from `create`, `collMod` or a catalog row.
/// Errors: `TypeMismatch`, `IDLUnknownField`, `IDLFailedToParse`.
pub(crate) fn parse(value: RawValue<'_>) -> Result<bool> {
    let RawValue::Document(spec) = value else {
        return Err(wrong_type(NAME, value, "object"));
    };
    enabled(spec)
}

fn enabled(spec: RawDoc<'_>) -> Result<bool> {
    let mut enabled = None;
    for element in spec {
        match (element.key(), element.value()) {
            ("enabled", RawValue::Boolean(value)) => enabled = Some(value),
            ("enabled", RawValue::Null | RawValue::Undefined) => {}
            ("enabled", value) => {
                return Err(wrong_type(format_args!("{NAME}.enabled"), value, "bool"));
            }
            (other, _) => {
                return Err(unknown_field(format_args!("{NAME}.{other}")));
            }
        }
    }
    enabled.ok_or_else(|| missing_field(format_args!("{NAME}.enabled")))
}

/// Appends the option as `listCollections` shows it.
pub(super) fn append(out: &mut DocBuilder) {
    out.begin_document(NAME);
    out.append("enabled", true);
    out.end();
}
