//! `$_internalUnpackBucket`: converts the buckets of a time-series collection to measurements.
//!
//! ```text
//!   $_internalUnpackBucket, $match {sensor: "a", t: {$gte: x}, temp: {$gt: 30}}
//!     ->  $match {meta: "a", "control.max.t": {$gte: x}, ...},      can use an index on buckets
//!         $_internalUnpackBucket                                    skips buckets whose control.max.temp <= 30,
//!                                                                   checks times, then the remaining filter
//!   ..., $group by sensor                                           unpacks only the fields that are read
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::location;
use crate::matcher::{Dependencies, MatchExpression};
use crate::pipeline::Stage;
use crate::pipeline::environment::Environment;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::timeseries::predicate::{Series, all_of};
use crate::timeseries::reader::{BucketReader, Fields, TimeRange};
use crate::timeseries::{BucketPredicate, Translated};

/// The stage's name.
pub const NAME: &str = "$_internalUnpackBucket";

#[derive(Debug, Clone)]
struct UnpackBucket {
    time_field: Arc<str>,
    meta_field: Option<Arc<str>>,
    span_seconds: i64,
    fields: Fields,
    /// All conjuncts of the filter on measurements, for explain.
    asked: Vec<MatchExpression>,
    /// The time range of those conjuncts.
    range: TimeRange,
    /// The conjunction of the other conjuncts.
    filter: Option<Arc<MatchExpression>>,
    buckets: BucketPredicate,
}

/// Parses `{timeField, metaField, bucketMaxSpanSeconds, include | exclude}`.
pub fn parse(value: RawValue<'_>, _: &StageContext<'_>) -> Result<ParsedStage> {
    let refused = |what: &str| location(5346500, format!("{NAME}: {what}"));
    let RawValue::Document(spec) = value else {
        return Err(refused("the operand must be an object"));
    };
    let mut stage = UnpackBucket {
        time_field: "".into(),
        meta_field: None,
        span_seconds: 0,
        fields: Fields::All,
        asked: Vec::new(),
        range: TimeRange::default(),
        filter: None,
        buckets: BucketPredicate::Unknown,
    };
    for element in spec {
        match (element.key(), element.value()) {
            ("timeField", RawValue::String(name)) => stage.time_field = name.into(),
            ("metaField", RawValue::String(name)) => stage.meta_field = Some(name.into()),
            ("bucketMaxSpanSeconds", value) if value.is_number() => {
                stage.span_seconds = value.as_i64_exact().unwrap_or(0);
            }
            ("include", RawValue::Array(names)) => {
                let names = names.iter().map(|name| name.as_str().map(str::to_owned));
                let names: Option<_> = names.collect();
                stage.fields = Fields::Only(names.ok_or_else(|| refused("include takes names"))?);
            }
            ("exclude", RawValue::Array(names)) if names.is_empty() => {}
            (other, _) => {
                return Err(refused(&format!(
                    "the option '{other}' is unknown or of a wrong type"
                )));
            }
        }
    }
    if stage.time_field.is_empty() || stage.span_seconds <= 0 {
        return Err(refused("timeField and bucketMaxSpanSeconds are needed"));
    }
    Ok(ParsedStage::of(stage))
}

impl UnpackBucket {
    fn series(&self) -> Series<'_> {
        Series {
            time_field: &self.time_field,
            meta_field: self.meta_field.as_deref(),
            span_millis: self.span_seconds.saturating_mul(1000),
        }
    }

    /// The stage with these conjuncts added to its filter.
    fn asking(&self, parts: Vec<MatchExpression>) -> UnpackBucket {
        let mut changed = self.clone();
        changed.asked.extend(parts);
        let mut others = Vec::new();
        changed.range = TimeRange::default();
        for part in &changed.asked {
            match self.series().time_range(part) {
                Some(own) => {
                    changed.range.from = changed.range.from.max(own.from);
                    changed.range.to = changed.range.to.min(own.to);
                }
                None => others.push(part.clone()),
            }
        }
        let all = MatchExpression::And(changed.asked.clone());
        changed.buckets = BucketPredicate::of(&all, self.meta_field.as_deref());
        changed.filter = all_of(others).map(Arc::new);
        changed
    }
}

impl PipelineStage for UnpackBucket {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        let mut out = DocBuilder::new();
        match &self.fields {
            Fields::All => out.begin_array("exclude").end(),
            Fields::Only(names) => {
                out.begin_array("include");
                for name in names {
                    out.push(name.as_str());
                }
                out.end()
            }
        };
        out.append("timeField", &*self.time_field);
        if let Some(meta) = &self.meta_field {
            out.append("metaField", &**meta);
        }
        out.append(
            "bucketMaxSpanSeconds",
            RawValue::int_or_long(self.span_seconds),
        );
        if let Some(filter) = all_of(self.asked.clone()) {
            out.append_bson("eventFilter", &filter.serialize());
        }
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        found.whole_document = true;
        Passes::Computed
    }

    fn absorb(&self, next: &Stage) -> Option<Vec<Stage>> {
        let Stage::Match { filter, .. } = next else {
            return None;
        };
        let Translated { buckets, rest } = self.series().translate(filter);
        let mut stages = Vec::new();
        if let Some(buckets) = buckets {
            let filter = buckets.normalize();
            stages.push(Stage::Match {
                spec: filter.serialize(),
                filter: Arc::new(filter),
            });
        }
        stages.push(Stage::Other(Arc::new(self.asking(rest))));
        Some(stages)
    }

    fn giving(&self, wanted: &Dependencies) -> Option<Stage> {
        if wanted.whole_document {
            return None;
        }
        let mut wanted = wanted.clone();
        for part in &self.asked {
            part.add_dependencies(&mut wanted);
        }
        if wanted.whole_document {
            return None;
        }
        let names = wanted.top_level().into_iter().map(str::to_owned);
        let fields = Fields::Only(names.collect());
        Some(Stage::Other(Arc::new(UnpackBucket {
            fields,
            ..self.clone()
        })))
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Unpacker {
            reader: BucketReader::new(
                &self.time_field,
                self.meta_field.as_deref(),
                self.fields.clone(),
                self.range,
            ),
            filter: self.filter.clone(),
            buckets: self.buckets.clone(),
            skipped: 0,
            unpacked: 0,
        })
    }
}

struct Unpacker {
    reader: BucketReader,
    filter: Option<Arc<MatchExpression>>,
    buckets: BucketPredicate,
    skipped: i64,
    unpacked: i64,
}

impl StageExec for Unpacker {
    fn push(&mut self, doc: RawDoc<'_>, _: &dyn Environment) -> Result<Pushed> {
        if !self.buckets.may_match(doc) {
            self.skipped += 1;
            return Ok(Pushed::Nothing);
        }
        self.unpacked += 1;
        self.reader.open(doc)?;
        Ok(Pushed::Pending)
    }

    fn next(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        while let Some((_, doc)) = self.reader.next()? {
            match &self.filter {
                Some(filter) if !filter.matches(doc.as_raw())? => {}
                _ => return Ok(Some(doc)),
            }
        }
        Ok(None)
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        out.append("nBucketsExamined", self.skipped + self.unpacked);
        out.append("nBucketsSkipped", self.skipped);
        out.append("nBucketsUnpacked", self.unpacked);
        out.append("nMeasurementsExamined", self.reader.measurements() as i64);
    }
}

#[cfg(test)]
mod tests {
    use sheaf_bson::json::shell_doc;
    use sheaf_bson::{DateTime, RawArray, doc};

    use crate::matcher::ParseContext;
    use crate::pipeline::Pipeline;

    use super::*;

    fn optimized(stages: &[DocBuf]) -> Vec<String> {
        let stages = sheaf_bson::ArrayBuf::from_values(
            stages.iter().map(|s| RawValue::Document(s.as_raw())),
        );
        let stages: RawArray<'_> = stages.as_raw();
        let pipeline = Pipeline::parse(stages, &ParseContext::default()).unwrap();
        let optimized = pipeline.optimize();
        let mut shown = vec![shell_doc(optimized.prefix.filter.as_raw())];
        shown.extend(
            optimized
                .rest
                .serialize()
                .iter()
                .map(|s| shell_doc(s.as_raw())),
        );
        shown
    }

    fn unpack() -> DocBuf {
        doc! {NAME: {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}}
    }

    #[test]
    fn filters_come_apart() {
        let shown = optimized(&[unpack(), doc! {"$match": {"m.a": 5, "x": {"$gt": 3}}}]);
        assert_eq!(
            shown,
            [
                "{ m.a: 5 }".replace("m.a: 5", "meta.a: { $eq: 5 }"),
                "{ $_internalUnpackBucket: { exclude: [], timeField: \"t\", metaField: \"m\", \
                 bucketMaxSpanSeconds: 3600, eventFilter: { x: { $gt: 3 } } } }"
                    .into(),
            ]
        );
        // A filter that only reads the meta field needs no check on measurements.
        let shown = optimized(&[unpack(), doc! {"$match": {"m": {"$in": [1, 2]}}}]);
        assert_eq!(shown[0], "{ meta: { $in: [ 1, 2 ] } }");
        assert!(!shown[1].contains("eventFilter"), "{shown:?}");
        // The name of the meta field is a prefix of this name, but not a path prefix.
        let shown = optimized(&[unpack(), doc! {"$match": {"mm": 1}}]);
        assert_eq!(shown[0], "{}");
    }

    #[test]
    fn times_become_bounds() {
        let hour = |n: i64| DateTime(n * 3_600_000);
        let range = doc! {"t": {"$gte": hour(10), "$lt": hour(11)}};
        let shown = optimized(&[unpack(), doc! {"$match": &range}]);
        for part in [
            "control.max.t: { $gte: new Date(36000000) }",
            "control.min.t: { $gte: new Date(32400000) }",
            "control.min.t: { $lte: new Date(39599999) }",
            "_id: { $gte: ObjectId('00007e900000000000000000') }",
            "_id: { $lte: ObjectId('00009aafffffffffffffffff') }",
        ] {
            assert!(shown[0].contains(part), "{part} in {}", shown[0]);
        }
        let one = doc! {"$and": [{"m": 1}, &range]};
        let shown = optimized(&[unpack(), doc! {"$match": one}]);
        assert!(!shown[0].contains("_id"), "{}", shown[0]);
    }

    #[test]
    fn only_what_is_read_is_unpacked() {
        let group = doc! {"$group": {"_id": "$m.a", "n": {"$avg": "$x.y"}}};
        let filter = doc! {"$match": {"z": 1}};
        let shown = optimized(&[unpack(), filter, group]);
        assert!(
            shown[1].contains("include: [ \"m\", \"x\", \"z\" ]"),
            "{shown:?}"
        );
    }
}
