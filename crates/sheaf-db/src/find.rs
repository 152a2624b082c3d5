//! Queries: from a canonical query to a running plan.
//!
//! ```text
//!   CanonicalQuery ──> by a unique key alone? ──> express
//!        │ no
//!        ├──> planner ──> one solution ────────────────> run it
//!        │        └─ several ──> plan cache? ──proven──> run it (watched: 10 x works)
//!        │                           └─ no, or too dear ──> trial ──> winner, remembered
//! ```

use std::borrow::Cow;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DateTime, DocBuf, DocBuilder};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::{QuerySolution, SolutionNode};
use sheaf_query::planner::statistics::{HOPELESS_RECORDS_MIN, Statistics};
use sheaf_query::planner::{self, ExpressKey, PlannerParams};
use sheaf_query::projection::Metadata;
use sheaf_query::shape;
use sheaf_storage::TableId;

use crate::catalog::ReadView;
use crate::catalog::index_filters::IndexFilter;
use crate::choose::{self, Purpose};
use crate::collection::Collection;
use crate::exec::express;
use crate::exec::multi_plan::TrialBudget;
use crate::exec::sort::SpillOptions;
use crate::exec::{BuildContext, Doc, Member, PlanExecutor, WorkCounts};
use crate::index::wildcard_keys::array_entry;
use crate::op_context::OpContext;
use crate::plan_cache::CachePolicy;
use crate::statistics::ViewStatistics;
use crate::storage_error::Coded;

/// What the server's parameters and the command say about running a query.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Blocking stages may write temporary files.
    pub allow_disk_use: bool,
    /// Bytes a blocking stage may hold.
    pub sort_memory_bytes_max: usize,
    /// Folder of temporary files.
    pub temp_dir: PathBuf,
    /// Refuse collection scans.
    pub no_table_scan: bool,
    /// `internalQueryMaxScansToExplode`.
    pub scans_to_explode_max: usize,
    /// `internalQueryPlannerEnableIndexIntersection`.
    pub index_intersection: bool,
    /// `internalQueryPlannerEnableHashIntersection`.
    pub hash_intersection: bool,
    /// `internalQueryForceIntersectionPlans`.
    pub force_intersection: bool,
    /// `internalQueryPlanEvaluationWorks`.
    pub evaluation_works: u64,
    /// `internalQueryPlanEvaluationCollFraction`.
    pub evaluation_collection_fraction: f64,
    /// `internalQueryPlanEvaluationMaxResults`.
    pub evaluation_results_max: usize,
    /// `internalQueryPlannerMaxIndexedSolutions`.
    pub indexed_solutions_max: usize,
    /// `internalQueryEnumerationMaxOrSolutions`.
    pub or_solutions_max: usize,
    /// `internalQueryEnumerationMaxIntersectPerAnd`.
    pub intersections_max: usize,
    /// `internalQueryPlanOrChildrenIndependently`: a rooted `$or` is planned branch by branch.
    pub or_children_independently: bool,
    /// `plannerExtensions`: plans beyond MongoDB's, and a trial by cost.
    pub planner_extensions: bool,
    /// Collections of fewer records have no candidate left out of a trial.
    pub hopeless_records_min: u64,
    /// Of the plan cache.
    pub plan_cache: CachePolicy,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            allow_disk_use: true,
            sort_memory_bytes_max: 100 << 20,
            temp_dir: std::env::temp_dir(),
            no_table_scan: false,
            scans_to_explode_max: 200,
            index_intersection: true,
            hash_intersection: false,
            force_intersection: false,
            evaluation_works: 10_000,
            evaluation_collection_fraction: 0.3,
            evaluation_results_max: 101,
            indexed_solutions_max: 64,
            or_solutions_max: 10,
            intersections_max: 3,
            or_children_independently: true,
            planner_extensions: true,
            hopeless_records_min: HOPELESS_RECORDS_MIN,
            plan_cache: CachePolicy::default(),
        }
    }
}

/// What gives documents: a find, an aggregation, a listing.
pub trait ResultSource: Send {
    /// The next document; `None` at the end.
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error>;
    /// Whether the end is known to be reached.
    fn is_exhausted(&self) -> bool;
    /// Whether more may come after what looks like the end: the cursor stays open.
    fn is_tailable(&self) -> bool {
        false
    }
    /// Waits until there may be more, for at most so long; whether there may be. Only for the tailable.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    fn await_more(&mut self, _op: &OpContext, _limit: Duration) -> Result<bool, Error> {
        Ok(false)
    }
    /// Whether a getMore waits for more; else one that finds nothing answers at once. Only for the tailable.
    fn awaits_data(&self) -> bool {
        self.is_tailable()
    }
    /// A batch is complete: what is needed only while one is made may go.
    fn batch_ended(&mut self) {}
    /// No batch may be asked for for a while: what is read goes on to be kept, as of the same moment, but no memory of
    /// the engine is held for it. The next batch costs a seek more.
    fn rest(&mut self) {}
    /// Where a change stream is: `postBatchResumeToken`.
    fn post_batch_resume_token(&self) -> Option<DocBuf> {
        None
    }
    /// What was read so far.
    fn counts(&self) -> WorkCounts {
        WorkCounts::default()
    }
    /// Which plan it is, for the log; cheap to take.
    fn plan(&self) -> PlanDigest {
        PlanDigest::default()
    }
    /// What the stages of the plan have done so far (`execStats`), if there is a plan.
    fn exec_stats(&self) -> Option<DocBuf> {
        None
    }
}

/// Names of a query's shape, and of the shape with the indexes that it could use: `queryHash` and `planCacheKey`.
/// `None` without such a collection.
/// Errors: the engine's.
pub fn plan_hashes(
    view: &ReadView,
    query: &CanonicalQuery,
) -> Result<Option<(String, String)>, Error> {
    if view.collection.is_none() {
        return Ok(None);
    }
    let indexes = planning_indexes(view, query)?;
    let key = shape::plan_cache_key(query, &indexes) as u32;
    Ok(Some((shape::shape_hash(query), format!("{key:08X}"))))
}

/// The stages of a plan and what each has done.
pub(crate) fn exec_stats(executor: &PlanExecutor) -> DocBuf {
    let mut out = DocBuilder::new();
    crate::explain::append_execution_fields(&mut out, &executor.stats().root);
    out.finish()
}

/// A plan in brief, turned into text only when somebody reads it.
#[derive(Debug, Clone, Default)]
pub struct PlanDigest {
    kind: DigestKind,
    /// The plan came from the plan cache.
    pub from_cache: bool,
    /// A cached plan was given up for this one.
    pub replanned: bool,
}

#[derive(Debug, Clone, Default)]
enum DigestKind {
    #[default]
    None,
    Express(Arc<IndexEntry>),
    ExpressWrite(Arc<IndexEntry>, &'static str),
    Eof,
    RecordCount,
    CollectionScan,
    Solution(Arc<QuerySolution>),
}

impl PlanDigest {
    /// The express path.
    pub fn express(index: &Arc<IndexEntry>) -> Self {
        PlanDigest {
            kind: DigestKind::Express(index.clone()),
            ..Default::default()
        }
    }

    /// The express path to one record and what is done to it (`EXPRESS_UPDATE`).
    pub fn express_write(index: &Arc<IndexEntry>, stage: &'static str) -> Self {
        PlanDigest {
            kind: DigestKind::ExpressWrite(index.clone(), stage),
            ..Default::default()
        }
    }

    /// There is no collection to plan over.
    pub fn nothing() -> Self {
        PlanDigest {
            kind: DigestKind::Eof,
            ..Default::default()
        }
    }

    /// The engine's own count of records.
    pub fn record_count() -> Self {
        PlanDigest {
            kind: DigestKind::RecordCount,
            ..Default::default()
        }
    }

    /// All records in their order, without a planner.
    pub fn collection_scan() -> Self {
        PlanDigest {
            kind: DigestKind::CollectionScan,
            ..Default::default()
        }
    }

    /// A planned query.
    pub fn solution(solution: &Arc<QuerySolution>) -> Self {
        PlanDigest {
            kind: DigestKind::Solution(solution.clone()),
            ..Default::default()
        }
    }

    /// The same plan, from the cache or after a cached one was given up.
    pub(crate) fn chosen(mut self, from_cache: bool, replanned: bool) -> Self {
        self.from_cache = from_cache;
        self.replanned = replanned;
        self
    }

    /// `IXSCAN { a: 1 }`, `COLLSCAN`, `EXPRESS_IXSCAN { _id: 1 }`; `None` where nothing was planned.
    pub fn summary(&self) -> Option<String> {
        match &self.kind {
            DigestKind::None => None,
            DigestKind::Express(index) => Some(express::summary(index)),
            DigestKind::ExpressWrite(index, stage) => {
                Some(format!("{},{stage}", express::summary(index)))
            }
            DigestKind::Eof => Some("EOF".into()),
            DigestKind::CollectionScan => Some("COLLSCAN".into()),
            DigestKind::RecordCount => Some("RECORD_STORE_FAST_COUNT".into()),
            DigestKind::Solution(solution) => Some(planner::plan_summary(&solution.root)),
        }
    }

    /// Whether a blocking sort is part of it.
    pub fn has_sort_stage(&self) -> bool {
        matches!(&self.kind, DigestKind::Solution(s) if s.has_blocking_stage)
    }
}

/// A find, running.
pub struct Find {
    state: State,
    show_record_id: bool,
}

enum State {
    Express(express::Found, Option<Member>),
    Plan(Box<PlanExecutor>, PlanDigest),
}

/// Starts a find. A collection that does not exist gives nothing.
pub fn find(
    view: &ReadView,
    op: &OpContext,
    query: Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<Find, Error> {
    let show_record_id = query.show_record_id && query.projection.is_none();
    if let Some(collection) = &view.collection
        && let Some(key) = express_key(view, collection, &query)
    {
        let mut found = express::find(collection, &view.snapshot, key)?;
        collection.note_index_use(key.index.ident);
        let member = match found.record.take() {
            Some((record_id, bytes)) => {
                let mut doc = Doc::Shared(bytes);
                if let Some(projection) = &query.projection {
                    let mut out = DocBuilder::new();
                    let meta = Metadata {
                        record_id: Some(&record_id),
                        ..Default::default()
                    };
                    projection.apply(doc.as_raw(), None, meta, &mut out)?;
                    doc = Doc::Owned(out.finish_into());
                }
                Some(Member {
                    record_id: Some(record_id),
                    doc: Some(doc),
                    ..Default::default()
                })
            }
            None => None,
        };
        return Ok(Find {
            state: State::Express(found, member),
            show_record_id,
        });
    }
    let (executor, digest) = start(view, op, &query, options)?;
    Ok(Find {
        state: State::Plan(Box::new(executor), digest),
        show_record_id,
    })
}

/// Picks a plan and starts it: for finds, and for the commands that look for
/// the records they change.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<(PlanExecutor, PlanDigest), Error> {
    choose::choose(view, op, query, options, Purpose::Run)
}

pub(crate) fn nothing(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
) -> Result<PlanExecutor, Error> {
    let solution = QuerySolution {
        root: SolutionNode::Eof,
        has_blocking_stage: false,
    };
    let cx = build_context(view, query, options, false);
    PlanExecutor::new(&cx, vec![solution], budget(view, query, options)?, op)
}

/// The planner's candidates; never empty.
pub fn plan(
    view: &ReadView,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<Vec<QuerySolution>, Error> {
    let statistics = statistics(view, options)?;
    let statistics = statistics.as_ref().map(|s| s as &dyn Statistics);
    let indexes = planning_indexes(view, query)?;
    planner::plan(query, &params(&indexes, options, statistics))
}

/// What planners may know of the data; nothing without the extensions or a
/// collection.
pub(crate) fn statistics<'v>(
    view: &'v ReadView,
    options: &QueryOptions,
) -> Result<Option<ViewStatistics<'v>>, Error> {
    match options.planner_extensions {
        true => ViewStatistics::new(view),
        false => Ok(None),
    }
}

/// Starts this one of the candidates, without a trial: what a plan gives must
/// not depend on which one it is.
pub fn start_solution(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    solution: QuerySolution,
) -> Result<PlanExecutor, Error> {
    let cx = build_context(view, query, options, false);
    PlanExecutor::new(&cx, vec![solution], budget(view, query, options)?, op)
}

/// A find on this collection as the planner wants it: where its spec says nothing of a collation, the
/// collection's own applies. `$$NOW` is the system's clock.
/// Errors: those of [`CanonicalQuery::with_context`].
pub fn canonicalize(view: &ReadView, spec: FindSpec<'_>) -> Result<CanonicalQuery, Error> {
    let collator = view.collator(&spec.collation);
    let context = ParseContext {
        variables: VariableScope::new(DateTime::now()).with_collator(collator),
    };
    CanonicalQuery::with_context(spec, &context)
}

pub(crate) fn indexes(view: &ReadView) -> &[Arc<IndexEntry>] {
    match &view.collection {
        Some(collection) => collection.indexes(),
        None => &[],
    }
}

/// The indexes as the planner is to see them for one query.
pub(crate) struct PlanningIndexes<'v> {
    list: Cow<'v, [Arc<IndexEntry>]>,
    /// An index filter has left these only; hints do not count.
    pub is_filtered: bool,
}

impl Deref for PlanningIndexes<'_> {
    type Target = [Arc<IndexEntry>];
    fn deref(&self) -> &[Arc<IndexEntry>] {
        &self.list
    }
}

/// The indexes that a filter for the query's shape leaves, of them one with a wildcard as several.
pub(crate) fn planning_indexes<'v>(
    view: &'v ReadView,
    query: &CanonicalQuery,
) -> Result<PlanningIndexes<'v>, Error> {
    let mut all = Cow::Borrowed(indexes(view));
    let filter = index_filter(view, query);
    if let Some(filter) = &filter {
        all = Cow::Owned(filter.apply(&all));
    }
    let mut is_array = |index: &IndexEntry, path: &str| {
        // The planner names an index by its table.
        let table = TableId(index.ident);
        let known = view.snapshot.get(table, &array_entry(path)).coded()?;
        Ok(known.is_some())
    };
    let expanded = planner::wildcard::expand(&query.filter, &all, &mut is_array)?;
    Ok(PlanningIndexes {
        list: expanded.map_or(all, Cow::Owned),
        is_filtered: filter.is_some(),
    })
}

/// The filter for the query's shape. Queries with `min` or `max` name their index themselves.
fn index_filter(view: &ReadView, query: &CanonicalQuery) -> Option<Arc<IndexFilter>> {
    let collection = view.collection.as_ref()?;
    if query.min.is_some() || query.max.is_some() {
        return None;
    }
    collection.index_filters().of(query)
}

/// The key by which the query needs no plan. A filter for its shape is not passed over, but for
/// `_id`, where there is nothing to choose.
pub(crate) fn express_key<'a>(
    view: &'a ReadView,
    collection: &'a Collection,
    query: &'a CanonicalQuery,
) -> Option<ExpressKey<'a>> {
    let key = planner::express_key(query, collection.indexes())?;
    let is_id = key.index.ident == collection.id_index().ident;
    (is_id || index_filter(view, query).is_none()).then_some(key)
}

/// What the planner may use.
pub(crate) fn params<'v>(
    indexes: &'v PlanningIndexes<'_>,
    options: &QueryOptions,
    statistics: Option<&'v dyn Statistics>,
) -> PlannerParams<'v> {
    PlannerParams {
        statistics,
        max_intersections: options.intersections_max,
        ignore_hint: indexes.is_filtered,
        no_table_scan: options.no_table_scan,
        max_scans_to_explode: options.scans_to_explode_max,
        enable_index_intersection: options.index_intersection,
        enable_hash_intersection: options.hash_intersection,
        force_intersection_plans: options.force_intersection,
        max_indexed_solutions: options.indexed_solutions_max,
        max_or_solutions: options.or_solutions_max,
        ..PlannerParams::new(indexes)
    }
}

pub(crate) fn build_context(
    view: &ReadView,
    query: &Arc<CanonicalQuery>,
    options: &QueryOptions,
    timed: bool,
) -> BuildContext {
    BuildContext {
        snapshot: view.snapshot.clone(),
        collection: view.collection.clone(),
        query: query.clone(),
        spill: SpillOptions {
            memory_bytes_max: options.sort_memory_bytes_max,
            allow_disk_use: options.allow_disk_use,
            dir: options.temp_dir.clone(),
        },
        timed,
    }
}

pub(crate) fn budget(
    view: &ReadView,
    query: &CanonicalQuery,
    options: &QueryOptions,
) -> Result<TrialBudget, Error> {
    let records = view.record_count()?;
    let fraction = (records as f64 * options.evaluation_collection_fraction) as u64;
    let wanted = query
        .limit
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(TrialBudget {
        works_max: options.evaluation_works.max(fraction),
        results_max: options.evaluation_results_max.min(wanted),
        by_cost: options.planner_extensions,
    })
}

impl Find {
    /// The name of the index that the express path went by, if it did.
    pub fn express_index(&self) -> Option<&str> {
        match &self.state {
            State::Express(found, _) => Some(&found.index.name),
            State::Plan(..) => None,
        }
    }

    /// The plan that runs, if it was the only one there is: neither tried nor cached.
    pub(crate) fn only_solution(&self) -> Option<&Arc<QuerySolution>> {
        match &self.state {
            State::Plan(executor, digest)
                if executor.trial().is_empty() && !digest.from_cache && !digest.replanned =>
            {
                Some(executor.solution())
            }
            _ => None,
        }
    }

    /// The plan that runs; `None` on the express path.
    pub fn solution(&self) -> Option<&Arc<QuerySolution>> {
        match &self.state {
            State::Express(..) => None,
            State::Plan(executor, _) => Some(executor.solution()),
        }
    }
}

impl ResultSource for Find {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error> {
        let member = match &mut self.state {
            State::Express(_, member) => member.take(),
            State::Plan(executor, _) => executor.next(op)?,
        };
        let Some(member) = member else {
            return Ok(None);
        };
        let doc = member.doc.ok_or_else(|| {
            let message = "a plan of a find returned a record without its document";
            Error::new(ErrorCode::INTERNAL_ERROR, message)
        })?;
        match member.record_id {
            Some(record_id) if self.show_record_id => {
                let mut out = DocBuilder::from_doc(doc.as_raw());
                out.append("$recordId", record_id.as_raw());
                Ok(Some(Doc::Owned(out.finish_into())))
            }
            _ => Ok(Some(doc)),
        }
    }

    fn is_exhausted(&self) -> bool {
        match &self.state {
            State::Express(_, member) => member.is_none(),
            State::Plan(executor, _) => executor.is_eof(),
        }
    }

    fn rest(&mut self) {
        if let State::Plan(executor, _) = &mut self.state {
            executor.rest();
        }
    }

    fn counts(&self) -> WorkCounts {
        match &self.state {
            State::Express(found, _) => WorkCounts {
                keys_examined: found.keys_examined,
                docs_examined: found.docs_examined,
            },
            State::Plan(executor, _) => executor.counts(),
        }
    }

    fn plan(&self) -> PlanDigest {
        match &self.state {
            State::Express(found, _) => PlanDigest::express(&found.index),
            State::Plan(_, digest) => digest.clone(),
        }
    }

    fn exec_stats(&self) -> Option<DocBuf> {
        match &self.state {
            State::Express(..) => None,
            State::Plan(executor, _) => Some(exec_stats(executor)),
        }
    }
}
