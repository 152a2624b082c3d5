//! Updates with one operator on one path.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};

use super::{compare, matches};

/// The result of an update of one document.
#[derive(Debug, Clone, PartialEq)]
pub enum Updated {
    /// The server must reject the update, or the model does not implement it.
    Refused,
    /// The updated document; the same bytes if nothing changes.
    To(DocBuf),
}

/// What to do with the value at the end of the path.
enum Change {
    Refused,
    Keep,
    Remove,
    Set(Value),
}

/// Applies `{$operator: {path: argument}}`, where the operator is `$set`, `$unset`, `$inc`, `$push`
/// or `$pull`, and the path traverses only documents. Panics on other operators.
pub fn update(update: RawDoc<'_>, doc: RawDoc<'_>) -> Updated {
    let operator = update.first().expect("an operator");
    let paths = operator.value().as_document().expect("paths");
    let target = paths.first().expect("a path");
    let parts: Vec<&str> = target.key().split('.').collect();
    let change = |old: Option<RawValue<'_>>| changed(operator.key(), target.value(), old);
    match at(doc, &parts, &change) {
        Some(doc) => Updated::To(doc),
        None => Updated::Refused,
    }
}

/// Changes the value at `parts`; `None` if the update is rejected.
fn at(
    doc: RawDoc<'_>,
    parts: &[&str],
    change: &dyn Fn(Option<RawValue<'_>>) -> Change,
) -> Option<DocBuf> {
    let below = |old: Option<RawValue<'_>>| match (&parts[1..], old) {
        ([], old) => change(old),
        (rest, None) => match at(RawDoc::EMPTY, rest, change) {
            // If nothing was set, no parent is created.
            Some(made) if made.is_empty() => Change::Keep,
            Some(made) => Change::Set(Value::Document(made)),
            None => Change::Refused,
        },
        (rest, Some(RawValue::Document(inner))) => match at(inner, rest, change) {
            Some(made) => Change::Set(Value::Document(made)),
            None => Change::Refused,
        },
        // Through an array, or into a value without fields.
        (_, Some(_)) => Change::Refused,
    };
    let mut out = DocBuilder::new();
    let mut met = false;
    for element in doc {
        if element.key() != parts[0] {
            out.append_raw_element(element);
            continue;
        }
        met = true;
        match below(Some(element.value())) {
            Change::Refused => return None,
            Change::Keep => drop(out.append_raw_element(element)),
            Change::Remove => {}
            Change::Set(value) => drop(out.append_value(element.key(), &value)),
        }
    }
    if !met {
        match below(None) {
            Change::Refused => return None,
            Change::Keep | Change::Remove => {}
            Change::Set(value) => drop(out.append_value(parts[0], &value)),
        }
    }
    Some(out.finish())
}

fn changed(operator: &str, argument: RawValue<'_>, old: Option<RawValue<'_>>) -> Change {
    match (operator, old) {
        ("$set", _) => Change::Set(argument.to_value()),
        ("$unset", _) => Change::Remove,
        ("$inc", None) => Change::Set(argument.to_value()),
        ("$inc", Some(old)) => match (old, argument) {
            (RawValue::Int32(a), RawValue::Int32(b)) => Change::Set(Value::Int32(a + b)),
            (RawValue::Int64(a), RawValue::Int32(b)) => Change::Set(Value::Int64(a + i64::from(b))),
            (RawValue::Double(a), RawValue::Int32(b)) if !a.is_nan() => {
                Change::Set(Value::Double(a + f64::from(b)))
            }
            _ => Change::Refused,
        },
        ("$push", None) => Change::Set(Value::from(vec![argument.to_value()])),
        ("$push", Some(RawValue::Array(array))) => {
            let mut values: Vec<Value> = array.iter().map(RawValue::to_value).collect();
            values.push(argument.to_value());
            Change::Set(Value::from(values))
        }
        ("$pull", None) => Change::Keep,
        ("$pull", Some(RawValue::Array(array))) => {
            let kept = array.iter().filter(|element| !pulled(argument, *element));
            Change::Set(Value::from(
                kept.map(RawValue::to_value).collect::<Vec<_>>(),
            ))
        }
        ("$push" | "$pull", Some(_)) => Change::Refused,
        (other, _) => panic!("the model does not implement {other}"),
    }
}

/// Whether `$pull` removes an element: it equals a value, or satisfies operators.
fn pulled(argument: RawValue<'_>, element: RawValue<'_>) -> bool {
    match argument {
        RawValue::Document(_) => {
            let wrapped = doc! {"v": [element.to_value()]};
            matches(
                doc! {"v": {"$elemMatch": argument}}.as_raw(),
                wrapped.as_raw(),
            )
        }
        value => compare(element, value).is_eq(),
    }
}
