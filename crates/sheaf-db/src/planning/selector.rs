//! Selects the plan to run.
//!
//! ```text
//!   plan cache ──active plan──> rebuilt with this query's constants, limited to 10 x works
//!        │ none, or too expensive
//!        v
//!   planner ──> rooted $or? ──> SUBPLAN: a plan is selected per branch
//!        │
//!        ├──> one solution ───> it runs, and nothing is cached
//!        └──> several ──> statistics: some are pruned ──> trial of the others ──> cached
//! ```
//!
//! A plan composed of branch plans is limited likewise, by the sum of their works, if each of them
//! was tried.
//!
//! explain takes the same path, but neither reads nor writes the cache.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::Arc;

use sheaf_bson::DocBuilder;
use sheaf_bson::error_code::Error;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::matcher::MatchExpression;
use sheaf_query::planner::recipe;
use sheaf_query::planner::solution::{QuerySolution, SolutionNode};
use sheaf_query::planner::statistics::{Statistics, pruned};
use sheaf_query::planner::{self, Planned, PlannerParams};
use sheaf_query::shape;

use super::indexes::{Restriction, planning_indexes};
use super::plan_cache::{CacheKey, CachedPlan, MultiPlanning, PlanCache};
use super::{PlanDigest, QueryOptions};
use crate::catalog::ReadView;
use crate::exec::multi_plan::TrialBudget;
use crate::exec::{BuildContext, PlanExecutor, SelectionReport, TrialPlan, build};
use crate::explain;
use crate::op_context::OpContext;

/// What a plan is selected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run; the plan cache is read and written.
    Run,
    /// To be explained: every step is timed, and the cache is not touched.
    Explain,
}

/// Selects a plan and starts it: for finds, and for commands that search for the records they
/// modify.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    select(view, op, query, options, Purpose::Run)
}

fn nothing(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<PlanExecutor, Error> {
    let solution = QuerySolution {
        root: SolutionNode::Eof,
        has_blocking_stage: false,
    };
    let cx = options.build_context(view, query, false);
    PlanExecutor::new(&cx, vec![solution], options.trial_budget(view, query)?, op)
}

/// The planner's candidates; never empty.
pub fn plan(
    view: &ReadView,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<Vec<QuerySolution>, Error> {
    let statistics = options.statistics(view)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let indexes = planning_indexes(view, query, options)?;
    planner::plan(query, &options.params(&indexes, statistics))
}

/// Starts the given candidate without a trial. All candidates of a query must return the same
/// results.
pub fn start_solution(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    solution: QuerySolution,
) -> Result<PlanExecutor, Error> {
    let cx = options.build_context(view, query, false);
    PlanExecutor::new(&cx, vec![solution], options.trial_budget(view, query)?, op)
}

/// The cached plan of a query, ready to be built; `None` without an active entry. Measures what
/// planning costs where it is avoided.
///
/// Errors: those of reading the planner's view of the indexes.
pub fn plan_from_cache(
    view: &ReadView,
    op: &OpContext,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<Option<QuerySolution>, Error> {
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    let cache = &**collection.plan_cache();
    with_selector(view, op, query, options, |selector| {
        let key = selector.key(query);
        let cached = match planner::has_subplans(query) {
            true => cache.composed(&key),
            false => cache.active(&key),
        };
        Ok(cached.and_then(|cached| selector.make(&cached, &key, query)))
    })
}

/// The lookup key of a query in the plan cache.
/// Errors: those of reading the planner's view of the indexes.
pub(crate) fn cache_key(
    view: &ReadView,
    op: &OpContext,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<CacheKey, Error> {
    with_selector(view, op, query, options, |selector| Ok(selector.key(query)))
}

/// Keeps the only plan of a query for other queries with the same key; `None` if it has no recipe.
/// Errors: those of planning.
pub(crate) fn keep_only_plan(
    view: &ReadView,
    op: &OpContext,
    query: &CanonicalQuery,
    options: &QueryOptions,
    solution: &QuerySolution,
) -> Result<Option<CachedPlan>, Error> {
    with_selector(view, op, query, options, |selector| {
        let solutions = std::slice::from_ref(solution);
        let Some(signature) = planner::signatures(solutions).pop() else {
            return Ok(None);
        };
        let recipe = recipe::recipe_of(query, selector.params, &signature)?;
        Ok(recipe.map(|recipe| CachedPlan {
            signature,
            works: 0,
            recipe: Some((recipe, selector.key(query).text)),
            asks_statistics: asks_statistics(&solution.root),
        }))
    })
}

/// Rebuilds a kept plan with this query's constants. `None` if the query must be planned.
/// Errors: those of reading the planner's view of the indexes.
pub(crate) fn make_again(
    view: &ReadView,
    op: &OpContext,
    kept: &CachedPlan,
    key: &CacheKey,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<Option<QuerySolution>, Error> {
    with_selector(view, op, query, options, |selector| {
        Ok(selector.make(kept, key, query))
    })
}

/// Runs `run` with a selector for the query that does not touch the plan cache.
fn with_selector<R>(
    view: &ReadView,
    op: &OpContext,
    query: &CanonicalQuery,
    options: &QueryOptions,
    run: impl FnOnce(&PlanSelector<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let indexes = planning_indexes(view, query, options)?;
    let statistics = options.statistics(view)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let params = options.params(&indexes, statistics);
    run(&PlanSelector {
        view,
        op,
        options,
        params: &params,
        restriction: indexes.restriction,
        cache: None,
        timed: false,
    })
}

/// Selects the plan of one query.
struct PlanSelector<'a> {
    view: &'a ReadView,
    op: &'a OpContext,
    options: &'a QueryOptions,
    params: &'a PlannerParams<'a>,
    restriction: Restriction,
    /// `None` to bypass the plan cache.
    cache: Option<&'a PlanCache>,
    timed: bool,
}

/// Selects a plan and starts it. A collection that does not exist returns no results.
pub(crate) fn select(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    purpose: Purpose,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    op.record_query(query);
    let Some(collection) = &view.collection else {
        let executor = nothing(view, op, query, options)?;
        let digest = PlanDigest::solution(executor.solution());
        return Ok((executor, digest));
    };
    with_selector(view, op, query, options, |selector| {
        PlanSelector {
            cache: (purpose == Purpose::Run).then(|| &**collection.plan_cache()),
            timed: purpose == Purpose::Explain,
            ..*selector
        }
        .select(query)
    })
}

impl PlanSelector<'_> {
    fn select(&self, query: &Arc<CanonicalQuery>) -> Result<(PlanExecutor, PlanDigest), Error> {
        let cx = self.options.build_context(self.view, query, self.timed);
        let budget = self.options.trial_budget(self.view, query)?;
        let by_branch = self.options.or_children_independently && planner::has_subplans(query);
        let known = self
            .cache
            .filter(|cache| cache.has_plans())
            .map(|cache| (cache, self.key(query)));
        let mut replanned = false;
        if let Some((cache, key)) = &known {
            if by_branch
                && let Some(cached) = cache.composed(key)
                && let Some(solution) = self.make(&cached, key, query)
            {
                if cached.works == 0 {
                    let executor = PlanExecutor::new(&cx, vec![solution], budget, self.op)?;
                    let digest = PlanDigest::solution(executor.solution()).chosen(true, false);
                    return Ok((executor, digest));
                }
                match self.watched(&cx, &cached, solution, budget)? {
                    Some(running) => return Ok(running),
                    None => {
                        cache.remove_composed(key);
                        replanned = true;
                    }
                }
            }
            if let Some(cached) = cache.active(key)
                && let Some(solution) = self.make(&cached, key, query)
            {
                match self.watched(&cx, &cached, solution, budget)? {
                    Some(running) => return Ok(running),
                    None => {
                        cache.deactivate(key);
                        replanned = true;
                    }
                }
            }
        }
        // Branch plans do not provide an order. If a plan of the whole query provides a page in
        // order, try it.
        let pages =
            self.params.statistics.is_some() && query.sort.is_some() && query.limit.is_some();
        let whole = match by_branch && pages {
            true => Some(planner::plan_all(query, self.params)?)
                .filter(|whole| whole.solutions.iter().any(|s| !s.has_blocking_stage)),
            false => None,
        };
        if by_branch
            && whole.is_none()
            && let Some(planned) = self.by_branch(query, replanned)?
        {
            return self.single(&cx, planned, budget, replanned);
        }
        let planned = match whole {
            Some(whole) => whole,
            None => planner::plan_all(query, self.params)?,
        };
        if planned.solutions.len() == 1 {
            return self.single(&cx, planned, budget, replanned);
        }
        let signatures = planner::signatures(&planned.solutions);
        if let Some((cache, key)) = &known
            && let Some(cached) = cache.active(key)
            && let Some(at) = signatures.iter().position(|s| *s == cached.signature)
        {
            let solution = planned.solutions[at].clone();
            if let Some(running) = self.watched(&cx, &cached, solution, budget)? {
                return Ok(running);
            }
            cache.deactivate(key);
            replanned = true;
        }
        let (executor, winner) = self.tried(&cx, planned, budget)?;
        self.cache_plan(query, &signatures[winner], &executor)?;
        let mut digest = PlanDigest::solution(executor.solution()).chosen(false, replanned);
        digest.multi_planned = true;
        Ok((executor, digest))
    }

    /// Builds a cached plan with this query's constants, without planning.
    fn make(
        &self,
        cached: &CachedPlan,
        key: &CacheKey,
        query: &CanonicalQuery,
    ) -> Option<QuerySolution> {
        let recipe = cached.recipe_for(key)?;
        let params = PlannerParams {
            statistics: self.params.statistics.filter(|_| cached.asks_statistics),
            ..self.params.clone()
        };
        recipe::make(recipe, query, &params)
    }

    /// Runs a cached plan, unless it needs far more steps than recorded.
    fn watched(
        &self,
        cx: &BuildContext,
        cached: &CachedPlan,
        solution: QuerySolution,
        budget: TrialBudget,
    ) -> Result<Option<(PlanExecutor, PlanDigest)>, Error> {
        let works_max = cached.works as f64 * self.options.plan_cache.eviction_ratio;
        let watched = TrialBudget {
            works_max: (works_max as u64).max(1),
            ..budget
        };
        let executor = PlanExecutor::cached(cx, solution, watched, self.op)?;
        Ok(executor.map(|executor| {
            let digest = PlanDigest::solution(executor.solution()).chosen(true, false);
            (executor, digest)
        }))
    }

    /// Composes the plan of a rooted `$or` from the plans of its branches; `None` if one of them
    /// has only a collection scan. `ignore_cache` chooses them without the plan cache.
    fn by_branch(
        &self,
        query: &Arc<CanonicalQuery>,
        ignore_cache: bool,
    ) -> Result<Option<Planned>, Error> {
        let all_proven = Cell::new(true);
        let (works, picked) = (Cell::new(0), Cell::new(0));
        let mut pick = |branch: &Arc<CanonicalQuery>, solutions: &[QuerySolution]| {
            let (at, proven) = self.pick(branch, solutions, ignore_cache)?;
            picked.set(picked.get() + 1);
            works.set(works.get() + proven.unwrap_or(0));
            all_proven.set(all_proven.get() && proven.is_some());
            Ok(at)
        };
        let remember = || self.cache.is_some() && all_proven.get();
        let Some((planned, recipe)) =
            planner::plan_branches(query, self.params, &mut pick, &remember)?
        else {
            return Ok(None);
        };
        if let (Some(cache), Some(recipe)) = (self.cache, recipe)
            && let [solution] = planned.solutions.as_slice()
        {
            let key = self.key(query);
            // The cost of a branch with a single candidate is unknown.
            let branches = match &*query.filter {
                MatchExpression::Or(branches) => branches.len(),
                _ => 0,
            };
            let plan = CachedPlan {
                signature: String::new(),
                works: match picked.get() == branches {
                    true => works.get(),
                    false => 0,
                },
                recipe: Some((recipe, key.text.clone())),
                asks_statistics: asks_statistics(&solution.root),
            };
            cache.compose(&key, plan, &self.options.plan_cache);
        }
        Ok(Some(planned))
    }

    /// Starts the only plan.
    fn single(
        &self,
        cx: &BuildContext,
        planned: Planned,
        budget: TrialBudget,
        replanned: bool,
    ) -> Result<(PlanExecutor, PlanDigest), Error> {
        let mut executor = PlanExecutor::new(cx, planned.solutions, budget, self.op)?;
        executor.note(SelectionReport {
            reached: planned.reached,
            pruned: Vec::new(),
        });
        let digest = PlanDigest::solution(executor.solution()).chosen(false, replanned);
        Ok((executor, digest))
    }

    /// Tries the candidates that are not pruned; returns the winner's position among all.
    fn tried(
        &self,
        cx: &BuildContext,
        planned: Planned,
        budget: TrialBudget,
    ) -> Result<(PlanExecutor, usize), Error> {
        let why = match self.params.statistics {
            Some(statistics) => {
                let records_min = self.options.pruning_records_min;
                pruned(&planned.solutions, &cx.query, statistics, records_min)
            }
            None => vec![None; planned.solutions.len()],
        };
        let mut notes = SelectionReport {
            reached: planned.reached,
            pruned: Vec::new(),
        };
        let (mut tried, mut places) = (Vec::new(), Vec::new());
        for (place, (solution, why)) in planned.solutions.into_iter().zip(why).enumerate() {
            match why {
                None => {
                    tried.push(solution);
                    places.push(place);
                }
                Some(why) if self.timed => {
                    notes.pruned.push((build(cx, &solution.root)?.stats(), why));
                }
                Some(_) => {}
            }
        }
        let mut executor = PlanExecutor::tried(cx, tried, budget, self.op)?;
        executor.note(notes);
        debug_assert!(places.is_sorted() && executor.trial().len() == places.len());
        let winner = places[executor.winner()];
        Ok((executor, winner))
    }

    /// Picks one of a branch's solutions; returns its position, and its works if it needed no
    /// trial.
    fn pick(
        &self,
        branch: &Arc<CanonicalQuery>,
        solutions: &[QuerySolution],
        ignore_cache: bool,
    ) -> Result<(usize, Option<u64>), Error> {
        let signatures = planner::signatures(solutions);
        if let Some(cache) = self.cache.filter(|_| !ignore_cache)
            && let Some(cached) = cache.active(&self.key(branch))
            && let Some(at) = signatures.iter().position(|s| *s == cached.signature)
        {
            return Ok((at, Some(cached.works)));
        }
        let cx = self.options.build_context(self.view, branch, self.timed);
        let budget = self.options.trial_budget(self.view, branch)?;
        let planned = Planned {
            solutions: solutions.to_vec(),
            ..Planned::default()
        };
        debug_assert_eq!(signatures.len(), solutions.len());
        let (executor, winner) = self.tried(&cx, planned, budget)?;
        self.cache_plan(branch, &signatures[winner], &executor)?;
        Ok((winner, None))
    }

    fn key(&self, query: &CanonicalQuery) -> CacheKey {
        let mut text = shape::plan_cache_text(query, self.params.indexes);
        if self.params.statistics.is_some() {
            text.push('x');
        }
        match self.restriction {
            Restriction::Nothing => {}
            Restriction::Filter => text.push('f'),
            Restriction::Settings(hints) => {
                let _ = write!(text, "s{:x}", hints.key);
            }
        }
        CacheKey::new(text)
    }

    fn cache_plan(
        &self,
        query: &CanonicalQuery,
        signature: &str,
        executor: &PlanExecutor,
    ) -> Result<(), Error> {
        let Some(cache) = self.cache else {
            return Ok(());
        };
        let key = self.key(query);
        let recipe = recipe::recipe_of(query, self.params, signature)?;
        let plan = CachedPlan {
            signature: signature.to_owned(),
            works: executor.trial_works(),
            recipe: recipe.map(|recipe| (recipe, key.text.clone())),
            asks_statistics: asks_statistics(&executor.solution().root),
        };
        let shape = shape::shape_number(query);
        let trial = || multi_planning(query, executor.trial());
        cache.record(&key, shape, plan, &self.options.plan_cache, trial);
        Ok(())
    }
}

/// Whether the plan depends on values read while planning.
fn asks_statistics(root: &SolutionNode) -> bool {
    let mut asks = false;
    root.for_each(&mut |node| {
        asks |= matches!(node, SolutionNode::SortMerge { prefixes, .. } if prefixes.is_some());
    });
    asks
}

/// The details of a trial for a cache entry.
fn multi_planning(query: &CanonicalQuery, candidates: &[TrialPlan]) -> MultiPlanning {
    debug_assert!(!candidates.is_empty(), "a trial of nothing");
    let mut best_first: Vec<&TrialPlan> = candidates.iter().collect();
    best_first.sort_by(|a, b| b.scored.score.total_cmp(&a.scored.score));
    let mut plan = DocBuilder::new();
    if let Some(winner) = best_first.first() {
        explain::append_plan_fields(&mut plan, &winner.scored.stats);
    }
    let described = best_first.iter().map(|candidate| {
        let mut out = DocBuilder::new();
        explain::append_trial_counters(&mut out, candidate);
        (out.finish(), candidate.scored.score)
    });
    MultiPlanning::new(query, plan.finish(), described)
}
