//! `$mergeObjects`, `$objectToArray`, `$arrayToObject`, `$getField`, `$setField`, `$unsetField`.

use std::collections::HashMap;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuilder, DocBuilder, RawArray, RawDoc, RawValue, Value};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::{Arity, Operator};
use super::parser::{Arguments, Parser};
use super::{Expression, budget, location};

/// Fields in the order of their first occurrence, each with its last value.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    fields: Vec<(String, Value)>,
    places: HashMap<String, usize>,
    bytes: usize,
}

impl Merged {
    /// Sets a field. An existing field keeps its position.
    pub(crate) fn set(&mut self, name: &str, value: RawValue<'_>) {
        match self.places.get(name) {
            Some(&at) => {
                let before = std::mem::replace(&mut self.fields[at].1, value.to_value());
                self.bytes -= field_bytes(name, before.as_raw());
                self.bytes += field_bytes(name, value);
            }
            None => {
                self.bytes += field_bytes(name, value);
                self.places.insert(name.to_owned(), self.fields.len());
                self.fields.push((name.to_owned(), value.to_value()));
            }
        }
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets all fields of a document.
    pub(crate) fn merge(&mut self, doc: RawDoc<'_>) {
        for element in doc {
            self.set(element.key(), element.value());
        }
    }

    pub(crate) fn finish(self) -> sheaf_bson::DocBuf {
        let mut out = DocBuilder::new();
        for (name, value) in &self.fields {
            out.append(name, value);
        }
        out.finish()
    }
}

/// Approximate memory of a field in bytes: its value, and its name twice.
fn field_bytes(name: &str, value: RawValue<'_>) -> usize {
    2 * name.len() + 128 + budget::raw_bytes(value)
}

/// Merges all operands into one document; null and missing are ignored. A single array operand
/// contributes its elements instead.
pub(super) fn merge_objects<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut merged = Merged::default();
    // Counts all input, including overwritten fields: an upper bound.
    let bytes = std::cell::Cell::new(0);
    let mut add = |raw: RawValue<'_>| match raw {
        RawValue::Null | RawValue::Undefined => Ok(()),
        RawValue::Document(doc) => {
            bytes.set(bytes.get() + doc.len_bytes());
            merged.merge(doc);
            budget::check_value(bytes.get())
        }
        other => Err(operator.error(
            40400,
            format_args!(
                "requires object inputs, but input {} is of type {}",
                sheaf_bson::json::shell(other),
                other.type_name()
            ),
        )),
    };
    for arg in args {
        match arg.evaluate(ctx.holding(bytes.get())?)?.as_raw() {
            None => {}
            Some(RawValue::Array(array)) if args.len() == 1 => {
                array.iter().try_for_each(&mut add)?
            }
            Some(raw) => add(raw)?,
        }
    }
    Ok(Value::Document(merged.finish()).into())
}

/// Converts `{a: 1}` to `[{k: "a", v: 1}]`.
pub(super) fn object_to_array<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    match value.non_null() {
        None => Ok(EvalValue::NULL),
        Some(RawValue::Document(doc)) => {
            let mut out = ArrayBuilder::new();
            for element in doc {
                budget::check_value(out.current_len())?;
                let mut pair = DocBuilder::new();
                pair.append("k", element.key());
                pair.append_renamed("v", element);
                out.push_document_bytes(pair.finish().as_bytes());
            }
            Ok(Value::Array(out.finish()).into())
        }
        Some(other) => Err(operator.error(
            40390,
            format_args!(
                "requires a document as its input, found: {}",
                other.type_name()
            ),
        )),
    }
}

/// The inverse of `$objectToArray`; also accepts `[[k, v], ...]`. The first element determines the
/// form.
pub(super) fn array_to_object<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    let array = match value.non_null() {
        None => return Ok(EvalValue::NULL),
        Some(RawValue::Array(array)) => array,
        Some(other) => {
            return Err(operator.error(
                40386,
                format_args!(
                    "requires an array as its input, found: {}",
                    other.type_name()
                ),
            ));
        }
    };
    let mut merged = Merged::default();
    let pairs = match array.iter().next() {
        None => false,
        Some(RawValue::Array(_)) => true,
        Some(RawValue::Document(_)) => false,
        Some(other) => {
            return Err(operator.error(
                40398,
                format_args!(
                    "takes arrays of two or documents of k and v, found: {}",
                    other.type_name()
                ),
            ));
        }
    };
    for element in array {
        let (key, value) = match element {
            RawValue::Array(pair) if pairs => two(operator, pair)?,
            RawValue::Document(doc) if !pairs => key_and_value(operator, doc)?,
            other => {
                return Err(operator.error(
                    if pairs { 40396 } else { 40391 },
                    format_args!(
                        "takes elements of one form: the first is {}, another is of type {}",
                        if pairs { "an array" } else { "a document" },
                        other.type_name()
                    ),
                ));
            }
        };
        if key.contains('\0') {
            let code = if pairs { 4940400 } else { 4940401 };
            return Err(operator.error(code, "takes keys without a zero byte"));
        }
        merged.set(key, value);
    }
    Ok(Value::Document(merged.finish()).into())
}

fn two<'a>(operator: &'static Operator, pair: RawArray<'a>) -> Result<(&'a str, RawValue<'a>)> {
    let mut values = pair.iter();
    match (values.next(), values.next(), values.next()) {
        (Some(RawValue::String(key)), Some(value), None) => Ok((key, value)),
        (Some(other), Some(_), None) => Err(operator.error(
            40395,
            format_args!("takes strings as keys, found: {}", other.type_name()),
        )),
        _ => Err(operator.error(
            40397,
            format_args!("takes arrays of exactly two, found: {}", pair.count()),
        )),
    }
}

fn key_and_value<'a>(
    operator: &'static Operator,
    doc: RawDoc<'a>,
) -> Result<(&'a str, RawValue<'a>)> {
    let count = doc.iter().count();
    if count != 2 {
        return Err(operator.error(
            40392,
            format_args!("takes documents of exactly the fields k and v, found: {count} fields"),
        ));
    }
    match (doc.get("k"), doc.get("v")) {
        (Some(RawValue::String(key)), Some(value)) => Ok((key, value)),
        (Some(other), Some(_)) => Err(operator.error(
            40394,
            format_args!("takes strings as keys, found: {}", other.type_name()),
        )),
        _ => Err(operator.error(40393, "takes documents of exactly the fields k and v")),
    }
}

/// Whether an operand is a value as it is written: no path, no document or array of expressions, no
/// operator other than `$literal`.
fn is_literal(operand: RawValue<'_>) -> bool {
    match operand {
        RawValue::String(text) => !text.starts_with('$'),
        RawValue::Array(_) => false,
        RawValue::Document(doc) => doc
            .first()
            .is_none_or(|e| matches!(e.key(), "$literal" | "$const")),
        _ => true,
    }
}

static GET_FIELD: Operator = Operator {
    name: "$getField",
    arity: Arity::Exactly(2),
    eval: get_field,
};

/// `{$getField: "name"}` or `{$getField: {field, input}}`. The name is literal: dots and dollars in
/// it have no meaning.
pub(super) fn parse_get_field(
    parser: &mut Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let root = RawValue::String("$$CURRENT");
    let (field, input) = match operand {
        RawValue::Document(doc) if doc.first().is_none_or(|e| !e.key().starts_with('$')) => {
            for element in doc {
                if !matches!(element.key(), "field" | "input") {
                    return Err(location(
                        3041701,
                        format!("$getField found an unknown argument: '{}'", element.key()),
                    ));
                }
            }
            let field = doc
                .get("field")
                .ok_or_else(|| location(3041702, "$getField requires 'field' to be specified"))?;
            let input = doc
                .get("input")
                .ok_or_else(|| location(3041703, "$getField requires 'input' to be specified"))?;
            (field, input)
        }
        other => (other, root),
    };
    let literal = is_literal(field);
    let field = parser.operand(field)?;
    let input = parser.operand(input)?;
    match field.as_constant() {
        // A computed name is checked at evaluation.
        Some(other) if literal && other.is_none_or(|v| v.as_str().is_none()) => {
            let found = other.map_or("missing", |v| v.type_name());
            return Err(location(
                5654602,
                format!("$getField requires 'field' to evaluate to a String, found: {found}"),
            ));
        }
        _ => {}
    }
    Ok(Expression::Call {
        operator: &GET_FIELD,
        args: vec![field, input],
    })
}

fn get_field<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (field, input) = pair(args, ctx)?;
    let Some(name) = field.as_raw().and_then(|f| f.as_str()) else {
        return Err(operator.error(
            3041704,
            format_args!(
                "requires 'field' to evaluate to a String, found: {}",
                field.type_name()
            ),
        ));
    };
    Ok(match input {
        EvalValue::Raw(RawValue::Document(doc)) => doc.get(name).into(),
        EvalValue::Owned(Value::Document(doc)) => match doc.get(name) {
            Some(found) => EvalValue::Owned(found.to_value()),
            None => EvalValue::Missing,
        },
        EvalValue::Raw(RawValue::Null | RawValue::Undefined)
        | EvalValue::Owned(Value::Null | Value::Undefined) => EvalValue::NULL,
        _ => EvalValue::Missing,
    })
}

static SET_FIELD: Operator = Operator {
    name: "$setField",
    arity: Arity::Exactly(3),
    eval: set_field,
};

/// `{field, input, value}`. The name is literal: dots and dollars in it have no meaning. A missing
/// value (`$$REMOVE`) removes the field.
pub(super) fn parse_set_field(
    parser: &mut Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let args = Arguments::new(
        "$setField",
        operand,
        &["field", "input", "value"],
        4161100,
        4161101,
    )?;
    args.required("field", 4161102)?;
    let value = parser.operand(args.required("value", 4161103)?)?;
    set_field_call(parser, "$setField", &args, value)
}

/// `{field, input}`.
pub(super) fn parse_unset_field(
    parser: &mut Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let args = Arguments::new(
        "$unsetField",
        operand,
        &["field", "input"],
        4161100,
        4161101,
    )?;
    set_field_call(parser, "$unsetField", &args, Expression::Constant(None))
}

fn set_field_call(
    parser: &mut Parser<'_>,
    name: &str,
    args: &Arguments<'_>,
    value: Expression,
) -> Result<Expression> {
    let field = args.required("field", 4161102)?;
    let input = args.required("input", 4161109)?;
    if matches!(field, RawValue::String(text) if text.starts_with('$')) {
        return Err(location(
            4161108,
            format!("{name} requires 'field' to be a constant string, not a path; see $literal"),
        ));
    }
    if !is_literal(field) {
        return Err(location(
            4161106,
            format!("{name} requires 'field' to evaluate to a constant"),
        ));
    }
    let field = parser.operand(field)?;
    let constant = field.as_constant().flatten();
    match constant.and_then(|v| v.as_str()) {
        Some(text) if text.contains('\0') => {
            return Err(location(
                9534700,
                format!("{name}: 'field' must not contain a zero byte"),
            ));
        }
        Some(_) => {}
        None => {
            let found = constant.map_or("missing", |v| v.type_name());
            return Err(location(
                4161107,
                format!("{name} requires 'field' to evaluate to type String, but got {found}"),
            ));
        }
    }
    let input = parser.operand(input)?;
    Ok(Expression::Call {
        operator: &SET_FIELD,
        args: vec![field, input, value],
    })
}

fn set_field<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (field, input) = pair(args, ctx)?;
    let ctx = ctx.holding(budget::heap_bytes(&input))?;
    let Some(doc) = input.non_null() else {
        return Ok(EvalValue::NULL);
    };
    let RawValue::Document(doc) = doc else {
        return Err(operator.error(
            4161105,
            format_args!(
                "requires 'input' to evaluate to type Object, but got {}",
                doc.type_name()
            ),
        ));
    };
    let name = field.as_raw().and_then(|f| f.as_str()).unwrap_or("");
    let value = args[2].evaluate(ctx)?;
    let mut out = DocBuilder::new();
    let mut there = false;
    for element in doc {
        if element.key() != name {
            out.append_raw_element(element);
        } else if let Some(value) = value.as_raw() {
            out.append(name, value);
            there = true;
        }
    }
    if let Some(value) = value.as_raw()
        && !there
    {
        out.append(name, value);
    }
    budget::check_value(out.current_len())?;
    Ok(Value::Document(out.finish()).into())
}
