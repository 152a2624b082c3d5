//! Operands that are documents with named arguments, of operators and of accumulators.

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawDoc, RawValue};

use crate::location::location;

/// The operand as a document of known fields. Errors: it is none (`not_object`), it has another
/// field (`unknown`).
pub(crate) fn document<'a>(
    name: &str,
    operand: RawValue<'a>,
    known: &[&str],
    not_object: i32,
    unknown: i32,
) -> Result<RawDoc<'a>> {
    let RawValue::Document(doc) = operand else {
        return Err(location(
            not_object,
            format!(
                "the specification of {name} must be an object, not {}",
                operand.type_name()
            ),
        ));
    };
    match doc.iter().find(|e| !known.contains(&e.key())) {
        Some(e) => Err(location(
            unknown,
            format!("Unknown argument '{}' for {name}", e.key()),
        )),
        None => Ok(doc),
    }
}

/// A field of such a document. Errors (`code`): it is missing.
pub(crate) fn required<'a>(
    name: &str,
    doc: RawDoc<'a>,
    field: &str,
    code: i32,
) -> Result<RawValue<'a>> {
    doc.get(field)
        .ok_or_else(|| location(code, format!("Missing value for '{field}' of {name}")))
}
