//! explain of a pipeline.
//!
//! Has the form of a find's explain when the find layer does all the work. Otherwise `stages`: the
//! plan under `$cursor`, then each stage with its output count and time.

use std::time::Instant;

use sheaf_bson::error_code::Error;
use sheaf_bson::{ArrayBuf, DocBuilder, RawDoc, array, doc};
use sheaf_query::canonical::Hint;
use sheaf_query::pipeline::environment::OtherInput;
use sheaf_query::pipeline::stages::vector_search::{self as vector_search_stage, VectorSearch};
use sheaf_query::pipeline::{
    DocSource, Documents, OptimizedPipeline, PipelineExec, PipelineSource, Stage,
};

use super::environment::DbEnvironment;
use super::request::on_collection;
use super::sample::{self, Sampled};
use super::{AggregateContext, execute, plan, vector_search};
use crate::catalog::{Namespace, ReadView};
use crate::exec::{Doc, PlanExecutor};
use crate::explain::Verbosity;
use crate::explain::query::{self, Explained};
use crate::op_context::OpContext;

/// What to explain, and in how much detail.
pub struct ExplainRequest<'a> {
    /// The collection at the operation's snapshot.
    pub view: &'a ReadView,
    /// Deadline and kill flag.
    pub op: &'a OpContext,
    /// `db.collection`.
    pub namespace: &'a str,
    /// Level of detail.
    pub verbosity: Verbosity,
    /// `hint`.
    pub hint: Option<Hint>,
}

/// Appends the explanation of a pipeline over a collection to `out`.
pub fn explain(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    pipeline: &OptimizedPipeline,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    let ExplainRequest { view, op, .. } = request;
    if let PipelineSource::VectorSearch { search, with_score } = &pipeline.rest.source {
        return explain_search(cx, request, pipeline, (search, *with_score), out);
    }
    if let (Some(size), None) = (sample::leading_sample(pipeline), &request.hint)
        && let Some(sampled) = sample::draw(view, op, size)?
    {
        return explain_drawn(cx, request, pipeline, size, sampled, out);
    }
    let (canonical, special) = plan::plan(cx, view, &pipeline.prefix, request.hint.as_ref())?;
    let explained = Explained {
        view,
        op,
        query: &canonical,
        options: cx.options(),
        namespace: request.namespace,
        verbosity: request.verbosity,
        is_pipeline: pipeline.rest.stages.is_empty() && pipeline.rest.sink.is_none(),
    };
    if explained.is_pipeline {
        return match special {
            Some(solution) => {
                let executor = execute(cx, view, op, &canonical, solution, true)?;
                query::executor(&explained, executor, out)
            }
            None => query::find(&explained, out),
        };
    }
    let mut executor = match special {
        Some(solution) => execute(cx, view, op, &canonical, solution, true)?,
        None => query::planned(&explained)?,
    };
    let mut rest = PipelineExec::explained(&pipeline.rest.stages);
    let mut error = None;
    if request.verbosity >= Verbosity::ExecutionStats {
        let mut feed = PlanFeed {
            executor: &mut executor,
            op,
            current: None,
        };
        error = run(cx, op, &mut rest, &mut feed).err();
        op.check_interrupt()?;
    }
    out.begin_array("stages");
    out.push_begin_document();
    out.begin_document("$cursor");
    query::append_executed(&explained, begun, &executor, error.as_ref(), out)?;
    out.end();
    if request.verbosity >= Verbosity::ExecutionStats {
        let stats = executor.stats();
        out.append("nReturned", stats.n_returned as i64);
        out.append(
            "executionTimeMillisEstimate",
            stats.root.common.elapsed.as_millis() as i64,
        );
    }
    out.end();
    let before = executor.stats().root.common.elapsed;
    append_stages((cx, request), pipeline, &rest, before, out)?;
    out.end();
    Ok(())
}

/// explain of a pipeline that begins with `$vectorSearch`.
fn explain_search(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    pipeline: &OptimizedPipeline,
    (search, with_score): (&VectorSearch, bool),
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let ExplainRequest { view, op, .. } = request;
    super::refuse_hint(request.hint.as_ref())?;
    let mut following = pipeline.clone();
    following.rest.source = PipelineSource::Collection;
    let mut rest = PipelineExec::explained(&following.rest.stages);
    let mut found = None;
    let mut returned = 0;
    if request.verbosity >= Verbosity::ExecutionStats {
        let mut source = vector_search::start(view, op, search, with_score)?;
        let mut documents = Vec::new();
        while let Some(doc) = source.next(op)? {
            returned += 1;
            documents.push(doc.as_raw().to_buf());
        }
        let mut documents: Documents = documents.into();
        run(cx, op, &mut rest, &mut documents)?;
        found = Some(source);
    }
    out.begin_array("stages");
    out.push_begin_document()
        .begin_document(vector_search_stage::NAME);
    out.extend(search.spec.as_raw());
    if let Some(found) = &found {
        out.begin_document("explain");
        found.append_stats(out);
        out.end();
    }
    out.end();
    let mut before = Default::default();
    if let Some(found) = &found {
        before = found.elapsed();
        out.append("nReturned", returned);
        out.append("executionTimeMillisEstimate", before.as_millis() as i64);
    }
    out.end();
    append_stages((cx, request), &following, &rest, before, out)?;
    out.end();
    Ok(())
}

/// explain of a pipeline whose `$sample` draws records at random instead of scanning.
fn explain_drawn(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    pipeline: &OptimizedPipeline,
    size: u64,
    sampled: Sampled,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut following = pipeline.clone();
    following.rest.stages.remove(0);
    let executed = request.verbosity >= Verbosity::ExecutionStats;
    let mut rest = PipelineExec::explained(&following.rest.stages);
    let returned = sampled.found.len() as i64;
    if executed {
        let found = sampled.found.iter().map(|doc| doc.as_raw().to_buf());
        let mut documents: Documents = found.collect::<Vec<_>>().into();
        run(cx, request.op, &mut rest, &mut documents)?;
    }
    out.begin_array("stages");
    out.push_begin_document().begin_document("$cursor");
    out.begin_document("queryPlanner");
    out.append("namespace", request.namespace);
    out.append("winningPlan", &doc! {"stage": "MULTI_ITERATOR"});
    out.append("rejectedPlans", &ArrayBuf::default());
    out.end();
    if executed {
        out.begin_document("executionStats");
        out.append("executionSuccess", true);
        out.append("nReturned", returned);
        out.append("totalKeysExamined", 0);
        out.append("totalDocsExamined", sampled.counts.docs_examined as i64);
        out.end();
    }
    out.end().end();
    out.push_begin_document();
    out.append("$sampleFromRandomCursor", &doc! {"size": size as i64});
    if executed {
        out.append("nReturned", returned);
    }
    out.end();
    append_stages((cx, request), &following, &rest, Default::default(), out)?;
    out.end();
    Ok(())
}

/// Appends the explanation of a pipeline whose first stage produces the documents itself.
pub fn explain_over(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    documents: Documents,
    pipeline: &OptimizedPipeline,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut rest = PipelineExec::explained(&pipeline.rest.stages);
    if request.verbosity >= Verbosity::ExecutionStats {
        let mut documents = documents;
        run(cx, request.op, &mut rest, &mut documents)?;
    }
    out.begin_array("stages");
    append_stages((cx, request), pipeline, &rest, Default::default(), out)?;
    out.end();
    Ok(())
}

fn run(
    cx: &AggregateContext,
    op: &OpContext,
    rest: &mut PipelineExec,
    feed: &mut dyn DocSource,
) -> Result<(), Error> {
    let env = DbEnvironment { op, cx };
    while rest.next(feed, &env)?.is_some() {}
    Ok(())
}

/// Appends each stage with its statistics. Times are cumulative: a stage's time includes all stages
/// before it.
fn append_stages(
    (cx, request): (&AggregateContext, &ExplainRequest<'_>),
    pipeline: &OptimizedPipeline,
    rest: &PipelineExec,
    mut elapsed: std::time::Duration,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let (stages, sink) = (&pipeline.rest.stages, &pipeline.rest.sink);
    let serialized = pipeline.rest.serialize();
    let made_here = serialized.len() - stages.len() - usize::from(sink.is_some());
    for (at, shown) in serialized.iter().enumerate() {
        out.push_begin_document();
        let at = at.checked_sub(made_here);
        match (at.and_then(|at| stages.get(at)), sink) {
            (Some(stage), _) => append_stage(cx, request, stage, out)?,
            (None, Some(sink)) if at == Some(stages.len()) => {
                out.extend(sink.resolved(cx.database()).as_raw());
            }
            _ => {
                out.extend(shown.as_raw());
            }
        }
        let counts = at.and_then(|at| rest.counts().get(at).map(|counts| (at, counts)));
        if let Some((at, counts)) = counts
            && request.verbosity >= Verbosity::ExecutionStats
        {
            elapsed += counts.elapsed;
            rest.append_stats(at, out);
            out.append("nReturned", counts.returned as i64);
            out.append("executionTimeMillisEstimate", elapsed.as_millis() as i64);
        }
        out.end();
    }
    Ok(())
}

/// Appends a stage as it is executed: a filter normalised, the other input of a `$unionWith` with
/// its plan.
fn append_stage(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    stage: &Stage,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let other = match stage {
        Stage::Match { filter, .. } => {
            out.append_bson(stage.name(), &filter.serialize());
            return Ok(());
        }
        Stage::Other(other) => other.other_input(),
        _ => None,
    };
    let Some(other) = other else {
        out.extend(stage.serialize().as_raw());
        return Ok(());
    };
    out.begin_document(stage.name());
    if !other.from.collection.is_empty() {
        out.append("coll", &*other.from.collection);
    }
    append_other_input(cx, request, other, out)?;
    out.end();
    Ok(())
}

/// Appends `pipeline`: the plan of another input, under `$cursor`, and its stages.
fn append_other_input(
    cx: &AggregateContext,
    request: &ExplainRequest<'_>,
    other: OtherInput,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let cx = cx.with_parse(&other.context);
    let ExplainRequest { op, verbosity, .. } = *request;
    let mut inner = DocBuilder::new();
    match other.pipeline.source.clone() {
        PipelineSource::Documents(documents) => {
            let documents = documents.to_vec().into();
            let pipeline = other.pipeline.optimize();
            explain_over(&cx, request, documents, &pipeline, &mut inner)?;
        }
        _ => {
            let db = other.from.db.as_deref().unwrap_or(cx.database());
            let ns = Namespace::new(db, &other.from.collection)?;
            let (ns, pipeline) = on_collection(cx.db(), &ns, cx.parse(), other.pipeline)?;
            let named = Namespace::new(db, &other.from.collection)?;
            let request = ExplainRequest {
                view: &cx.view(op, &ns)?,
                op,
                namespace: ns.as_str(),
                verbosity,
                hint: None,
            };
            let pipeline = pipeline.optimize();
            match &pipeline.rest.source {
                PipelineSource::Generated { name, spec } => {
                    let documents = cx.generate(name, &named, request.view, spec.as_raw())?;
                    explain_over(&cx, &request, documents.into(), &pipeline, &mut inner)?;
                }
                _ => explain(&cx, &request, &pipeline, &mut inner)?,
            }
        }
    }
    let inner = inner.finish();
    match inner.get("stages") {
        Some(stages) => out.append("pipeline", stages),
        None => out.append("pipeline", &array![{"$cursor": &inner}]),
    };
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
