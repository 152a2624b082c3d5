//! Parsed window functions. The functions that run over a partition are grouped by what they read:
//!
//! ```text
//!   over_window.rs     $sum $avg $min ... $derivative $integral $covariancePop $minMaxScaler
//!   by_place.rs        $rank $denseRank $documentNumber $shift
//!   by_neighbours.rs   $expMovingAvg $locf $linearFill
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{Decimal128, RawDoc, RawValue, Value};

use crate::arithmetic::{Number, decimal};
use crate::expression::{Expression, Unit, VariableScope, location, parse};
use crate::matcher::Dependencies;
use crate::pipeline::accumulator::{AccumulatorKind, AccumulatorSpec};
use crate::sort::SortPattern;

use super::by_neighbours::{LinearFill, Locf, MovingAverage};
use super::by_place::{DocumentNumber, Rank, Shift};
use super::frame::{Bound, Window};
use super::over_window::Windowed;

/// Functions that are not accumulators.
pub(in crate::pipeline) const NAMES: &[&str] = &[
    "$covariancePop",
    "$covarianceSamp",
    "$denseRank",
    "$derivative",
    "$documentNumber",
    "$expMovingAvg",
    "$integral",
    "$linearFill",
    "$locf",
    "$minMaxScaler",
    "$rank",
    "$shift",
];

/// Names of the functions of `$setWindowFields` that are not accumulators of `$group`.
pub fn window_function_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

/// The sort of the partitions.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) pattern: SortPattern,
    /// The value of the sort field, if there is exactly one.
    pub(super) only: Option<Expression>,
}

/// A parsed function of the output.
#[derive(Debug, Clone)]
pub(super) enum FunctionSpec {
    /// An accumulator or a similar function over a window.
    Over {
        window: Window,
        accumulator: AccumulatorSpec,
        over: Over,
        order: Option<Order>,
    },
    Rank {
        dense: bool,
        order: Order,
    },
    DocumentNumber,
    Shift {
        output: Expression,
        by: i64,
        default: Value,
    },
    MovingAverage {
        input: Expression,
        alpha: Decimal128,
    },
    Locf(Expression),
    LinearFill {
        input: Expression,
        order: Order,
    },
}

/// The kind of function over a window.
#[derive(Debug, Clone)]
pub(super) enum Over {
    /// The function of the accumulator.
    Accumulator,
    Covariance {
        sample: bool,
    },
    Derivative {
        unit: Option<Unit>,
    },
    Integral {
        unit: Option<Unit>,
    },
    Scaler {
        least: Number,
        most: Number,
    },
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

fn arguments<'a>(name: &str, value: RawValue<'a>, known: &[&str]) -> Result<RawDoc<'a>> {
    let RawValue::Document(doc) = value else {
        return Err(failed(format!(
            "{name} takes an object as its argument, not {}",
            value.type_name()
        )));
    };
    match doc.iter().find(|e| !known.contains(&e.key())) {
        Some(other) => Err(failed(format!(
            "{name} got an unexpected argument: {}",
            other.key()
        ))),
        None => Ok(doc),
    }
}

fn required<'a>(name: &str, doc: RawDoc<'a>, field: &str) -> Result<RawValue<'a>> {
    doc.get(field)
        .ok_or_else(|| failed(format!("{name} requires '{field}'")))
}

fn time_unit(name: &str, doc: RawDoc<'_>) -> Result<Option<Unit>> {
    let unit = match doc.get("unit") {
        None => return Ok(None),
        Some(RawValue::String(unit)) => Unit::find(unit),
        Some(other) => {
            return Err(failed(format!(
                "{name}: 'unit' must be a string, not {}",
                other.type_name()
            )));
        }
    };
    // Months have no fixed length.
    match unit.filter(|unit| unit.millis().is_some()) {
        Some(unit) => Ok(Some(unit)),
        None => Err(location(
            5490710,
            format!("{name}: 'unit' must be 'week' or smaller"),
        )),
    }
}

impl FunctionSpec {
    /// Parses `{$function: operand, window: {...}}`.
    /// Errors: FailedToParse (9) and MongoDB's codes for invalid operands.
    pub(super) fn parse(
        spec: RawDoc<'_>,
        order: Option<&Order>,
        scope: &VariableScope,
    ) -> Result<FunctionSpec> {
        let (mut function, mut window) = (None, None);
        for element in spec {
            match element.key() {
                "window" => window = Some(Window::parse(element.value())?),
                key if key.starts_with('$') && function.is_none() => function = Some(element),
                key if key.starts_with('$') => {
                    return Err(failed(format!(
                        "a field of the output takes one window function, found another: {key}"
                    )));
                }
                other => {
                    return Err(failed(format!(
                        "a window function found an unknown argument: {other}"
                    )));
                }
            }
        }
        let Some(function) = function else {
            return Err(failed("expected a $-prefixed window function"));
        };
        let (name, operand) = (function.key(), function.value());
        let sorted = || {
            order
                .cloned()
                .ok_or_else(|| location(5371602, format!("{name} requires a sortBy")))
        };
        let sorted_by_one = || {
            order
                .filter(|order| order.only.is_some())
                .cloned()
                .ok_or_else(|| {
                    location(
                        5371602,
                        format!(
                            "{name} must be specified with a top level sortBy expression with exactly one element"
                        ),
                    )
                })
        };
        let no_window = |code: i32| match window {
            None => Ok(()),
            Some(_) => Err(location(
                code,
                format!("{name} does not accept a 'window' field"),
            )),
        };
        let no_arguments = || match operand {
            RawValue::Document(doc) if doc.is_empty() => Ok(()),
            _ => Err(location(
                5371603,
                format!("{name} must be specified with '{{}}' as the value"),
            )),
        };
        match name {
            "$rank" | "$denseRank" => {
                no_window(5371601)?;
                no_arguments()?;
                Ok(FunctionSpec::Rank {
                    dense: name == "$denseRank",
                    order: sorted_by_one()?,
                })
            }
            "$documentNumber" => {
                no_window(5371601)?;
                no_arguments()?;
                sorted()?;
                Ok(FunctionSpec::DocumentNumber)
            }
            "$shift" => {
                no_window(ErrorCode::FAILED_TO_PARSE.0)?;
                sorted()?;
                let doc = arguments(name, operand, &["output", "by", "default"])?;
                let by = required(name, doc, "by")?;
                let by = by
                    .as_i64_exact()
                    .filter(|n| i32::try_from(*n).is_ok())
                    .ok_or_else(|| {
                        failed(format!(
                            "'$shift:by' field must be an integer, but found {}",
                            shell(by)
                        ))
                    })?;
                let default = match doc.get("default") {
                    None => Value::Null,
                    Some(value) => match parse(value, scope)?.as_constant() {
                        Some(constant) => constant.map_or(Value::Null, |v| v.to_value()),
                        None => {
                            return Err(failed(format!(
                                "'$shift:default' expression must yield a constant value: {}",
                                shell(value)
                            )));
                        }
                    },
                };
                Ok(FunctionSpec::Shift {
                    output: parse(required(name, doc, "output")?, scope)?,
                    by,
                    default,
                })
            }
            "$expMovingAvg" => {
                no_window(ErrorCode::FAILED_TO_PARSE.0)?;
                sorted()?;
                let doc = arguments(name, operand, &["input", "N", "alpha"])?;
                let alpha = match (doc.get("N"), doc.get("alpha")) {
                    (Some(n), None) => {
                        let n = n.as_i64_exact().filter(|n| *n > 0).ok_or_else(|| {
                            failed(format!("'N' field of $expMovingAvg must be a positive integer, but found {}", shell(n)))
                        })?;
                        decimal::divide(decimal::from_i64(2), decimal::from_i64(n.saturating_add(1)))
                    }
                    (None, Some(alpha)) => Number::from_raw(alpha)
                        .filter(|x| x.to_f64() > 0.0 && x.to_f64() < 1.0)
                        .ok_or_else(|| {
                            failed(format!("'alpha' of $expMovingAvg must be between 0 and 1 (exclusive), found {}", shell(alpha)))
                        })?
                        .to_decimal(),
                    _ => {
                        return Err(failed(
                            "$expMovingAvg sub object must have exactly two fields: An 'input' field, and either an 'N' field or an 'alpha' field",
                        ));
                    }
                };
                Ok(FunctionSpec::MovingAverage {
                    input: parse(required(name, doc, "input")?, scope)?,
                    alpha,
                })
            }
            "$locf" => {
                no_window(ErrorCode::FAILED_TO_PARSE.0)?;
                Ok(FunctionSpec::Locf(parse(operand, scope)?))
            }
            "$linearFill" => {
                no_window(ErrorCode::FAILED_TO_PARSE.0)?;
                let order = order.filter(|order| order.only.is_some()).cloned();
                let order = order.ok_or_else(|| {
                    location(605001, "$linearFill must be specified with a top level sortBy expression with exactly one element")
                })?;
                Ok(FunctionSpec::LinearFill {
                    input: parse(operand, scope)?,
                    order,
                })
            }
            _ => FunctionSpec::parse_over(name, operand, window, order, scope),
        }
    }

    fn parse_over(
        name: &str,
        operand: RawValue<'_>,
        window: Option<Window>,
        order: Option<&Order>,
        scope: &VariableScope,
    ) -> Result<FunctionSpec> {
        // The input of each document is evaluated as for $push.
        let reading = |value: RawValue<'_>| AccumulatorSpec::parse_reading(value, scope);
        let mut by_place = false;
        let (accumulator, over) = match name {
            // Inputs that are not arrays of two numbers are ignored.
            "$covariancePop" | "$covarianceSamp" => (
                reading(operand)?,
                Over::Covariance {
                    sample: name == "$covarianceSamp",
                },
            ),
            "$derivative" | "$integral" => {
                by_place = true;
                let doc = arguments(name, operand, &["input", "unit"])?;
                let unit = time_unit(name, doc)?;
                let input = reading(required(name, doc, "input")?)?;
                if name == "$derivative" && window.is_none() {
                    return Err(failed("$derivative requires explicit window bounds"));
                }
                match name {
                    "$derivative" => (input, Over::Derivative { unit }),
                    _ => (input, Over::Integral { unit }),
                }
            }
            "$minMaxScaler" => {
                // Without the names the operand is the input itself.
                let is_expression =
                    |doc: RawDoc<'_>| doc.first().is_some_and(|e| e.key().starts_with('$'));
                let named = match operand {
                    RawValue::Document(doc) if !is_expression(doc) => true,
                    _ => false,
                };
                let doc = match named {
                    true => arguments(name, operand, &["input", "min", "max"])?,
                    false => RawDoc::EMPTY,
                };
                let input = match named {
                    true => reading(required(name, doc, "input")?)?,
                    false => reading(operand)?,
                };
                let number = |field: &str, default: i32| match doc.get(field) {
                    None => Ok(Number::Int(default)),
                    Some(value) => Number::from_raw(value).ok_or_else(|| {
                        failed(format!(
                            "'{field}' of $minMaxScaler must be a number, not {}",
                            shell(value)
                        ))
                    }),
                };
                let (least, most) = (number("min", 0)?, number("max", 1)?);
                if least.to_f64() >= most.to_f64() {
                    return Err(failed("$minMaxScaler: 'max' must be greater than 'min'"));
                }
                (input, Over::Scaler { least, most })
            }
            _ => {
                let unknown = |name: &str| failed(format!("Unrecognized window function, {name}"));
                let accumulator = AccumulatorSpec::parse_over_window(name, operand, scope)
                    .map_err(|e| match e.code() {
                        ErrorCode(15952) => unknown(name),
                        _ => e,
                    })?;
                match accumulator.kind {
                    AccumulatorKind::MergeObjects | AccumulatorKind::Script => {
                        return Err(unknown(name));
                    }
                    _ => (accumulator, Over::Accumulator),
                }
            }
        };
        if by_place && order.is_none_or(|order| order.only.is_none()) {
            return Err(location(
                5371602,
                format!("{name} requires a sortBy expression with exactly one element"),
            ));
        }
        let window = window.unwrap_or(Window::WHOLE);
        match &window {
            Window::Range { .. } => {
                let ascending =
                    |order: &&Order| order.only.is_some() && order.pattern.parts[0].ascending;
                if order.filter(ascending).is_none() {
                    return Err(location(
                        5339902,
                        "Range-based bounds require a sortBy with exactly one field, ascending",
                    ));
                }
            }
            Window::Documents(Bound::Unbounded, Bound::Unbounded) => {}
            Window::Documents(..) if order.is_none() => {
                return Err(location(5339901, "Document-based bounds require a sortBy"));
            }
            Window::Documents(..) => {}
        }
        Ok(FunctionSpec::Over {
            window,
            accumulator,
            over,
            order: order.cloned(),
        })
    }

    /// Adds the paths that the function reads.
    pub(super) fn add_dependencies(&self, found: &mut Dependencies) {
        match self {
            FunctionSpec::Over { accumulator, .. } => accumulator.add_dependencies(found),
            FunctionSpec::Rank { .. } | FunctionSpec::DocumentNumber => {}
            FunctionSpec::Shift { output: input, .. }
            | FunctionSpec::MovingAverage { input, .. }
            | FunctionSpec::Locf(input)
            | FunctionSpec::LinearFill { input, .. } => input.add_dependencies(found),
        }
    }

    /// Starts the function at the beginning of a partition.
    pub(super) fn start(&self) -> Result<Box<dyn WindowFunction>> {
        Ok(match self {
            FunctionSpec::Over {
                window,
                accumulator,
                over,
                order,
            } => {
                let only = order.as_ref().and_then(|order| order.only.as_ref());
                Box::new(Windowed::new(window, accumulator, over, only)?)
            }
            FunctionSpec::Rank { dense, order } => Box::new(Rank::new(&order.pattern, *dense)),
            FunctionSpec::DocumentNumber => Box::new(DocumentNumber::default()),
            FunctionSpec::Shift {
                output,
                by,
                default,
            } => Box::new(Shift::new(output, *by, default)),
            FunctionSpec::MovingAverage { input, alpha } => {
                Box::new(MovingAverage::new(input, *alpha))
            }
            FunctionSpec::Locf(input) => Box::new(Locf::new(input)),
            FunctionSpec::LinearFill { input, order } => {
                Box::new(LinearFill::new(input, order.only.as_ref()))
            }
        })
    }
}

/// A function over one partition. Documents arrive in order; each receives a value, possibly only
/// after later ones have arrived.
pub(super) trait WindowFunction: Send {
    /// Adds the next document.
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()>;
    /// Ends the partition: no more documents follow.
    fn end(&mut self);
    /// The value of the next document without one; `None` if it is not known yet.
    fn next(&mut self) -> Result<Option<Value>>;
    /// Approximate bytes held.
    fn bytes(&self) -> usize;
}

/// A shared parsed function.
pub(super) type SharedFunction = Arc<FunctionSpec>;
