//! The shape of an expression and of a projection: operators, fields and variables.

use sheaf_bson::{DocBuilder, RawArray, RawDoc, RawValue};

use super::{filter, literal};

/// Appends an expression.
pub(super) fn append(key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
    match value {
        RawValue::String(path) if path.starts_with('$') => {
            out.append(key, path);
        }
        RawValue::Array(list) => append_list(key, list, out),
        RawValue::Document(doc) => append_document(key, doc, out),
        constant => literal::append(key, constant, out),
    }
}

fn append_list(key: &str, list: RawArray<'_>, out: &mut DocBuilder) {
    // The number of constants in a list is not part of the shape.
    if list.iter().all(is_constant) {
        return literal::append(key, RawValue::Array(list), out);
    }
    out.begin_array(key);
    for (at, element) in list.iter().enumerate() {
        append(&at.to_string(), element, out);
    }
    out.end();
}

fn is_constant(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => !text.starts_with('$'),
        RawValue::Document(_) | RawValue::Array(_) => false,
        _ => true,
    }
}

fn append_document(key: &str, doc: RawDoc<'_>, out: &mut DocBuilder) {
    match doc.first() {
        Some(first) if first.key() == "$literal" => literal::append(key, first.value(), out),
        _ => {
            out.begin_document(key);
            for element in doc.iter() {
                match element.value() {
                    // In these places a string is the name of a variable or field, not a constant.
                    RawValue::String(name) if is_name(element.key()) => {
                        out.append(element.key(), name);
                    }
                    value => append(element.key(), value, out),
                }
            }
            out.end();
        }
    }
}

/// Whether a string under this key is a name.
fn is_name(key: &str) -> bool {
    matches!(key, "as" | "field" | "$getField" | "$meta" | "unit")
}

/// Appends a projection: its fields, and the expressions of computed fields.
pub(super) fn append_projection(key: &str, projection: RawDoc<'_>, out: &mut DocBuilder) {
    out.begin_document(key);
    for element in projection.iter() {
        let name = element.key();
        match element.value() {
            value if value.is_number() || matches!(value, RawValue::Boolean(_)) => {
                out.append(name, value.is_truthy());
            }
            RawValue::Document(doc) => append_projected(name, doc, out),
            value => append(name, value, out),
        }
    }
    out.end();
}

fn append_projected(name: &str, doc: RawDoc<'_>, out: &mut DocBuilder) {
    match doc.first().map(|first| (first.key(), first.value())) {
        Some(("$elemMatch", RawValue::Document(operand))) => {
            out.begin_document(name);
            out.begin_document("$elemMatch");
            filter::append(operand, out);
            out.end();
            out.end();
        }
        Some((operator, _)) if operator.starts_with('$') => append_document(name, doc, out),
        _ => append_projection(name, doc, out),
    }
}
