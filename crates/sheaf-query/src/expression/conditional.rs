//! `$cond`, `$ifNull`, `$switch`, `$let`, `$literal`.

use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;

use super::eval::{EvalContext, EvalValue};
use super::operator::Operator;
use super::parser::{Arguments, Parser};
use super::{Expression, location};

pub(super) fn parse_literal(_: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    Ok(Expression::constant(operand.to_value()))
}

/// `{$expr: e}`, which is `e`.
pub(super) fn parse_expr(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    parser.operand(operand)
}

/// `{$cond: [if, then, else]}` or `{$cond: {if, then, else}}`.
pub(super) fn parse_cond(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let [case, then, otherwise] = match operand {
        RawValue::Document(_) => {
            let args = Arguments::new("$cond", operand, &["if", "then", "else"], 17083, 17083)?;
            [
                args.required("if", 17080)?,
                args.required("then", 17081)?,
                args.required("else", 17082)?,
            ]
        }
        other => {
            let values: Vec<RawValue<'_>> = match other {
                RawValue::Array(array) => array.iter().collect(),
                single => vec![single],
            };
            let given = values.len();
            <[RawValue<'_>; 3]>::try_from(values).map_err(|_| {
                location(
                    16020,
                    format!("Expression $cond takes exactly 3 arguments. {given} were passed in."),
                )
            })?
        }
    };
    Ok(Expression::Switch {
        branches: vec![(parser.operand(case)?, parser.operand(then)?)],
        default: Some(Box::new(parser.operand(otherwise)?)),
    })
}

/// `{$switch: {branches: [{case, then}, ...], default}}`.
pub(super) fn parse_switch(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let args = Arguments::new("$switch", operand, &["branches", "default"], 40060, 40067)?;
    let branches = match args.get("branches") {
        Some(RawValue::Array(array)) => array,
        Some(other) => {
            return Err(location(
                40061,
                format!(
                    "$switch: 'branches' must be an array, not {}",
                    other.type_name()
                ),
            ));
        }
        None => return Err(location(40068, "$switch requires at least one branch")),
    };
    let mut parsed = Vec::new();
    for branch in branches {
        let branch = Arguments::new("$switch branch", branch, &["case", "then"], 40062, 40063)?;
        let case = parser.operand(branch.required("case", 40064)?)?;
        parsed.push((case, parser.operand(branch.required("then", 40065)?)?));
    }
    if parsed.is_empty() {
        return Err(location(40068, "$switch requires at least one branch"));
    }
    let default = match args.get("default") {
        Some(default) => Some(Box::new(parser.operand(default)?)),
        None => None,
    };
    Ok(Expression::Switch {
        branches: parsed,
        default,
    })
}

/// `{$let: {vars: {a: ..., b: ...}, in: ...}}`.
pub(super) fn parse_let(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let args = Arguments::new("$let", operand, &["vars", "in"], 16874, 16875)?;
    let vars = match args.required("vars", 16876)? {
        RawValue::Document(vars) => vars,
        other => {
            return Err(location(
                10065,
                format!("$let: 'vars' must be an object, not {}", other.type_name()),
            ));
        }
    };
    let body = args.required("in", 16877)?;
    let mut names = Vec::new();
    let mut values = Vec::new();
    for element in vars {
        parser.check_name(element.key())?;
        names.push(element.key());
        values.push(parser.operand(element.value())?);
    }
    let body = Box::new(parser.with_locals(&names, body)?);
    Ok(Expression::Let { values, body })
}

/// The first operand that is not null or missing, otherwise the last.
pub(super) fn if_null<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((last, first)) = args.split_last() else {
        return Ok(EvalValue::Missing);
    };
    for arg in first {
        let value = arg.evaluate(ctx)?;
        if value.non_null().is_some() {
            return Ok(value);
        }
    }
    last.evaluate(ctx)
}
