//! `$bucketAuto`: distributes documents to a given number of buckets of about the same size.
//!
//! It is parsed to three stages: the first stores the group-by value in a field, the second sorts
//! the documents by it, and this stage splits them into buckets. Bucket boundaries depend on the
//! number of documents, so the stage buffers its input, beyond the memory limit in temporary files.
//!
//! ```text
//!   100 documents, 5 buckets: about 20 each; equal values stay together
//!   granularity R20: boundaries at preferred numbers, 19 -> 20, 39 -> 40, 59 -> 63
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value, compare_values_with, doc};

use crate::arithmetic::Number;
use crate::expression::location;
use crate::expression::projection_exec::ProjectionExec;
use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::accumulator::AccumulatorFeed;
use crate::pipeline::doc_queue::DocQueue;
use crate::pipeline::environment::Environment;
use crate::pipeline::group::Group;
use crate::pipeline::limits::BLOCKING_BYTES_MAX;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};

use super::bucket::{is_expression, sort_by};
use super::granularity::Granularity;

const NAME: &str = "$bucketAuto";

/// The field for the value during the sort. The value is in an embedded document, so that an array
/// sorts as a whole.
const KEY_FIELD: &str = "__internal_bucketAuto_key";

#[derive(Debug)]
struct BucketAuto {
    spec: DocBuf,
    buckets: u64,
    granularity: Option<Granularity>,
    /// The accumulators of `output`; its `_id` is not used.
    output: Arc<Group>,
}

/// Parses `{groupBy, buckets, output, granularity}`.
/// Errors: 40239 to 40246, 40257, 40261.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let scope = &context.parse.variables;
    let RawValue::Document(spec) = value else {
        return Err(location(
            40240,
            format!(
                "The argument to {NAME} must be an object, but found type: {}.",
                value.type_name()
            ),
        ));
    };
    let (mut group_by, mut buckets, mut output, mut granularity) = (None, None, None, None);
    for element in spec {
        let value = element.value();
        match element.key() {
            "groupBy" if is_expression(value) => group_by = Some(value),
            "groupBy" => {
                return Err(location(
                    40239,
                    format!(
                        "The {NAME} 'groupBy' field must be defined as a $-prefixed path or an expression object, but found: {}",
                        shell(value)
                    ),
                ));
            }
            "buckets" if !value.is_number() => {
                return Err(location(
                    40241,
                    format!(
                        "The {NAME} 'buckets' field must be a numeric value, but found type: {}.",
                        value.type_name()
                    ),
                ));
            }
            "buckets" => {
                let count = value.as_i64_exact().filter(|n| i32::try_from(*n).is_ok());
                let Some(count) = count else {
                    return Err(location(
                        40242,
                        format!(
                            "The {NAME} 'buckets' field must be representable as a 32-bit integer, but found {}.",
                            shell(value)
                        ),
                    ));
                };
                buckets = Some(u64::try_from(count).ok().filter(|n| *n > 0).ok_or_else(|| {
                    location(
                        40243,
                        format!("The {NAME} 'buckets' field must be greater than 0, but found: {count}."),
                    )
                })?);
            }
            "output" => match value {
                RawValue::Document(doc) => output = Some(doc),
                other => {
                    return Err(location(
                        40244,
                        format!(
                            "The {NAME} 'output' field must be an object, but found type: {}.",
                            other.type_name()
                        ),
                    ));
                }
            },
            "granularity" => match value {
                RawValue::String(name) => {
                    let found = Granularity::find(name);
                    granularity = Some(found.ok_or_else(|| {
                        location(40257, format!("Unknown rounding granularity '{name}'"))
                    })?);
                }
                other => {
                    return Err(location(
                        40261,
                        format!(
                            "The {NAME} 'granularity' field must be a string, but found type: {}.",
                            other.type_name()
                        ),
                    ));
                }
            },
            other => {
                return Err(location(
                    40245,
                    format!("Unrecognized option to {NAME}: {other}."),
                ));
            }
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(location(
            40246,
            format!("{NAME} requires 'groupBy' and 'buckets' to be specified."),
        ));
    };
    let mut group = DocBuilder::new();
    group.append("_id", RawValue::Null);
    match output {
        Some(output) if !output.is_empty() => {
            group.extend(output);
        }
        _ => {
            group.append("count", &doc! {"$sum": 1});
        }
    }
    let group = group.finish();
    let group = Group::parse(RawValue::Document(group.as_raw()), scope)?;
    let key = doc! {"$ifNull": vec![group_by.to_value(), Value::Null]};
    let set = doc! {KEY_FIELD: {"v": key}};
    Ok(ParsedStage::Stages(vec![
        Stage::Project {
            name: "$addFields",
            projection: Arc::new(ProjectionExec::parse_add_fields(set.as_raw(), scope)?),
            spec: Value::Document(set),
        },
        sort_by(doc! {KEY_FIELD: 1}.as_raw(), context)?,
        Stage::Other(Arc::new(BucketAuto {
            spec: spec.to_buf(),
            buckets,
            granularity,
            output: Arc::new(group),
        })),
    ]))
}

impl PipelineStage for BucketAuto {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        Value::Document(self.spec.clone())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        found.insert(KEY_FIELD);
        for field in &self.output.fields {
            field.accumulator.add_dependencies(found);
        }
        Passes::Computed
    }

    fn start(&self) -> Box<dyn StageExec> {
        let fields = &self.output.fields;
        Box::new(Running {
            buckets: self.buckets,
            granularity: self.granularity.clone(),
            feeds: fields.iter().map(|f| f.accumulator.feed()).collect(),
            output: Arc::clone(&self.output),
            docs: DocQueue::new(NAME),
            count: 0,
            size: 1,
            made: 0,
            head: None,
            begin: None,
        })
    }
}

struct Running {
    buckets: u64,
    granularity: Option<Granularity>,
    output: Arc<Group>,
    feeds: Vec<AccumulatorFeed>,
    docs: DocQueue,
    count: u64,
    /// Approximate number of documents per bucket.
    size: u64,
    made: u64,
    /// The next document and its value.
    head: Option<(Value, DocBuf)>,
    /// Start of the next bucket, according to the granularity.
    begin: Option<f64>,
}

impl Running {
    /// The next document without its key field, and the key.
    fn take(&mut self) -> Result<Option<(Value, DocBuf)>> {
        let Some(doc) = self.docs.pop_front()? else {
            return Ok(None);
        };
        let mut out = DocBuilder::new();
        let mut key = Value::Null;
        for element in &mut doc.iter() {
            match element.value() {
                RawValue::Document(inner) if element.key() == KEY_FIELD => {
                    key = inner.get("v").unwrap_or(RawValue::Null).to_value();
                }
                _ => {
                    out.append_raw_element(element);
                }
            }
        }
        Ok(Some((key, out.finish())))
    }

    fn number(&self, key: &Value) -> Result<f64> {
        let Some(number) = Number::from_raw(key.as_raw()) else {
            return Err(location(
                40258,
                format!(
                    "{NAME} can specify a 'granularity' with numeric boundaries only, but found a value with type: {}",
                    key.type_name()
                ),
            ));
        };
        let x = number.to_f64();
        if x.is_nan() {
            return Err(location(
                40259,
                format!(
                    "{NAME} can specify a 'granularity' with numeric boundaries only, but found a NaN"
                ),
            ));
        }
        if x < 0.0 {
            return Err(location(
                40260,
                format!(
                    "{NAME} can specify a 'granularity' with non-negative numbers only, but found a negative number: {x}"
                ),
            ));
        }
        Ok(x)
    }
}

impl StageExec for Running {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        self.docs.push_back(doc.to_buf());
        self.count += 1;
        if self.docs.bytes() > env.memory_bytes_max() {
            self.docs.spill(env)?;
        }
        Ok(Pushed::Nothing)
    }

    fn end(&mut self, _: &dyn Environment) -> Result<()> {
        self.size = ((self.count as f64 / self.buckets as f64).round() as u64).max(1);
        self.head = self.take()?;
        Ok(())
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let Some((first, _)) = &self.head else {
            return Ok(None);
        };
        let first = first.clone();
        let output = Arc::clone(&self.output);
        let collator = output.collator.as_deref();
        let states = output
            .fields
            .iter()
            .map(|f| f.accumulator.start(RawValue::Null));
        let mut states = states.collect::<Result<Vec<_>>>()?;
        self.made += 1;
        let most = if self.made == self.buckets {
            u64::MAX
        } else {
            self.size
        };
        let (mut taken, mut last, mut bytes) = (0u64, first.clone(), 0);
        let mut boundary: Option<f64> = None;
        loop {
            let Some((key, _)) = &self.head else { break };
            let more = match (taken < most, boundary) {
                (true, _) => true,
                (false, None) => compare_values_with(key.as_raw(), last.as_raw(), collator).is_eq(),
                (false, Some(boundary)) => self.number(key)? < boundary,
            };
            if !more {
                // Values up to the boundary of the granularity belong to this bucket, too.
                let series = self.granularity.as_ref().filter(|_| boundary.is_none());
                let Some(series) = series else { break };
                let (top, next) = (self.number(&last)?, self.number(key)?);
                boundary = Some(match top == 0.0 {
                    true => series.below(next),
                    false => series.above(top),
                });
                continue;
            }
            let Some((key, doc)) = self.head.take() else {
                break;
            };
            if self.granularity.is_some() {
                self.number(&key)?;
            }
            for ((field, feed), state) in output.fields.iter().zip(&mut self.feeds).zip(&mut states)
            {
                bytes += feed.feed(&field.accumulator, doc.as_raw(), state)?;
            }
            if bytes > BLOCKING_BYTES_MAX {
                return Err(Error::new(
                    ErrorCode::EXCEEDED_MEMORY_LIMIT,
                    format!(
                        "the accumulators of one bucket of {NAME} hold more than {BLOCKING_BYTES_MAX} bytes; request more buckets, or accumulate smaller values"
                    ),
                ));
            }
            last = key;
            taken += 1;
            self.head = self.take()?;
            env.check_interrupt()?;
        }
        let (min, max) = match &self.granularity {
            None => {
                let next = self.head.as_ref().map(|(key, _)| key.clone());
                (first, next.unwrap_or(last))
            }
            Some(series) => {
                let min = match self.begin {
                    Some(begin) => begin,
                    None => series.below(self.number(&first)?),
                };
                let max = match boundary {
                    Some(boundary) => boundary,
                    None => series.above(self.number(&last)?),
                };
                self.begin = Some(max);
                (series.value(min), series.value(max))
            }
        };
        let mut out = DocBuilder::new();
        out.begin_document("_id")
            .append("min", &min)
            .append("max", &max)
            .end();
        for (field, state) in output.fields.iter().zip(states) {
            out.append(&field.name, &state.finish()?);
        }
        Ok(Some(out.finish()))
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.docs.append_stats(out);
    }
}
