//! Plans a rooted `$or` branch by branch.
//!
//! ```text
//!   {$or: [{a: 1, b: 2}, {c: 3}]}        branch {a: 1, b: 2}: a or b?  the caller picks
//!                                        branch {c: 3}:       c
//!   SUBPLAN ─ FETCH ─ OR ─┬─ FETCH ─ IXSCAN a
//!                         └─ IXSCAN c
//! ```
//!
//! Each branch is a separate query, so that a trial (or the plan cache) finds the best plan for
//! each. Candidates for the whole filter would have to combine all access paths of all branches.

use std::sync::Arc;

use sheaf_bson::{DocBuf, Error};

use super::access::union;
use super::data_access::Finisher;
use super::hint::Hinted;
use super::plan_builder::stages;
use super::recipe::{self, Recipe};
use super::solution::{QuerySolution, SolutionNode};
use super::{LimitsReached, Planned, PlannerParams};
use crate::canonical::CanonicalQuery;
use crate::matcher::MatchExpression;

/// Maximum number of branches; a `$or` with more is planned as a whole, because each branch may
/// cost a trial.
const BRANCHES_MAX: usize = 256;

/// Picks one of several solutions of a branch; returns its position.
pub type Pick<'p> = dyn FnMut(&Arc<CanonicalQuery>, &[QuerySolution]) -> Result<usize, Error> + 'p;

/// Whether the query is planned branch by branch.
pub fn has_subplans(query: &CanonicalQuery) -> bool {
    matches!(&*query.filter, MatchExpression::Or(children) if (2..=BRANCHES_MAX).contains(&children.len()))
        && query.hint.is_none()
        && query.min.is_none()
        && query.max.is_none()
        && !query.return_key
}

/// The plan of a rooted `$or`, combined from the picked plans of its branches. `None` if some
/// branch has no indexed plan; the query must then be planned as a whole.
///
/// Calls `remember` after all plans are picked; if it returns true, the result includes the recipe
/// of the plan, if it has one.
///
/// Errors: those of `pick`.
pub fn plan_branches(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
    pick: &mut Pick<'_>,
    remember: &dyn Fn() -> bool,
) -> Result<Option<(Planned, Option<Recipe>)>, Error> {
    let MatchExpression::Or(branches) = &*query.filter else {
        return Ok(None);
    };
    let Some(enumerator) = params.enumerator(&Hinted::No) else {
        return Ok(None);
    };
    let mut picked = Vec::with_capacity(branches.len());
    for branch in branches {
        let mut ways = enumerator.accesses(branch);
        let at = match ways.len() {
            0 => return Ok(None),
            1 => 0,
            _ => {
                let branch = Arc::new(branch_query(query, branch));
                let finisher = Finisher::new(&branch, params);
                let solutions: Vec<QuerySolution> = ways
                    .iter()
                    .filter_map(|way| finisher.finish(stages(way, &branch.filter), true))
                    .collect();
                pick(&branch, &solutions)?
            }
        };
        picked.push(ways.swap_remove(at));
    }
    let whole = union(picked);
    let finisher = Finisher::new(query, params);
    let Some(solution) = finisher.finish(stages(&whole, &query.filter), true) else {
        return Ok(None);
    };
    let recipe = remember()
        .then(|| recipe::of_access(query, &whole))
        .flatten();
    let recipe = recipe.map(|recipe| recipe.of_branches(&query.filter));
    let planned = Planned {
        solutions: vec![QuerySolution {
            root: SolutionNode::Subplan {
                child: Box::new(solution.root),
            },
            ..solution
        }],
        reached: LimitsReached::of(&enumerator, &finisher),
    };
    Ok(Some((planned, recipe)))
}

/// The query of a branch: without sort, projection, skip and limit.
fn branch_query(query: &CanonicalQuery, branch: &MatchExpression) -> CanonicalQuery {
    CanonicalQuery {
        filter: Arc::new(branch.clone()),
        filter_spec: branch.serialize(),
        sort: None,
        sort_spec: DocBuf::default(),
        projection: None,
        projection_spec: DocBuf::default(),
        skip: 0,
        limit: None,
        ..query.clone()
    }
}
