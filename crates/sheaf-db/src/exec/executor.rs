//! Runs one plan to its end, a result at a time, after a trial if there are several candidates.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::error_code::Error;
use sheaf_query::planner::LimitsReached;
use sheaf_query::planner::solution::QuerySolution;
use sheaf_query::planner::statistics::Pruned;

use super::multi_plan::{self, Candidate, Scored, TrialBudget};
use super::{BuildContext, Member, Node, StageState, StageStats, WorkContext, build};
use crate::collection::Collection;
use crate::op_context::OpContext;

/// A plan in execution.
pub struct PlanExecutor {
    root: Node,
    solution: Arc<QuerySolution>,
    /// Results of the trial, returned before the plan continues.
    buffered: VecDeque<Member>,
    /// All candidates of the trial, including the winner; empty without a trial.
    trial: Vec<TrialPlan>,
    winner: usize,
    /// Works of the winner in the trial, for the plan cache.
    trial_works: u64,
    n_returned: u64,
    begun: Instant,
    notes: SelectionReport,
    /// The collection that reports damage found by stages; `None` if there is none.
    collection: Option<Arc<Collection>>,
}

/// Details of plan selection, other than the trial, that the executor passes on to explain.
#[derive(Debug, Clone, Default)]
pub struct SelectionReport {
    /// Limits of the planner.
    pub reached: LimitsReached,
    /// Candidates that were not tried, and why.
    pub pruned: Vec<(StageStats, Pruned)>,
}

/// A candidate as explain shows it.
#[derive(Debug, Clone)]
pub struct TrialPlan {
    /// The plan.
    pub solution: Arc<QuerySolution>,
    /// Score and counters at the end of the trial.
    pub scored: Scored,
}

/// Statistics of the whole execution.
#[derive(Debug, Clone, Default)]
pub struct ExecutionStats {
    /// Number of results returned.
    pub n_returned: u64,
    /// The plan's stages with counters.
    pub root: StageStats,
}

/// Counts the use of a plan's indexes, for `$indexStats`. explain does not count as use.
fn record_use(cx: &BuildContext, solution: &QuerySolution) {
    if let Some(collection) = &cx.collection
        && !cx.timed
    {
        collection.record_plan_use(&solution.root);
    }
}

fn try_plans(
    cx: &BuildContext,
    candidates: &mut [Candidate],
    budget: TrialBudget,
    op: &OpContext,
) -> Result<(usize, Vec<Scored>), Error> {
    multi_plan::run(candidates, budget, &mut WorkContext::new(op))
        .map_err(|e| reported(cx.collection.as_deref(), e))
}

/// Reports damage that a stage found.
#[cold]
fn reported(collection: Option<&Collection>, error: Error) -> Error {
    match collection {
        Some(collection) => collection.report_damage(error),
        None => error,
    }
}

impl PlanExecutor {
    /// Builds the candidates and picks one. `solutions` is not empty.
    pub fn new(
        cx: &BuildContext,
        solutions: Vec<QuerySolution>,
        budget: TrialBudget,
        op: &OpContext,
    ) -> Result<Self, Error> {
        match solutions.len() {
            1 => Self::start(cx, solutions, None, op),
            _ => Self::start(cx, solutions, Some(budget), op),
        }
    }

    /// Like [`PlanExecutor::new`], but tries a single candidate too, to learn its works.
    pub fn tried(
        cx: &BuildContext,
        solutions: Vec<QuerySolution>,
        budget: TrialBudget,
        op: &OpContext,
    ) -> Result<Self, Error> {
        Self::start(cx, solutions, Some(budget), op)
    }

    fn start(
        cx: &BuildContext,
        solutions: Vec<QuerySolution>,
        budget: Option<TrialBudget>,
        op: &OpContext,
    ) -> Result<Self, Error> {
        debug_assert!(!solutions.is_empty(), "no candidate");
        let begun = Instant::now();
        let mut candidates = solutions
            .into_iter()
            .map(|solution| {
                let root = build(cx, &solution.root)?;
                Ok(Candidate::new(solution, root))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let (winner, scored) = match budget {
            Some(budget) => try_plans(cx, &mut candidates, budget, op)?,
            None => (0, Vec::new()),
        };
        let trial: Vec<_> = candidates
            .iter()
            .zip(scored)
            .map(|(candidate, scored)| TrialPlan {
                solution: candidate.solution.clone(),
                scored,
            })
            .collect();
        debug_assert!(winner < candidates.len());
        debug_assert!(trial.is_empty() || trial.len() == candidates.len());
        let chosen = candidates.swap_remove(winner);
        record_use(cx, &chosen.solution);
        Ok(PlanExecutor {
            trial_works: chosen.root.common().works,
            root: chosen.root,
            solution: chosen.solution,
            buffered: chosen.results,
            trial,
            winner,
            n_returned: 0,
            begun,
            notes: SelectionReport::default(),
            collection: cx.collection.clone(),
        })
    }

    /// Runs a cached plan within the trial budget; `None` if it neither ends nor fills a batch by
    /// then, and the candidates must be tried again.
    pub fn cached(
        cx: &BuildContext,
        solution: QuerySolution,
        budget: TrialBudget,
        op: &OpContext,
    ) -> Result<Option<Self>, Error> {
        let begun = Instant::now();
        let root = build(cx, &solution.root)?;
        let mut candidates = [Candidate::new(solution, root)];
        try_plans(cx, &mut candidates, budget, op)?;
        let [chosen] = candidates;
        if !chosen.root.is_eof() && chosen.results.len() < budget.results_max {
            return Ok(None);
        }
        record_use(cx, &chosen.solution);
        Ok(Some(PlanExecutor {
            trial_works: chosen.root.common().works,
            root: chosen.root,
            solution: chosen.solution,
            buffered: chosen.results,
            trial: Vec::new(),
            winner: 0,
            n_returned: 0,
            begun,
            notes: SelectionReport::default(),
            collection: cx.collection.clone(),
        }))
    }

    /// Returns the next result; `None` at the end.
    pub fn next(&mut self, op: &OpContext) -> Result<Option<Member>, Error> {
        if let Some(member) = self.buffered.pop_front() {
            self.n_returned += 1;
            return Ok(Some(member));
        }
        let mut cx = WorkContext::new(op);
        loop {
            // On every step: a filter may take long on one document.
            op.check_interrupt()?;
            let state = self.root.work(&mut cx);
            match state.map_err(|e| reported(self.collection.as_deref(), e))? {
                StageState::Advanced(member) => {
                    self.n_returned += 1;
                    return Ok(Some(member));
                }
                StageState::NeedTime => {}
                StageState::Eof => return Ok(None),
            }
        }
    }

    /// Whether the end is known to be reached, so that no cursor need be kept.
    pub fn is_eof(&self) -> bool {
        self.buffered.is_empty() && self.root.is_eof()
    }

    /// Releases what the storage cursors pin until the next call.
    pub fn suspend(&mut self) {
        self.root.suspend();
    }

    /// The plan that runs.
    pub fn solution(&self) -> &Arc<QuerySolution> {
        &self.solution
    }

    /// Candidates of the trial in the planner's order; empty without a trial.
    pub fn trial(&self) -> &[TrialPlan] {
        &self.trial
    }

    /// Details of plan selection for explain.
    pub fn notes(&self) -> &SelectionReport {
        &self.notes
    }

    pub(crate) fn note(&mut self, notes: SelectionReport) {
        self.notes = notes;
    }

    /// Position of the winner in [`PlanExecutor::trial`].
    pub fn winner(&self) -> usize {
        self.winner
    }

    /// Works of the winner in the trial.
    pub fn trial_works(&self) -> u64 {
        self.trial_works
    }

    /// The work done so far; cheap.
    pub fn counts(&self) -> super::WorkCounts {
        self.root.counts()
    }

    /// Counters so far.
    pub fn stats(&self) -> ExecutionStats {
        ExecutionStats {
            n_returned: self.n_returned,
            root: self.root.stats(),
        }
    }

    /// Time at which it was built.
    pub fn begun(&self) -> Instant {
        self.begun
    }
}
