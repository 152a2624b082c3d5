//! Runs one plan to its end, a result at a time, after trying the candidates
//! if there are several.

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

/// One plan, being run.
pub struct PlanExecutor {
    root: Node,
    solution: Arc<QuerySolution>,
    /// Results of the trial, given before the plan goes on.
    buffered: VecDeque<Member>,
    /// All candidates of the trial, the winner among them; empty without one.
    trial: Vec<TrialPlan>,
    winner: usize,
    /// The winner's steps in the trial: what the plan cache remembers.
    trial_works: u64,
    n_returned: u64,
    begun: Instant,
    notes: SelectionReport,
    /// Where damage that a stage meets is reported; `None` without a collection.
    collection: Option<Arc<Collection>>,
}

/// What explain reports of the selection of a plan besides the trial: data for the executor to hand on.
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

/// The whole execution's figures.
#[derive(Debug, Clone, Default)]
pub struct ExecutionStats {
    /// Results given.
    pub n_returned: u64,
    /// The plan's stages with counters.
    pub root: StageStats,
}

/// Counts the use of a plan's indexes, for `$indexStats`. To explain is not to use.
fn note_use(cx: &BuildContext, solution: &QuerySolution) {
    if let Some(collection) = &cx.collection
        && !cx.timed
    {
        collection.note_plan_use(&solution.root);
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

/// Damage that a stage met, reported.
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

    /// As [`PlanExecutor::new`], and a single candidate is tried as well: how
    /// many steps it takes is worth knowing.
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
        note_use(cx, &chosen.solution);
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

    /// Runs a cached plan for as long as its trial may take; `None` when it
    /// has not proven itself by then and the candidates must be tried anew.
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
        note_use(cx, &chosen.solution);
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

    /// The next result; `None` at the end.
    pub fn next(&mut self, op: &OpContext) -> Result<Option<Member>, Error> {
        if let Some(member) = self.buffered.pop_front() {
            self.n_returned += 1;
            return Ok(Some(member));
        }
        let mut cx = WorkContext::new(op);
        loop {
            // At every step: a filter may take long over one document.
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

    /// Whether the end is known to be reached: a cursor need not be kept.
    pub fn is_eof(&self) -> bool {
        self.buffered.is_empty() && self.root.is_eof()
    }

    /// Nothing may be asked for a while: storage cursors let go of what they hold.
    pub fn rest(&mut self) {
        self.root.rest();
    }

    /// The plan that runs.
    pub fn solution(&self) -> &Arc<QuerySolution> {
        &self.solution
    }

    /// Candidates of the trial in the planner's order; empty without a trial.
    pub fn trial(&self) -> &[TrialPlan] {
        &self.trial
    }

    /// What explain says about the choice of this plan.
    pub fn notes(&self) -> &SelectionReport {
        &self.notes
    }

    pub(crate) fn note(&mut self, notes: SelectionReport) {
        self.notes = notes;
    }

    /// The winner's position in [`PlanExecutor::trial`].
    pub fn winner(&self) -> usize {
        self.winner
    }

    /// The winner's steps in the trial.
    pub fn trial_works(&self) -> u64 {
        self.trial_works
    }

    /// What was read so far, cheaply.
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

    /// When it was built.
    pub fn begun(&self) -> Instant {
        self.begun
    }
}
