//! Counts documents: from the engine's record count, from index keys alone, or by running the
//! query.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::statistics::Statistics;

use crate::catalog::ReadView;
use crate::exec::{BuildContext, PlanExecutor, WorkCounts};
use crate::op_context::OpContext;
use crate::planning::{self, PlanDigest, QueryOptions};

/// The result of a count, and the work it took.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Documents that match, after skip and limit.
    pub count: u64,
    /// Work done.
    pub counts: WorkCounts,
    /// The plan used.
    pub plan: PlanDigest,
}

/// Counts the documents that match `query`, applying its skip and limit.
pub fn count(
    view: &ReadView,
    op: &OpContext,
    query: Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<Counted, Error> {
    if is_whole_collection(&query) {
        let all = view.record_count()?.saturating_sub(query.skip);
        return Ok(Counted {
            count: query.limit.map_or(all, |limit| all.min(limit)),
            plan: PlanDigest::record_count(),
            ..Default::default()
        });
    }
    let (mut executor, plan) = start(view, op, &query, options, false)?;
    let mut count = 0;
    while executor.next(op)?.is_some() {
        count += 1;
    }
    Ok(Counted {
        count,
        counts: executor.counts(),
        plan,
    })
}

/// Whether the engine's record count answers the query.
pub fn is_whole_collection(query: &CanonicalQuery) -> bool {
    query.filter.is_trivially_true()
        && query.hint.is_none()
        && query.min.is_none()
        && query.max.is_none()
}

/// Starts the plan of a count, which reads keys alone if possible.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    timed: bool,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    let indexes = planning::planning_indexes(view, query, options)?;
    let statistics = options.statistics(view)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let params = options.params(&indexes, statistics);
    if view.collection.is_some()
        && let Some(solution) = sheaf_query::planner::plan_count(query, &params)?
    {
        let cx: BuildContext = options.build_context(view, query, timed);
        let executor =
            PlanExecutor::new(&cx, vec![solution], options.trial_budget(view, query)?, op)?;
        let plan = PlanDigest::solution(executor.solution());
        return Ok((executor, plan));
    }
    planning::start(view, op, query, options)
}
