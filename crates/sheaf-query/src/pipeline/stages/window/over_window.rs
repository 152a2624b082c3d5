//! Functions over a window of documents around each document.

use std::collections::VecDeque;

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawDoc, Value};

use crate::arithmetic::Deviation;
use crate::arithmetic::Number;
use crate::expression::{EvalValue, Expression, Unit, location};
use crate::interrupt;
use crate::pipeline::accumulator::{AccumulatorFeed, AccumulatorKind, AccumulatorSpec, size};

use super::covariance::Covariance;
use super::deviation::SlidingDeviation;
use super::frame::{Frame, Position, Window};
use super::functions::{Over, WindowFunction, failed};
use super::inputs::{Input, Inputs};
use super::sliding::Sliding;
use super::sliding_sum::SlidingSum;

/// An accumulator or a similar function, whose inputs enter and leave the window.
pub(super) struct Windowed {
    frame: Frame,
    feed: AccumulatorFeed,
    spec: AccumulatorSpec,
    /// `$derivative` and `$integral`: the axis.
    place: Option<(Option<Expression>, Option<Unit>)>,
    sliding: Sliding,
    slides: bool,
    /// Inputs of documents that are in the window, may enter it, or are read again.
    inputs: Inputs,
    pushed: u64,
    /// Documents before this number have entered the window.
    entered: u64,
    /// Documents before this number have left it.
    gone: u64,
    answered: u64,
    /// The previous window and its value, which is reused for an equal window.
    last: Option<((u64, u64), Value)>,
}

impl Windowed {
    /// The state before the first document. `only`: the only field that the partition is sorted by.
    /// Errors: those of the accumulator's constants.
    pub(super) fn new(
        window: &Window,
        accumulator: &AccumulatorSpec,
        over: &Over,
        only: Option<&Expression>,
    ) -> Result<Windowed> {
        Ok(Windowed {
            frame: Frame::new(window, only),
            feed: accumulator.feed(),
            spec: accumulator.clone(),
            place: match over {
                Over::Derivative { unit } | Over::Integral { unit } => Some((only.cloned(), *unit)),
                _ => None,
            },
            sliding: sliding(over, accumulator, window.slides())?,
            slides: window.slides(),
            inputs: Inputs::default(),
            pushed: 0,
            entered: 0,
            gone: 0,
            answered: 0,
            last: None,
        })
    }
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
                let place = Position::of(place.as_raw(), *unit).map_err(|error| match unit {
                    // MongoDB's code for these functions differs from that of ranges.
                    Some(_) => location(5624900, error.message()),
                    None => error,
                })?;
                match place {
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
        self.sliding.check(value.as_raw())?;
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
            may_go_on(self.entered)?;
            if let Some(input) = self.inputs.get(self.entered) {
                self.sliding.add(self.entered, input)?;
            }
            self.entered += 1;
        }
        while self.gone < lower {
            may_go_on(self.gone)?;
            self.sliding.remove(self.gone, &self.inputs, upper);
            self.gone += 1;
        }
        self.sliding.settle(&self.inputs, (lower, upper))?;
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
        // Inputs in the window are needed if they may leave it or are read again.
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
            may_go_on(self.inputs.first)?;
        }
        Ok(Some(value))
    }

    fn bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |(_, v)| size(v.as_raw()));
        self.inputs.bytes + self.sliding.bytes() + self.frame.bytes() + last
    }
}

/// Checks for an interruption at intervals: a window over a whole partition adds and removes all
/// its documents in one step.
/// Errors: the interruption.
fn may_go_on(document: u64) -> Result<()> {
    match document.is_multiple_of(1024) {
        true => interrupt::check(),
        false => Ok(()),
    }
}

/// The state of the function; `slides`: documents also leave the window.
fn sliding(over: &Over, spec: &AccumulatorSpec, slides: bool) -> Result<Sliding> {
    use std::cmp::Ordering;
    let collator = || spec.collator().cloned();
    let n = || spec.constant_n();
    Ok(match over {
        Over::Covariance { sample } => Sliding::Covariance {
            state: Covariance::default(),
            sample: *sample,
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
            AccumulatorKind::ConcatArrays => Sliding::Concat,
            AccumulatorKind::AddToSet | AccumulatorKind::SetUnion => Sliding::Set {
                of_arrays: spec.kind == AccumulatorKind::SetUnion,
                values: Default::default(),
                bytes: 0,
                collator: collator(),
            },
            AccumulatorKind::StdDevPop | AccumulatorKind::StdDevSamp => {
                let sample = spec.kind == AccumulatorKind::StdDevSamp;
                match slides {
                    true => Sliding::SlidingDeviation {
                        state: SlidingDeviation::default(),
                        sample,
                    },
                    false => Sliding::Deviation {
                        state: Deviation::default(),
                        sample,
                        special: 0,
                    },
                }
            }
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
            AccumulatorKind::MergeObjects | AccumulatorKind::Script => {
                return Err(failed("this accumulator is not a window function"));
            }
        },
    })
}
