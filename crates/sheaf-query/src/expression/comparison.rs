//! `$cmp`, `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$min` and `$max`: BSON order over all
//! types.
//!
//! Unlike in the match language, there is no type bracketing, arrays compare as a whole, and a
//! missing value sorts below everything except MinKey, including null.

use std::cmp::Ordering;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Collator, RawValue, Value, compare_values_with};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;
use super::{Expression, budget};

/// BSON order; a missing value sorts between MinKey and everything else.
pub(crate) fn compare(
    a: Option<RawValue<'_>>,
    b: Option<RawValue<'_>>,
    collator: Option<&Collator>,
) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(RawValue::MinKey)) => Ordering::Greater,
        (Some(RawValue::MinKey), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => compare_values_with(a, b, collator),
    }
}

fn order<'e>(args: &'e [Expression], ctx: EvalContext<'e>) -> Result<Ordering> {
    let (a, b) = pair(args, ctx)?;
    Ok(compare(a.as_raw(), b.as_raw(), ctx.collator))
}

pub(super) fn cmp<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    Ok(Value::Int32(order(args, ctx)? as i32).into())
}

macro_rules! comparisons {
    ($($name:ident $test:ident;)*) => {
        $(pub(super) fn $name<'e>(
            _: &'static Operator,
            args: &'e [Expression],
            ctx: EvalContext<'e>,
        ) -> Result<EvalValue<'e>> {
            Ok(order(args, ctx)?.$test().into())
        })*
    };
}

comparisons! {
    eq is_eq;
    ne is_ne;
    gt is_gt;
    gte is_ge;
    lt is_lt;
    lte is_le;
}

/// The smallest operand if `better` is `Less`, the largest if it is `Greater`. A single array
/// operand contributes its elements instead. Null, undefined and missing are ignored.
fn extreme<'e>(
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    better: Ordering,
) -> Result<EvalValue<'e>> {
    let mut best: EvalValue<'e> = EvalValue::Missing;
    for arg in args {
        let value = arg.evaluate(ctx.holding(budget::heap_bytes(&best))?)?;
        if args.len() == 1
            && let Some(RawValue::Array(array)) = value.as_raw()
        {
            let mut found: Option<RawValue<'_>> = None;
            for element in array {
                let null = matches!(element, RawValue::Null | RawValue::Undefined);
                if !null
                    && found.is_none_or(|f| compare_values_with(element, f, ctx.collator) == better)
                {
                    found = Some(element);
                }
            }
            return Ok(found.map_or(EvalValue::NULL, |f| EvalValue::Owned(f.to_value())));
        }
        let wins = match (value.non_null(), best.as_raw()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(new), Some(old)) => compare_values_with(new, old, ctx.collator) == better,
        };
        if wins {
            best = value;
        }
    }
    Ok(match best {
        EvalValue::Missing => EvalValue::NULL,
        found => found,
    })
}

pub(super) fn min<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    extreme(args, ctx, Ordering::Less)
}

pub(super) fn max<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    extreme(args, ctx, Ordering::Greater)
}
