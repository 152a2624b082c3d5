//! Vectors: arrays of numbers, and binary data of subtype 9. Their similarity: `$similarityCosine`,
//! `$similarityDotProduct`, `$similarityEuclidean`.
//!
//! [`crate::vector`] defines binary vectors and scores.
//!
//! `{$similarity...: [v, w]}` is the measure itself. `{vectors: [v, w], score: true}` normalizes it
//! so that 1 means equal: (1 + cosine) / 2, (1 + product) / 2, 1 / (1 + distance).

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{ArrayBuilder, RawValue, Value};

use crate::arithmetic::Number;
use crate::vector::{BINARY_SUBTYPE, BinaryVector, Packing, Similarity};

use super::eval::{EvalContext, EvalValue, pair};
use super::operator::{Arity, Operator};
use super::parser::{Arguments, Parser};
use super::{Expression, budget, location};

/// Checks the cost of walking a vector with `bytes` held per component. Errors: it exceeds the
/// budget.
fn check(vector: BinaryVector<'_>, bytes: usize) -> Result<()> {
    budget::check_value(vector.count.saturating_mul(bytes))?;
    budget::steps(vector.count as u64)
}

/// Converts a binary vector to an array of ints, doubles or booleans; `None` if the bytes are not a
/// vector. Errors: the array is too large.
pub(super) fn to_array(bytes: &[u8]) -> Result<Option<Value>> {
    let Some(vector) = BinaryVector::parse(bytes) else {
        return Ok(None);
    };
    // A type byte, a key with some digits, a value.
    check(vector, 10)?;
    let mut out = ArrayBuilder::new();
    for component in vector.components() {
        out.push(match vector.packed.packing {
            Packing::Float32 => RawValue::Double(component),
            Packing::Int8 => RawValue::Int32(component as i32),
            Packing::Bit => RawValue::Boolean(component != 0.0),
        });
    }
    budget::check_value(out.current_len())?;
    Ok(Some(Value::Array(out.finish())))
}

/// The components of a vector. Errors: the value is not a vector of numbers.
fn numbers(operator: &'static Operator, value: RawValue<'_>) -> Result<Vec<f64>> {
    let mismatch =
        |why: &str| operator.error(ErrorCode::TYPE_MISMATCH.0, format_args!("requires {why}"));
    match value {
        RawValue::Array(array) => array
            .iter()
            .map(|v| match Number::from_raw(v) {
                Some(number) => Ok(number.to_f64()),
                None => Err(mismatch(&format!(
                    "arrays of numbers, found an element of type {}",
                    v.type_name()
                ))),
            })
            .collect(),
        RawValue::Binary {
            subtype: BINARY_SUBTYPE,
            bytes,
        } => {
            let vector = BinaryVector::parse(bytes)
                .ok_or_else(|| mismatch("binary data that is a vector of a known format"))?;
            check(vector, size_of::<f64>())?;
            Ok(vector.components().collect())
        }
        other => Err(mismatch(&format!(
            "arrays of numbers or binary vectors, found: {}",
            other.type_name()
        ))),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // The sum of no terms is 0; `Iterator::sum` would return -0.
    a.iter().zip(b).fold(0.0, |sum, (x, y)| sum + x * y)
}

/// The cosine of the angle between two vectors; 0 if one of them is zero.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let squares = dot(a, a) * dot(b, b);
    if squares.is_normal() {
        // One square root is more accurate than two.
        return (dot(a, b) / squares.sqrt()).clamp(-1.0, 1.0);
    }
    // The squares overflow or underflow a double: scale both vectors first.
    let largest = |v: &[f64]| v.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let (most_a, most_b) = (largest(a), largest(b));
    if a.iter().chain(b).any(|x| x.is_nan()) {
        return f64::NAN;
    }
    if most_a == 0.0 || most_b == 0.0 {
        return 0.0;
    }
    let a: Vec<f64> = a.iter().map(|x| x / most_a).collect();
    let b: Vec<f64> = b.iter().map(|x| x / most_b).collect();
    (dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()).clamp(-1.0, 1.0)
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y));
    squares.fold(0.0, |sum, square| sum + square).sqrt()
}

fn measured<'e>(
    operator: &'static Operator,
    args: &'e [Expression],
    ctx: EvalContext<'e>,
    measure: impl FnOnce(&[f64], &[f64]) -> f64,
) -> Result<EvalValue<'e>> {
    let (a, b) = pair(args, ctx)?;
    let (Some(a), Some(b)) = (a.non_null(), b.non_null()) else {
        return Ok(EvalValue::NULL);
    };
    let (a, b) = (numbers(operator, a)?, numbers(operator, b)?);
    if a.len() != b.len() {
        return Err(operator.error(
            ErrorCode::BAD_VALUE.0,
            format_args!(
                "requires vectors of equal length, found {} and {} elements",
                a.len(),
                b.len()
            ),
        ));
    }
    Ok(Value::Double(measure(&a, &b)).into())
}

/// `[v, w]` or `{vectors: [v, w], score: bool}`.
fn parse(
    parser: &mut Parser<'_>,
    operand: RawValue<'_>,
    raw: &'static Operator,
    score: &'static Operator,
) -> Result<Expression> {
    let wrong = ErrorCode::FAILED_TO_PARSE.0;
    let (vectors, operator) = match operand {
        RawValue::Document(_) => {
            let args = Arguments::new(raw.name, operand, &["vectors", "score"], wrong, wrong)?;
            let operator = match args.get("score") {
                None | Some(RawValue::Boolean(false)) => raw,
                Some(RawValue::Boolean(true)) => score,
                Some(other) => {
                    return Err(location(
                        wrong,
                        format!(
                            "{}: 'score' must be true or false, not {}",
                            raw.name,
                            other.type_name()
                        ),
                    ));
                }
            };
            (args.required("vectors", wrong)?, operator)
        }
        other => (other, raw),
    };
    let args = match vectors {
        RawValue::Array(array) => array
            .iter()
            .map(|v| parser.operand(v))
            .collect::<Result<Vec<_>>>()?,
        only => vec![parser.operand(only)?],
    };
    operator.check_arity(args.len())?;
    Ok(Expression::Call { operator, args })
}

macro_rules! similarities {
    ($($parse:ident $name:literal $measure:ident $similarity:ident;)*) => {
        $(pub(super) fn $parse(
            parser: &mut Parser<'_>,
            operand: RawValue<'_>,
        ) -> Result<Expression> {
            static RAW: Operator = Operator {
                name: $name,
                arity: Arity::Exactly(2),
                eval: |operator, args, ctx| measured(operator, args, ctx, $measure),
            };
            static SCORE: Operator = Operator {
                name: $name,
                arity: Arity::Exactly(2),
                eval: |operator, args, ctx| {
                    measured(operator, args, ctx, |a, b| {
                        Similarity::$similarity.score_of_measure($measure(a, b))
                    })
                },
            };
            parse(parser, operand, &RAW, &SCORE)
        })*
    };
}

similarities! {
    parse_cosine "$similarityCosine" cosine Cosine;
    parse_dot_product "$similarityDotProduct" dot DotProduct;
    parse_euclidean "$similarityEuclidean" distance Euclidean;
}
