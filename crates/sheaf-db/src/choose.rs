//! Which plan runs.
//!
//! ```text
//!   plan cache ──proven plan──> made anew with this query's constants, watched: 10 x works
//!        │ none, or too dear
//!        v
//!   planner ──> rooted $or? ──> SUBPLAN: each branch is chosen for by itself
//!        │
//!        ├──> one solution ───> it runs, and nothing is remembered
//!        └──> several ──> statistics: some are hopeless ──> trial of the others ──> remembered
//! ```
//!
//! explain goes the same way, but neither asks the cache nor tells it.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::solution::QuerySolution;
use sheaf_query::planner::statistics::{Hopeless, Statistics, hopeless};
use sheaf_query::planner::{self, LimitsReached, Planned, PlannerParams};
use sheaf_query::shape;

use crate::catalog::ReadView;
use crate::exec::multi_plan::TrialBudget;
use crate::exec::{BuildContext, PlanExecutor, StageStats, build};
use crate::find::{self, PlanDigest, QueryOptions};
use crate::op_context::OpContext;
use crate::plan_cache::{CachedPlan, PlanCache, Trial};

/// What a plan is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run; the plan cache is asked and told.
    Run,
    /// To be explained: every step is timed, and the cache left as it is.
    Explain,
}

/// What explain says about the choice beside the trial.
#[derive(Debug, Clone, Default)]
pub struct ChoiceNotes {
    /// Limits of the planner.
    pub reached: LimitsReached,
    /// Candidates that were not tried, and why.
    pub hopeless: Vec<(StageStats, Hopeless)>,
}

/// What choosing works with.
struct Choice<'a> {
    view: &'a ReadView,
    op: &'a OpContext,
    options: &'a QueryOptions,
    params: &'a PlannerParams<'a>,
    /// `None` to leave the plan cache alone.
    cache: Option<&'a PlanCache>,
    timed: bool,
}

/// The key of a query in the plan cache, and its shape.
struct CacheKey {
    key: u64,
    shape: u32,
}

/// Picks a plan and starts it. A collection that does not exist gives nothing.
pub(crate) fn choose(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    purpose: Purpose,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    let Some(collection) = &view.collection else {
        let executor = find::nothing(view, op, query, options)?;
        let digest = PlanDigest::solution(executor.solution());
        return Ok((executor, digest));
    };
    let statistics = find::statistics(view, options)?;
    let indexes = find::planning_indexes(view, query)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let params = find::params(&indexes, options, statistics);
    let choice = Choice {
        view,
        op,
        options,
        params: &params,
        cache: (purpose == Purpose::Run).then(|| &**collection.plan_cache()),
        timed: purpose == Purpose::Explain,
    };
    choice.choose(query)
}

impl Choice<'_> {
    fn choose(&self, query: &Arc<CanonicalQuery>) -> Result<(PlanExecutor, PlanDigest), Error> {
        let cx = find::build_context(self.view, query, self.options, self.timed);
        let budget = find::budget(self.view, query, self.options)?;
        if self.options.or_children_independently && planner::has_subplans(query) {
            let mut pick = |branch: &Arc<CanonicalQuery>, solutions: &[QuerySolution]| {
                self.pick(branch, solutions)
            };
            if let Some(planned) = planner::plan_branches(query, self.params, &mut pick)? {
                return self.single(&cx, planned, budget);
            }
        }
        let planned = planner::plan_all(query, self.params)?;
        if planned.solutions.len() == 1 {
            return self.single(&cx, planned, budget);
        }
        let mut replanned = false;
        let key = self.key(query);
        let signatures = planner::signatures(&planned.solutions);
        if let (Some(cache), Some(key)) = (self.cache, &key)
            && let Some(cached) = cache.active(key.key)
            && let Some(at) = signatures.iter().position(|s| *s == cached.signature)
        {
            let works_max = cached.works as f64 * self.options.plan_cache.eviction_ratio;
            let watched = TrialBudget {
                works_max: (works_max as u64).max(1),
                ..budget
            };
            let solution = planned.solutions[at].clone();
            if let Some(executor) = PlanExecutor::cached(&cx, solution, watched, self.op)? {
                let digest = PlanDigest::solution(executor.solution()).chosen(true, false);
                return Ok((executor, digest));
            }
            cache.deactivate(key.key);
            replanned = true;
        }
        let (executor, winner) = self.tried(&cx, planned, budget)?;
        if let (Some(cache), Some(key)) = (self.cache, key) {
            self.remember(cache, key, query, &signatures[winner], &executor);
        }
        let digest = PlanDigest::solution(executor.solution()).chosen(false, replanned);
        Ok((executor, digest))
    }

    /// The only plan there is.
    fn single(
        &self,
        cx: &BuildContext,
        planned: Planned,
        budget: TrialBudget,
    ) -> Result<(PlanExecutor, PlanDigest), Error> {
        let mut executor = PlanExecutor::new(cx, planned.solutions, budget, self.op)?;
        executor.note(ChoiceNotes {
            reached: planned.reached,
            hopeless: Vec::new(),
        });
        let digest = PlanDigest::solution(executor.solution());
        Ok((executor, digest))
    }

    /// Tries the candidates that have hope; with the winner's place among all.
    fn tried(
        &self,
        cx: &BuildContext,
        planned: Planned,
        budget: TrialBudget,
    ) -> Result<(PlanExecutor, usize), Error> {
        let why = match self.params.statistics {
            Some(statistics) => {
                let records_min = self.options.hopeless_records_min;
                hopeless(&planned.solutions, &cx.query, statistics, records_min)
            }
            None => vec![None; planned.solutions.len()],
        };
        let mut notes = ChoiceNotes {
            reached: planned.reached,
            hopeless: Vec::new(),
        };
        let (mut tried, mut places) = (Vec::new(), Vec::new());
        for (place, (solution, why)) in planned.solutions.into_iter().zip(why).enumerate() {
            match why {
                None => {
                    tried.push(solution);
                    places.push(place);
                }
                Some(why) if self.timed => {
                    notes
                        .hopeless
                        .push((build(cx, &solution.root)?.stats(), why));
                }
                Some(_) => {}
            }
        }
        let mut executor = PlanExecutor::tried(cx, tried, budget, self.op)?;
        executor.note(notes);
        let winner = places[executor.winner()];
        Ok((executor, winner))
    }

    /// Which of the solutions a branch of a rooted `$or` has.
    fn pick(
        &self,
        branch: &Arc<CanonicalQuery>,
        solutions: &[QuerySolution],
    ) -> Result<usize, Error> {
        let signatures = planner::signatures(solutions);
        let key = self.key(branch);
        if let (Some(cache), Some(key)) = (self.cache, &key)
            && let Some(cached) = cache.active(key.key)
            && let Some(at) = signatures.iter().position(|s| *s == cached.signature)
        {
            return Ok(at);
        }
        let cx = find::build_context(self.view, branch, self.options, self.timed);
        let budget = find::budget(self.view, branch, self.options)?;
        let planned = Planned {
            solutions: solutions.to_vec(),
            ..Planned::default()
        };
        let (executor, winner) = self.tried(&cx, planned, budget)?;
        if let (Some(cache), Some(key)) = (self.cache, key) {
            self.remember(cache, key, branch, &signatures[winner], &executor);
        }
        Ok(winner)
    }

    fn key(&self, query: &CanonicalQuery) -> Option<CacheKey> {
        self.cache?;
        Some(CacheKey {
            key: shape::plan_cache_key(query, self.params.indexes),
            shape: shape::shape_number(query),
        })
    }

    fn remember(
        &self,
        cache: &PlanCache,
        key: CacheKey,
        query: &CanonicalQuery,
        signature: &str,
        executor: &PlanExecutor,
    ) {
        let plan = CachedPlan {
            signature: signature.to_owned(),
            works: executor.trial_works(),
        };
        let trial = || Trial::new(query, executor.trial());
        cache.record(key.key, key.shape, plan, &self.options.plan_cache, trial);
    }
}
