//! Aggregation: the find layer's part of a pipeline as a plan, the rest pulled
//! through it.
//!
//! ```text
//!   OptimizedPipeline ─┬─ prefix ──> plan (covered, DISTINCT_SCAN, COUNT_SCAN where they serve)
//!                      └─ rest ────> PipelineExec, fed document by document
//! ```

mod environment;

use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::error_code::Error;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{DistinctTake, DocSource, Documents, OptimizedPipeline, PipelineExec};
use sheaf_query::planner;
use sheaf_query::planner::solution::{ProjectionKind, QuerySolution, SolutionNode};

use self::environment::DbEnvironment;
use crate::catalog::ReadView;
use crate::exec::{Doc, PlanExecutor, WorkCounts};
use crate::explain::Verbosity;
use crate::explain::query::{self, Explained};
use crate::find::{self, PlanDigest, QueryOptions, ResultSource};
use crate::op_context::OpContext;

/// A pipeline, running.
pub struct Aggregate {
    input: Input,
    rest: PipelineExec,
    options: QueryOptions,
    /// There are no further stages: documents pass as they come.
    pass: bool,
    done: bool,
}

enum Input {
    Find(Box<find::Find>),
    Plan(Box<PlanExecutor>, PlanDigest),
    Documents(Documents),
}

/// Starts a pipeline over a collection.
pub fn start(
    view: &ReadView,
    op: &OpContext,
    pipeline: &OptimizedPipeline,
    hint: Option<Hint>,
    context: &ParseContext,
    options: &QueryOptions,
) -> Result<Aggregate, Error> {
    let (query, special) = plan(view, pipeline, hint, context, options)?;
    let input = match special {
        Some(solution) => {
            let executor = execute(view, op, &query, solution, options, false)?;
            let digest = PlanDigest::solution(executor.solution());
            Input::Plan(Box::new(executor), digest)
        }
        None => Input::Find(Box::new(find::find(view, op, query, options)?)),
    };
    Ok(Aggregate::new(input, pipeline, options))
}

/// Starts a pipeline over documents made by its first stage (`$collStats`).
pub fn start_over(
    documents: Vec<DocBuf>,
    pipeline: &OptimizedPipeline,
    options: &QueryOptions,
) -> Aggregate {
    Aggregate::new(Input::Documents(documents.into()), pipeline, options)
}

/// The prefix as a query, and a plan that reads keys instead of documents if
/// the rest of the pipeline can live with that.
fn plan(
    view: &ReadView,
    pipeline: &OptimizedPipeline,
    hint: Option<Hint>,
    context: &ParseContext,
    options: &QueryOptions,
) -> Result<(Arc<CanonicalQuery>, Option<QuerySolution>), Error> {
    let prefix = &pipeline.prefix;
    let spec = |projection: Option<&DocBuf>| -> Result<CanonicalQuery, Error> {
        let spec = FindSpec {
            filter: Some(prefix.filter.as_raw()),
            sort: prefix.sort.as_ref().map(DocBuf::as_raw),
            projection: projection.map(DocBuf::as_raw),
            skip: prefix.skip,
            limit: prefix.limit,
            hint: hint.clone(),
            ..Default::default()
        };
        CanonicalQuery::with_context(spec, context)
    };
    let plain = || spec(prefix.projection.as_ref()).map(|query| (Arc::new(query), None));
    if view.collection.is_none() || prefix.projection.is_some() {
        return plain();
    }
    let query = spec(None)?;
    let indexes = find::planning_indexes(view, &query)?;
    let params = find::params(&indexes, options);
    if prefix.counts_only() {
        if prefix.sort.is_none()
            && let Some(solution) = planner::plan_count(&query, &params)?
        {
            return Ok((Arc::new(query), Some(solution)));
        }
        return Ok((Arc::new(query), None));
    }
    let whole = prefix
        .dependencies
        .as_ref()
        .is_none_or(|dependencies| dependencies.whole_document);
    let Some(projection) = prefix.dependency_projection().filter(|_| !whole) else {
        return plain();
    };
    let reduced = spec(Some(&projection))?;
    if let Some(distinct) = &prefix.distinct
        && distinct.take == DistinctTake::Any
        && let Ok(path) = FieldPath::parse(&distinct.path)
        && let Some(solution) = planner::plan_distinct(&reduced, &path, &params)?
    {
        return Ok((Arc::new(reduced), Some(solution)));
    }
    // Fewer fields pay only where no document is read for them.
    let covered = planner::plan(&reduced, &params)?
        .iter()
        .any(|solution| is_covered(&solution.root));
    if covered {
        return Ok((Arc::new(reduced), None));
    }
    plain()
}

fn is_covered(node: &SolutionNode) -> bool {
    match node {
        SolutionNode::Projection { kind, .. } => *kind == ProjectionKind::Covered,
        SolutionNode::Sort { child, .. }
        | SolutionNode::Limit { child, .. }
        | SolutionNode::Skip { child, .. } => is_covered(child),
        _ => false,
    }
}

fn execute(
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    solution: QuerySolution,
    options: &QueryOptions,
    timed: bool,
) -> Result<PlanExecutor, Error> {
    let cx = find::build_context(view, query, options, timed);
    PlanExecutor::new(&cx, vec![solution], find::budget(view, query, options)?, op)
}

impl Aggregate {
    fn new(input: Input, pipeline: &OptimizedPipeline, options: &QueryOptions) -> Aggregate {
        Aggregate {
            input,
            rest: PipelineExec::new(&pipeline.rest.stages),
            options: options.clone(),
            pass: pipeline.rest.stages.is_empty(),
            done: false,
        }
    }
}

impl Input {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error> {
        match self {
            Input::Find(find) => find.next(op),
            // A count's members are records without documents: nothing is read of them.
            Input::Plan(executor, _) => Ok(executor.next(op)?.map(|member| {
                member
                    .doc
                    .unwrap_or_else(|| Doc::Owned(RawDoc::EMPTY.as_bytes().to_vec()))
            })),
            Input::Documents(documents) => {
                let next = DocSource::next(documents)?;
                Ok(next.map(|doc| Doc::Owned(doc.as_bytes().to_vec())))
            }
        }
    }
}

/// Feeds the plan's results to the stages, each valid until the next.
struct Feed<'a> {
    input: &'a mut Input,
    op: &'a OpContext,
    current: Option<Doc>,
}

impl DocSource for Feed<'_> {
    fn next(&mut self) -> Result<Option<RawDoc<'_>>, Error> {
        self.op.check_interrupt()?;
        self.current = self.input.next(self.op)?;
        Ok(self.current.as_ref().map(Doc::as_raw))
    }
}

impl ResultSource for Aggregate {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error> {
        if self.done {
            return Ok(None);
        }
        let next = if self.pass {
            self.input.next(op)?
        } else {
            let mut feed = Feed {
                input: &mut self.input,
                op,
                current: None,
            };
            let env = DbEnvironment {
                op,
                options: &self.options,
            };
            self.rest
                .next(&mut feed, &env)?
                .map(|doc| Doc::Owned(doc.into_vec()))
        };
        self.done = next.is_none();
        Ok(next)
    }

    fn is_exhausted(&self) -> bool {
        self.done
            || self.pass
                && match &self.input {
                    Input::Find(find) => find.is_exhausted(),
                    Input::Plan(executor, _) => executor.is_eof(),
                    Input::Documents(_) => false,
                }
    }

    fn counts(&self) -> WorkCounts {
        match &self.input {
            Input::Find(find) => find.counts(),
            Input::Plan(executor, _) => executor.counts(),
            Input::Documents(_) => WorkCounts::default(),
        }
    }

    fn plan(&self) -> PlanDigest {
        match &self.input {
            Input::Find(find) => find.plan(),
            Input::Plan(_, digest) => digest.clone(),
            Input::Documents(_) => PlanDigest::default(),
        }
    }
}

/// Where an explanation is of, and how much is told.
pub struct ExplainRequest<'a> {
    /// The collection as of now.
    pub view: &'a ReadView,
    /// Deadline and kill flag.
    pub op: &'a OpContext,
    /// How plans run.
    pub options: &'a QueryOptions,
    /// `db.collection`.
    pub namespace: &'a str,
    /// How much is told.
    pub verbosity: Verbosity,
    /// `hint`.
    pub hint: Option<Hint>,
}

/// explain of a pipeline: as of a find when the find layer does it all, else
/// `stages` with the plan under `$cursor`.
pub fn explain(
    request: &ExplainRequest<'_>,
    pipeline: &OptimizedPipeline,
    context: &ParseContext,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    let ExplainRequest {
        view, op, options, ..
    } = request;
    let (canonical, special) = plan(view, pipeline, request.hint.clone(), context, options)?;
    let explained = Explained {
        view,
        op,
        query: &canonical,
        options,
        namespace: request.namespace,
        verbosity: request.verbosity,
    };
    if pipeline.rest.stages.is_empty() {
        return match special {
            Some(solution) => {
                let executor = execute(view, op, &canonical, solution, options, true)?;
                query::executor(&explained, executor, out)
            }
            None => query::find(&explained, out),
        };
    }
    let mut executor = match special {
        Some(solution) => execute(view, op, &canonical, solution, options, true)?,
        None => query::planned(&explained)?,
    };
    let mut returned = 0;
    let mut error = None;
    if request.verbosity >= Verbosity::ExecutionStats {
        let mut rest = PipelineExec::new(&pipeline.rest.stages);
        let env = DbEnvironment { op, options };
        let mut feed = PlanFeed {
            executor: &mut executor,
            op,
            current: None,
        };
        loop {
            match rest.next(&mut feed, &env) {
                Ok(Some(_)) => returned += 1,
                Ok(None) => break,
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        op.check_interrupt()?;
    }
    out.begin_array("stages");
    out.push_begin_document();
    out.begin_document("$cursor");
    query::append_executed(&explained, begun, &executor, error.as_ref(), out)?;
    out.end();
    out.end();
    let stages = pipeline.rest.serialize();
    for (at, stage) in stages.iter().enumerate() {
        out.push_begin_document();
        out.extend(stage.as_raw());
        // Only what leaves the last stage is counted.
        if at + 1 == stages.len() && request.verbosity >= Verbosity::ExecutionStats {
            out.append("nReturned", returned as i64);
            out.append(
                "executionTimeMillisEstimate",
                begun.elapsed().as_millis() as i64,
            );
        }
        out.end();
    }
    out.end();
    Ok(())
}

struct PlanFeed<'a> {
    executor: &'a mut PlanExecutor,
    op: &'a OpContext,
    current: Option<Doc>,
}

impl DocSource for PlanFeed<'_> {
    fn next(&mut self) -> Result<Option<RawDoc<'_>>, Error> {
        let Some(member) = self.executor.next(self.op)? else {
            return Ok(None);
        };
        self.current = member.doc;
        Ok(Some(
            self.current.as_ref().map_or(RawDoc::EMPTY, Doc::as_raw),
        ))
    }
}
