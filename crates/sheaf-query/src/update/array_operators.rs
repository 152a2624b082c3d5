//! `$push`, `$addToSet`, `$pop`, `$pull`, `$pullAll`.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::path::{FieldPath, get_path};
use sheaf_bson::{
    ArrayBuilder, Collator, RawArray, RawDoc, RawValue, Value, compare_values_with,
    values_equal_with,
};

use crate::expression::OrderedValue;
use crate::matcher::{self, MatchExpression, ParseContext};

use super::operator::{Change, NewValue, Operator, Place, set};

/// Maximum number of comparisons for which `$addToSet` compares all pairs; beyond it sorts.
const PAIRS_MAX: usize = 256;

/// `$push` with its modifiers.
#[derive(Debug, Clone)]
pub(super) struct Push {
    /// The values to insert, in order.
    pub(super) values: Vec<Value>,
    /// `$position`: negative counts from the end, `None` is the end.
    position: Option<i64>,
    /// `$sort`: the order of the whole array after the insertion.
    sort: Option<PushSort>,
    /// `$slice`: keep the first n elements, or the last -n if negative.
    slice: Option<i64>,
}

#[derive(Debug, Clone)]
enum PushSort {
    Whole { ascending: bool },
    Fields(Vec<(FieldPath, bool)>),
}

pub(super) fn parse_push(path: &str, value: RawValue<'_>, _: &ParseContext) -> Result<Operator> {
    let modifiers = match value {
        RawValue::Document(doc) if doc.get("$each").is_some() => doc,
        single => {
            return Ok(Operator::Push(Push {
                values: vec![single.to_value()],
                position: None,
                sort: None,
                slice: None,
            }));
        }
    };
    let mut push = Push {
        values: Vec::new(),
        position: None,
        sort: None,
        slice: None,
    };
    for element in modifiers {
        match element.key() {
            "$each" => push.values = each("$push", path, element.value())?,
            "$position" => push.position = Some(integer("$position", element.value())?),
            "$slice" => push.slice = Some(integer("$slice", element.value())?),
            "$sort" => push.sort = Some(parse_sort(element.value())?),
            other => {
                return Err(Error::bad_value(format!(
                    "unrecognized clause in $push of '{path}': {other}; known are $each, $position, $slice and $sort"
                )));
            }
        }
    }
    Ok(Operator::Push(push))
}

fn each(operator: &str, path: &str, value: RawValue<'_>) -> Result<Vec<Value>> {
    match value {
        RawValue::Array(array) => Ok(array.iter().map(RawValue::to_value).collect()),
        other => {
            // MongoDB has different codes for the two operators.
            let code = match operator {
                "$addToSet" => ErrorCode::TYPE_MISMATCH,
                _ => ErrorCode::BAD_VALUE,
            };
            Err(Error::new(
                code,
                format!(
                    "the argument to $each in {operator} of '{path}' must be an array but it was of type {}",
                    other.type_name()
                ),
            ))
        }
    }
}

fn integer(clause: &str, value: RawValue<'_>) -> Result<i64> {
    value.as_i64_exact().ok_or_else(|| {
        Error::bad_value(format!(
            "the value for {clause} in $push must be an integer, not {} of type {}",
            shell(value),
            value.type_name()
        ))
    })
}

fn parse_sort(value: RawValue<'_>) -> Result<PushSort> {
    let direction = |value: RawValue<'_>| match value.as_i64_exact() {
        Some(1) => Some(true),
        Some(-1) => Some(false),
        _ => None,
    };
    let refuse = |why: &str| {
        Err(Error::bad_value(format!(
            "the $sort in $push is invalid: {why}; use 1 or -1 to sort by whole elements, {{field: 1}} or {{field: -1}} to sort by fields"
        )))
    };
    match value {
        RawValue::Document(pattern) => {
            let mut fields = Vec::new();
            for element in pattern {
                let Some(ascending) = direction(element.value()) else {
                    return refuse("the direction of a field must be 1 or -1");
                };
                match FieldPath::parse(element.key()) {
                    Ok(path) => fields.push((path, ascending)),
                    Err(e) => return refuse(e.message()),
                }
            }
            if fields.is_empty() {
                return refuse("the pattern is empty");
            }
            Ok(PushSort::Fields(fields))
        }
        number if number.is_number() => match direction(number) {
            Some(ascending) => Ok(PushSort::Whole { ascending }),
            None => refuse("a number must be 1 or -1"),
        },
        other => refuse(&format!("it is of type {}", other.type_name())),
    }
}

impl PushSort {
    fn compare(&self, a: RawValue<'_>, b: RawValue<'_>, collator: Option<&Collator>) -> Ordering {
        let directed = |order: Ordering, ascending: bool| {
            if ascending { order } else { order.reverse() }
        };
        match self {
            PushSort::Whole { ascending } => {
                directed(compare_values_with(a, b, collator), *ascending)
            }
            PushSort::Fields(fields) => {
                for (path, ascending) in fields {
                    let order =
                        compare_values_with(sort_field(a, path), sort_field(b, path), collator);
                    if order.is_ne() {
                        return directed(order, *ascending);
                    }
                }
                Ordering::Equal
            }
        }
    }
}

/// The value by which an element sorts; null if the field is missing or the element is not a
/// document.
fn sort_field<'a>(element: RawValue<'a>, path: &FieldPath) -> RawValue<'a> {
    match element {
        RawValue::Document(doc) => get_path(doc, path).unwrap_or(RawValue::Null),
        _ => RawValue::Null,
    }
}

/// The existing array; `None` if the field is missing. Errors: the value is not an array.
fn existing_array<'a>(
    operator: &str,
    existing: Option<RawValue<'a>>,
    place: &Place<'_>,
) -> Result<Option<RawArray<'a>>> {
    match existing {
        None => Ok(None),
        Some(RawValue::Array(array)) => Ok(Some(array)),
        Some(other) => Err(Error::bad_value(format!(
            "{operator}: the field '{}' must be an array but is of type {} in {}",
            place.path,
            other.type_name(),
            place.document()
        ))),
    }
}

fn collect<'a>(values: impl IntoIterator<Item = RawValue<'a>>) -> NewValue<'static> {
    let mut out = ArrayBuilder::new();
    for value in values {
        out.push(value);
    }
    NewValue::Owned(Value::Array(out.finish()))
}

impl Push {
    pub(super) fn apply<'a>(
        &'a self,
        existing: Option<RawValue<'a>>,
        place: &Place<'_>,
    ) -> Result<Change<'a>> {
        let array = existing_array("$push", existing, place)?;
        if self.position.is_none() && self.sort.is_none() && self.slice.is_none() {
            return Ok(match array {
                Some(_) if self.values.is_empty() => Change::Keep,
                Some(_) => Change::Append(&self.values),
                None => Change::Set(collect(self.values.iter().map(Value::as_raw))),
            });
        }
        let mut elements: Vec<RawValue<'_>> = array.map(|a| a.iter().collect()).unwrap_or_default();
        let at = match self.position {
            None => elements.len(),
            Some(at) => match usize::try_from(at) {
                Ok(at) => at.min(elements.len()),
                Err(_) => elements.len().saturating_sub(at.unsigned_abs() as usize),
            },
        };
        elements.splice(at..at, self.values.iter().map(Value::as_raw));
        if let Some(sort) = &self.sort {
            elements.sort_by(|a, b| sort.compare(*a, *b, place.collator));
        }
        let kept = match self.slice {
            None => &elements[..],
            Some(n) => match usize::try_from(n) {
                Ok(n) => &elements[..n.min(elements.len())],
                Err(_) => &elements[elements.len().saturating_sub(n.unsigned_abs() as usize)..],
            },
        };
        // A push with $sort or $slice may result in the existing array.
        let unchanged = array.is_some_and(|array| {
            let mut old = array.iter();
            kept.iter().all(|v| {
                old.next()
                    .is_some_and(|o| super::operator::identical(o, *v))
            }) && old.next().is_none()
        });
        Ok(if unchanged {
            Change::Keep
        } else {
            Change::Set(collect(kept.iter().copied()))
        })
    }
}

pub(super) fn parse_add_to_set(
    path: &str,
    value: RawValue<'_>,
    _: &ParseContext,
) -> Result<Operator> {
    if let RawValue::Document(doc) = value
        && let Some(first) = doc.first()
        && first.key() == "$each"
    {
        if let Some(other) = doc.iter().nth(1) {
            return Err(Error::bad_value(format!(
                "found unexpected fields after $each in $addToSet of '{path}': '{}'",
                other.key()
            )));
        }
        return Ok(Operator::AddToSet(each("$addToSet", path, first.value())?));
    }
    Ok(Operator::AddToSet(vec![value.to_value()]))
}

/// Appends the values that equal neither an existing element nor an earlier value.
pub(super) fn add_to_set<'a>(
    values: &'a [Value],
    existing: Option<RawValue<'a>>,
    place: &Place<'_>,
) -> Result<Change<'a>> {
    let array = existing_array("$addToSet", existing, place)?;
    let old: Vec<RawValue<'_>> = array.map(|a| a.iter().collect()).unwrap_or_default();
    let mut new: Vec<RawValue<'a>> = Vec::new();
    if values.len().saturating_mul(old.len() + values.len()) <= PAIRS_MAX || values.len() == 1 {
        for value in values {
            let value = value.as_raw();
            if !old
                .iter()
                .chain(&new)
                .any(|v| values_equal_with(*v, value, place.collator))
            {
                new.push(value);
            }
        }
    } else {
        let mut seen: BTreeSet<OrderedValue<'_>> = old
            .iter()
            .map(|v| OrderedValue(*v, place.collator))
            .collect();
        new.extend(
            values
                .iter()
                .map(Value::as_raw)
                .filter(|v| seen.insert(OrderedValue(*v, place.collator))),
        );
    }
    Ok(match array {
        Some(_) if new.is_empty() => Change::Keep,
        Some(_) if new.len() == values.len() => Change::Append(values),
        Some(_) => Change::Set(collect(old.into_iter().chain(new))),
        None => Change::Set(collect(new)),
    })
}

pub(super) fn parse_pop(path: &str, value: RawValue<'_>, _: &ParseContext) -> Result<Operator> {
    match value.as_i64_exact() {
        Some(1) => Ok(Operator::Pop { last: true }),
        Some(-1) => Ok(Operator::Pop { last: false }),
        _ => Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("$pop of '{path}' expects 1 or -1, found: {}", shell(value)),
        )),
    }
}

pub(super) fn pop<'a>(
    last: bool,
    existing: Option<RawValue<'a>>,
    place: &Place<'_>,
) -> Result<Change<'a>> {
    let array = match existing {
        None => return Ok(Change::Keep),
        Some(RawValue::Array(array)) => array,
        Some(other) => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                format!(
                    "$pop: the field '{}' must be an array but is of type {} in {}",
                    place.path,
                    other.type_name(),
                    place.document()
                ),
            ));
        }
    };
    let count = array.count();
    if count == 0 {
        return Ok(Change::Keep);
    }
    Ok(Change::Set(if last {
        collect(array.iter().take(count - 1))
    } else {
        collect(array.iter().skip(1))
    }))
}

/// The condition of `$pull`.
#[derive(Debug, Clone)]
pub(super) enum Pull {
    /// Elements equal to this value.
    Equal(Value),
    /// Elements that satisfy operators: `{$gte: 3}`, `/x/`.
    Value(MatchExpression),
    /// Elements that are documents and match a query.
    Document(MatchExpression),
}

pub(super) fn parse_pull(_: &str, value: RawValue<'_>, context: &ParseContext) -> Result<Operator> {
    Ok(Operator::Pull(match value {
        RawValue::Document(doc) if is_predicate(doc) => {
            Pull::Value(matcher::parse_predicate(doc, context)?.normalize())
        }
        RawValue::Document(doc) => Pull::Document(matcher::parse(doc, context)?.normalize()),
        RawValue::Regex { .. } => {
            let mut predicate = sheaf_bson::DocBuilder::new();
            predicate.append("$regex", value);
            let predicate = predicate.finish();
            Pull::Value(matcher::parse_predicate(predicate.as_raw(), context)?.normalize())
        }
        other => Pull::Equal(other.to_value()),
    }))
}

/// Whether a condition applies to the element itself rather than to its fields.
fn is_predicate(doc: RawDoc<'_>) -> bool {
    doc.first().is_some_and(|first| {
        first.key().starts_with('$')
            && !matches!(
                first.key(),
                "$and"
                    | "$or"
                    | "$nor"
                    | "$expr"
                    | "$comment"
                    | "$alwaysTrue"
                    | "$alwaysFalse"
                    | "$jsonSchema"
                    | "$where"
                    | "$text"
                    | "$ref"
                    | "$id"
                    | "$db"
            )
    })
}

impl Pull {
    fn takes(&self, element: RawValue<'_>, collator: Option<&Collator>) -> Result<bool> {
        match self {
            Pull::Equal(value) => Ok(values_equal_with(element, value.as_raw(), collator)),
            Pull::Value(condition) => condition.matches_value(element),
            Pull::Document(condition) => match element {
                RawValue::Document(doc) => condition.matches(doc),
                _ => Ok(false),
            },
        }
    }

    pub(super) fn apply<'a>(
        &self,
        existing: Option<RawValue<'a>>,
        place: &Place<'_>,
    ) -> Result<Change<'a>> {
        let array = existing_array("$pull", existing, place)?;
        remove(array, |element| self.takes(element, place.collator))
    }
}

pub(super) fn parse_pull_all(
    path: &str,
    value: RawValue<'_>,
    _: &ParseContext,
) -> Result<Operator> {
    match value {
        RawValue::Array(array) => Ok(Operator::PullAll(
            array.iter().map(RawValue::to_value).collect(),
        )),
        other => Err(Error::bad_value(format!(
            "$pullAll of '{path}' requires an array argument but was given a value of type {}",
            other.type_name()
        ))),
    }
}

pub(super) fn pull_all<'a>(
    values: &[Value],
    existing: Option<RawValue<'a>>,
    place: &Place<'_>,
) -> Result<Change<'a>> {
    let array = existing_array("$pullAll", existing, place)?;
    let gone: BTreeSet<OrderedValue<'_>> = values
        .iter()
        .map(|v| OrderedValue(v.as_raw(), place.collator))
        .collect();
    remove(array, |element| {
        Ok(gone.contains(&OrderedValue(element, place.collator)))
    })
}

fn remove<'a>(
    array: Option<RawArray<'a>>,
    mut goes: impl FnMut(RawValue<'_>) -> Result<bool>,
) -> Result<Change<'a>> {
    let Some(array) = array else {
        return Ok(Change::Keep);
    };
    let mut kept = Vec::new();
    let mut count = 0;
    for element in array {
        count += 1;
        if !goes(element)? {
            kept.push(element);
        }
    }
    Ok(if kept.len() == count {
        Change::Keep
    } else {
        set(None, collect(kept))
    })
}
