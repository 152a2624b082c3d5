//! Window functions: parsed, and running over one partition.
//!
//! ```text
//!   over a window     $sum $avg $min ... $derivative $integral $covariancePop $minMaxScaler
//!   by place          $rank $denseRank $documentNumber $shift
//!   by neighbours     $expMovingAvg $locf $linearFill
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{Decimal128, RawDoc, RawValue, Value};

use crate::arithmetic::{Number, decimal};
use crate::expression::{EvalValue, Expression, Unit, VariableScope, location, parse};
use crate::matcher::Dependencies;
use crate::pipeline::accumulator::{
    AccumulatorFeed, AccumulatorKind, AccumulatorSpec, Deviation, size,
};
use crate::sort::{SortKeyGenerator, SortPattern};

use super::frame::{Bound, Frame, Position, Window};
use super::sliding::{Covariance, Input, Inputs, Sliding, SlidingSum};

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

/// By what the partitions are sorted.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) pattern: SortPattern,
    /// The value of the one field, when it is one.
    pub(super) only: Option<Expression>,
}

/// A parsed function of the output.
#[derive(Debug, Clone)]
pub(super) enum FunctionSpec {
    /// An accumulator, or its like, over a window.
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

/// What is computed over a window.
#[derive(Debug, Clone)]
pub(super) enum Over {
    /// What the accumulator says.
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

fn failed(message: impl Into<String>) -> Error {
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
    // Months have no length of their own.
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
    /// Errors: FailedToParse (9) and MongoDB's own codes for what is wrong.
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
        // What is read of each document is read as by $push, whatever becomes of it.
        let reading = |value: RawValue<'_>| AccumulatorSpec::parse_reading(value, scope);
        let mut by_place = false;
        let (accumulator, over) = match name {
            "$covariancePop" | "$covarianceSamp" => match operand {
                RawValue::Array(pair) if pair.count() == 2 => (
                    reading(operand)?,
                    Over::Covariance {
                        sample: name == "$covarianceSamp",
                    },
                ),
                other => {
                    return Err(failed(format!(
                        "{name} expects an array of two expressions, not {}",
                        shell(other)
                    )));
                }
            },
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
                let doc = arguments(name, operand, &["input", "min", "max"])?;
                let input = reading(required(name, doc, "input")?)?;
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
                let accumulator =
                    AccumulatorSpec::parse(name, operand, scope).map_err(|e| match e.code() {
                        ErrorCode(15952) => unknown(name),
                        _ => e,
                    })?;
                match accumulator.kind {
                    AccumulatorKind::ConcatArrays
                    | AccumulatorKind::SetUnion
                    | AccumulatorKind::MergeObjects => return Err(unknown(name)),
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

    /// The function at the beginning of a partition.
    pub(super) fn start(&self) -> Result<Box<dyn WindowFunction>> {
        Ok(match self {
            FunctionSpec::Over {
                window,
                accumulator,
                over,
                order,
            } => {
                let only = order.as_ref().and_then(|order| order.only.as_ref());
                Box::new(Windowed {
                    frame: Frame::new(window, only),
                    feed: accumulator.feed(),
                    spec: accumulator.clone(),
                    place: match over {
                        Over::Derivative { unit } | Over::Integral { unit } => {
                            Some((only.cloned(), *unit))
                        }
                        _ => None,
                    },
                    sliding: sliding(over, accumulator)?,
                    slides: window.slides(),
                    inputs: Inputs::default(),
                    pushed: 0,
                    entered: 0,
                    gone: 0,
                    answered: 0,
                    last: None,
                })
            }
            FunctionSpec::Rank { dense, order } => Box::new(Rank {
                keys: SortKeyGenerator::new(&order.pattern),
                key: None,
                dense: *dense,
                seen: 0,
                rank: 0,
                ready: VecDeque::new(),
            }),
            FunctionSpec::DocumentNumber => Box::new(DocumentNumber { seen: 0, given: 0 }),
            FunctionSpec::Shift {
                output,
                by,
                default,
            } => Box::new(Shift {
                output: output.clone(),
                by: *by,
                default: default.clone(),
                values: VecDeque::new(),
                bytes: 0,
                first: 0,
                pushed: 0,
                current: 0,
                ended: false,
            }),
            FunctionSpec::MovingAverage { input, alpha } => Box::new(MovingAverage {
                input: input.clone(),
                alpha: *alpha,
                average: None,
                decimal: false,
                ready: VecDeque::new(),
            }),
            FunctionSpec::Locf(input) => Box::new(Locf {
                input: input.clone(),
                last: Value::Null,
                ready: VecDeque::new(),
                bytes: 0,
            }),
            FunctionSpec::LinearFill { input, order } => Box::new(LinearFill {
                input: input.clone(),
                place: order.only.clone(),
                before: None,
                last_place: None,
                waiting: Vec::new(),
                ready: VecDeque::new(),
                ended: false,
            }),
        })
    }
}

fn sliding(over: &Over, spec: &AccumulatorSpec) -> Result<Sliding> {
    use std::cmp::Ordering;
    let collator = || spec.collator().cloned();
    let n = || spec.constant_n();
    Ok(match over {
        Over::Covariance { sample } => Sliding::Covariance {
            state: Covariance::default(),
            sample: *sample,
            special: 0,
        },
        Over::Derivative { .. } => Sliding::Derivative,
        Over::Integral { .. } => Sliding::Integral {
            area: SlidingSum::default(),
            last: None,
        },
        Over::Scaler { least, most } => Sliding::Scaler {
            least: *least,
            most: *most,
            low: VecDeque::new(),
            high: VecDeque::new(),
        },
        Over::Accumulator => match spec.kind {
            AccumulatorKind::Sum => Sliding::Sum(SlidingSum::default()),
            AccumulatorKind::Avg => Sliding::Average(SlidingSum::default()),
            AccumulatorKind::Min | AccumulatorKind::Max => Sliding::Extreme {
                better: match spec.kind {
                    AccumulatorKind::Min => Ordering::Less,
                    _ => Ordering::Greater,
                },
                candidates: VecDeque::new(),
                collator: collator(),
            },
            AccumulatorKind::First | AccumulatorKind::Last => Sliding::End {
                last: spec.kind == AccumulatorKind::Last,
                kept: None,
            },
            AccumulatorKind::FirstN | AccumulatorKind::LastN => Sliding::Ends {
                n: n()?,
                last: spec.kind == AccumulatorKind::LastN,
            },
            AccumulatorKind::Push => Sliding::Push,
            AccumulatorKind::AddToSet => Sliding::Set {
                values: Default::default(),
                bytes: 0,
                collator: collator(),
            },
            AccumulatorKind::StdDevPop | AccumulatorKind::StdDevSamp => Sliding::Deviation {
                state: Deviation::default(),
                sample: spec.kind == AccumulatorKind::StdDevSamp,
                special: 0,
            },
            AccumulatorKind::Percentile | AccumulatorKind::Median => Sliding::Numbers {
                sorted: Vec::new(),
                shares: spec.shares(),
                one: spec.kind == AccumulatorKind::Median,
            },
            AccumulatorKind::Top
            | AccumulatorKind::Bottom
            | AccumulatorKind::TopN
            | AccumulatorKind::BottomN
            | AccumulatorKind::MinN
            | AccumulatorKind::MaxN => Sliding::Ranked {
                n: n()?,
                kind: spec.kind,
                entries: Default::default(),
                bytes: 0,
            },
            AccumulatorKind::ConcatArrays
            | AccumulatorKind::SetUnion
            | AccumulatorKind::MergeObjects => {
                return Err(failed("this accumulator is no window function"));
            }
        },
    })
}

/// A function over one partition. Documents come in order; each gets a value,
/// perhaps only after later ones came.
pub(super) trait WindowFunction: Send {
    /// Takes the next document.
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()>;
    /// No more documents come.
    fn end(&mut self);
    /// The value of the next document that has none yet. `None`: it is not known yet.
    fn next(&mut self) -> Result<Option<Value>>;
    /// Bytes that are held, roughly.
    fn bytes(&self) -> usize;
}

struct Windowed {
    frame: Frame,
    feed: AccumulatorFeed,
    spec: AccumulatorSpec,
    /// `$derivative` and `$integral`: the axis.
    place: Option<(Option<Expression>, Option<Unit>)>,
    sliding: Sliding,
    slides: bool,
    /// Documents that are in the window, may come into it, or are read again.
    inputs: Inputs,
    pushed: u64,
    /// Documents before this number came into the window.
    entered: u64,
    /// Documents before this number left it.
    gone: u64,
    answered: u64,
    /// The window before and its value: windows that do not move have the same.
    last: Option<((u64, u64), Value)>,
}

impl WindowFunction for Windowed {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        self.frame.push(doc)?;
        let value = self.spec.argument.evaluate_on(doc)?;
        let at = match &self.place {
            None => Number::Int(0),
            Some((path, unit)) => {
                let place = match path {
                    Some(path) => path.evaluate_on(doc)?,
                    None => EvalValue::Missing,
                };
                match Position::of(place.as_raw(), *unit)? {
                    Position::Number(n) => n,
                    Position::Date(millis) => Number::Long(millis),
                }
            }
        };
        if self.place.is_some()
            && let Some(found) = value.non_null()
            && !found.is_number()
        {
            return Err(location(
                5624900,
                format!(
                    "the input of $derivative and $integral must be a number, not {}",
                    found.type_name()
                ),
            ));
        }
        let key = self.feed.key(doc, &value)?.to_vec();
        let input = Input {
            value: value.into_value(),
            key,
            at,
        };
        self.inputs.bytes += input.bytes();
        self.inputs.values.push_back(input);
        self.pushed += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.frame.end();
    }

    fn next(&mut self) -> Result<Option<Value>> {
        let Some((lower, upper)) = self.frame.next() else {
            return Ok(None);
        };
        let current = self.answered;
        self.answered += 1;
        while self.entered < upper {
            if let Some(input) = self.inputs.get(self.entered) {
                self.sliding.add(self.entered, input)?;
            }
            self.entered += 1;
        }
        while self.gone < lower {
            self.sliding.remove(self.gone, &self.inputs, upper);
            self.gone += 1;
        }
        let moving = matches!(self.sliding, Sliding::Scaler { .. });
        let value = match &self.last {
            Some((window, value)) if *window == (lower, upper) && !moving => value.clone(),
            _ => {
                let millis = match &self.place {
                    Some((_, Some(unit))) => unit.millis(),
                    _ => None,
                };
                let window = (lower, upper);
                self.sliding
                    .value(&self.inputs, window, current, self.slides, millis)
            }
        };
        self.last = Some(((lower, upper), value.clone()));
        // What is in the window is needed while it may leave, or is read again.
        let keep = if self.slides || self.sliding.reads_window() {
            lower
        } else {
            self.entered
        };
        let keep = match moving {
            true => keep.min(self.answered),
            false => keep,
        };
        while self.inputs.first < keep.min(self.entered)
            && let Some(gone) = self.inputs.values.pop_front()
        {
            self.inputs.bytes -= gone.bytes();
            self.inputs.first += 1;
        }
        Ok(Some(value))
    }

    fn bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |(_, v)| size(v.as_raw()));
        self.inputs.bytes + self.sliding.bytes() + self.frame.bytes() + last
    }
}

struct Rank {
    keys: SortKeyGenerator,
    key: Option<Vec<u8>>,
    dense: bool,
    seen: i64,
    rank: i64,
    ready: VecDeque<i64>,
}

/// A count, as an int while it fits one.
fn count(n: i64) -> Value {
    match i32::try_from(n) {
        Ok(n) => Value::Int32(n),
        Err(_) => Value::Int64(n),
    }
}

impl WindowFunction for Rank {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let mut key = Vec::new();
        self.keys.key_of_document(doc, &mut key)?;
        self.seen += 1;
        if self.key.as_ref() != Some(&key) {
            self.rank = if self.dense { self.rank + 1 } else { self.seen };
            self.key = Some(key);
        }
        self.ready.push_back(self.rank);
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front().map(count))
    }

    fn bytes(&self) -> usize {
        self.ready.len() * 8
    }
}

struct DocumentNumber {
    seen: i64,
    given: i64,
}

impl WindowFunction for DocumentNumber {
    fn push(&mut self, _: RawDoc<'_>) -> Result<()> {
        self.seen += 1;
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        if self.given == self.seen {
            return Ok(None);
        }
        self.given += 1;
        Ok(Some(count(self.given)))
    }

    fn bytes(&self) -> usize {
        0
    }
}

struct Shift {
    output: Expression,
    by: i64,
    default: Value,
    values: VecDeque<Value>,
    bytes: usize,
    first: u64,
    pushed: u64,
    current: u64,
    ended: bool,
}

impl WindowFunction for Shift {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self
            .output
            .evaluate_on(doc)?
            .into_value()
            .unwrap_or(Value::Null);
        self.bytes += size(value.as_raw()) + size_of::<Value>();
        self.values.push_back(value);
        self.pushed += 1;
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn next(&mut self) -> Result<Option<Value>> {
        if self.current == self.pushed {
            return Ok(None);
        }
        let value = match self.current.checked_add_signed(self.by) {
            Some(at) if at >= self.pushed && !self.ended => return Ok(None),
            Some(at) if at < self.pushed => {
                let at = at.checked_sub(self.first).map(|at| at as usize);
                at.and_then(|at| self.values.get(at))
                    .unwrap_or(&self.default)
            }
            _ => &self.default,
        };
        let value = value.clone();
        self.current += 1;
        let oldest = self.current.saturating_add_signed(self.by);
        while self.first < oldest
            && let Some(gone) = self.values.pop_front()
        {
            self.bytes -= size(gone.as_raw()) + size_of::<Value>();
            self.first += 1;
        }
        Ok(Some(value))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

struct MovingAverage {
    input: Expression,
    alpha: Decimal128,
    average: Option<Decimal128>,
    /// A decimal was met: the result is one.
    decimal: bool,
    ready: VecDeque<Value>,
}

impl WindowFunction for MovingAverage {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self.input.evaluate_on(doc)?;
        // What is no number has no part: the average stays.
        if let Some(number) = value.as_raw().and_then(Number::from_raw) {
            self.decimal |= matches!(number, Number::Decimal(_));
            let x = match number {
                Number::Double(x) => decimal::from_f64_full(x),
                other => other.to_decimal(),
            };
            self.average = Some(match self.average {
                None => x,
                Some(before) => {
                    let rest = decimal::subtract(decimal::from_i64(1), self.alpha);
                    decimal::add(
                        decimal::multiply(x, self.alpha),
                        decimal::multiply(before, rest),
                    )
                }
            });
        }
        self.ready.push_back(match self.average {
            None => Value::Null,
            Some(average) if self.decimal => Value::Decimal128(average),
            Some(average) => Value::Double(average.to_f64()),
        });
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front())
    }

    fn bytes(&self) -> usize {
        self.ready.len() * size_of::<Value>()
    }
}

/// The last value that was not null.
struct Locf {
    input: Expression,
    last: Value,
    ready: VecDeque<Value>,
    bytes: usize,
}

impl WindowFunction for Locf {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let value = self.input.evaluate_on(doc)?;
        if value.non_null().is_some() {
            self.last = value.into_value().unwrap_or(Value::Null);
        }
        self.bytes += size(self.last.as_raw()) + size_of::<Value>();
        self.ready.push_back(self.last.clone());
        Ok(())
    }

    fn end(&mut self) {}

    fn next(&mut self) -> Result<Option<Value>> {
        let value = self.ready.pop_front();
        if let Some(value) = &value {
            self.bytes -= size(value.as_raw()) + size_of::<Value>();
        }
        Ok(value)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Values on the line between the numbers before and behind.
struct LinearFill {
    input: Expression,
    place: Option<Expression>,
    /// The last number and its place.
    before: Option<(Number, Number)>,
    last_place: Option<Number>,
    /// Places of the documents without a number since.
    waiting: Vec<Number>,
    ready: VecDeque<Value>,
    ended: bool,
}

impl WindowFunction for LinearFill {
    fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        let place = match &self.place {
            Some(path) => path.evaluate_on(doc)?,
            None => EvalValue::Missing,
        };
        let at = match place.as_raw() {
            Some(RawValue::DateTime(date)) => Number::Long(date.0),
            other => other.and_then(Number::from_raw).ok_or_else(|| {
                location(
                    605002,
                    "$linearFill requires a sortBy field that is a number or a date",
                )
            })?,
        };
        if let Some(last) = self.last_place
            && sheaf_bson::compare_values(last.into(), at.into()).is_eq()
        {
            return Err(location(
                6050106,
                "There can be no repeated values in the sort field of $linearFill",
            ));
        }
        self.last_place = Some(at);
        let value = self.input.evaluate_on(doc)?;
        let Some(raw) = value.non_null() else {
            match self.before {
                // Before the first number there is nothing to draw a line from.
                None => self.ready.push_back(Value::Null),
                Some(_) => self.waiting.push(at),
            }
            return Ok(());
        };
        let Some(here) = Number::from_raw(raw) else {
            return Err(location(
                605001,
                format!(
                    "Value to be filled must be numeric or nullish, but found {}",
                    raw.type_name()
                ),
            ));
        };
        if let Some((start, from)) = self.before {
            let slope = here.minus(start).divide(at.minus(from));
            for place in self.waiting.drain(..) {
                let rise = slope.map(|slope| slope.times(place.minus(from)));
                let value = rise.map_or(start, |rise| start.plus(rise));
                self.ready.push_back(value.into());
            }
        }
        self.before = Some((here, at));
        self.ready.push_back(raw.to_value());
        Ok(())
    }

    fn end(&mut self) {
        self.ended = true;
        // Behind the last number there is nothing to draw a line to.
        for _ in self.waiting.drain(..) {
            self.ready.push_back(Value::Null);
        }
    }

    fn next(&mut self) -> Result<Option<Value>> {
        Ok(self.ready.pop_front())
    }

    fn bytes(&self) -> usize {
        (self.ready.len() + self.waiting.len()) * size_of::<Value>()
    }
}

/// A parsed function that is shared.
pub(super) type SharedFunction = Arc<FunctionSpec>;
