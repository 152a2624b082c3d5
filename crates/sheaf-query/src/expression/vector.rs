//! Vectors: arrays of numbers, and binary data of subtype 9. How close two are:
//! `$similarityCosine`, `$similarityDotProduct`, `$similarityEuclidean`.
//!
//! ```text
//!   subtype 9     | format | padding | elements ...
//!     0x03        int8, a byte each
//!     0x27        float32, four bytes each, little-endian
//!     0x10        bits, the highest first; the last `padding` (0 to 7) of them do not count
//! ```
//!
//! `{$similarity...: [v, w]}` is the measure itself; `{vectors: [v, w], score: true}`
//! brings it to where 1 means alike: (1 + cosine) / 2, (1 + product) / 2, 1 / (1 + distance).

use sheaf_bson::error_code::{ErrorCode, Result};
use sheaf_bson::{ArrayBuilder, RawValue, Value};

use crate::arithmetic::Number;

use super::eval::{EvalContext, EvalValue, pair};
use super::operators::{Arity, Operator};
use super::parser::{Arguments, Parser};
use super::{Expression, budget, location};

/// The subtype of binary vectors.
pub(super) const SUBTYPE: u8 = 9;

/// The elements of a binary vector.
enum Elements<'b> {
    Int8(&'b [u8]),
    Float32(&'b [u8]),
    Bits { bytes: &'b [u8], count: usize },
}

impl<'b> Elements<'b> {
    /// `None`: bytes that are no vector.
    fn of(bytes: &'b [u8]) -> Option<Elements<'b>> {
        let (&[format, padding], rest) = bytes.split_first_chunk::<2>()?;
        match format {
            0x03 if padding == 0 => Some(Elements::Int8(rest)),
            0x27 if padding == 0 && rest.len().is_multiple_of(4) => Some(Elements::Float32(rest)),
            0x10 if padding < 8 => {
                let count = (rest.len() * 8).checked_sub(usize::from(padding))?;
                Some(Elements::Bits { bytes: rest, count })
            }
            _ => None,
        }
    }

    fn count(&self) -> usize {
        match self {
            Elements::Int8(bytes) => bytes.len(),
            Elements::Float32(bytes) => bytes.len() / 4,
            Elements::Bits { count, .. } => *count,
        }
    }

    /// Errors: there are so many that it takes too much to walk them, `bytes` held for each.
    fn check(&self, bytes: usize) -> Result<()> {
        budget::check_value(self.count().saturating_mul(bytes))?;
        budget::steps(self.count() as u64)
    }

    fn for_each(&self, mut visit: impl FnMut(Value)) {
        match self {
            Elements::Int8(bytes) => bytes
                .iter()
                .for_each(|byte| visit(Value::Int32(i32::from(*byte as i8)))),
            Elements::Float32(bytes) => {
                let (words, _) = bytes.as_chunks::<4>();
                words
                    .iter()
                    .for_each(|word| visit(Value::Double(f64::from(f32::from_le_bytes(*word)))));
            }
            Elements::Bits { bytes, count } => (0..*count).for_each(|at| {
                visit(Value::Boolean(bytes[at / 8] & (0x80 >> (at % 8)) != 0));
            }),
        }
    }
}

/// The array of a binary vector: ints, doubles or booleans. `None`: bytes that are no vector.
/// Errors: an array that is too large.
pub(super) fn to_array(bytes: &[u8]) -> Result<Option<Value>> {
    let Some(elements) = Elements::of(bytes) else {
        return Ok(None);
    };
    // A type, a place of some digits, a value.
    elements.check(10)?;
    let mut out = ArrayBuilder::new();
    elements.for_each(|value| {
        out.push(value.as_raw());
    });
    budget::check_value(out.current_len())?;
    Ok(Some(Value::Array(out.finish())))
}

/// Errors: what is no vector of numbers.
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
            subtype: SUBTYPE,
            bytes,
        } => {
            let elements = Elements::of(bytes)
                .ok_or_else(|| mismatch("binary data that is a vector of a known format"))?;
            elements.check(size_of::<f64>())?;
            let mut out = Vec::with_capacity(elements.count());
            elements.for_each(|value| {
                out.push(match value {
                    Value::Boolean(bit) => f64::from(u8::from(bit)),
                    other => Number::from_raw(other.as_raw()).map_or(0.0, |n| n.to_f64()),
                });
            });
            Ok(out)
        }
        other => Err(mismatch(&format!(
            "arrays of numbers or binary vectors, found: {}",
            other.type_name()
        ))),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // The sum of nothing is 0; `Iterator::sum` would give -0.
    a.iter().zip(b).fold(0.0, |sum, (x, y)| sum + x * y)
}

/// The cosine of the angle between two vectors; 0 where one has no direction.
fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let squares = dot(a, a) * dot(b, b);
    if squares.is_normal() {
        // One root is more exact than two.
        return (dot(a, b) / squares.sqrt()).clamp(-1.0, 1.0);
    }
    // The squares have left the range of doubles: the direction is that of a vector of ordinary length.
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
    ($($parse:ident $name:literal $measure:ident $score:expr;)*) => {
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
                    measured(operator, args, ctx, |a, b| $score($measure(a, b)))
                },
            };
            parse(parser, operand, &RAW, &SCORE)
        })*
    };
}

fn halved(measure: f64) -> f64 {
    (1.0 + measure) / 2.0
}

fn nearness(distance: f64) -> f64 {
    1.0 / (1.0 + distance)
}

similarities! {
    parse_cosine "$similarityCosine" cosine halved;
    parse_dot_product "$similarityDotProduct" dot halved;
    parse_euclidean "$similarityEuclidean" distance nearness;
}
