//! Update operators: each computes a new value for its path.
//!
//! [`TABLE`] lists them. A parsed operator is applied to the existing value, or to a missing one,
//! and returns a [`Change`]. It operates on a single value and does not resolve paths: `apply.rs`
//! traverses the document.

use std::cmp::Ordering;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::{shell, typed};
use sheaf_bson::{Collator, RawDoc, RawValue, Value, compare_values_with};

use crate::arithmetic::Number;
use crate::matcher::ParseContext;

use super::ApplyContext;
use super::array_operators::{Pull, Push};

/// A parsed operator with its operand.
#[derive(Debug, Clone)]
pub(super) enum Operator {
    Set(Value),
    SetOnInsert(Value),
    Unset,
    Inc(Number),
    Mul(Number),
    Min(Value),
    Max(Value),
    CurrentDate {
        timestamp: bool,
    },
    Bit(Vec<(BitOperation, Number)>),
    Push(Push),
    AddToSet(Vec<Value>),
    Pop {
        last: bool,
    },
    Pull(Pull),
    PullAll(Vec<Value>),
    /// The target of the update's n-th `$rename`.
    RenameTo(usize),
    /// The source of the update's n-th `$rename`.
    RenameFrom(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BitOperation {
    And,
    Or,
    Xor,
}

/// Parses the operand of an operator at one path.
type Parse = fn(&str, RawValue<'_>, &ParseContext) -> Result<Operator>;

/// Every operator but `$rename`, which has two paths.
pub(super) static TABLE: &[(&str, Parse)] = &[
    ("$addToSet", super::array_operators::parse_add_to_set),
    ("$bit", parse_bit),
    ("$currentDate", parse_current_date),
    ("$inc", |path, value, _| {
        number("$inc", path, value).map(Operator::Inc)
    }),
    ("$max", |_, value, _| Ok(Operator::Max(value.to_value()))),
    ("$min", |_, value, _| Ok(Operator::Min(value.to_value()))),
    ("$mul", |path, value, _| {
        number("$mul", path, value).map(Operator::Mul)
    }),
    ("$pop", super::array_operators::parse_pop),
    ("$pull", super::array_operators::parse_pull),
    ("$pullAll", super::array_operators::parse_pull_all),
    ("$push", super::array_operators::parse_push),
    ("$set", |_, value, _| Ok(Operator::Set(value.to_value()))),
    ("$setOnInsert", |_, value, _| {
        Ok(Operator::SetOnInsert(value.to_value()))
    }),
    ("$unset", |_, _, _| Ok(Operator::Unset)),
];

/// The change to the value at an operator's path.
#[derive(Debug)]
pub(super) enum Change<'a> {
    /// Leave the value unchanged.
    Keep,
    /// Replace or create the value.
    Set(NewValue<'a>),
    /// Append these values to the existing array.
    Append(&'a [Value]),
    /// Remove the value.
    Remove,
}

/// A new value, which is copied only when it is written to the document.
#[derive(Debug)]
pub(super) enum NewValue<'a> {
    Raw(RawValue<'a>),
    Owned(Value),
}

impl NewValue<'_> {
    pub(super) fn as_raw(&self) -> RawValue<'_> {
        match self {
            NewValue::Raw(raw) => *raw,
            NewValue::Owned(value) => value.as_raw(),
        }
    }
}

/// The place where an operator is applied: for messages, and for operators that depend on the
/// operation.
pub(super) struct Place<'a> {
    /// The resolved path, with array positions in place of positional components.
    pub(super) path: &'a str,
    /// The document before the update.
    pub(super) doc: RawDoc<'a>,
    /// The context of the update.
    pub(super) context: &'a ApplyContext,
    /// The collation for text; `None` to compare by bytes.
    pub(super) collator: Option<&'a Collator>,
}

impl Place<'_> {
    /// The name of the document in messages.
    pub(super) fn document(&self) -> String {
        name_document(self.doc)
    }
}

/// The name of a document in messages: `document {_id: 1}`.
pub(super) fn name_document(doc: RawDoc<'_>) -> String {
    match doc.get("_id") {
        Some(id) => format!("document {{ _id: {} }}", shell(id)),
        None => "a document without _id".to_owned(),
    }
}

impl Operator {
    /// The operator's name: `$set`, ...
    pub(super) fn name(&self) -> &'static str {
        match self {
            Operator::Set(_) => "$set",
            Operator::SetOnInsert(_) => "$setOnInsert",
            Operator::Unset => "$unset",
            Operator::Inc(_) => "$inc",
            Operator::Mul(_) => "$mul",
            Operator::Min(_) => "$min",
            Operator::Max(_) => "$max",
            Operator::CurrentDate { .. } => "$currentDate",
            Operator::Bit(_) => "$bit",
            Operator::Push(_) => "$push",
            Operator::AddToSet(_) => "$addToSet",
            Operator::Pop { .. } => "$pop",
            Operator::Pull(_) => "$pull",
            Operator::PullAll(_) => "$pullAll",
            Operator::RenameTo(_) | Operator::RenameFrom(_) => "$rename",
        }
    }

    /// Whether the operator creates a missing field (`apply.rs` decides for `$rename`, depending on
    /// the source).
    pub(super) fn creates(&self, context: &ApplyContext) -> bool {
        match self {
            Operator::Unset
            | Operator::Pop { .. }
            | Operator::Pull(_)
            | Operator::PullAll(_)
            | Operator::RenameFrom(_) => false,
            Operator::SetOnInsert(_) => context.is_insert,
            _ => true,
        }
    }

    /// Nesting depth of documents and arrays that the operand adds at its path.
    pub(super) fn operand_depth(&self) -> usize {
        match self {
            Operator::Set(v) | Operator::SetOnInsert(v) | Operator::Min(v) | Operator::Max(v) => {
                depth(v.as_raw())
            }
            Operator::Push(push) => 1 + deepest(&push.values),
            Operator::AddToSet(values) => 1 + deepest(values),
            _ => 0,
        }
    }

    /// Computes the change to `existing`; `None` is a missing field.
    ///
    /// Errors: the operator does not apply to a value of this type.
    pub(super) fn apply<'a>(
        &'a self,
        existing: Option<RawValue<'a>>,
        place: &Place<'_>,
    ) -> Result<Change<'a>> {
        match self {
            Operator::Set(value) => Ok(set(existing, NewValue::Raw(value.as_raw()))),
            Operator::SetOnInsert(value) if place.context.is_insert => {
                Ok(set(existing, NewValue::Raw(value.as_raw())))
            }
            Operator::SetOnInsert(_) => Ok(Change::Keep),
            Operator::Unset => Ok(if existing.is_some() {
                Change::Remove
            } else {
                Change::Keep
            }),
            Operator::Inc(by) => arithmetic(self, existing, *by, place),
            Operator::Mul(by) => arithmetic(self, existing, *by, place),
            Operator::Min(value) => Ok(extreme(existing, value, Ordering::Less, place.collator)),
            Operator::Max(value) => Ok(extreme(existing, value, Ordering::Greater, place.collator)),
            Operator::CurrentDate { timestamp } => {
                let now = if *timestamp {
                    Value::Timestamp(place.context.timestamp)
                } else {
                    Value::DateTime(place.context.now)
                };
                Ok(set(existing, NewValue::Owned(now)))
            }
            Operator::Bit(operations) => bit(existing, operations, place),
            Operator::Push(push) => push.apply(existing, place),
            Operator::AddToSet(values) => {
                super::array_operators::add_to_set(values, existing, place)
            }
            Operator::Pop { last } => super::array_operators::pop(*last, existing, place),
            Operator::Pull(pull) => pull.apply(existing, place),
            Operator::PullAll(values) => super::array_operators::pull_all(values, existing, place),
            // The traversal applies renames because it knows the source value.
            Operator::RenameTo(_) | Operator::RenameFrom(_) => Ok(Change::Keep),
        }
    }
}

/// Replaces a value unless the new one is identical.
pub(super) fn set<'a>(existing: Option<RawValue<'_>>, new: NewValue<'a>) -> Change<'a> {
    match existing {
        Some(old) if identical(old, new.as_raw()) => Change::Keep,
        _ => Change::Set(new),
    }
}

/// Whether type and bytes are equal. NaNs with equal bits are identical; 0.0 and -0.0 are not.
pub(super) fn identical(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    match (a, b) {
        (RawValue::Double(a), RawValue::Double(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// Nesting depth of documents and arrays in a value; 0 for a scalar.
pub(super) fn depth(value: RawValue<'_>) -> usize {
    match value {
        RawValue::Document(doc) => 1 + doc.iter().map(|e| depth(e.value())).max().unwrap_or(0),
        RawValue::Array(array) => 1 + array.iter().map(depth).max().unwrap_or(0),
        RawValue::JavaScriptWithScope { scope, .. } => depth(RawValue::Document(scope)),
        _ => 0,
    }
}

fn deepest(values: &[Value]) -> usize {
    values.iter().map(|v| depth(v.as_raw())).max().unwrap_or(0)
}

fn number(operator: &str, path: &str, value: RawValue<'_>) -> Result<Number> {
    Number::from_raw(value).ok_or_else(|| {
        Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "Cannot {operator} with non-numeric argument: {{{path}: {}}}",
                shell(value)
            ),
        )
    })
}

fn arithmetic<'a>(
    operator: &Operator,
    existing: Option<RawValue<'_>>,
    by: Number,
    place: &Place<'_>,
) -> Result<Change<'a>> {
    let multiply = matches!(operator, Operator::Mul(_));
    let Some(old) = existing else {
        // $inc of a missing field sets the operand; $mul sets a zero of the operand's type.
        let new = match by {
            by if !multiply => by,
            Number::Int(_) => Number::Int(0),
            Number::Long(_) => Number::Long(0),
            Number::Double(_) => Number::Double(0.0),
            Number::Decimal(_) => Number::Decimal(crate::arithmetic::decimal::from_i64(0)),
        };
        return Ok(Change::Set(NewValue::Owned(new.into())));
    };
    let name = operator.name();
    let Some(number) = Number::from_raw(old) else {
        return Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "Cannot apply {name} to a value of non-numeric type: field '{}' of {} is of type {}",
                place.path,
                place.document(),
                old.type_name()
            ),
        ));
    };
    let new = if multiply {
        number.multiply_exact(by)
    } else {
        number.add_exact(by)
    };
    match new {
        // An equal number of the same type does not count as a change, even if its sign or trailing
        // zeros differ.
        Some(new) if is_same(number, new) => Ok(Change::Keep),
        Some(new) => Ok(set(existing, NewValue::Owned(new.into()))),
        None => Err(Error::bad_value(format!(
            "Failed to apply {name} to field '{}' of {}: {} and {} overflow a 64-bit integer",
            place.path,
            place.document(),
            typed(old),
            typed(RawValue::from(by))
        ))),
    }
}

/// Whether two numbers have the same type and compare equal.
fn is_same(old: Number, new: Number) -> bool {
    std::mem::discriminant(&old) == std::mem::discriminant(&new)
        && compare_values_with(old.into(), new.into(), None).is_eq()
}

fn extreme<'a>(
    existing: Option<RawValue<'_>>,
    value: &'a Value,
    better: Ordering,
    collator: Option<&Collator>,
) -> Change<'a> {
    let value = value.as_raw();
    match existing {
        Some(old) if compare_values_with(value, old, collator) != better => Change::Keep,
        _ => Change::Set(NewValue::Raw(value)),
    }
}

fn bit<'a>(
    existing: Option<RawValue<'_>>,
    operations: &[(BitOperation, Number)],
    place: &Place<'_>,
) -> Result<Change<'a>> {
    let mut narrow = true;
    let mut bits = match existing {
        None => 0,
        Some(RawValue::Int32(n)) => i64::from(n),
        Some(RawValue::Int64(n)) => {
            narrow = false;
            n
        }
        Some(other) => {
            return Err(Error::bad_value(format!(
                "Cannot apply $bit to a value of non-integral type: field '{}' of {} is of type {}",
                place.path,
                place.document(),
                other.type_name()
            )));
        }
    };
    for (operation, operand) in operations {
        narrow &= matches!(operand, Number::Int(_));
        let operand = operand.as_integer().unwrap_or(0);
        bits = match operation {
            BitOperation::And => bits & operand,
            BitOperation::Or => bits | operand,
            BitOperation::Xor => bits ^ operand,
        };
    }
    // Int operands are sign-extended, so the result fits into an int.
    let new = if narrow {
        Value::Int32(bits as i32)
    } else {
        Value::Int64(bits)
    };
    Ok(set(existing, NewValue::Owned(new)))
}

fn parse_bit(path: &str, value: RawValue<'_>, _: &ParseContext) -> Result<Operator> {
    let RawValue::Document(doc) = value else {
        return Err(Error::bad_value(format!(
            "$bit takes an object such as {{{path}: {{and|or|xor: int}}}}, not a value of type {}",
            value.type_name()
        )));
    };
    let mut operations = Vec::new();
    for element in doc {
        let operation = match element.key() {
            "and" => BitOperation::And,
            "or" => BitOperation::Or,
            "xor" => BitOperation::Xor,
            other => {
                return Err(Error::bad_value(format!(
                    "$bit supports 'and', 'or' and 'xor', not '{other}' in {{{path}: {}}}",
                    shell(value)
                )));
            }
        };
        match element.value() {
            RawValue::Int32(n) => operations.push((operation, Number::Int(n))),
            RawValue::Int64(n) => operations.push((operation, Number::Long(n))),
            other => {
                return Err(Error::bad_value(format!(
                    "the operand of $bit must be an int or a long, not {}: {{{path}: {}}}",
                    other.type_name(),
                    shell(value)
                )));
            }
        }
    }
    if operations.is_empty() {
        return Err(Error::bad_value(format!(
            "$bit needs at least one of 'and', 'or' and 'xor' for the field '{path}'"
        )));
    }
    Ok(Operator::Bit(operations))
}

fn parse_current_date(path: &str, value: RawValue<'_>, _: &ParseContext) -> Result<Operator> {
    let refuse = |why: String| {
        Err(Error::bad_value(format!(
            "$currentDate of '{path}': {why}; give true, {{$type: 'date'}} or {{$type: 'timestamp'}}"
        )))
    };
    match value {
        RawValue::Boolean(_) => Ok(Operator::CurrentDate { timestamp: false }),
        RawValue::Document(doc) => {
            let mut timestamp = None;
            for element in doc {
                match (element.key(), element.value()) {
                    ("$type", RawValue::String("date")) => timestamp = Some(false),
                    ("$type", RawValue::String("timestamp")) => timestamp = Some(true),
                    ("$type", other) => {
                        return refuse(format!("{} is not a date type", shell(other)));
                    }
                    (other, _) => return refuse(format!("unrecognized option '{other}'")),
                }
            }
            match timestamp {
                Some(timestamp) => Ok(Operator::CurrentDate { timestamp }),
                None => refuse("'$type' is missing".to_owned()),
            }
        }
        other => refuse(format!(
            "a value of type {} is not allowed",
            other.type_name()
        )),
    }
}
