//! How often each aggregation stage was used: `metrics.aggStageCounters`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sheaf_bson::{DocBuilder, RawArray, RawValue};
use sheaf_query::pipeline::stage_names;

use crate::command::stage_facts;

/// Stages of pipelines nested deeper than this are not counted; parsing refuses them anyway.
const DEPTH_MAX: usize = 20;

/// One counter for each stage, sorted by name.
pub(super) struct StageCounters(Vec<(&'static str, AtomicU64)>);

impl Default for StageCounters {
    fn default() -> Self {
        let mut names: Vec<_> = stage_names().collect();
        names.sort_unstable();
        names.dedup();
        StageCounters(
            names
                .into_iter()
                .map(|name| (name, AtomicU64::default()))
                .collect(),
        )
    }
}

impl StageCounters {
    /// Counts the stages of a pipeline and of the pipelines in it.
    pub fn count(&self, pipeline: RawArray<'_>) {
        self.count_at(pipeline, 0);
    }

    fn count_at(&self, pipeline: RawArray<'_>, depth: usize) {
        let stages = pipeline.iter().filter_map(|stage| stage.as_document());
        for stage in stages.filter_map(|stage| stage.first()) {
            let Ok(place) = self
                .0
                .binary_search_by(|(name, _)| (*name).cmp(stage.key()))
            else {
                continue;
            };
            self.0[place].1.fetch_add(1, Relaxed);
            let (RawValue::Document(operand), true) = (stage.value(), depth < DEPTH_MAX) else {
                continue;
            };
            let holds_pipelines = stage_facts::of(stage.key()).holds_pipelines;
            for field in operand.iter() {
                if let RawValue::Array(inner) = field.value()
                    && (field.key() == "pipeline" || holds_pipelines)
                {
                    self.count_at(inner, depth + 1);
                }
            }
        }
    }

    /// Appends `aggStageCounters`.
    pub fn append(&self, out: &mut DocBuilder) {
        out.begin_document("aggStageCounters");
        for (name, counter) in &self.0 {
            out.append(*name, counter.load(Relaxed) as i64);
        }
        out.end();
    }
}
