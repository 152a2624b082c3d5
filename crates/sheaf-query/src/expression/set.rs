//! Set operators: an array as a set, in which values that compare equal are one element and the
//! order is irrelevant.

use std::collections::BTreeSet;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuilder, Collator, RawArray, RawValue, Value};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;
use super::ordered_value::OrderedValue;
use super::{Expression, budget, location};

/// Calls `then` with an operand that must be an array. Errors: `code` if it is not.
fn only_array<'e, T>(
    operator: &'static Operator,
    value: &EvalValue<'e>,
    code: i32,
    then: impl FnOnce(RawArray<'_>) -> T,
) -> Result<T> {
    match value.as_raw() {
        Some(RawValue::Array(array)) => Ok(then(array)),
        _ => Err(operator.error(
            code,
            format_args!("takes an array, but was given: {}", value.type_name()),
        )),
    }
}

pub(super) fn all_elements_true<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    Ok(only_array(operator, &value, 17040, |array| {
        array.iter().all(|v| v.is_truthy())
    })?
    .into())
}

pub(super) fn any_element_true<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let value = args[0].evaluate(ctx)?;
    Ok(only_array(operator, &value, 17041, |array| {
        array.iter().any(|v| v.is_truthy())
    })?
    .into())
}

fn ordered<'a>(
    array: RawArray<'a>,
    collator: Option<&'a Collator>,
) -> Result<BTreeSet<OrderedValue<'a>>> {
    let mut set = BTreeSet::new();
    for value in array {
        budget::step()?;
        set.insert(OrderedValue(value, collator));
    }
    Ok(set)
}

fn from_set<'e>(set: BTreeSet<OrderedValue<'_>>) -> Result<EvalValue<'e>> {
    let mut out = ArrayBuilder::new();
    for value in set {
        out.push(value.0);
        budget::check_value(out.current_len())?;
    }
    Ok(Value::Array(out.finish()).into())
}

/// The distinct values of all operands, in BSON order.
pub(super) fn set_union<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut values = Vec::with_capacity(args.len());
    let mut held = 0;
    for arg in args {
        let value = arg.evaluate(ctx.holding(held)?)?;
        if value.non_null().is_none() {
            return Ok(EvalValue::NULL);
        }
        held += budget::heap_bytes(&value);
        values.push(value);
    }
    let mut set = BTreeSet::new();
    for value in &values {
        let Some(RawValue::Array(array)) = value.as_raw() else {
            return Err(operator.error(
                17043,
                format_args!(
                    "takes arrays, but one argument is of type: {}",
                    value.type_name()
                ),
            ));
        };
        for value in array {
            budget::step()?;
            set.insert(OrderedValue(value, ctx.collator));
        }
    }
    from_set(set)
}

/// The distinct values that are in all operands, in BSON order.
pub(super) fn set_intersection<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut values = Vec::with_capacity(args.len());
    let mut held = 0;
    for arg in args {
        let value = arg.evaluate(ctx.holding(held)?)?;
        if value.non_null().is_none() {
            return Ok(EvalValue::NULL);
        }
        held += budget::heap_bytes(&value);
        values.push(value);
    }
    let mut common: Option<BTreeSet<OrderedValue<'_>>> = None;
    for value in &values {
        let Some(RawValue::Array(array)) = value.as_raw() else {
            return Err(operator.error(
                17047,
                format_args!(
                    "takes arrays, but one argument is of type: {}",
                    value.type_name()
                ),
            ));
        };
        let set = ordered(array, ctx.collator)?;
        common = Some(match common {
            None => set,
            Some(mut before) => {
                before.retain(|v| set.contains(v));
                before
            }
        });
    }
    from_set(common.unwrap_or_default())
}

/// The distinct values of the first operand that are not in the second, in the order of the first.
pub(super) fn set_difference<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (left, right) = pair(args, ctx)?;
    let (Some(left), Some(right)) = (left.non_null(), right.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let RawValue::Array(left) = left else {
        return Err(operator.error(
            17048,
            format_args!(
                "takes arrays, but its first argument is of type: {}",
                left.type_name()
            ),
        ));
    };
    let RawValue::Array(right) = right else {
        return Err(operator.error(
            17049,
            format_args!(
                "takes arrays, but its second argument is of type: {}",
                right.type_name()
            ),
        ));
    };
    let mut gone = ordered(right, ctx.collator)?;
    let mut out = ArrayBuilder::new();
    for value in left {
        if gone.insert(OrderedValue(value, ctx.collator)) {
            out.push(value);
        }
    }
    Ok(Value::Array(out.finish()).into())
}

/// Whether every value of the first operand is in the second.
pub(super) fn set_is_subset<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let (left, right) = pair(args, ctx)?;
    let Some(RawValue::Array(subset)) = left.as_raw() else {
        return Err(operator.error(
            17046,
            format_args!(
                "takes arrays, but its first argument is of type: {}",
                left.type_name()
            ),
        ));
    };
    let Some(RawValue::Array(superset)) = right.as_raw() else {
        return Err(operator.error(
            17042,
            format_args!(
                "takes arrays, but its second argument is of type: {}",
                right.type_name()
            ),
        ));
    };
    let superset = ordered(superset, ctx.collator)?;
    Ok(subset
        .iter()
        .all(|v| superset.contains(&OrderedValue(v, ctx.collator)))
        .into())
}

/// Checks the constant operands of `$setEquals`. Errors: 5887502 if one is not an array.
pub(super) fn check_equals(args: &[Expression]) -> Result<()> {
    for (at, arg) in args.iter().enumerate() {
        if let Some(value) = arg.as_constant()
            && !matches!(value, Some(RawValue::Array(_)))
        {
            return Err(location(
                5887502,
                format!(
                    "All operands of $setEquals must be arrays. {}-th argument is of type: {}",
                    at + 1,
                    value.map_or("missing", |v| v.type_name())
                ),
            ));
        }
    }
    Ok(())
}

/// Whether all operands have the same distinct values.
pub(super) fn set_equals<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let mut values = Vec::with_capacity(args.len());
    let mut held = 0;
    for arg in args {
        let value = arg.evaluate(ctx.holding(held)?)?;
        held += budget::heap_bytes(&value);
        values.push(value);
    }
    let mut first: Option<BTreeSet<OrderedValue<'_>>> = None;
    let mut equal = true;
    for value in &values {
        let Some(RawValue::Array(array)) = value.as_raw() else {
            return Err(operator.error(
                17044,
                format_args!(
                    "takes arrays, but one argument is of type: {}",
                    value.type_name()
                ),
            ));
        };
        let set = ordered(array, ctx.collator)?;
        match &first {
            None => first = Some(set),
            Some(first) => equal &= *first == set,
        }
    }
    Ok(equal.into())
}
