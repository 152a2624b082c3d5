//! `$exp`, `$ln`, `$log`, `$log10`, `$sqrt`, `$pow`, `$sigmoid`, and the functions of angles.
//!
//! Null and missing return null, NaN returns NaN. Decimals are computed as decimals, everything
//! else as doubles. The last digit of a double depends on the system's math library.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{Decimal128, Value};

use crate::arithmetic::Number;
use crate::arithmetic::decimal_functions::{self, Function};

use super::arithmetic::number;
use super::eval::{EvalContext, EvalValue, pair};
use super::operator::Operator;
use super::{Expression, location};

/// The domain of a function: the error code outside of it, the predicate, its description.
type Domain = (i32, fn(Number) -> bool, &'static str);

fn result<'e>(number: Number) -> Result<EvalValue<'e>> {
    Ok(Value::from(number).into())
}

fn outside(operator: &'static Operator, code: i32, inside: &str, found: Number) -> Error {
    let found = Value::from(found);
    operator.error(
        code,
        format_args!(
            "takes {inside}, not {}",
            sheaf_bson::json::shell(found.as_raw())
        ),
    )
}

fn function<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    domain: Option<Domain>,
    of_double: fn(f64) -> f64,
    of_decimal: Function,
) -> Result<EvalValue<'e>> {
    let Some(x) = number(operator, &args[0].evaluate(ctx)?, 28765)? else {
        return Ok(EvalValue::NULL);
    };
    if let Some((code, inside, description)) = domain
        && !x.is_nan()
        && !inside(x)
    {
        return Err(outside(operator, code, description, x));
    }
    match x {
        // A decimal that is not above 0 is computed as a double.
        Number::Decimal(d)
            if d.is_nan() && matches!(of_decimal, Function::Ln | Function::Log10) =>
        {
            result(Number::Double(f64::NAN))
        }
        Number::Decimal(d) => match decimal_functions::apply(of_decimal, d) {
            Some(d) => result(Number::Decimal(d)),
            None => Err(location(
                ErrorCode::NOT_IMPLEMENTED.0,
                format!(
                    "{} of decimals is supported up to 1E+50; convert with $toDouble",
                    operator.name
                ),
            )),
        },
        other => result(Number::Double(of_double(other.to_f64()))),
    }
}

fn is_positive(x: Number) -> bool {
    match x {
        Number::Decimal(d) => !d.is_zero() && !d.is_negative(),
        other => other.to_f64() > 0.0,
    }
}

fn is_finite(x: Number) -> bool {
    match x {
        Number::Decimal(d) => d.is_finite(),
        other => other.to_f64().is_finite(),
    }
}

/// Between -1 and 1, inclusive. A decimal close to 1 must not be rounded to it.
fn is_ratio(x: Number) -> bool {
    match x {
        Number::Decimal(d) => d.cmp_i64(1).is_le() && d.cmp_i64(-1).is_ge(),
        other => (-1.0..=1.0).contains(&other.to_f64()),
    }
}

const POSITIVE: &str = "a positive number";
const FINITE: Option<Domain> = Some((50989, is_finite, "a finite angle"));
const RATIO: Option<Domain> = Some((50989, is_ratio, "a number from -1 to 1"));

macro_rules! functions {
    ($($name:ident $double:expr, $decimal:ident, $domain:expr;)*) => {
        $(pub(super) fn $name<'e>(
            operator: &'static Operator,
            args: &'e [Expression],
            ctx: EvalContext<'e>,
        ) -> Result<EvalValue<'e>> {
            function(operator, args, ctx, $domain, $double, Function::$decimal)
        })*
    };
}

functions! {
    exp f64::exp, Exp, None;
    ln f64::ln, Ln, Some((28766, is_positive, POSITIVE));
    log10 f64::log10, Log10, Some((28761, is_positive, POSITIVE));
    sqrt f64::sqrt, Sqrt, Some((28714, |x| x.is_zero() || is_positive(x), "a number not below 0"));
    sin f64::sin, Sin, FINITE;
    cos f64::cos, Cos, FINITE;
    tan f64::tan, Tan, FINITE;
    asin f64::asin, Asin, RATIO;
    acos f64::acos, Acos, RATIO;
    atan f64::atan, Atan, None;
    sinh f64::sinh, Sinh, None;
    cosh f64::cosh, Cosh, None;
    tanh f64::tanh, Tanh, None;
    asinh f64::asinh, Asinh, None;
    acosh f64::acosh, Acosh, Some((50989, |x| match x {
        Number::Decimal(d) => d.cmp_i64(1).is_ge(),
        other => other.to_f64() >= 1.0,
    }, "a number not below 1"));
    atanh f64::atanh, Atanh, RATIO;
    degrees_to_radians |x| x * (std::f64::consts::PI / 180.0), DegreesToRadians, None;
    radians_to_degrees |x| x * (180.0 / std::f64::consts::PI), RadiansToDegrees, None;
}

/// Two numbers; `None` if either is null or missing. Errors: `codes` for each operand that is not a
/// number.
fn two<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    codes: (i32, i32),
) -> Result<Option<(Number, Number)>> {
    let (a, b) = pair(args, ctx)?;
    // A wrong type is an error even if the other operand is null.
    let a = number(operator, &a, codes.0)?;
    let b = number(operator, &b, codes.1)?;
    Ok(a.zip(b))
}

fn decimals(a: Number, b: Number) -> Option<(Decimal128, Decimal128)> {
    let one = matches!(a, Number::Decimal(_)) || matches!(b, Number::Decimal(_));
    one.then(|| (a.to_decimal(), b.to_decimal()))
}

/// `$atan2: [y, x]`.
pub(super) fn atan2<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((y, x)) = two(operator, args, ctx, (51044, 51045))? else {
        return Ok(EvalValue::NULL);
    };
    result(match decimals(y, x) {
        Some((y, x)) => Number::Decimal(decimal_functions::atan2(y, x)),
        None => Number::Double(y.to_f64().atan2(x.to_f64())),
    })
}

/// `$log: [number, base]`.
pub(super) fn log<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((x, base)) = two(operator, args, ctx, (28756, 28757))? else {
        return Ok(EvalValue::NULL);
    };
    if !x.is_nan() && !is_positive(x) {
        return Err(outside(operator, 28758, POSITIVE, x));
    }
    let one = match base {
        Number::Decimal(d) => d.cmp_i64(1).is_eq(),
        other => other.to_f64() == 1.0,
    };
    if !base.is_nan() && (!is_positive(base) || one) {
        return Err(outside(
            operator,
            28759,
            "a positive number other than 1 as its base",
            base,
        ));
    }
    result(match decimals(x, base) {
        Some((x, base)) => Number::Decimal(decimal_functions::log(x, base)),
        None => Number::Double(x.to_f64().ln() / base.to_f64().ln()),
    })
}

/// `$sigmoid`: 1 / (1 + e^-x).
pub(super) fn sigmoid<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some(x) = number(
        operator,
        &args[0].evaluate(ctx)?,
        ErrorCode::TYPE_MISMATCH.0,
    )?
    else {
        return Ok(EvalValue::NULL);
    };
    let one = Number::Int(1);
    let minus = Number::Int(0).minus(x);
    let power = match minus {
        Number::Decimal(d) => {
            Number::Decimal(decimal_functions::apply(Function::Exp, d).unwrap_or(Decimal128::NAN))
        }
        other => Number::Double(other.to_f64().exp()),
    };
    result(one.divide(one.plus(power)).unwrap_or(Number::Int(0)))
}

/// `$pow`: an integer if both operands are and the result fits a long, a decimal if an operand is
/// one, otherwise a double.
pub(super) fn pow<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let Some((base, exponent)) = two(operator, args, ctx, (28762, 28763))? else {
        return Ok(EvalValue::NULL);
    };
    if base.is_zero() && exponent.to_f64() < 0.0 {
        return Err(operator.error(28764, "cannot take a base of 0 to a negative exponent"));
    }
    if let Some((base, exponent)) = decimals(base, exponent) {
        return result(Number::Decimal(decimal_functions::pow(base, exponent)));
    }
    if let (Some(b), Some(e)) = (base.as_integer(), exponent.as_integer()) {
        let power = match (b, u32::try_from(e)) {
            (1, _) => Some(1),
            (-1, _) => Some(if e % 2 == 0 { 1 } else { -1 }),
            (0, Err(_)) => Some(0),
            (b, Ok(e)) => b.checked_pow(e),
            (_, Err(_)) => None,
        };
        if let Some(power) = power {
            let narrow = matches!((base, exponent), (Number::Int(_), Number::Int(_)));
            return result(match i32::try_from(power) {
                Ok(power) if narrow => Number::Int(power),
                _ => Number::Long(power),
            });
        }
    }
    result(Number::Double(base.to_f64().powf(exponent.to_f64())))
}
