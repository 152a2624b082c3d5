//! The shape of a filter: paths and operators, with constants replaced by their types.
//!
//! Equality is written as `$eq`, and several predicates as one `$and`, so that different notations
//! of a filter have the same shape.

use sheaf_bson::{DocBuilder, RawDoc, RawElement, RawValue};

use super::{expression, literal};

/// Appends the predicates of a filter to the open document.
pub(super) fn append(filter: RawDoc<'_>, out: &mut DocBuilder) {
    if filter.iter().map(predicates).sum::<usize>() == 1 {
        for element in filter.iter() {
            append_element(element, false, out);
        }
        return;
    }
    if filter.is_empty() {
        return;
    }
    out.begin_array("$and");
    for element in filter.iter() {
        append_element(element, true, out);
    }
    out.end();
}

/// Number of predicates in an element of a filter.
fn predicates(element: RawElement<'_>) -> usize {
    match (element.key(), element.value()) {
        ("$comment", _) => 0,
        (key, RawValue::Document(doc)) if !key.starts_with('$') && has_operators(doc) => {
            doc.iter().filter(|part| part.key() != "$options").count()
        }
        _ => 1,
    }
}

/// Whether the operand of a path contains operators. A DBRef is a constant.
fn has_operators(doc: RawDoc<'_>) -> bool {
    doc.first().is_some_and(|first| {
        first.key().starts_with('$') && !matches!(first.key(), "$ref" | "$id" | "$db")
    })
}

/// Appends the predicates of an element, each as a separate document if `in_array`.
fn append_element(element: RawElement<'_>, in_array: bool, out: &mut DocBuilder) {
    let mut each = |write: &dyn Fn(&mut DocBuilder)| {
        if in_array {
            out.push_begin_document();
        }
        write(out);
        if in_array {
            out.end();
        }
    };
    let (key, value) = (element.key(), element.value());
    if key == "$comment" {
        return;
    }
    if key.starts_with('$') {
        return each(&|out| append_logical(key, value, out));
    }
    match value {
        RawValue::Document(operators) if has_operators(operators) => {
            let options = operators.get("$options").is_some();
            for operator in operators.iter().filter(|part| part.key() != "$options") {
                each(&|out| {
                    out.begin_document(key);
                    append_operator(operator, out);
                    if options && operator.key() == "$regex" {
                        out.append("$options", "?string");
                    }
                    out.end();
                });
            }
        }
        value => each(&|out| {
            out.begin_document(key);
            append_equality(value, out);
            out.end();
        }),
    }
}

/// Appends a top-level operator: `$and`, `$expr`, ...
fn append_logical(name: &str, value: RawValue<'_>, out: &mut DocBuilder) {
    match (name, value) {
        ("$and" | "$or" | "$nor", RawValue::Array(filters)) => {
            out.begin_array(name);
            for filter in filters.iter().filter_map(|value| value.as_document()) {
                out.push_begin_document();
                append(filter, out);
                out.end();
            }
            out.end();
        }
        ("$expr", value) => expression::append(name, value, out),
        (_, value) => literal::append(name, value, out),
    }
}

/// Appends an equality or a regular expression.
fn append_equality(value: RawValue<'_>, out: &mut DocBuilder) {
    match value {
        RawValue::Regex { options, .. } => {
            out.append("$regex", "?string");
            if !options.is_empty() {
                out.append("$options", "?string");
            }
        }
        value => literal::append("$eq", value, out),
    }
}

fn append_operator(operator: RawElement<'_>, out: &mut DocBuilder) {
    match (operator.key(), operator.value()) {
        ("$not", RawValue::Document(operators)) => {
            out.begin_document("$not");
            operators.iter().for_each(|part| append_operator(part, out));
            out.end();
        }
        ("$not", pattern) => {
            out.begin_document("$not");
            append_equality(pattern, out);
            out.end();
        }
        ("$elemMatch", RawValue::Document(operand)) => {
            out.begin_document("$elemMatch");
            if is_of_values(operand) {
                operand.iter().for_each(|part| append_operator(part, out));
            } else {
                append(operand, out);
            }
            out.end();
        }
        ("$all", RawValue::Array(values)) => {
            out.begin_array("$all");
            for value in values {
                match value {
                    RawValue::Document(doc) if has_operators(doc) => {
                        out.push_begin_document();
                        doc.iter().for_each(|part| append_operator(part, out));
                        out.end();
                    }
                    value => {
                        out.push_begin_document();
                        append_equality(value, out);
                        out.end();
                    }
                }
            }
            out.end();
        }
        ("$regex", _) => {
            out.append("$regex", "?string");
        }
        // The requested types are part of the shape, not constants.
        ("$type", value) => {
            out.append("$type", value);
        }
        (name, value) => literal::append(name, value, out),
    }
}

/// Whether an `$elemMatch` tests values (`{$gt: 1}`) rather than documents.
fn is_of_values(operand: RawDoc<'_>) -> bool {
    has_operators(operand)
        && operand
            .first()
            .is_some_and(|first| !matches!(first.key(), "$and" | "$or" | "$nor" | "$expr"))
}
