//! Whether a document matches a filter.
//!
//! An operator is evaluated on the list of values that its path reaches; inside `$elemMatch` over
//! values it is evaluated on the single element.
//!
//! Of `$expr`, the model implements comparisons of a field with a constant, and their `$and` and
//! `$or`.
//!
//! Panics on filters that the generators never produce (other expressions, geometry, text search,
//! other regular expressions): a test with such a filter would prove nothing.

use std::cmp::Ordering;

use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value};

use super::compare;

use super::paths::{Leaf, reached};

/// Whether `doc` matches `filter`.
pub fn matches(filter: RawDoc<'_>, doc: RawDoc<'_>) -> bool {
    filter.iter().all(|element| {
        let argument = element.value();
        match element.key() {
            "$and" => clauses(argument).all(|clause| matches(clause, doc)),
            "$or" => clauses(argument).any(|clause| matches(clause, doc)),
            "$nor" => !clauses(argument).any(|clause| matches(clause, doc)),
            "$comment" => true,
            "$expr" => expression(argument, doc),
            path => predicate(argument, &|leaf| reached(doc, path, leaf)),
        }
    })
}

/// Evaluates `{$op: ["$path", constant]}` in the total order of values, where a missing value sorts
/// below everything but MinKey.
fn expression(operators: RawValue<'_>, doc: RawDoc<'_>) -> bool {
    let call = operators.as_document().expect("an expression");
    let call = call.first().expect("an operator");
    let mut operands = call.value().as_array().expect("operands").iter();
    match call.key() {
        "$and" => return operands.all(|operand| expression(operand, doc)),
        "$or" => return operands.any(|operand| expression(operand, doc)),
        _ => {}
    }
    let (Some(RawValue::String(path)), Some(RawValue::Document(literal))) =
        (operands.next(), operands.next())
    else {
        panic!("a path and a literal");
    };
    let constant = literal.get("$literal").expect("a literal");
    let path: Vec<&str> = path.trim_start_matches('$').split('.').collect();
    let order = match value_at(doc, &path) {
        None if constant == RawValue::MinKey => Ordering::Greater,
        None => Ordering::Less,
        Some(value) => compare(value.as_raw(), constant),
    };
    match call.key() {
        "$eq" => order.is_eq(),
        "$ne" => order.is_ne(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        "$lte" => order.is_le(),
        other => panic!("the model does not implement the expression {other}"),
    }
}

/// The value of an expression's path: an array on the path is replaced by the array of the values
/// in its documents.
fn value_at(doc: RawDoc<'_>, path: &[&str]) -> Option<Value> {
    let found = doc.get(path[0])?;
    let below = &path[1..];
    if below.is_empty() {
        return Some(found.to_value());
    }
    match found {
        RawValue::Document(inner) => value_at(inner, below),
        RawValue::Array(array) => {
            let documents = array.iter().filter_map(|element| element.as_document());
            let values: Vec<Value> = documents.filter_map(|d| value_at(d, below)).collect();
            Some(Value::Array(ArrayBuf::from_values(&values)))
        }
        _ => None,
    }
}

fn clauses(list: RawValue<'_>) -> impl Iterator<Item = RawDoc<'_>> {
    let list = list.as_array().expect("an array of filters");
    list.iter()
        .map(|clause| clause.as_document().expect("a filter"))
}

/// Returns the values on which a predicate is evaluated.
type Reach<'r, 'd> = &'r dyn Fn(Leaf) -> Vec<Option<RawValue<'d>>>;

/// Evaluates the argument of a path: a document of operators, or a value for equality.
fn predicate(argument: RawValue<'_>, reach: Reach<'_, '_>) -> bool {
    match argument {
        RawValue::Document(operators) if is_operators(operators) => all_hold(operators, reach),
        RawValue::Regex { .. } => operator("$regex", argument, reach),
        value => operator("$eq", value, reach),
    }
}

fn is_operators(doc: RawDoc<'_>) -> bool {
    doc.first()
        .is_some_and(|first| first.key().starts_with('$'))
}

fn all_hold(operators: RawDoc<'_>, reach: Reach<'_, '_>) -> bool {
    operators
        .iter()
        .all(|element| operator(element.key(), element.value(), reach))
}

fn operator(name: &str, argument: RawValue<'_>, reach: Reach<'_, '_>) -> bool {
    let any = |leaf, test: &dyn Fn(Option<RawValue<'_>>) -> bool| reach(leaf).into_iter().any(test);
    let list = || argument.as_array().expect("an array").iter();
    match name {
        "$eq" => any(Leaf::Entered, &|v| equal(v, argument)),
        "$ne" => !operator("$eq", argument, reach),
        "$gt" => any(Leaf::Entered, &|v| {
            ordered(v, argument, &[Ordering::Greater])
        }),
        "$gte" => any(Leaf::Entered, &|v| {
            ordered(v, argument, &[Ordering::Greater, Ordering::Equal])
        }),
        "$lt" => any(Leaf::Entered, &|v| ordered(v, argument, &[Ordering::Less])),
        "$lte" => any(Leaf::Entered, &|v| {
            ordered(v, argument, &[Ordering::Less, Ordering::Equal])
        }),
        "$in" => list().any(|one| match one {
            RawValue::Regex { .. } => operator("$regex", one, reach),
            value => operator("$eq", value, reach),
        }),
        "$nin" => !operator("$in", argument, reach),
        "$all" => {
            list().next().is_some()
                && list().all(|one| match one {
                    RawValue::Regex { .. } => operator("$regex", one, reach),
                    RawValue::Document(doc) if doc.get("$elemMatch").is_some() => {
                        all_hold(doc, reach)
                    }
                    value => operator("$eq", value, reach),
                })
        }
        "$not" => !match argument {
            RawValue::Document(operators) => all_hold(operators, reach),
            regex => operator("$regex", regex, reach),
        },
        "$exists" => any(Leaf::Whole, &|v| v.is_some()) == argument.is_truthy(),
        "$type" => any(Leaf::Entered, &|v| {
            v.is_some_and(|v| is_of_type(v, argument))
        }),
        "$size" => any(Leaf::Whole, &|v| match v {
            Some(RawValue::Array(array)) => Some(array.count() as i64) == argument.as_i64_exact(),
            _ => false,
        }),
        "$mod" => {
            let numbers: Vec<i64> = list()
                .map(|n| n.as_i64_exact().expect("a number"))
                .collect();
            any(Leaf::Entered, &|v| {
                truncated(v).is_some_and(|v| v % numbers[0] == numbers[1])
            })
        }
        "$regex" => any(Leaf::Entered, &|v| regex(v, argument)),
        "$elemMatch" => {
            let condition = argument.as_document().expect("a condition");
            any(Leaf::Whole, &|v| match v {
                Some(RawValue::Array(array)) => array.iter().any(|e| element_matches(condition, e)),
                _ => false,
            })
        }
        "$bitsAllSet" => any(Leaf::Entered, &|v| bits(v, argument, |set, of| set == of)),
        "$bitsAllClear" => any(Leaf::Entered, &|v| bits(v, argument, |set, _| set == 0)),
        "$bitsAnySet" => any(Leaf::Entered, &|v| bits(v, argument, |set, _| set > 0)),
        "$bitsAnyClear" => any(Leaf::Entered, &|v| bits(v, argument, |set, of| set < of)),
        other => panic!("the model does not implement {other}"),
    }
}

/// Operators are evaluated on the element itself. A filter is evaluated on it as a document, where
/// an array is a document with positions as names.
fn element_matches(condition: RawDoc<'_>, element: RawValue<'_>) -> bool {
    let logical = |name: &str| matches!(name, "$and" | "$or" | "$nor");
    let values = is_operators(condition) && !condition.first().is_some_and(|e| logical(e.key()));
    match element {
        _ if values => all_hold(condition, &|_| vec![Some(element)]),
        RawValue::Document(doc) => matches(condition, doc),
        RawValue::Array(array) => matches(condition, as_document(array).as_raw()),
        _ => false,
    }
}

fn as_document(array: RawArray<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    for (i, value) in array.iter().enumerate() {
        out.append(i.to_string(), value);
    }
    out.finish()
}

/// A missing field equals null. Undefined equals neither.
fn equal(stored: Option<RawValue<'_>>, wanted: RawValue<'_>) -> bool {
    compare(stored.unwrap_or(RawValue::Null), wanted).is_eq()
}

/// Compares only within a type bracket, except with MinKey and MaxKey. NaN equals NaN, and is
/// neither above nor below a number.
fn ordered(stored: Option<RawValue<'_>>, limit: RawValue<'_>, accepted: &[Ordering]) -> bool {
    let stored = stored.unwrap_or(RawValue::Null);
    let order = compare(stored, limit);
    match limit {
        RawValue::MinKey | RawValue::MaxKey => accepted.contains(&order),
        _ if bracket(stored) != bracket(limit) => false,
        _ if is_nan(stored) || is_nan(limit) => order.is_eq() && accepted.contains(&order),
        _ => accepted.contains(&order),
    }
}

/// The type bracket: types that compare with each other have the same one.
fn bracket(value: RawValue<'_>) -> &'static str {
    match value {
        v if v.is_number() => "number",
        RawValue::Symbol(_) => "string",
        v => v.type_name(),
    }
}

fn is_nan(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(x) => x.is_nan(),
        RawValue::Decimal128(d) => d.is_nan(),
        _ => false,
    }
}

fn is_of_type(value: RawValue<'_>, wanted: RawValue<'_>) -> bool {
    match wanted {
        RawValue::Array(list) => list.iter().any(|one| is_of_type(value, one)),
        RawValue::String("number") => value.is_number(),
        RawValue::String(name) => value.type_name() == name,
        number => {
            let code = value.element_type() as u8;
            let code = if code == 0xFF { -1 } else { i64::from(code) };
            number.as_i64_exact() == Some(code)
        }
    }
}

/// The number without its fraction; `None` if it is not a number that a 64-bit integer holds.
fn truncated(value: Option<RawValue<'_>>) -> Option<i64> {
    match value? {
        RawValue::Int32(n) => Some(n.into()),
        RawValue::Int64(n) => Some(n),
        RawValue::Double(x) => whole(x.trunc()),
        RawValue::Decimal128(d) if d.is_finite() => whole(d.to_f64().trunc()),
        _ => None,
    }
}

fn whole(x: f64) -> Option<i64> {
    (x.abs() < 1e15 && x.fract() == 0.0).then_some(x as i64)
}

/// Passes to `test` how many of the mask's bits are set in the value, and how many bits the mask
/// has. Only whole numbers and binary data have bits; a negative number is sign-extended
/// indefinitely.
fn bits(value: Option<RawValue<'_>>, mask: RawValue<'_>, test: fn(u32, u32) -> bool) -> bool {
    let mask = mask.as_i64_exact().expect("a mask") as u64;
    let bits = match value {
        Some(RawValue::Int32(n)) => i64::from(n) as u64,
        Some(RawValue::Int64(n)) => n as u64,
        Some(RawValue::Double(x)) => match whole(x) {
            Some(n) => n as u64,
            None => return false,
        },
        Some(RawValue::Decimal128(d)) if d.is_finite() => match whole(d.to_f64()) {
            Some(n) => n as u64,
            None => return false,
        },
        Some(RawValue::Binary { bytes, .. }) => {
            let mut eight = [0; 8];
            for (to, from) in eight.iter_mut().zip(bytes) {
                *to = *from;
            }
            u64::from_le_bytes(eight)
        }
        _ => return false,
    };
    test((bits & mask).count_ones(), mask.count_ones())
}

/// The five patterns of the generators, implemented by hand.
fn regex(value: Option<RawValue<'_>>, wanted: RawValue<'_>) -> bool {
    let RawValue::Regex { pattern, options } = wanted else {
        panic!("not a regular expression: {wanted:?}");
    };
    let text = match value {
        Some(RawValue::String(s) | RawValue::Symbol(s)) => s,
        Some(stored @ RawValue::Regex { .. }) => return compare(stored, wanted).is_eq(),
        _ => return false,
    };
    let text = match options.contains('i') {
        true => text.to_lowercase(),
        false => text.to_owned(),
    };
    match pattern {
        "^a" => text.starts_with('a'),
        "b$" => text.ends_with('b'),
        "a.?" => text.contains('a'),
        "^(a|b)$" => text == "a" || text == "b",
        "" => true,
        other => panic!("the model does not implement /{other}/"),
    }
}
