//! From a canonical query and the collection's indexes to candidate plans.
//!
//! A pure function: [`plan`] reads no data and asks no clock, so its whole
//! behaviour is visible in golden scripts. It returns every solution worth
//! trying; the executor above runs them side by side and keeps the best.
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
//! Without any indexed solution the plan is a COLLSCAN; with one, it is not a
//! candidate. Planning takes bounded time whatever the filter: see [`access`].

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
pub use express::{ExpressKey, express_key};
pub use keys_only::{plan_count, plan_distinct};
pub use plan_builder::index_scan;
pub use signature::{signature, signatures};
pub use subplan::{has_subplans, plan_branches};
pub use summary::plan_summary;

use access::{Access, Enumerator, Intersect};
use data_access::Finisher;
use hint::{Hinted, resolve};
use implication::implies;
use index_entry::{IndexEntry, WildcardView};
use plan_builder::{full_scan, scan_stage, stages};
use solution::{IndexScanNode, QuerySolution, SolutionNode};
use statistics::Statistics;

/// What planning depends on besides the query.
#[derive(Debug, Clone)]
pub struct PlannerParams<'a> {
    /// The collection's indexes, hidden ones too, in catalog order: of equal
    /// candidates the one on the earlier index comes first.
    pub indexes: &'a [Arc<IndexEntry>],
    /// An index filter has chosen the indexes: the query's hint does not count.
    pub ignore_hint: bool,
    /// Limits and switches.
    pub options: PlannerOptions,
    /// What the data says. With it there are plans beyond MongoDB's.
    pub statistics: Option<&'a dyn Statistics>,
}

/// Limits and switches of the planner, which server parameters set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannerOptions {
    /// `notablescan`: refuse rather than scan the collection.
    pub no_table_scan: bool,
    /// `internalQueryMaxScansToExplode`: scans of one SORT_MERGE.
    pub scans_to_explode_max: usize,
    /// `internalQueryPlannerMaxIndexedSolutions`.
    pub indexed_solutions_max: usize,
    /// `internalQueryEnumerationMaxOrSolutions`: combinations of the ways of a
    /// disjunction's alternatives.
    pub or_solutions_max: usize,
    /// `internalQueryPlannerEnableIndexIntersection`.
    pub index_intersection: bool,
    /// `internalQueryPlannerEnableHashIntersection`.
    pub hash_intersection: bool,
    /// `internalQueryForceIntersectionPlans`: intersections are candidates only
    /// when forced (and then the only ones), or with statistics.
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

/// What planning gives.
#[derive(Debug, Clone, Default)]
pub struct Planned {
    /// The candidates; never empty.
    pub solutions: Vec<QuerySolution>,
    /// Which limits kept further candidates out.
    pub reached: LimitsReached,
}

/// explain's `maxIndexedOrSolutionsReached` and the like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsReached {
    /// Of the combinations of a disjunction.
    pub or: bool,
    /// Of the ways of a conjunction.
    pub and: bool,
    /// Of the scans of a merge.
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
            options: PlannerOptions::DEFAULT,
            statistics: None,
        }
    }

    /// The query's hint, looked up.
    fn resolve(&self, query: &CanonicalQuery) -> Result<Hinted, Error> {
        let hint = query.hint.as_ref().filter(|_| !self.ignore_hint);
        resolve(hint, self.indexes)
    }

    /// The search over the indexes that the hint leaves; `None` if it leaves none.
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
            max_accesses: self.options.indexed_solutions_max.max(1),
            max_or: self.options.or_solutions_max.max(1),
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

/// The candidate plans of a query; never empty, and none a collection scan
/// unless it is the only one.
///
/// Errors: BadValue for a hint that means no index; 51173-51175 for a `min` or
/// `max` without a fitting index; NoQueryExecutionPlans if only a collection
/// scan is left and that is forbidden.
pub fn plan(
    query: &CanonicalQuery,
    params: &PlannerParams<'_>,
) -> Result<Vec<QuerySolution>, Error> {
    plan_all(query, params).map(|planned| planned.solutions)
}

/// As [`plan`], and which limits it met.
pub fn plan_all(query: &CanonicalQuery, params: &PlannerParams<'_>) -> Result<Planned, Error> {
    let (found, reached) = candidates(query, params)?;
    debug_assert!(!found.is_empty(), "no plan, not even a collection scan");
    Ok(Planned {
        solutions: found.into_iter().map(|(solution, _)| solution).collect(),
        reached,
    })
}

/// What a candidate was made of.
enum Source<'q> {
    /// A way in which indexes serve the filter.
    Access(Rc<Access<'q>>),
    /// Every key of an index; `sorts` if that may need a SORT.
    FullScan { index: Arc<IndexEntry>, sorts: bool },
    /// Nothing that is worth remembering.
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
    // Whatever it takes: sorting is always possible.
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
        // A merge over prefixes that statistics know is one more way, and keeps none of MongoDB's out.
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
        // A page in the order of a field behind: merged, each value in front gives its part.
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
        _ => 1,
    };
    let filter = (!query.filter.is_trivially_true()).then(|| query.filter.clone());
    let scan = SolutionNode::CollScan { direction, filter };
    Ok((only(finish(scan)), reached))
}

/// Whether the plan's order comes from prefixes that were looked for while planning.
fn merges_prefixes(root: &SolutionNode) -> bool {
    let mut merges = false;
    root.for_each(&mut |node| {
        merges |= matches!(node, SolutionNode::SortMerge { prefixes, .. } if prefixes.is_some());
    });
    merges
}

/// Whether some scan of a clustered collection is a scan of all of it, and not for its order either.
fn scans_all(node: &SolutionNode, query: &CanonicalQuery) -> bool {
    match node {
        SolutionNode::ClusteredScan(scan) => scan.is_full() && query.sort.is_none(),
        // What is sorted is not asked for in the order of the scan.
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

/// A hint at an index with a wildcard, none of whose keys says something of the query.
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

/// The whole filter on the document.
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

/// Whether a full scan meets every document that matches.
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
