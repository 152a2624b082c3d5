//! `$stdDevPop`, `$stdDevSamp`, `$percentile`, `$median`, over operands or the elements of one
//! array.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{ArrayBuilder, RawValue, Value};

use crate::arithmetic::{Deviation, Number, Quantiles};

use super::eval::{EvalContext, EvalValue};
use super::operand::{document, required};
use super::operator::{Arity, Operator};
use super::parser::Parser;
use super::{Expression, VariableScope, location, parse};

fn deviation<'e>(
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    sample: bool,
) -> Result<EvalValue<'e>> {
    let mut deviation = Deviation::default();
    let mut add = |raw: RawValue<'_>| {
        if let Some(number) = Number::from_raw(raw) {
            deviation.add(number.to_f64());
        }
    };
    for arg in args {
        match arg.evaluate(ctx)?.as_raw() {
            Some(RawValue::Array(array)) if args.len() == 1 => array.iter().for_each(&mut add),
            Some(raw) => add(raw),
            None => {}
        }
    }
    Ok(deviation.finish(sample).into())
}

pub(super) fn std_dev_pop<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    deviation(args, ctx, false)
}

pub(super) fn std_dev_samp<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    deviation(args, ctx, true)
}

static PERCENTILE: Operator = Operator {
    name: "$percentile",
    arity: Arity::Exactly(2),
    eval: percentile,
};

static MEDIAN: Operator = Operator {
    name: "$median",
    arity: Arity::Exactly(1),
    eval: median,
};

/// `{input, p, method: "approximate"}`.
pub(super) fn parse_percentile(
    parser: &mut Parser<'_>,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let (input, shares) = percentile_shares("$percentile", operand, parser.scope())?;
    let mut out = ArrayBuilder::new();
    shares.iter().for_each(|share| {
        out.push(*share);
    });
    Ok(Expression::Call {
        operator: &PERCENTILE,
        args: vec![
            parser.operand(input)?,
            Expression::constant(Value::Array(out.finish())),
        ],
    })
}

/// `{input, method: "approximate"}`.
pub(super) fn parse_median(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let (input, _) = percentile_shares("$median", operand, parser.scope())?;
    Ok(Expression::Call {
        operator: &MEDIAN,
        args: vec![parser.operand(input)?],
    })
}

/// The number in the operand, or the numbers among its elements.
fn numbers<'e>(arg: &'e Expression, ctx: EvalContext<'e>) -> Result<Quantiles> {
    let mut numbers = Quantiles::default();
    let mut add = |raw: RawValue<'_>| {
        if let Some(number) = Number::from_raw(raw) {
            numbers.add(number.to_f64());
        }
    };
    match arg.evaluate(ctx)?.as_raw() {
        Some(RawValue::Array(array)) => array.iter().for_each(&mut add),
        Some(raw) => add(raw),
        None => {}
    }
    Ok(numbers)
}

fn percentile<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let shares = args[1].evaluate(ctx)?;
    let shares: Vec<f64> = match shares.as_raw() {
        Some(RawValue::Array(shares)) => shares.iter().filter_map(|v| v.as_f64()).collect(),
        _ => Vec::new(),
    };
    let values = numbers(&args[0], ctx)?.at(&shares);
    Ok(Value::Array(values.iter().collect()).into())
}

fn median<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let middle = numbers(&args[0], ctx)?.at(&[0.5]);
    Ok(middle.into_iter().next().unwrap_or(Value::Null).into())
}

/// The input, still to be parsed, and the shares of `$percentile` or `$median`. Errors: an argument
/// that is unknown, missing or of a wrong type; shares that are not from 0 to 1.
pub(crate) fn percentile_shares<'a>(
    name: &str,
    operand: RawValue<'a>,
    scope: &VariableScope,
) -> Result<(RawValue<'a>, Arc<[f64]>)> {
    let percentile = name == "$percentile";
    let known: &[&str] = if percentile {
        &["input", "p", "method"]
    } else {
        &["input", "method"]
    };
    let not_object = if percentile { 7429703 } else { 7436100 };
    let doc = document(name, operand, known, not_object, 40415)?;
    let missing = ErrorCode(40414).0;
    let input = required(name, doc, "input", missing)?;
    match required(name, doc, "method", missing)? {
        RawValue::String("approximate") => {}
        other => {
            return Err(Error::bad_value(format!(
                "{name}: 'method' must be 'approximate', not {}",
                shell(other)
            )));
        }
    }
    if !percentile {
        return Ok((input, Arc::new([0.5])));
    }
    let p = parse(required(name, doc, "p", missing)?, scope)?;
    let wrong = |code: i32, what: &str| {
        Err(location(
            code,
            format!("$percentile: 'p' must be an array of {what}"),
        ))
    };
    let values = match p.as_constant() {
        None => return wrong(7750300, "constants"),
        Some(Some(RawValue::Array(values))) if !values.is_empty() => values,
        Some(_) => return wrong(7750301, "at least one number from 0.0 to 1.0"),
    };
    let mut shares = Vec::new();
    for value in values {
        match value.as_f64().filter(|_| value.is_number()) {
            None => return wrong(7750302, "numbers from 0.0 to 1.0"),
            Some(x) if (0.0..=1.0).contains(&x) => shares.push(x),
            Some(_) => return wrong(7750303, "numbers from 0.0 to 1.0"),
        }
    }
    Ok((input, shares.into()))
}
