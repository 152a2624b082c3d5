//! Cursors over other collections, for stages: a pipeline, or a join that is probed repeatedly.
//!
//! ```text
//!   open       view? ─> prepend its pipeline ─> optimise ─> start
//!   open_join  the first probe plans {path: value}. If the plan is a single index scan, later probes
//!              substitute their values and plan nothing; if it is a collection scan, the second
//!              probe builds a hash table
//! ```

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, RawDoc, RawValue};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::{self, MatchExpression};
use sheaf_query::pipeline::environment::{
    ForeignCounts, ForeignName, ForeignReader, ForeignRequest, JoinRequest,
};
use sheaf_query::pipeline::stages::lookup::equality_filter;
use sheaf_query::pipeline::{CursorPrefix, OptimizedPipeline, Pipeline, PipelineSource, Stage};
use sheaf_query::planner::bounds::{IndexBounds, Interval, OrderedIntervalList};
use sheaf_query::planner::index_entry::IndexKind;
use sheaf_query::planner::solution::{IndexScanNode, QuerySolution, SolutionNode};

use super::hash_join::HashTable;
use super::prepared::Prepared;
use super::request::{on_collection, view_stages};
use super::{Aggregate, AggregateContext, Input};
use crate::catalog::{Namespace, ReadView};
use crate::exec::id_reader::IdReader;
use crate::exec::{Doc, WorkCounts};
use crate::op_context::OpContext;
use crate::planning::{self, PlanDigest};
use crate::result_source::ResultSource;

/// A foreign cursor, as stages hold it.
pub(super) enum Foreign {
    /// A pipeline that runs once.
    Once(Box<Aggregate>, Option<Doc>, ForeignCounts),
    /// A join.
    Join(Box<Join>),
    /// A pipeline that runs repeatedly.
    Prepared(Box<Prepared>),
}

/// Resolves a name to a collection, and the stages to prepend if it is a view.
pub(super) fn resolve(
    cx: &AggregateContext,
    from: &ForeignName,
) -> Result<(Namespace, Option<Vec<Stage>>)> {
    let db = from.db.as_deref().unwrap_or(cx.database());
    let ns = Namespace::new(db, &from.collection)?;
    Ok(match view_stages(cx.db(), &ns, cx.parse())? {
        None => (ns, None),
        Some((on, stages)) => (on, Some(stages)),
    })
}

/// Starts a pipeline over another collection.
pub(super) fn open(
    cx: &AggregateContext,
    op: &OpContext,
    request: &ForeignRequest<'_>,
) -> Result<Foreign> {
    let cx = cx.with_parse(request.context);
    let pipeline = request.pipeline.clone();
    match pipeline.source.clone() {
        PipelineSource::Documents(docs) => {
            let pipeline = pipeline.optimize();
            let aggregate = super::start_over(&cx, docs.to_vec(), &pipeline);
            return Ok(Foreign::Once(
                Box::new(aggregate),
                None,
                ForeignCounts::default(),
            ));
        }
        PipelineSource::Generated { .. }
        | PipelineSource::Collection
        | PipelineSource::VectorSearch { .. } => {}
    }
    let db = request.from.db.as_deref().unwrap_or(cx.database());
    let named = Namespace::new(db, &request.from.collection)?;
    let (ns, pipeline) = on_collection(cx.db(), &named, cx.parse(), pipeline)?;
    let view = cx.view(op, &ns)?;
    let pipeline = pipeline.optimize();
    let aggregate = match &pipeline.rest.source {
        PipelineSource::Generated { name, spec } => {
            let documents = cx.generate(name, &named, &view, spec.as_raw())?;
            super::start_over(&cx, documents, &pipeline)
        }
        _ => super::start(&cx, &view, op, &pipeline, None)?,
    };
    let mut counts = ForeignCounts::default();
    record_plan(&aggregate, &mut counts);
    Ok(Foreign::Once(Box::new(aggregate), None, counts))
}

/// Records what a started pipeline scans.
pub(super) fn record_plan(aggregate: &Aggregate, counts: &mut ForeignCounts) {
    match &aggregate.input {
        Input::Find(find) => match find.solution() {
            Some(solution) => record_solution(&solution.root, counts),
            None => {
                if let Some(name) = find.express_index() {
                    record_index(name, counts);
                }
            }
        },
        Input::Plan(executor, _) => record_solution(&executor.solution().root, counts),
        Input::Vector(found) => {
            if let Some(index) = &found.index {
                record_index(index, counts);
            }
        }
        Input::Documents(_) | Input::Found(_) => {}
    }
}

fn record_index(name: &str, counts: &mut ForeignCounts) {
    if !counts.indexes_used.iter().any(|known| known == name) {
        counts.indexes_used.push(name.to_owned());
    }
}

fn record_solution(node: &SolutionNode, counts: &mut ForeignCounts) {
    node.for_each(&mut |node| match node {
        SolutionNode::CollScan { .. } => counts.collection_scans += 1,
        SolutionNode::ClusteredScan(scan) if scan.is_full() => counts.collection_scans += 1,
        SolutionNode::IndexScan(scan)
        | SolutionNode::ClusteredScan(scan)
        | SolutionNode::CountScan(scan) => {
            record_index(&scan.index.name, counts);
        }
        SolutionNode::DistinctScan { scan, .. } => record_index(&scan.index.name, counts),
        _ => {}
    });
}

impl Foreign {
    pub(super) fn advance(&mut self, op: &OpContext) -> Result<Option<RawDoc<'_>>> {
        match self {
            Foreign::Once(aggregate, current, counts) => {
                *current = aggregate.next(op)?;
                if current.is_none() {
                    let read = aggregate.input_counts();
                    let before = (counts.keys_examined, counts.docs_examined);
                    counts.keys_examined = read.keys_examined;
                    counts.docs_examined = read.docs_examined;
                    aggregate.context.add_foreign_counts(WorkCounts {
                        keys_examined: read.keys_examined - before.0,
                        docs_examined: read.docs_examined - before.1,
                    });
                }
                Ok(current.as_ref().map(Doc::as_raw))
            }
            Foreign::Join(join) => join.advance(op),
            Foreign::Prepared(prepared) => prepared.advance(op),
        }
    }

    pub(super) fn counts(&self) -> ForeignCounts {
        match self {
            Foreign::Once(aggregate, _, counts) => {
                let read = aggregate.input_counts();
                ForeignCounts {
                    keys_examined: read.keys_examined,
                    docs_examined: read.docs_examined,
                    ..counts.clone()
                }
            }
            Foreign::Prepared(prepared) => prepared.counts(),
            Foreign::Join(join) => {
                let mut counts = join.counts.clone();
                counts.strategy = Some(join.strategy());
                if let Some(current) = &join.current {
                    let read = current.input_counts();
                    counts.keys_examined += read.keys_examined;
                    counts.docs_examined += read.docs_examined;
                }
                counts
            }
        }
    }
}

impl ForeignReader for Foreign {
    fn suspend(&mut self) {
        match self {
            Foreign::Once(aggregate, ..) => aggregate.suspend(),
            Foreign::Join(join) => {
                if let Access::ById(reader, _) = &mut join.access {
                    reader.suspend();
                }
                if let Some(current) = &mut join.current {
                    current.suspend();
                }
            }
            Foreign::Prepared(prepared) => prepared.suspend(),
        }
    }
}

/// Probes a collection repeatedly for documents whose path holds one of some values.
pub(super) struct Join {
    cx: AggregateContext,
    view: ReadView,
    path: Box<str>,
    /// Stages of a view, before the equality; empty for a collection.
    in_front: Vec<Stage>,
    /// Stages after the equality.
    following: Vec<Stage>,
    /// The part of the pipeline that the find layer executes along with the equality, and the rest
    /// (if `in_front` is empty).
    split: OptimizedPipeline,
    access: Access,
    current: Option<Box<Aggregate>>,
    /// The table being built. If an interruption leaves it incomplete, it is freed with the stage.
    unfinished: Option<Box<HashTable>>,
    /// Found by `_id`, not yet returned.
    found: VecDeque<Doc>,
    doc: Option<Doc>,
    counts: ForeignCounts,
}

enum Access {
    /// No probe yet: the next one plans.
    Unknown,
    /// The path is `_id`: one seek per value, then the remaining filter.
    ById(Box<IdReader>, Option<Arc<MatchExpression>>),
    /// Substitutes values into an existing plan.
    Template(Box<Template>),
    /// No index serves the path: the next probe builds a hash table.
    Scan,
    /// Hash table of all documents by value.
    Table(Box<HashTable>),
    /// Every probe is planned.
    Planned,
}

/// A plan with placeholders for the values.
struct Template {
    query: Arc<CanonicalQuery>,
    solution: QuerySolution,
}

/// Prepares a join.
pub(super) fn open_join(
    cx: &AggregateContext,
    op: &OpContext,
    request: &JoinRequest<'_>,
) -> Result<Foreign> {
    let cx = cx.with_parse(request.context);
    let (ns, in_front) = resolve(&cx, request.from)?;
    let view = cx.view(op, &ns)?;
    let mut following = Vec::new();
    if !request.filter.is_empty() {
        following.push(match_stage(request.filter.clone(), &cx)?);
    }
    if let Some(pipeline) = request.pipeline {
        if !matches!(pipeline.source, PipelineSource::Collection) {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                "a pipeline that makes its own documents cannot be joined by fields",
            ));
        }
        following.extend(pipeline.stages.iter().cloned());
    }
    let split = Pipeline {
        stages: following.clone(),
        ..Default::default()
    }
    .optimize();
    let is_collection = in_front.is_none();
    let access = match by_id(&view, request.path, &split.prefix, &cx)? {
        _ if !is_collection => Access::Planned,
        Some(filter) => match IdReader::new(&view)? {
            Some(reader) => Access::ById(Box::new(reader), filter),
            None => Access::Unknown,
        },
        None => Access::Unknown,
    };
    Ok(Foreign::Join(Box::new(Join {
        cx,
        view,
        path: request.path.into(),
        in_front: in_front.unwrap_or_default(),
        following,
        split,
        access,
        unfinished: None,
        current: None,
        found: VecDeque::new(),
        doc: None,
        counts: ForeignCounts::default(),
    })))
}

fn match_stage(spec: DocBuf, cx: &AggregateContext) -> Result<Stage> {
    let filter = Arc::new(matcher::parse(spec.as_raw(), cx.parse())?.normalize());
    Ok(Stage::Match { spec, filter })
}

/// The filter of the prefix, which is applied in addition to the lookup by `_id`, if the path is
/// `_id` and the prefix is only a filter.
fn by_id(
    view: &ReadView,
    path: &str,
    prefix: &CursorPrefix,
    cx: &AggregateContext,
) -> Result<Option<Option<Arc<MatchExpression>>>> {
    let plain = prefix.sort.is_none()
        && prefix.skip == 0
        && prefix.limit.is_none()
        && prefix.projection.is_none();
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    // The index on _id has the collection's collation; lookups must use the same.
    if path != "_id" || !plain || collection.collator() != cx.parse().collator() {
        return Ok(None);
    }
    if prefix.filter.is_empty() {
        return Ok(Some(None));
    }
    let filter = matcher::parse(prefix.filter.as_raw(), cx.parse())?.normalize();
    Ok(Some(Some(Arc::new(filter))))
}

/// Whether an equality on the value finds exactly one key.
fn is_simple(value: RawValue<'_>) -> bool {
    !matches!(
        value,
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined | RawValue::Null
    )
}

impl Join {
    /// Starts returning the documents that hold one of the values.
    pub(super) fn probe(&mut self, op: &OpContext, values: &[RawValue<'_>]) -> Result<()> {
        self.finish();
        if values.is_empty() {
            return Ok(());
        }
        let started = match &self.access {
            Access::ById(..) if values.iter().all(|v| is_simple(*v)) => {
                return self.probe_ids(op, values);
            }
            Access::Template(template) if values.iter().all(|v| is_simple(*v)) => {
                let solution = template.with_values(&self.path, values);
                let query = template.query.clone();
                self.run(op, &query, solution)?
            }
            Access::Unknown if values.iter().all(|v| is_simple(*v)) => {
                self.first_probe(op, values)?
            }
            Access::Scan if values.iter().all(|v| is_simple(*v)) => {
                self.access = self.table(op)?;
                match self.access {
                    Access::Table(_) => self.probe_table(values)?,
                    _ => self.probe_planned(op, values)?,
                }
            }
            Access::Table(_) if values.iter().all(|v| is_simple(*v)) => self.probe_table(values)?,
            _ => self.probe_planned(op, values)?,
        };
        self.current = Some(Box::new(started));
        Ok(())
    }

    /// Adds up the work of the last probe.
    fn finish(&mut self) {
        self.doc = None;
        self.found.clear();
        if let Some(current) = self.current.take() {
            let read = current.input_counts();
            self.counts.keys_examined += read.keys_examined;
            self.counts.docs_examined += read.docs_examined;
            self.cx.add_foreign_counts(read);
        }
    }

    fn advance(&mut self, op: &OpContext) -> Result<Option<RawDoc<'_>>> {
        self.doc = match &mut self.current {
            Some(current) => current.next(op)?,
            None => self.found.pop_front(),
        };
        Ok(self.doc.as_ref().map(Doc::as_raw))
    }

    /// If no stages follow, returns the documents as found.
    fn probe_ids(&mut self, op: &OpContext, values: &[RawValue<'_>]) -> Result<()> {
        let (Access::ById(reader, filter), Some(collection)) =
            (&mut self.access, &self.view.collection)
        else {
            return Ok(());
        };
        let mut read = WorkCounts::default();
        let mut seen = HashSet::new();
        for value in values {
            op.check_interrupt()?;
            let Some((id, bytes)) = reader.find(*value)? else {
                continue;
            };
            read.keys_examined += reader.keys_of_one();
            read.docs_examined += 1;
            if values.len() > 1 && !seen.insert(id) {
                continue;
            }
            let doc = Doc::Shared(bytes);
            let matches = match filter {
                Some(filter) => filter.matches(doc.as_raw())?,
                None => true,
            };
            if matches {
                self.found.push_back(doc);
            }
        }
        collection.record_index_use(collection.id_index().ident);
        record_index(&collection.id_index().name, &mut self.counts);
        if self.split.rest.stages.is_empty() {
            self.counts.keys_examined += read.keys_examined;
            self.counts.docs_examined += read.docs_examined;
            self.cx.add_foreign_counts(read);
            return Ok(());
        }
        let found = std::mem::take(&mut self.found);
        self.current = Some(Box::new(Aggregate::new(
            &self.cx,
            Input::Found(Box::new((found, read))),
            &self.split.rest.stages,
        )));
        Ok(())
    }

    /// Plans like any query, and keeps the plan if values can be substituted.
    fn first_probe(&mut self, op: &OpContext, values: &[RawValue<'_>]) -> Result<Aggregate> {
        let query = self.query(values)?;
        if self.view.collection.is_some() {
            let (executor, _) = planning::start(&self.view, op, &query, self.cx.options())?;
            let winner = executor.solution().clone();
            self.access = match Template::of(&query, &winner, &self.path) {
                Some(template) => Access::Template(Box::new(template)),
                None if self.can_hash(&winner) => Access::Scan,
                None => Access::Planned,
            };
            record_solution(&winner.root, &mut self.counts);
            let digest = PlanDigest::solution(&winner);
            return Ok(Aggregate::new(
                &self.cx,
                Input::Plan(Box::new(executor), digest),
                &self.split.rest.stages,
            ));
        }
        self.probe_planned(op, values)
    }

    /// Whether a hash table can replace the plan: it scans the collection, and documents are
    /// returned unmodified.
    fn can_hash(&self, plan: &QuerySolution) -> bool {
        let prefix = &self.split.prefix;
        matches!(plan.root, SolutionNode::CollScan { .. })
            && prefix.sort.is_none()
            && prefix.skip == 0
            && prefix.limit.is_none()
            && prefix.projection.is_none()
    }

    /// Reads all documents into a hash table; `Planned` if they exceed the memory limit.
    fn table(&mut self, op: &OpContext) -> Result<Access> {
        let Some(table) = HashTable::new(&self.path) else {
            return Ok(Access::Planned);
        };
        let table = self.unfinished.insert(Box::new(table));
        let pipeline = OptimizedPipeline {
            prefix: CursorPrefix {
                filter: self.split.prefix.filter.clone(),
                ..Default::default()
            },
            rest: Pipeline::default(),
        };
        let mut all = super::start(&self.cx, &self.view, op, &pipeline, None)?;
        let bytes_max = self.cx.options().sort_memory_bytes_max;
        let collator = self.cx.parse().collator().cloned();
        let mut fits = true;
        while fits && let Some(doc) = all.next(op)? {
            fits = table.add(doc, collator.as_deref(), bytes_max);
        }
        let read = all.input_counts();
        self.counts.keys_examined += read.keys_examined;
        self.counts.docs_examined += read.docs_examined;
        self.cx.add_foreign_counts(read);
        record_plan(&all, &mut self.counts);
        let table = self.unfinished.take().filter(|_| fits);
        Ok(table.map_or(Access::Planned, Access::Table))
    }

    fn probe_table(&mut self, values: &[RawValue<'_>]) -> Result<Aggregate> {
        let collator = self.cx.parse().collator().cloned();
        let found = match &mut self.access {
            Access::Table(table) => table.find(values, collator.as_deref())?,
            _ => Vec::new(),
        };
        let found = (found.into(), WorkCounts::default());
        Ok(Aggregate::new(
            &self.cx,
            Input::Found(Box::new(found)),
            &self.split.rest.stages,
        ))
    }

    fn strategy(&self) -> &'static str {
        match &self.access {
            Access::ById(..) | Access::Template(_) => "IndexedLoopJoin",
            Access::Table(_) => "HashJoin",
            _ if !self.counts.indexes_used.is_empty() => "IndexedLoopJoin",
            _ if self.view.collection.is_none() => "NonExistentForeignCollection",
            _ => "NestedLoopJoin",
        }
    }

    /// The query of the prefix combined with the equality.
    fn query(&self, values: &[RawValue<'_>]) -> Result<Arc<CanonicalQuery>> {
        let prefix = &self.split.prefix;
        let equality = equality_filter(&self.path, values);
        let filter = matcher::conjunction(&equality, &prefix.filter);
        let spec = FindSpec {
            filter: Some(filter.as_raw()),
            ..prefix.find_spec()
        };
        CanonicalQuery::with_context(spec, self.cx.parse()).map(Arc::new)
    }

    fn run(
        &mut self,
        op: &OpContext,
        query: &Arc<CanonicalQuery>,
        solution: QuerySolution,
    ) -> Result<Aggregate> {
        let executor =
            planning::start_solution(&self.view, op, query, self.cx.options(), solution)?;
        record_solution(&executor.solution().root, &mut self.counts);
        Ok(Aggregate::new(
            &self.cx,
            Input::Plan(Box::new(executor), PlanDigest::default()),
            &self.split.rest.stages,
        ))
    }

    fn probe_planned(&mut self, op: &OpContext, values: &[RawValue<'_>]) -> Result<Aggregate> {
        let mut stages = self.in_front.clone();
        stages.push(match_stage(equality_filter(&self.path, values), &self.cx)?);
        stages.extend(self.following.iter().cloned());
        let pipeline = Pipeline {
            stages,
            ..Default::default()
        };
        let aggregate = super::start(&self.cx, &self.view, op, &pipeline.optimize(), None)?;
        record_plan(&aggregate, &mut self.counts);
        Ok(aggregate)
    }
}

impl Template {
    /// Accepts the plan if it is a single index scan whose bounds on the path are points, and no
    /// other part of the plan depends on the values.
    fn of(query: &Arc<CanonicalQuery>, solution: &QuerySolution, path: &str) -> Option<Template> {
        let mut scans = 0;
        let mut fits = true;
        solution.root.for_each(&mut |node| match node {
            SolutionNode::IndexScan(scan) => {
                scans += 1;
                fits &= scan_fits(scan, path);
            }
            SolutionNode::Fetch { filter, .. } => {
                fits &= filter.as_ref().is_none_or(|f| !reads(f, path));
            }
            SolutionNode::Sort { .. }
            | SolutionNode::Limit { .. }
            | SolutionNode::Skip { .. }
            | SolutionNode::Projection { .. } => {}
            _ => fits = false,
        });
        // An index may provide the sort for one value but not for several.
        fits &= query.sort.is_none();
        // Text must be compared by the same collation. Keys with a collation are sort keys and lack
        // the text, so the documents must be fetched.
        let mut fetches = false;
        solution.root.for_each(&mut |node| match node {
            SolutionNode::IndexScan(scan) => fits &= scan.index.collator == query.collator,
            SolutionNode::Fetch { .. } => fetches = true,
            _ => {}
        });
        fits &= fetches || query.collator.is_none();
        (fits && scans == 1).then(|| Template {
            query: query.clone(),
            solution: solution.clone(),
        })
    }

    /// The plan with other values, which must be simple.
    fn with_values(&self, path: &str, values: &[RawValue<'_>]) -> QuerySolution {
        let key = |value: &RawValue<'_>| match &self.query.collator {
            Some(collator) => collator.key_value(*value),
            None => value.to_value(),
        };
        let points = values.iter().map(|v| Interval::point(key(v)));
        let list = match values {
            [only] => OrderedIntervalList::point(key(only)),
            _ => OrderedIntervalList::union_of(points.collect()),
        };
        let mut solution = self.solution.clone();
        solution.root.for_each_scan_mut(&mut |scan| {
            if let IndexBounds::Fields(fields) = &mut scan.bounds {
                for (field, index_field) in fields.iter_mut().zip(&scan.index.fields) {
                    if field.is_over(path) {
                        let list = list.clone().named(&index_field.path);
                        let descending = (index_field.direction < 0) != (scan.direction < 0);
                        *field = if descending { list.reversed() } else { list };
                    }
                }
            }
            if values.len() > 1 && scan.index.multikey {
                scan.dedup = true;
            }
        });
        solution
    }
}

fn scan_fits(scan: &IndexScanNode, path: &str) -> bool {
    let IndexBounds::Fields(fields) = &scan.bounds else {
        return false;
    };
    let points = fields
        .iter()
        .filter(|field| field.is_over(path))
        .all(OrderedIntervalList::is_union_of_points);
    fields.iter().any(|field| field.is_over(path))
        && points
        && matches!(scan.index.kind, IndexKind::Btree)
        && scan.index.partial_filter.is_none()
        && scan.filter.as_ref().is_none_or(|f| !reads(f, path))
}

fn reads(filter: &MatchExpression, path: &str) -> bool {
    !filter.dependencies().is_independent_of(path)
}
