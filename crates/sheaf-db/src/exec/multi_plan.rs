//! The trial of candidate plans: they take turns, one step each, and the most productive wins.
//!
//! The trial ends when a candidate ends or has enough results, or when the step budget is used up.
//! The score is MongoDB's:
//!
//! ```text
//! 1 + advanced/works + eps·[no FETCH] + eps·[no SORT] + eps·[no intersection] + 1·[at its end]
//! eps = min(1 / (10 · works), 0.0001)
//! ```
//!
//! A trial by cost weighs the steps: an index key costs little, a fetch more, a comparison within
//! an intersection almost nothing. The cheapest candidate so far takes the next step, so that all
//! have incurred about the same cost when the first one finishes, and `works` in the productivity
//! is the cost in index keys.

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_query::planner::solution::QuerySolution;
use sheaf_query::planner::statistics::{KEY_COST, STEP_COST};

use super::{Member, Node, StageState, StageStats, WorkContext};

/// Limits of a trial.
#[derive(Debug, Clone, Copy)]
pub struct TrialBudget {
    /// Steps per candidate (`internalQueryPlanEvaluationWorks`, or the fraction of the collection
    /// if that is more).
    pub works_max: u64,
    /// Results that end the trial (`internalQueryPlanEvaluationMaxResults`).
    pub results_max: usize,
    /// Takes turns and scores by cost instead of steps.
    pub by_cost: bool,
}

/// A candidate in the trial.
pub struct Candidate {
    /// The plan.
    pub solution: Arc<QuerySolution>,
    /// Its stages, in their current state.
    pub root: Node,
    /// Results so far, kept in case it wins.
    pub results: VecDeque<Member>,
    /// The error, if it failed, for instance a sort that exceeded its memory limit.
    pub failed: Option<Error>,
    /// Cost of its steps so far.
    cost: u64,
    works: u64,
}

/// The result of the trial for one candidate.
#[derive(Debug, Clone)]
pub struct Scored {
    /// The score; see the module.
    pub score: f64,
    /// Counters at the end of the trial.
    pub stats: StageStats,
    /// Results during the trial.
    pub n_returned: u64,
    /// Cost of its steps in index keys, in a trial by cost.
    pub cost: Option<f64>,
}

impl Candidate {
    /// Creates a candidate that has not started.
    pub fn new(solution: QuerySolution, root: Node) -> Self {
        Candidate {
            solution: Arc::new(solution),
            root,
            results: VecDeque::new(),
            failed: None,
            cost: 0,
            works: 0,
        }
    }

    /// Performs one step. Returns whether the trial is over.
    fn step(&mut self, budget: &TrialBudget, cx: &mut WorkContext<'_>) -> bool {
        cx.cost = 0;
        let state = self.root.work(cx);
        self.works += 1;
        self.cost += STEP_COST + cx.cost;
        match state {
            Ok(StageState::Advanced(member)) => {
                self.results.push_back(member);
                self.results.len() >= budget.results_max
            }
            Ok(StageState::NeedTime) => false,
            Ok(StageState::Eof) => true,
            Err(e) => {
                self.failed = Some(e);
                false
            }
        }
    }
}

/// Runs the trial. Returns the winner's position, and the scores in the candidates' order. Fails if
/// every candidate failed, or if one found damage: whether damage is reported must not depend on
/// which plan wins.
pub fn run(
    candidates: &mut [Candidate],
    budget: TrialBudget,
    cx: &mut WorkContext<'_>,
) -> Result<(usize, Vec<Scored>), Error> {
    match budget.by_cost {
        true => take_turns_by_cost(candidates, budget, cx)?,
        false => take_turns(candidates, budget, cx)?,
    }
    let damage = |e: &&Error| e.code() == ErrorCode::DATA_CORRUPTION_DETECTED;
    let mut failures = candidates.iter().filter_map(|c| c.failed.as_ref());
    if let Some(e) = failures.find(damage) {
        return Err(e.clone());
    }
    let scored: Vec<Scored> = candidates
        .iter()
        .map(|candidate| {
            let stats = candidate.root.stats();
            Scored {
                score: match candidate.failed {
                    Some(_) => 0.0,
                    None => score(&stats, budget.by_cost.then(|| cost_in_keys(candidate))),
                },
                cost: budget.by_cost.then(|| cost_in_keys(candidate)),
                n_returned: candidate.results.len() as u64,
                stats,
            }
        })
        .collect();
    debug_assert!(!scored.is_empty(), "a trial without candidates");
    debug_assert!(
        candidates
            .iter()
            .all(|c| c.results.len() <= budget.results_max.max(1))
    );
    debug_assert!(scored.iter().all(|s| s.score.is_finite() && s.score >= 0.0));
    let mut winner = 0;
    for (at, candidate) in scored.iter().enumerate() {
        if candidate.score > scored[winner].score {
            winner = at;
        }
    }
    match &candidates[winner].failed {
        Some(e) => Err(e.clone()),
        None => Ok((winner, scored)),
    }
}

fn cost_in_keys(candidate: &Candidate) -> f64 {
    candidate.cost as f64 / KEY_COST as f64
}

/// Round robin, one step per candidate.
fn take_turns(
    candidates: &mut [Candidate],
    budget: TrialBudget,
    cx: &mut WorkContext<'_>,
) -> Result<(), Error> {
    for _ in 0..budget.works_max {
        cx.op.check_interrupt()?;
        let mut done = false;
        let mut alive = false;
        for candidate in candidates.iter_mut().filter(|c| c.failed.is_none()) {
            done |= candidate.step(&budget, cx);
            alive |= candidate.failed.is_none();
        }
        if done || !alive {
            break;
        }
    }
    Ok(())
}

/// Repeatedly steps the candidate with the lowest cost so far, until that one has used its steps.
fn take_turns_by_cost(
    candidates: &mut [Candidate],
    budget: TrialBudget,
    cx: &mut WorkContext<'_>,
) -> Result<(), Error> {
    loop {
        cx.op.check_interrupt()?;
        let alive = candidates.iter_mut().filter(|c| c.failed.is_none());
        let Some(next) = alive.min_by_key(|c| c.cost) else {
            return Ok(());
        };
        if next.works >= budget.works_max || next.step(&budget, cx) {
            return Ok(());
        }
    }
}

/// The score; see the module. `cost`, in index keys, replaces the number of steps.
pub fn score(stats: &StageStats, cost: Option<f64>) -> f64 {
    let works = stats.common.works.max(1) as f64;
    let productivity = stats.common.advanced as f64 / cost.unwrap_or(works).max(1.0);
    let eps = (1.0 / (10.0 * works)).min(1e-4);
    let mut score = 1.0 + productivity;
    if !stats.any(|s| s.is_fetch) {
        score += eps;
    }
    if !stats.any(|s| s.is_sort) {
        score += eps;
    }
    if !stats.any(|s| s.is_intersection) {
        score += eps;
    }
    if stats.common.is_eof {
        score += 1.0;
    }
    score
}
