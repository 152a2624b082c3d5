//! Translates a filter on measurements into conditions on buckets.
//!
//! ```text
//!   {sensor: "a"}      meta: "a"                  exact: measurements need not be tested
//!   {t: {$gte: x}}     control.max.t >= x, control.min.t >= x - span; measurements are tested
//!   {temp: {$gt: 30}}  control.max.temp > 30 in the order of all values; not by an index
//! ```
//!
//! Invariant: a bucket is excluded only if none of its measurements can match. A condition that
//! cannot be expressed on buckets is assumed to match.

use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{DateTime, ElementType, ObjectId, RawDoc, RawValue, Value, compare_values};

use crate::matcher::{Comparison, ComparisonOp, In, MatchExpression, RegexMatch};

use super::bucket::id_seconds;
use super::options::TimeseriesOptions;
use super::reader::TimeRange;
use super::{CONTROL, META};

/// The properties of a collection that the translation needs.
#[derive(Debug, Clone, Copy)]
pub struct Series<'o> {
    /// The field with the time.
    pub time_field: &'o str,
    /// The field that identifies the series.
    pub meta_field: Option<&'o str>,
    /// Maximum span of a bucket, in milliseconds.
    pub span_millis: i64,
}

/// A translated filter.
#[derive(Debug)]
pub struct Translated {
    /// A condition that every bucket with a match satisfies; `None` if there is none.
    pub buckets: Option<MatchExpression>,
    /// Conditions that must still be tested on the measurements.
    pub rest: Vec<MatchExpression>,
}

impl TimeseriesOptions {
    /// The properties that the translation of filters needs.
    pub fn series(&self) -> Series<'_> {
        Series {
            time_field: &self.time_field,
            meta_field: self.meta_field.as_deref(),
            span_millis: self.span_millis(),
        }
    }
}

impl Series<'_> {
    /// Translates a filter.
    pub fn translate(&self, filter: &MatchExpression) -> Translated {
        let parts = match filter {
            MatchExpression::And(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let (mut buckets, mut rest, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut one_series = false;
        for part in parts {
            if let Some(meta) = self.on_meta(part) {
                one_series |= matches!(
                    &meta,
                    MatchExpression::In(_)
                        | MatchExpression::Comparison(Comparison {
                            op: ComparisonOp::Eq,
                            ..
                        })
                );
                buckets.push(meta);
                continue;
            }
            rest.push(part.clone());
            match self.time_range(part) {
                Some(range) => times.push(range),
                None => buckets.extend(self.weaker(part)),
            }
        }
        if !times.is_empty() {
            let range = times
                .iter()
                .fold(TimeRange::default(), |all, own| TimeRange {
                    from: all.from.max(own.from),
                    to: all.to.min(own.to),
                });
            // Buckets of a single series are found by its meta value and the time, others by their
            // ids.
            self.buckets_within(range, !one_series, &mut buckets);
        }
        Translated {
            buckets: all_of(buckets),
            rest,
        }
    }

    /// The same filter on the bucket's `meta`, if it reads only the meta field.
    pub fn on_meta(&self, filter: &MatchExpression) -> Option<MatchExpression> {
        let meta = self.meta_field?;
        rename(filter, &|path| {
            let rest = match path.dotted().strip_prefix(meta)? {
                "" => META.to_owned(),
                rest if rest.starts_with('.') => format!("{META}{rest}"),
                _ => return None,
            };
            FieldPath::parse_lenient(&rest).ok().map(Arc::new)
        })
    }

    /// A condition on buckets that every bucket with a match satisfies; `None` if there is none.
    pub fn weaker(&self, filter: &MatchExpression) -> Option<MatchExpression> {
        if let Some(meta) = self.on_meta(filter) {
            return Some(meta);
        }
        if let Some(range) = self.time_range(filter) {
            let mut parts = Vec::new();
            self.buckets_within(range, false, &mut parts);
            return all_of(parts);
        }
        match filter {
            MatchExpression::And(parts) => {
                all_of(parts.iter().filter_map(|part| self.weaker(part)).collect())
            }
            MatchExpression::Or(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(|part| self.weaker(part)).collect();
                parts.map(MatchExpression::Or)
            }
            _ => None,
        }
    }

    /// The time range of the filter; `None` if it tests anything else.
    pub fn time_range(&self, filter: &MatchExpression) -> Option<TimeRange> {
        let date = |value: &Value| match value {
            Value::DateTime(date) => Some(date.millis()),
            _ => None,
        };
        let range = |from, to| Some(TimeRange { from, to });
        match filter {
            MatchExpression::Comparison(c) if c.path.dotted() == self.time_field => {
                let time = date(&c.value)?;
                match c.op {
                    ComparisonOp::Eq => range(time, time),
                    ComparisonOp::Gte => range(time, i64::MAX),
                    ComparisonOp::Lte => range(i64::MIN, time),
                    ComparisonOp::Gt => range(time.checked_add(1)?, i64::MAX),
                    ComparisonOp::Lt => range(i64::MIN, time.checked_sub(1)?),
                }
            }
            _ => None,
        }
    }

    fn buckets_within(&self, range: TimeRange, by_id: bool, out: &mut Vec<MatchExpression>) {
        let path = |side: &str| format!("{CONTROL}.{side}.{}", self.time_field);
        let mut compare = |path: &str, op, value: Value| {
            if let Ok(path) = FieldPath::parse_lenient(path) {
                out.push(MatchExpression::Comparison(Comparison {
                    path: Arc::new(path),
                    op,
                    value: Arc::new(value),
                    collator: None,
                }));
            }
        };
        let date = |millis| Value::DateTime(DateTime(millis));
        let id = |millis, fill: u8| {
            let mut id = [fill; 12];
            id[..4].copy_from_slice(&id_seconds(millis).to_be_bytes());
            Value::ObjectId(ObjectId(id))
        };
        let earliest = range.from.saturating_sub(self.span_millis);
        if range.from > i64::MIN {
            compare(&path("max"), ComparisonOp::Gte, date(range.from));
            compare(&path("min"), ComparisonOp::Gte, date(earliest));
        }
        if range.to < i64::MAX {
            compare(&path("min"), ComparisonOp::Lte, date(range.to));
        }
        if by_id {
            if range.from > i64::MIN {
                compare("_id", ComparisonOp::Gte, id(earliest, 0));
            }
            if range.to < i64::MAX {
                compare("_id", ComparisonOp::Lte, id(range.to, 0xFF));
            }
        }
    }
}

/// The conjunction of the conditions; `None` if there are none.
pub fn all_of(mut parts: Vec<MatchExpression>) -> Option<MatchExpression> {
    match (parts.pop(), parts.is_empty()) {
        (None, _) => None,
        (Some(only), true) => Some(only),
        (Some(last), false) => {
            parts.push(last);
            Some(MatchExpression::And(parts))
        }
    }
}

/// The filter with every path replaced; `None` if a path has no replacement.
fn rename(
    filter: &MatchExpression,
    to: &dyn Fn(&FieldPath) -> Option<Arc<FieldPath>>,
) -> Option<MatchExpression> {
    let all = |children: &[MatchExpression]| -> Option<Vec<MatchExpression>> {
        children.iter().map(|child| rename(child, to)).collect()
    };
    Some(match filter {
        MatchExpression::And(children) if children.is_empty() => return None,
        MatchExpression::And(children) => MatchExpression::And(all(children)?),
        MatchExpression::Or(children) => MatchExpression::Or(all(children)?),
        MatchExpression::Nor(children) => MatchExpression::Nor(all(children)?),
        MatchExpression::Not(child) => MatchExpression::Not(Box::new(rename(child, to)?)),
        MatchExpression::Comparison(c) => MatchExpression::Comparison(Comparison {
            path: to(&c.path)?,
            ..c.clone()
        }),
        MatchExpression::In(list) => MatchExpression::In(In {
            path: to(&list.path)?,
            ..list.clone()
        }),
        MatchExpression::Regex(regex) => MatchExpression::Regex(RegexMatch {
            path: to(&regex.path)?,
            ..regex.clone()
        }),
        MatchExpression::Mod {
            path,
            divisor,
            remainder,
        } => MatchExpression::Mod {
            path: to(path)?,
            divisor: *divisor,
            remainder: *remainder,
        },
        MatchExpression::Exists { path } => MatchExpression::Exists { path: to(path)? },
        MatchExpression::Type { path, types } => MatchExpression::Type {
            path: to(path)?,
            types: *types,
        },
        MatchExpression::Size { path, size } => MatchExpression::Size {
            path: to(path)?,
            size: *size,
        },
        MatchExpression::ElemMatchObject { path, child } => MatchExpression::ElemMatchObject {
            path: to(path)?,
            child: child.clone(),
        },
        MatchExpression::ElemMatchValue { path, children } => MatchExpression::ElemMatchValue {
            path: to(path)?,
            children: children.clone(),
        },
        MatchExpression::Bits(bits) => {
            let mut bits = bits.clone();
            bits.path = to(&bits.path)?;
            MatchExpression::Bits(bits)
        }
        MatchExpression::Expr(_)
        | MatchExpression::ExprComparison(_)
        | MatchExpression::JsonSchema(_)
        | MatchExpression::AlwaysTrue
        | MatchExpression::AlwaysFalse => {
            return None;
        }
    })
}

/// A condition on `control.min` and `control.max`.
#[derive(Debug, Clone)]
pub enum BucketPredicate {
    /// All conditions hold.
    All(Vec<BucketPredicate>),
    /// At least one condition holds.
    Any(Vec<BucketPredicate>),
    /// Some value at the path satisfies the comparison. The operand is not a document, array, null
    /// or regular expression.
    Compare(Arc<FieldPath>, ComparisonOp, Arc<Value>),
    /// Nothing is known: every bucket may match.
    Unknown,
}

impl BucketPredicate {
    /// The condition that a filter implies for the extremes. The meta field has no extremes.
    pub fn of(filter: &MatchExpression, meta_field: Option<&str>) -> BucketPredicate {
        let of = |part| BucketPredicate::of(part, meta_field);
        match filter {
            MatchExpression::And(parts) => {
                let parts = parts.iter().map(of);
                BucketPredicate::All(parts.filter(BucketPredicate::is_known).collect())
            }
            MatchExpression::Or(parts) => BucketPredicate::any(parts.iter().map(of).collect()),
            on_meta if on_meta.path().and_then(|path| path.part(0)) == meta_field => {
                BucketPredicate::Unknown
            }
            MatchExpression::Comparison(c) if c.collator.is_none() => {
                BucketPredicate::compare(&c.path, c.op, &c.value)
            }
            MatchExpression::In(list) if list.regexes.is_empty() && list.collator.is_none() => {
                let values = list.equalities.iter();
                BucketPredicate::any(
                    values
                        .map(|value| {
                            BucketPredicate::compare(
                                &list.path,
                                ComparisonOp::Eq,
                                &Arc::new(value.clone()),
                            )
                        })
                        .collect(),
                )
            }
            _ => BucketPredicate::Unknown,
        }
    }

    fn any(parts: Vec<BucketPredicate>) -> BucketPredicate {
        match parts.iter().all(BucketPredicate::is_known) {
            true => BucketPredicate::Any(parts),
            false => BucketPredicate::Unknown,
        }
    }

    fn compare(path: &Arc<FieldPath>, op: ComparisonOp, value: &Arc<Value>) -> BucketPredicate {
        let comparable = match &**value {
            Value::Double(x) => !x.is_nan(),
            Value::Decimal128(x) => !x.is_nan(),
            Value::Int32(_)
            | Value::Int64(_)
            | Value::String(_)
            | Value::Boolean(_)
            | Value::DateTime(_)
            | Value::Timestamp(_)
            | Value::ObjectId(_)
            | Value::Binary { .. } => true,
            _ => false,
        };
        // A number in a path may be an array position.
        match comparable && !path.has_numeric_part() {
            true => BucketPredicate::Compare(path.clone(), op, value.clone()),
            false => BucketPredicate::Unknown,
        }
    }

    /// Whether the condition can exclude any bucket.
    pub fn is_known(&self) -> bool {
        match self {
            BucketPredicate::All(parts) => !parts.is_empty(),
            BucketPredicate::Any(_) | BucketPredicate::Compare(..) => true,
            BucketPredicate::Unknown => false,
        }
    }

    /// Whether a measurement of the bucket may match. True for a bucket without extremes.
    pub fn may_match(&self, bucket: RawDoc<'_>) -> bool {
        let Some(RawValue::Document(control)) = bucket.get(CONTROL) else {
            return true;
        };
        match (control.get("min"), control.get("max")) {
            (Some(RawValue::Document(min)), Some(RawValue::Document(max))) => self.holds(min, max),
            _ => true,
        }
    }

    fn holds(&self, min: RawDoc<'_>, max: RawDoc<'_>) -> bool {
        match self {
            BucketPredicate::All(parts) => parts.iter().all(|part| part.holds(min, max)),
            BucketPredicate::Any(parts) => parts.iter().any(|part| part.holds(min, max)),
            BucketPredicate::Compare(path, op, value) => compare(min, max, path, *op, value),
            BucketPredicate::Unknown => true,
        }
    }
}

fn compare(
    mut min: RawDoc<'_>,
    mut max: RawDoc<'_>,
    path: &FieldPath,
    op: ComparisonOp,
    value: &Value,
) -> bool {
    let rank = |value: RawValue<'_>| value.element_type().canonical_rank();
    let between = |low: RawValue<'_>, high: RawValue<'_>, rank_of: ElementType| {
        (rank(low)..=rank(high)).contains(&rank_of.canonical_rank())
    };
    let last = path.len() - 1;
    for (at, part) in path.parts().enumerate() {
        let (low, high) = match (min.get(part), max.get(part)) {
            (Some(low), Some(high)) => (low, high),
            // No measurement has the field.
            (None, None) => return false,
            _ => return true,
        };
        // Elements of arrays are compared, too, and the extremes do not cover those.
        if between(low, high, ElementType::Array) {
            return true;
        }
        if at == last {
            let value = value.as_raw();
            return match op {
                ComparisonOp::Gt => compare_values(high, value) == Ordering::Greater,
                ComparisonOp::Gte => compare_values(high, value) != Ordering::Less,
                ComparisonOp::Lt => compare_values(low, value) == Ordering::Less,
                ComparisonOp::Lte => compare_values(low, value) != Ordering::Greater,
                ComparisonOp::Eq => {
                    compare_values(low, value) != Ordering::Greater
                        && compare_values(high, value) != Ordering::Less
                }
            };
        }
        match (low, high) {
            (RawValue::Document(low), RawValue::Document(high)) => (min, max) = (low, high),
            // Some or all of the values are not documents.
            _ => return between(low, high, ElementType::Document),
        }
    }
    true
}
