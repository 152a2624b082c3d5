//! explain's documents, in MongoDB's shape (explainVersion "1").
//!
//! A stage describes itself once ([`StageDescription`](crate::exec::StageDescription)); this module
//! converts that to the two forms that explain shows: the plan (`winningPlan`, `rejectedPlans`)
//! without counters, and the execution with counters.

pub mod query;

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::exec::{ExecutionStats, PlanExecutor, SelectionReport, StageStats, TrialPlan};
use crate::planning::QuerySettings;

/// Level of detail of an explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// The plan.
    QueryPlanner,
    /// The plan and the counters of its execution.
    ExecutionStats,
    /// The same, and the counters of every candidate's trial.
    AllPlansExecution,
}

impl Verbosity {
    /// Parses the command's `verbosity`.
    pub fn parse(word: &str) -> Result<Self, Error> {
        match word {
            "queryPlanner" => Ok(Verbosity::QueryPlanner),
            "executionStats" => Ok(Verbosity::ExecutionStats),
            "allPlansExecution" => Ok(Verbosity::AllPlansExecution),
            _ => Err(Error::bad_value(format!(
                "verbosity '{word}' is not one of queryPlanner, executionStats and \
                 allPlansExecution"
            ))),
        }
    }
}

/// The fields of `queryPlanner` other than stages.
#[derive(Debug, Clone, Default)]
pub struct PlannerFacts {
    /// `db.collection`.
    pub namespace: String,
    /// The normalised filter.
    pub parsed_query: sheaf_bson::DocBuf,
    /// The query's collation; `None` for the simple collation.
    pub collation: Option<sheaf_bson::DocBuf>,
    /// Whether an index filter is set for the query's shape.
    pub index_filter_set: bool,
    /// The settings of the command's shape.
    pub settings: Option<Arc<QuerySettings>>,
    /// Eight hex digits; empty for a plan without a query shape.
    pub shape_hash: String,
    /// Eight hex digits, or empty.
    pub plan_cache_key: String,
    /// Whether the plan executes a whole pipeline.
    pub optimized_pipeline: bool,
    /// Time spent planning and on the trial.
    pub optimization_time: Duration,
    /// Whether the plan came from the cache.
    pub is_cached: bool,
    /// Details of plan selection.
    pub notes: SelectionReport,
}

/// Appends the `queryPlanner` section.
pub fn append_query_planner(
    out: &mut DocBuilder,
    facts: &PlannerFacts,
    winner: &StageStats,
    rejected: &[&StageStats],
) {
    out.begin_document("queryPlanner");
    out.append("namespace", facts.namespace.as_str());
    out.append("parsedQuery", facts.parsed_query.as_raw());
    if let Some(collation) = &facts.collation {
        out.append_bson("collation", collation);
    }
    out.append("indexFilterSet", facts.index_filter_set);
    if let Some(settings) = &facts.settings {
        out.append_bson("querySettings", &settings.shown);
    }
    if !facts.shape_hash.is_empty() {
        out.append("queryHash", facts.shape_hash.as_str());
        out.append("planCacheShapeHash", facts.shape_hash.as_str());
    }
    if !facts.plan_cache_key.is_empty() {
        out.append("planCacheKey", facts.plan_cache_key.as_str());
    }
    out.append(
        "optimizationTimeMillis",
        facts.optimization_time.as_millis() as i32,
    );
    if facts.optimized_pipeline {
        out.append("optimizedPipeline", true);
    }
    let reached = &facts.notes.reached;
    out.append("maxIndexedOrSolutionsReached", reached.or);
    out.append("maxIndexedAndSolutionsReached", reached.and);
    out.append("maxScansToExplodeReached", reached.explode);
    out.append("prunedSimilarIndexes", false);
    out.begin_document("winningPlan");
    out.append("isCached", facts.is_cached);
    append_plan_fields(out, winner);
    out.end();
    out.begin_array("rejectedPlans");
    for plan in rejected {
        out.push_begin_document();
        out.append("isCached", false);
        append_plan_fields(out, plan);
        out.end();
    }
    for (plan, why) in &facts.notes.pruned {
        out.push_begin_document();
        out.append("isCached", false);
        out.begin_document("notTried");
        out.append("estimatedKeys", why.keys.round() as i64);
        out.append("estimatedKeysOfBest", why.best.round() as i64);
        out.end();
        append_plan_fields(out, plan);
        out.end();
    }
    out.end();
    out.end();
}

/// The stages of a plan with their counters (`execStats`).
pub(crate) fn exec_stats(executor: &PlanExecutor) -> DocBuf {
    let mut out = DocBuilder::new();
    append_execution_fields(&mut out, &executor.stats().root);
    out.finish()
}

/// Appends the `executionStats` section; `error` is the error that ended the execution early.
pub fn append_execution_stats(
    out: &mut DocBuilder,
    stats: &ExecutionStats,
    elapsed: Duration,
    error: Option<&Error>,
    is_cached: bool,
    all_plans: Option<&[TrialPlan]>,
) {
    out.begin_document("executionStats");
    out.append("executionSuccess", error.is_none());
    if let Some(error) = error {
        out.append("failed", true);
        out.append("errorMessage", error.message());
        out.append("errorCode", error.code().0);
    }
    out.append("nReturned", number(stats.n_returned));
    out.append("executionTimeMillis", elapsed.as_millis() as i32);
    out.append("totalKeysExamined", number(stats.root.keys_examined()));
    out.append("totalDocsExamined", number(stats.root.docs_examined()));
    out.begin_document("executionStages");
    out.append("isCached", is_cached);
    append_execution_fields(out, &stats.root);
    out.end();
    if let Some(plans) = all_plans {
        out.begin_array("allPlansExecution");
        for plan in plans {
            out.push_begin_document();
            append_trial(out, plan);
            out.end();
        }
        out.end();
    }
    out.end();
}

fn append_trial(out: &mut DocBuilder, plan: &TrialPlan) {
    out.append("score", plan.scored.score);
    if let Some(cost) = plan.scored.cost {
        out.append("cost", cost);
    }
    append_trial_counters(out, plan);
}

/// Appends the counters of a candidate's trial, without its score.
pub fn append_trial_counters(out: &mut DocBuilder, plan: &TrialPlan) {
    let stats = &plan.scored.stats;
    out.append("nReturned", number(plan.scored.n_returned));
    out.append(
        "executionTimeMillisEstimate",
        stats.common.elapsed.as_millis() as i32,
    );
    out.append("totalKeysExamined", number(stats.keys_examined()));
    out.append("totalDocsExamined", number(stats.docs_examined()));
    out.begin_document("executionStages");
    append_execution_fields(out, stats);
    out.end();
}

/// Appends a stage and its children as part of a plan.
pub fn append_plan_fields(out: &mut DocBuilder, stage: &StageStats) {
    let description = &stage.description;
    out.append("stage", description.stage);
    if let Some(filter) = &description.filter {
        out.append("filter", filter.as_raw());
    }
    append_all(out, description.plan_fields.as_raw());
    append_children(out, stage, append_plan_fields);
}

/// Appends a stage and its children with their counters.
pub fn append_execution_fields(out: &mut DocBuilder, stage: &StageStats) {
    let (description, common) = (&stage.description, &stage.common);
    out.append("stage", description.stage);
    if let Some(filter) = &description.filter {
        out.append("filter", filter.as_raw());
    }
    out.append("nReturned", number(common.advanced));
    out.append(
        "executionTimeMillisEstimate",
        common.elapsed.as_millis() as i32,
    );
    out.append("works", number(common.works));
    out.append("advanced", number(common.advanced));
    out.append("needTime", number(common.need_time));
    // Readers keep one snapshot and never yield.
    out.append("needYield", 0);
    out.append("saveState", 0);
    out.append("restoreState", 0);
    out.append("isEOF", i32::from(common.is_eof));
    append_all(out, description.plan_fields.as_raw());
    append_all(out, description.exec_fields.as_raw());
    append_children(out, stage, append_execution_fields);
}

fn append_children(
    out: &mut DocBuilder,
    stage: &StageStats,
    append: fn(&mut DocBuilder, &StageStats),
) {
    match stage.description.children.as_slice() {
        [] => {}
        [child] if !stage.description.many => {
            out.begin_document("inputStage");
            append(out, child);
            out.end();
        }
        children => {
            out.begin_array("inputStages");
            for child in children {
                out.push_begin_document();
                append(out, child);
                out.end();
            }
            out.end();
        }
    }
}

/// Appends the stage's own fields. Numbers that fit are ints: clients display a long as
/// `Long('5')`.
fn append_all(out: &mut DocBuilder, doc: RawDoc<'_>) {
    for element in doc.iter() {
        match element.value() {
            RawValue::Int64(n) if i32::try_from(n).is_ok() => out.append(element.key(), n as i32),
            value => out.append(element.key(), value),
        };
    }
}

fn number(n: u64) -> sheaf_bson::RawValue<'static> {
    sheaf_bson::RawValue::int_or_long(n as i64)
}
