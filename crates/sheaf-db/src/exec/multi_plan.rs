//! The trial: candidates take turns, one step each, and the most productive
//! wins.
//!
//! It ends when one candidate is at its end or has enough results, or when
//! the budget of steps is used. The score is MongoDB's:
//!
//! ```text
//! 1 + advanced/works + eps·[no FETCH] + eps·[no SORT] + eps·[no intersection] + 1·[at its end]
//! eps = min(1 / (10 · works), 0.0001)
//! ```

use std::collections::VecDeque;

use sheaf_bson::error_code::Error;
use sheaf_query::planner::solution::QuerySolution;

use super::{Member, Node, StageState, StageStats, WorkContext};

/// How long a trial may take.
#[derive(Debug, Clone, Copy)]
pub struct TrialBudget {
    /// Steps of each candidate (`internalQueryPlanEvaluationWorks`, or the
    /// fraction of the collection if that is more).
    pub works_max: u64,
    /// Results that end the trial (`internalQueryPlanEvaluationMaxResults`).
    pub results_max: usize,
}

/// A candidate in the trial.
pub struct Candidate {
    /// The plan.
    pub solution: QuerySolution,
    /// Its stages, worked so far.
    pub root: Node,
    /// Results so far, kept for the case that it wins.
    pub results: VecDeque<Member>,
    /// Set when it failed (a sort that outgrew its memory, say).
    pub failed: Option<Error>,
}

/// What the trial found of one candidate.
#[derive(Debug, Clone)]
pub struct Scored {
    /// See the module.
    pub score: f64,
    /// Counters at the end of the trial.
    pub stats: StageStats,
    /// Results during the trial.
    pub n_returned: u64,
}

impl Candidate {
    /// A candidate that has not been worked.
    pub fn new(solution: QuerySolution, root: Node) -> Self {
        Candidate {
            solution,
            root,
            results: VecDeque::new(),
            failed: None,
        }
    }
}

/// Runs the trial. Returns the winner's position and the scores, in the
/// candidates' order. Fails only when every candidate failed.
pub fn run(
    candidates: &mut [Candidate],
    budget: TrialBudget,
    cx: &mut WorkContext<'_>,
) -> Result<(usize, Vec<Scored>), Error> {
    for _ in 0..budget.works_max {
        cx.op.check_interrupt()?;
        let mut done = false;
        let mut alive = false;
        for candidate in candidates.iter_mut() {
            if candidate.failed.is_some() {
                continue;
            }
            match candidate.root.work(cx) {
                Ok(StageState::Advanced(member)) => {
                    candidate.results.push_back(member);
                    done |= candidate.results.len() >= budget.results_max;
                }
                Ok(StageState::NeedTime) => {}
                Ok(StageState::Eof) => done = true,
                Err(e) => {
                    candidate.failed = Some(e);
                    continue;
                }
            }
            alive = true;
        }
        if done || !alive {
            break;
        }
    }
    let scored: Vec<Scored> = candidates
        .iter()
        .map(|candidate| {
            let stats = candidate.root.stats();
            Scored {
                score: if candidate.failed.is_some() {
                    0.0
                } else {
                    score(&stats)
                },
                n_returned: candidate.results.len() as u64,
                stats,
            }
        })
        .collect();
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

/// See the module.
pub fn score(stats: &StageStats) -> f64 {
    let works = stats.common.works.max(1) as f64;
    let productivity = stats.common.advanced as f64 / works;
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
