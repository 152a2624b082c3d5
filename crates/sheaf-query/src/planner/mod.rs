//! The planner: converts a canonical query and the indexes of a collection to candidate plans.
//!
//! [`plan`] is a pure function: it reads no data and no clock, so golden scripts show its entire
//! behaviour. It returns every solution worth trying; the executor runs them concurrently in a
//! trial and keeps the best.
//!
//! ```text
//!   filter ──predicate──> Conjunction ──assignment──> bounds of one index   (bounds_builder)
//!                             │  access: one index, or a disjunction of such
//!                             v
//!                          Access ──plan_builder──> IXSCAN, OR, FETCH
//!                                        │  sort_analysis: as it is, reversed, merged, or SORT
//!                                        v
//!                                   data_access ──> projection, SKIP, LIMIT ──> QuerySolution
//! ```
//!
//! Without an indexed solution, the plan is a COLLSCAN; with one, COLLSCAN is not a candidate.
//! Planning takes bounded time for every filter: see [`access`].

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode};

use crate::canonical::CanonicalQuery;

mod access;
mod assignment;
pub mod bounds;
mod bounds_builder;
pub mod bounds_checker;
mod collation;
mod data_access;
mod discriminators;
pub mod explain_bounds;
mod express;
mod hashed;
mod hint;
mod implication;
pub mod index_entry;
mod keys_only;
pub mod lazy;
mod min_max;
mod plan_builder;
mod predicate;
pub mod recipe;
mod signature;
pub mod solution;
mod sort_analysis;
pub mod statistics;
mod subplan;
mod summary;
mod text;
mod type_bracket;
pub mod wildcard;

pub use discriminators::write_discriminators;
pub use express::{ExpressKey, express_key, is_id_lookup};
pub use keys_only::{plan_count, plan_distinct};
pub use plan_builder::index_scan;
pub use signature::{signature, signatures};
pub use subplan::{has_subplans, plan_branches};
pub use summary::{plan_summary, scans_collection};

use access::{Access, Enumerator, Intersect};
use data_access::Finisher;
use hint::{Hinted, resolve};
use implication::implies;
use index_entry::{IndexEntry, WildcardView};
use plan_builder::{full_scan, scan_stage, stages};
use solution::{IndexScanNode, QuerySolution, SolutionNode};
use statistics::Statistics;

/// The inputs of planning other than the query.
#[derive(Debug, Clone)]
pub struct PlannerParams<'a> {
    /// The indexes of the collection, including hidden ones, in catalog order: of equal candidates,
    /// the one on the earlier index is first.
    pub indexes: &'a [Arc<IndexEntry>],
    /// Ignore the hint of the query, because an index filter or query settings have chosen the
    /// indexes.
    pub ignore_hint: bool,
    /// Direction of a collection scan whose direction the query leaves open.
    pub scan_direction: i8,
    /// Limits and switches.
    pub options: PlannerOptions,
    /// Statistics of the data; enable plans beyond those of MongoDB.
    pub statistics: Option<&'a dyn Statistics>,
}

/// Limits and switches of the planner, which server parameters set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannerOptions {
    /// `notablescan`: return an error instead of a collection scan.
    pub no_table_scan: bool,
    /// `internalQueryMaxScansToExplode`: maximum number of scans of one SORT_MERGE.
    pub scans_to_explode_max: usize,
    /// `internalQueryPlannerMaxIndexedSolutions`.
    pub indexed_solutions_max: usize,
    /// `internalQueryEnumerationMaxOrSolutions`: maximum number of combinations of access paths of
    /// the alternatives of a disjunction.
    pub or_solutions_max: usize,
    /// `internalQueryPlannerEnableIndexIntersection`.
    pub index_intersection: bool,
    /// `internalQueryPlannerEnableHashIntersection`.
    pub hash_intersection: bool,
    /// `internalQueryForceIntersectionPlans`: intersections are candidates only if forced (and then
    /// the only ones), or with statistics.
    pub force_intersection: bool,
    /// `internalQueryEnumerationMaxIntersectPerAnd`.
    pub intersections_max: usize,
}

impl PlannerOptions {
    /// MongoDB's defaults.
    pub const DEFAULT: PlannerOptions = PlannerOptions {
        no_table_scan: false,
        scans_to_explode_max: 200,
        indexed_solutions_max: 64,
        or_solutions_max: 10,
        index_intersection: true,
        hash_intersection: false,
        force_intersection: false,
        intersections_max: 3,
    };
}

impl Default for PlannerOptions {
    fn default() -> Self {
        PlannerOptions::DEFAULT
    }
}

/// The result of planning.
#[derive(Debug, Clone, Default)]
pub struct Planned {
    /// The candidates; never empty.
    pub solutions: Vec<QuerySolution>,
    /// The limits that excluded further candidates.
    pub reached: LimitsReached,
}

/// The limits that were reached: explain's `maxIndexedOrSolutionsReached` and similar fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsReached {
    /// The limit on combinations of a disjunction.
    pub or: bool,
    /// The limit on access paths of a conjunction.
    pub and: bool,
    /// The limit on scans of a merge.
    pub explode: bool,
}

impl LimitsReached {
    fn of(enumerator: &Enumerator<'_>, finisher: &Finisher<'_>) -> LimitsReached {
        LimitsReached {
            or: enumerator.or_reached.get(),
            and: enumerator.and_reached.get(),
            explode: finisher.exploder.as_ref().is_some_and(|e| e.reached.get()),
        }
    }
}

impl<'a> PlannerParams<'a> {
    /// MongoDB's defaults.
    pub fn new(indexes: &'a [Arc<IndexEntry>]) -> PlannerParams<'a> {
        PlannerParams {
            indexes,
            ignore_hint: false,
            scan_direction: 1,
            options: PlannerOptions::DEFAULT,
            statistics: None,
        }
    }

    /// Resolves the hint of the query.
    fn resolve(&self, query: &CanonicalQuery) -> Result<Hinted, Error> {
        let hint = query.hint.as_ref().filter(|_| !self.ignore_hint);
        resolve(hint, self.indexes)
    }

    /// The enumerator over the indexes that the hint allows; `None` if it allows no index.
    fn enumerator<'e>(&self, hinted: &'e Hinted) -> Option<Enumerator<'e>>
    where
        'a: 'e,
    {
        let is_used = |index: &&Arc<IndexEntry>| {
            !index.hidden
                && index
                    .wildcard()
                    .is_none_or(|w| w.view != WildcardView::Whole)
        };
        let indexes = match hinted {
            Hinted::Natural(_) => return None,
            Hinted::Index(index) if index.wildcard().is_some() => {
                let views = self.indexes.iter().filter(is_used);
                views.filter(|view| view.ident == index.ident).collect()
            }
            Hinted::Index(index) => vec![index],
            Hinted::No => self.indexes.iter().filter(is_used).collect(),
        };
        let intersect = self.options.index_intersection
            && (self.options.force_intersection || self.statistics.is_some());
        Some(Enumerator {
            indexes,
            accesses_max: self.options.indexed_solutions_max.max(1),
            or_paths_max: self.options.or_solutions_max.max(1),
            intersect: intersect.then_some(Intersect {
                hash: self.options.hash_intersection,
                forced: self.options.force_intersection,
                max: self.options.intersections_max,
            }),
            statistics: self.statistics,
            or_reached: Cell::new(false),
            and_reached: Cell::new(false),
        })
    }
}

/// The candidate plans of a query; never empty. A collection scan is only returned as the single
/// candidate.
///
/// Errors: BadValue for a hint that matches no index; 51173-51175 for a `min` or `max` without a
/// suitable index; NoQueryExecutionPlans if only a collection scan is possible and `notablescan`
/// forbids it.
pub fn plan(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Result<Vec<QuerySolution>, Error> {
    plan_all(query, params).map(|planned| planned.solutions)
}

/// Like [`plan`]; also returns the limits that were reached.
pub fn plan_all(query: &CanonicalQuery, params: &PlannerParams<'_>) -> Result<Planned, Error> {
    let (found, reached) = candidates(query, params)?;
    debug_assert!(!found.is_empty(), "no plan, not even a collection scan");
    Ok(Planned {
        solutions: found.into_iter().map(|(solution, _)| solution).collect(),
        reached,
    })
}

/// The source from which a candidate was built, for its recipe.
enum Source<'q> {
    /// An access path of the filter.
    Access(Rc<Access<'q>>),
    /// A scan of every key of an index; `sorts` if it may need a SORT.
    FullScan { index: Arc<IndexEntry>, sorts: bool },
    /// A source without a recipe.
    Other,
}

type Found<'q> = Vec<(QuerySolution, Source<'q>)>;

fn candidates<'q>(
    query: &'q CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Result<(Found<'q>, LimitsReached), Error> {
    let hinted = params.resolve(query)?;
    let finisher = Finisher::new(query, params);
    let mut reached = LimitsReached::default();
    let only = |solution: Option<QuerySolution>| {
        let found = solution.into_iter().map(|s| (s, Source::Other));
        found.collect::<Found<'q>>()
    };
    // Sorting is always possible, so there is always a plan.
    let finish = |node: SolutionNode| finisher.finish(node, true);
    if query.min.is_some() || query.max.is_some() {
        let range = min_max::key_range(query, &hinted)?;
        return Ok((only(finish(checked(range, query))), reached));
    }
    if query.filter.is_trivially_false() {
        let nothing = QuerySolution {
            root: SolutionNode::Eof,
            has_blocking_stage: false,
        };
        return Ok((only(Some(nothing)), reached));
    }
    let mut found = Found::new();
    if let Some(enumerator) = params.enumerator(&hinted) {
        for access in enumerator.accesses(&query.filter) {
            if let Some(solution) = finish(stages(&access, &query.filter)) {
                found.push((solution, Source::Access(access)));
            }
        }
        let over_all = Finisher::for_full_scan(query, params);
        let full_scan_of = |index: &Arc<IndexEntry>, sorts: bool| {
            let scan = scan_stage(full_scan(index));
            let solution = over_all.finish(checked(scan, query), sorts)?;
            let index = index.clone();
            Some((solution, Source::FullScan { index, sorts }))
        };
        if let Hinted::Index(index) = &hinted
            && found.is_empty()
        {
            if index.wildcard().is_some() {
                return Err(cannot_serve(index));
            }
            found.extend(full_scan_of(index, true));
        }
        // A merge over prefixes from statistics is an additional plan and must not exclude any plan
        // of MongoDB.
        let sorts_or_guesses =
            |(s, _): &(QuerySolution, Source<'_>)| s.has_blocking_stage || merges_prefixes(&s.root);
        if query.sort.is_some() && found.iter().all(sorts_or_guesses) {
            let room = params
                .options
                .indexed_solutions_max
                .saturating_sub(found.len());
            let whole = enumerator
                .indexes
                .iter()
                .filter(|index| holds_every_match(index, query))
                .filter_map(|index| full_scan_of(index, false))
                .take(room);
            found.extend(whole);
        }
        // A sorted page whose sort field is not the leading one: a merge of one scan for each value
        // of the leading fields.
        if params.statistics.is_some()
            && query.limit.is_some()
            && query.sort.is_some()
            && !query.filter.is_trivially_true()
            && found.iter().all(|(s, _)| s.has_blocking_stage)
        {
            for access in enumerator.skips(&query.filter) {
                if let Some(solution) = finisher.finish(stages(&access, &query.filter), false) {
                    found.push((solution, Source::Access(access)));
                }
            }
        }
        reached = LimitsReached::of(&enumerator, &finisher);
    }
    if params.options.no_table_scan && matches!(hinted, Hinted::No) {
        found.retain(|(solution, _)| !scans_all(&solution.root, query));
    }
    if !found.is_empty() {
        return Ok((found, reached));
    }
    if params.options.no_table_scan {
        return Err(Error::new(
            ErrorCode::NO_QUERY_EXECUTION_PLANS,
            "No indexed plans available, and running with 'notablescan': create an index that \
             serves the filter or the sort",
        ));
    }
    let direction = match hinted {
        Hinted::Natural(direction) => direction,
        _ => params.scan_direction,
    };
    let filter = (!query.filter.is_trivially_true()).then(|| query.filter.clone());
    let scan = SolutionNode::CollScan { direction, filter };
    Ok((only(finish(scan)), reached))
}

/// Whether the plan's order depends on prefixes that were read from the index while planning.
fn merges_prefixes(root: &SolutionNode) -> bool {
    let mut merges = false;
    root.for_each(&mut |node| {
        merges |= matches!(node, SolutionNode::SortMerge { prefixes, .. } if prefixes.is_some());
    });
    merges
}

/// Whether some clustered scan reads the whole collection and does not provide the sort order
/// either.
fn scans_all(node: &SolutionNode, query: &CanonicalQuery) -> bool {
    match node {
        SolutionNode::ClusteredScan(scan) => scan.is_full() && query.sort.is_none(),
        // Below a SORT, the order of the scan is irrelevant.
        SolutionNode::Sort { child, .. } => {
            let mut all = false;
            child.for_each(&mut |node| {
                all |= matches!(node, SolutionNode::ClusteredScan(scan) if scan.is_full());
            });
            all
        }
        node => node.children().iter().any(|child| scans_all(child, query)),
    }
}

/// The error for a hint to a wildcard index that cannot serve the query.
fn cannot_serve(index: &IndexEntry) -> Error {
    Error::new(
        ErrorCode::NO_QUERY_EXECUTION_PLANS,
        format!(
            "error processing query: planner returned error: the hinted wildcard index '{}' cannot \
             serve the query; hint another, or none",
            index.name
        ),
    )
}

/// Adds a check of the whole filter on the document.
fn checked(node: SolutionNode, query: &CanonicalQuery) -> SolutionNode {
    if query.filter.is_trivially_true() {
        return node;
    }
    let filter = Some(query.filter.clone());
    match node {
        SolutionNode::ClusteredScan(scan) => {
            SolutionNode::ClusteredScan(IndexScanNode { filter, ..scan })
        }
        node => SolutionNode::Fetch {
            filter,
            child: Box::new(node),
        },
    }
}

/// Whether a full scan of the index returns every matching document.
fn holds_every_match(index: &IndexEntry, query: &CanonicalQuery) -> bool {
    !index.sparse
        && index.wildcard().is_none()
        && index
            .partial_filter
            .as_deref()
            .is_none_or(|partial| implies(&query.filter, partial))
}

#[cfg(test)]
pub(crate) mod tests;
