//! explain of operations that run a query: find, count, distinct, and writes, which are not
//! executed.
//!
//! ```text
//!   find                 LIMIT > FETCH > IXSCAN
//!   count                COUNT > COUNT_SCAN
//!   update, delete       UPDATE > FETCH > IXSCAN        (the top stage is added here)
//! ```

use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RecordId, doc};
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::solution::SolutionNode;
use sheaf_query::shape;

use super::{PlannerFacts, Verbosity, append_execution_stats, append_query_planner};
use crate::catalog::ReadView;
use crate::count;
use crate::exec::{
    CommonStats, Doc, ExecutionStats, PlanExecutor, SelectionReport, StageDescription, StageStats,
    TrialPlan, express,
};
use crate::op_context::OpContext;
use crate::planning::selector::{Purpose, select};
use crate::planning::{self, QueryOptions, Restriction};

/// What to explain, and how.
pub struct Explained<'a> {
    /// The collection at the operation's snapshot.
    pub view: &'a ReadView,
    /// Deadline and kill flag.
    pub op: &'a OpContext,
    /// The query.
    pub query: &'a Arc<CanonicalQuery>,
    /// Options of the query.
    pub options: &'a QueryOptions,
    /// `db.collection`.
    pub namespace: &'a str,
    /// Level of detail.
    pub verbosity: Verbosity,
    /// Whether the query is a whole pipeline.
    pub is_pipeline: bool,
}

/// A stage above the plan that consumes its results.
pub trait TopStage {
    /// Receives a result of the plan and its record id. Returns false to stop.
    fn result(&mut self, doc: Option<RawDoc<'_>>, id: Option<&RecordId>) -> Result<bool, Error>;
    /// Explain name.
    fn name(&self) -> &'static str;
    /// What it does, apart from counters.
    fn plan_fields(&self) -> DocBuf {
        DocBuf::default()
    }
    /// Counters.
    fn fields(&self) -> DocBuf;
    /// Documents that it would return.
    fn n_returned(&self) -> u64 {
        0
    }
}

/// explain of a find.
pub fn find(explained: &Explained<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    with_top(explained, None, out)
}

/// explain of a query with an optional additional stage on top.
pub fn with_top(
    explained: &Explained<'_>,
    top: Option<&mut dyn TopStage>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    let Explained {
        view,
        query,
        options,
        ..
    } = explained;
    if let Some(collection) = &view.collection
        && let Some(key) = planning::express_key(view, collection, query, options)
    {
        let found = express::find(collection, &view.snapshot, key)?;
        return explain_express(explained, begun, &found, top, out);
    }
    executed(explained, begun, planned(explained)?, top, out)
}

/// Builds the plan that would run, with every step timed.
pub fn planned(explained: &Explained<'_>) -> Result<PlanExecutor, Error> {
    let Explained {
        view,
        op,
        query,
        options,
        ..
    } = explained;
    let (executor, _) = select(view, op, query, options, Purpose::Explain)?;
    Ok(executor)
}

/// explain of a count.
pub fn count(explained: &Explained<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let begun = Instant::now();
    let Explained {
        view,
        op,
        query,
        options,
        ..
    } = explained;
    if view.collection.is_some() && count::is_whole_collection(query) {
        let counted = count::count(view, op, Arc::clone(query), options)?;
        let root = StageStats {
            description: StageDescription {
                stage: "RECORD_STORE_FAST_COUNT",
                exec_fields: doc! {
                    "nCounted": counted.count as i64,
                    "nSkipped": query.skip as i64,
                },
                summary: Some("RECORD_STORE_FAST_COUNT".into()),
                ..Default::default()
            },
            common: CommonStats {
                works: 1,
                is_eof: true,
                ..Default::default()
            },
        };
        let stats = ExecutionStats {
            n_returned: 0,
            root,
        };
        return append(
            explained,
            begun,
            &stats,
            &[],
            &[],
            &SelectionReport::default(),
            None,
            out,
        );
    }
    let (executor, _) = count::start(view, op, query, options, true)?;
    let mut counter = Counter(0);
    executed(explained, begun, executor, Some(&mut counter), out)
}

struct Counter(i64);

impl TopStage for Counter {
    fn result(&mut self, _: Option<RawDoc<'_>>, _: Option<&RecordId>) -> Result<bool, Error> {
        self.0 += 1;
        Ok(true)
    }

    fn name(&self) -> &'static str {
        "COUNT"
    }

    fn fields(&self) -> DocBuf {
        doc! {"nCounted": self.0, "nSkipped": 0i64}
    }
}

/// explain of a distinct, from its plan: keys alone provide the values, or documents do.
pub fn distinct(
    explained: &Explained<'_>,
    key: &str,
    plan: PlanExecutor,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    if !matches!(plan.solution().root, SolutionNode::DistinctScan { .. }) {
        return executed(explained, begun, plan, None, out);
    }
    let mut projected = Projected { key, returned: 0 };
    executed(explained, begun, plan, Some(&mut projected), out)
}

/// The values' field of each key.
struct Projected<'a> {
    key: &'a str,
    returned: u64,
}

impl TopStage for Projected<'_> {
    fn result(&mut self, _: Option<RawDoc<'_>>, _: Option<&RecordId>) -> Result<bool, Error> {
        self.returned += 1;
        Ok(true)
    }

    fn name(&self) -> &'static str {
        "PROJECTION_COVERED"
    }

    fn plan_fields(&self) -> DocBuf {
        let mut by = DocBuilder::new();
        by.append(self.key, 1);
        if self.key != "_id" {
            by.append("_id", 0);
        }
        doc! {"transformBy": &by.finish()}
    }

    fn fields(&self) -> DocBuf {
        DocBuf::default()
    }

    fn n_returned(&self) -> u64 {
        self.returned
    }
}

/// explain of an executor that is already built.
pub fn executor(
    explained: &Explained<'_>,
    executor: PlanExecutor,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    executed(explained, Instant::now(), executor, None, out)
}

fn executed(
    explained: &Explained<'_>,
    begun: Instant,
    mut executor: PlanExecutor,
    mut top: Option<&mut dyn TopStage>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let op = explained.op;
    let mut error = None;
    if explained.verbosity >= Verbosity::ExecutionStats {
        loop {
            match executor.next(op) {
                Ok(Some(member)) => {
                    if let Some(top) = top.as_deref_mut()
                        && !top.result(
                            member.doc.as_ref().map(Doc::as_raw),
                            member.record_id.as_ref(),
                        )?
                    {
                        break;
                    }
                }
                Ok(None) => break,
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        op.check_interrupt()?;
    }
    append_under(
        explained,
        begun,
        &executor,
        top.as_deref(),
        error.as_ref(),
        out,
    )
}

/// Appends the statistics of a plan that the caller has run.
pub fn append_executed(
    explained: &Explained<'_>,
    begun: Instant,
    executor: &PlanExecutor,
    error: Option<&Error>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    append_under(explained, begun, executor, None, error, out)
}

fn append_under(
    explained: &Explained<'_>,
    begun: Instant,
    executor: &PlanExecutor,
    top: Option<&dyn TopStage>,
    error: Option<&Error>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let rejected: Vec<StageStats> = executor
        .trial()
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != executor.winner())
        .map(|(_, plan)| plan.scored.stats.clone())
        .collect();
    let rejected: Vec<&StageStats> = rejected.iter().collect();
    let stats = under(top, executor.stats());
    append(
        explained,
        begun,
        &stats,
        &rejected,
        executor.trial(),
        executor.notes(),
        error,
        out,
    )
}

fn explain_express(
    explained: &Explained<'_>,
    begun: Instant,
    found: &express::Found,
    top: Option<&mut dyn TopStage>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut root = express::describe(found);
    if let Some(projection) = &explained.query.projection {
        let mut fields = DocBuilder::from_doc(root.description.plan_fields.as_raw());
        fields.append("projection", projection.transform_by().as_raw());
        root.description.plan_fields = fields.finish();
    }
    let mut stats = ExecutionStats {
        n_returned: root.common.advanced,
        root,
    };
    if let Some(top) = top {
        if explained.verbosity >= Verbosity::ExecutionStats
            && let Some((id, bytes)) = &found.record
        {
            top.result(Some(RawDoc::stored(bytes)?), Some(id))?;
        }
        stats = under(Some(top), stats);
        let stage = &mut stats.root.description.stage;
        *stage = match *stage {
            "UPDATE" => "EXPRESS_UPDATE",
            "DELETE" => "EXPRESS_DELETE",
            other => other,
        };
    }
    append(
        explained,
        begun,
        &stats,
        &[],
        &[],
        &SelectionReport::default(),
        None,
        out,
    )
}

/// Adds the top stage to a plan's statistics.
fn under(top: Option<&dyn TopStage>, stats: ExecutionStats) -> ExecutionStats {
    let Some(top) = top else {
        return stats;
    };
    let plan = stats.root;
    ExecutionStats {
        n_returned: top.n_returned(),
        root: StageStats {
            common: CommonStats {
                advanced: top.n_returned(),
                works: plan.common.works,
                need_time: (plan.common.advanced + plan.common.need_time)
                    .saturating_sub(top.n_returned()),
                is_eof: true,
                elapsed: plan.common.elapsed,
                ..Default::default()
            },
            description: StageDescription {
                stage: top.name(),
                plan_fields: top.plan_fields(),
                exec_fields: top.fields(),
                children: vec![plan],
                ..Default::default()
            },
        },
    }
}

fn append(
    explained: &Explained<'_>,
    begun: Instant,
    stats: &ExecutionStats,
    rejected: &[&StageStats],
    trial: &[TrialPlan],
    notes: &SelectionReport,
    error: Option<&Error>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let query = explained.query;
    let mut facts = PlannerFacts {
        namespace: explained.namespace.to_owned(),
        parsed_query: query.filter.serialize(),
        notes: notes.clone(),
        collation: query.collator.as_ref().map(|c| c.collation().to_doc()),
        optimized_pipeline: explained.is_pipeline,
        settings: explained.options.settings.clone(),
        optimization_time: stats.root.common.elapsed.abs_diff(begun.elapsed()),
        ..Default::default()
    };
    if explained.view.collection.is_some() {
        facts.shape_hash = shape::shape_hash(query);
        let indexes = planning::planning_indexes(explained.view, query, explained.options)?;
        facts.index_filter_set = indexes.restriction == Restriction::Filter;
        facts.plan_cache_key = format!("{:08X}", shape::plan_cache_key(query, &indexes) as u32);
    }
    append_query_planner(out, &facts, &stats.root, rejected);
    if explained.verbosity >= Verbosity::ExecutionStats {
        let all = (explained.verbosity == Verbosity::AllPlansExecution).then_some(trial);
        append_execution_stats(out, stats, begun.elapsed(), error, false, all);
    }
    Ok(())
}
