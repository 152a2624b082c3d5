//! Computes which documents of a partition are in a sliding window.
//!
//! ```text
//!   documents [-1, 1]      by position       . . [x X x] . .
//!   range [-10, 0]         by sort value     . [x x X] . . .
//!   no window              all documents     [x x X x x x x]
//! ```
//!
//! Both ends only move forward, so each document enters the window once and leaves it at most once.

use std::collections::VecDeque;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{RawDoc, RawValue, compare_values};

use crate::arithmetic::Number;
use crate::expression::{Expression, Unit, location, shift_utc};

/// One end of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound<T> {
    /// The end of the partition.
    Unbounded,
    /// Distance from the current document. 0 is the document itself, or, for ranges, all documents
    /// with the same sort value.
    At(T),
}

/// A parsed window.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Window {
    /// By position in the partition.
    Documents(Bound<i64>, Bound<i64>),
    /// By the value of the single sort field.
    Range {
        lower: Bound<Number>,
        upper: Bound<Number>,
        /// For dates.
        unit: Option<Unit>,
    },
}

fn wrong(message: String) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

impl Window {
    /// The whole partition.
    pub(super) const WHOLE: Window = Window::Documents(Bound::Unbounded, Bound::Unbounded);

    /// Parses `{documents: [lower, upper]}` or `{range: [lower, upper], unit: ...}`.
    ///
    /// Errors: FailedToParse (9) for an invalid window.
    pub(super) fn parse(value: RawValue<'_>) -> Result<Window> {
        let RawValue::Document(spec) = value else {
            return Err(wrong(format!(
                "'window' field must be an object, not {}",
                value.type_name()
            )));
        };
        let (mut documents, mut range, mut unit) = (None, None, None);
        for element in spec {
            match element.key() {
                "documents" => documents = Some(element.value()),
                "range" => range = Some(element.value()),
                "unit" => unit = Some(element.value()),
                other => {
                    return Err(wrong(format!("'window' has an unknown field '{other}'")));
                }
            }
        }
        match (documents, range) {
            (Some(_), Some(_)) => Err(wrong(
                "'window' field cannot specify both 'documents' and 'range'".to_owned(),
            )),
            (None, None) if unit.is_some() => {
                Err(wrong("a 'unit' of a window needs a 'range'".to_owned()))
            }
            (None, None) => Ok(Window::WHOLE),
            (Some(_), None) if unit.is_some() => Err(wrong(
                "'unit' can only be specified with range-based bounds".to_owned(),
            )),
            (Some(bounds), None) => {
                let [lower, upper] = pair("documents", bounds)?;
                let place = |value: RawValue<'_>| match value.as_i64_exact() {
                    Some(n) if i32::try_from(n).is_ok() => Ok(n),
                    _ => Err(wrong(format!(
                        "numeric document-based bounds must be integers, not {}",
                        shell(value)
                    ))),
                };
                let (lower, upper) = (bound(lower, place, 0)?, bound(upper, place, 0)?);
                if let (Bound::At(a), Bound::At(b)) = (lower, upper)
                    && a > b
                {
                    return Err(wrong(format!(
                        "lower bound must not exceed upper bound: [{a}, {b}]"
                    )));
                }
                Ok(Window::Documents(lower, upper))
            }
            (None, Some(bounds)) => {
                let unit = match unit {
                    None => None,
                    Some(RawValue::String(name)) => match Unit::find(name) {
                        Some(unit) => Some(unit),
                        None => return Err(wrong(format!("unknown time unit value: {name}"))),
                    },
                    Some(other) => {
                        return Err(wrong(format!(
                            "'unit' must be a string, not {}",
                            other.type_name()
                        )));
                    }
                };
                let [lower, upper] = pair("range", bounds)?;
                let distance = |value: RawValue<'_>| match Number::from_raw(value) {
                    Some(number) if unit.is_none() || number.as_integer().is_some() => Ok(number),
                    _ if unit.is_some() => match value.as_i64_exact() {
                        Some(n) => Ok(Number::Long(n)),
                        None => Err(wrong(format!(
                            "with 'unit', range-based bounds must be integers, not {}",
                            shell(value)
                        ))),
                    },
                    _ => Err(wrong(format!(
                        "range-based bounds must be numbers, not {}",
                        shell(value)
                    ))),
                };
                let zero = Number::Int(0);
                let (lower, upper) = (bound(lower, distance, zero)?, bound(upper, distance, zero)?);
                if let (Bound::At(a), Bound::At(b)) = (lower, upper)
                    && compare_values(a.into(), b.into()).is_gt()
                {
                    return Err(wrong("lower bound must not exceed upper bound".to_owned()));
                }
                Ok(Window::Range { lower, upper, unit })
            }
        }
    }

    /// Whether documents leave the window.
    pub(super) fn slides(&self) -> bool {
        !matches!(
            self,
            Window::Documents(Bound::Unbounded, _)
                | Window::Range {
                    lower: Bound::Unbounded,
                    ..
                }
        )
    }
}

fn pair<'a>(name: &str, value: RawValue<'a>) -> Result<[RawValue<'a>; 2]> {
    match value {
        RawValue::Array(array) if array.count() == 2 => {
            let mut values = array.iter();
            let mut next = || values.next().unwrap_or(RawValue::Null);
            Ok([next(), next()])
        }
        other => Err(wrong(format!(
            "'window.{name}' must be an array of two bounds, not {}",
            shell(other)
        ))),
    }
}

fn bound<T>(
    value: RawValue<'_>,
    number: impl Fn(RawValue<'_>) -> Result<T>,
    current: T,
) -> Result<Bound<T>> {
    match value {
        RawValue::String("unbounded") => Ok(Bound::Unbounded),
        RawValue::String("current") => Ok(Bound::At(current)),
        other => number(other).map(Bound::At).map_err(|_| {
            wrong(format!(
                "a window's bounds must be 'unbounded', 'current', or a number, not {}",
                shell(other)
            ))
        }),
    }
}

/// A sort value from which ranges are computed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Position {
    Number(Number),
    /// Milliseconds.
    Date(i64),
}

impl Position {
    /// Errors: without a unit, 5429513 for a date and 5429414 for another value that is not a
    /// number; with a unit, 5429513 for a value that is not a date.
    pub(super) fn of(value: Option<RawValue<'_>>, unit: Option<Unit>) -> Result<Position> {
        let found = || value.map_or("missing", |v| v.type_name());
        match (value, unit) {
            (Some(RawValue::DateTime(date)), Some(_)) => Ok(Position::Date(date.0)),
            (Some(RawValue::DateTime(_)), None) => Err(location(
                5429513,
                "Invalid range: For windows that involve date ranges, a unit must be provided",
            )),
            (value, None) => value
                .and_then(Number::from_raw)
                .map(Position::Number)
                .ok_or_else(|| {
                    location(
                        5429414,
                        format!(
                            "Invalid range: Expected the sortBy field to be a number, but it was {}",
                            found()
                        ),
                    )
                }),
            (_, Some(_)) => Err(location(
                5429513,
                format!(
                    "Invalid range: Expected the sortBy field to be a Date, but it was {}",
                    found()
                ),
            )),
        }
    }

    fn moved(self, by: Number, unit: Option<Unit>) -> Position {
        match self {
            Position::Number(n) => Position::Number(n.plus(by)),
            Position::Date(millis) => {
                let by = by.as_integer().unwrap_or(0);
                // A result beyond the range of dates is before or after all dates.
                let end = if by < 0 { i64::MIN } else { i64::MAX };
                Position::Date(
                    shift_utc(millis, unit.unwrap_or(Unit::Millisecond), by).unwrap_or(end),
                )
            }
        }
    }

    fn is_before(self, other: Position) -> bool {
        match (self, other) {
            (Position::Date(a), Position::Date(b)) => a < b,
            (Position::Number(a), Position::Number(b)) => {
                compare_values(a.into(), b.into()).is_lt()
            }
            _ => false,
        }
    }
}

/// The sliding window over one partition; documents are numbered in input order.
#[derive(Debug)]
pub(super) struct Frame {
    window: Window,
    /// The sort field, for ranges.
    sort: Option<Expression>,
    /// Sort values of the documents from `first` on.
    positions: VecDeque<Position>,
    first: u64,
    pushed: u64,
    ended: bool,
    /// The number of the document whose window is next.
    current: u64,
    lower: u64,
    upper: u64,
}

impl Frame {
    pub(super) fn new(window: &Window, sort: Option<&Expression>) -> Frame {
        Frame {
            window: window.clone(),
            sort: sort.cloned(),
            positions: VecDeque::new(),
            first: 0,
            pushed: 0,
            ended: false,
            current: 0,
            lower: 0,
            upper: 0,
        }
    }

    /// Adds a document, in the order of the partition.
    pub(super) fn push(&mut self, doc: RawDoc<'_>) -> Result<()> {
        if let Window::Range { unit, .. } = self.window {
            let value = match &self.sort {
                Some(path) => path.evaluate_on(doc)?,
                None => return Ok(()),
            };
            self.positions
                .push_back(Position::of(value.as_raw(), unit)?);
        }
        self.pushed += 1;
        Ok(())
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// The window of the next document, as a half-open range of document numbers. `None` if it
    /// needs more input, or if all windows have been returned.
    pub(super) fn next(&mut self) -> Option<(u64, u64)> {
        if self.current >= self.pushed {
            return None;
        }
        let (lower, upper) = match &self.window {
            Window::Documents(lower, upper) => {
                let at = |offset: i64| self.current.saturating_add_signed(offset);
                let upper = match upper {
                    Bound::Unbounded => u64::MAX,
                    // A window that ends before the first document is empty.
                    Bound::At(offset) if offset.unsigned_abs() > self.current && *offset < 0 => 0,
                    Bound::At(offset) => at(*offset) + 1,
                };
                if upper > self.pushed && !self.ended {
                    return None;
                }
                let lower = match lower {
                    Bound::Unbounded => 0,
                    Bound::At(offset) => at(*offset),
                };
                (lower, upper)
            }
            Window::Range { lower, upper, unit } => {
                let position = |n: u64| self.positions.get((n - self.first) as usize).copied();
                let here = position(self.current)?;
                let upper = match upper {
                    Bound::Unbounded if !self.ended => return None,
                    Bound::Unbounded => self.pushed,
                    Bound::At(by) => {
                        let end = here.moved(*by, *unit);
                        let mut at = self.upper.max(self.first);
                        while position(at).is_some_and(|p| !end.is_before(p)) {
                            at += 1;
                        }
                        if at == self.pushed && !self.ended {
                            return None;
                        }
                        at
                    }
                };
                let lower = match lower {
                    Bound::Unbounded => 0,
                    Bound::At(by) => {
                        let begin = here.moved(*by, *unit);
                        let mut at = self.lower;
                        while position(at).is_some_and(|p| p.is_before(begin)) {
                            at += 1;
                        }
                        at
                    }
                };
                (lower, upper)
            }
        };
        self.current += 1;
        self.upper = upper.min(self.pushed).max(self.upper);
        self.lower = lower.min(self.upper).max(self.lower);
        if matches!(self.window, Window::Range { .. }) {
            let keep = self.lower.min(self.current).min(self.upper);
            // An unbounded lower end needs no earlier positions.
            let keep = match self.window.slides() {
                true => keep,
                false => self.current.min(self.upper),
            };
            while self.first < keep && self.positions.pop_front().is_some() {
                self.first += 1;
            }
        }
        Some((self.lower, self.upper))
    }

    pub(super) fn bytes(&self) -> usize {
        self.positions.len() * size_of::<Position>()
    }
}
