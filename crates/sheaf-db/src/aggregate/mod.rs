//! Aggregation: plans the pipeline's prefix in the find layer and pulls results through the
//! remaining stages.
//!
//! ```text
//!   OptimizedPipeline ─┬─ prefix ──> plan (covered, DISTINCT_SCAN, COUNT_SCAN where they serve)
//!                      └─ rest ────> PipelineExec, fed document by document
//!                                       ╰─ DbEnvironment: interruption, temporary files,
//!                                          other collections
//! ```

mod context;
mod environment;
pub mod explain;
mod foreign;
mod hash_join;
mod plan;
mod prepared;
pub mod request;
mod sample;
pub mod sink;
mod vector_search;
pub mod view_reads;

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_query::canonical::{CanonicalQuery, Hint};
use sheaf_query::pipeline::{
    DocSource, Documents, OptimizedPipeline, PipelineExec, PipelineSource, Stage, score,
};
use sheaf_query::planner::solution::QuerySolution;

pub use self::context::{AggregateContext, FirstStages};
use self::environment::DbEnvironment;
use self::vector_search::VectorSource;
use crate::catalog::ReadView;
use crate::exec::{Doc, PlanExecutor, WorkCounts};
use crate::find;
use crate::op_context::OpContext;
use crate::planning::PlanDigest;
use crate::result_source::ResultSource;

/// A running pipeline.
pub struct Aggregate {
    input: Input,
    rest: PipelineExec,
    context: AggregateContext,
    /// There are no further stages: documents pass through.
    pass: bool,
    done: bool,
    /// Documents carry scores, which results must omit.
    scored: bool,
}

enum Input {
    Find(Box<find::Find>),
    Plan(Box<PlanExecutor>, PlanDigest),
    Documents(Documents),
    /// Documents already found, and the work it took.
    Found(Box<(VecDeque<Doc>, WorkCounts)>),
    /// Results of `$vectorSearch`.
    Vector(Box<VectorSource>),
}

/// Starts a pipeline over a collection.
pub fn start(
    cx: &AggregateContext,
    view: &ReadView,
    op: &OpContext,
    pipeline: &OptimizedPipeline,
    hint: Option<&Hint>,
) -> Result<Aggregate, Error> {
    if let PipelineSource::VectorSearch { search, with_score } = &pipeline.rest.source {
        refuse_hint(hint)?;
        let found = vector_search::start(view, op, search, *with_score)?;
        let input = Input::Vector(Box::new(found));
        let mut aggregate = Aggregate::new(cx, input, &pipeline.rest.stages);
        aggregate.scored = *with_score;
        return Ok(aggregate);
    }
    if let (Some(size), None) = (sample::leading_sample(pipeline), hint)
        && let Some(sampled) = sample::draw(view, op, size)?
    {
        let input = Input::Found(Box::new((sampled.found, sampled.counts)));
        return Ok(Aggregate::new(cx, input, &pipeline.rest.stages[1..]));
    }
    let (query, special) = plan::plan(cx, view, &pipeline.prefix, hint)?;
    let input = match special {
        Some(solution) => {
            let executor = execute(cx, view, op, &query, solution, false)?;
            let digest = PlanDigest::solution(executor.solution());
            Input::Plan(Box::new(executor), digest)
        }
        None => Input::Find(Box::new(find::find(view, op, query, cx.options())?)),
    };
    Ok(Aggregate::new(cx, input, &pipeline.rest.stages))
}

/// Errors: `BadValue` for a hint if nothing is planned.
fn refuse_hint(hint: Option<&Hint>) -> Result<(), Error> {
    match hint {
        None => Ok(()),
        Some(_) => Err(Error::bad_value(
            "$vectorSearch does not accept a hint; name the index in its 'index' field",
        )),
    }
}

/// Starts a pipeline over documents produced by its first stage (`$collStats`).
pub fn start_over(
    cx: &AggregateContext,
    documents: Vec<DocBuf>,
    pipeline: &OptimizedPipeline,
) -> Aggregate {
    let input = Input::Documents(documents.into());
    Aggregate::new(cx, input, &pipeline.rest.stages)
}

fn execute(
    cx: &AggregateContext,
    view: &ReadView,
    op: &OpContext,
    query: &Arc<CanonicalQuery>,
    solution: QuerySolution,
    timed: bool,
) -> Result<PlanExecutor, Error> {
    let build = cx.options().build_context(view, query, timed);
    let budget = cx.options().trial_budget(view, query)?;
    PlanExecutor::new(&build, vec![solution], budget, op)
}

impl Aggregate {
    fn new(cx: &AggregateContext, input: Input, stages: &[Stage]) -> Aggregate {
        Aggregate {
            input,
            rest: PipelineExec::new(stages),
            context: cx.clone(),
            pass: stages.is_empty(),
            done: false,
            scored: false,
        }
    }

    /// Work done on the pipeline's own collection.
    fn input_counts(&self) -> WorkCounts {
        match &self.input {
            Input::Find(find) => find.counts(),
            Input::Plan(executor, _) => executor.counts(),
            Input::Documents(_) => WorkCounts::default(),
            Input::Found(found) => found.1,
            Input::Vector(found) => found.counts(),
        }
    }
}

impl Input {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>, Error> {
        match self {
            Input::Find(find) => find.next(op),
            // A count's members are records without documents: no content is read.
            Input::Plan(executor, _) => Ok(executor.next(op)?.map(|member| {
                member
                    .doc
                    .unwrap_or_else(|| Doc::Owned(RawDoc::EMPTY.as_bytes().to_vec()))
            })),
            Input::Documents(documents) => {
                let next = DocSource::next(documents)?;
                Ok(next.map(|doc| Doc::Owned(doc.as_bytes().to_vec())))
            }
            Input::Found(found) => Ok(found.0.pop_front()),
            Input::Vector(found) => found.next(op),
        }
    }
}

/// Feeds the plan's results to the stages; each is valid until the next.
struct Feed<'a> {
    input: &'a mut Input,
    op: &'a OpContext,
    current: Option<Doc>,
}

impl DocSource for Feed<'_> {
    fn next(&mut self) -> Result<Option<RawDoc<'_>>, Error> {
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
                cx: &self.context,
            };
            self.rest
                .next(&mut feed, &env)?
                .map(|doc| Doc::Owned(doc.into_vec()))
        };
        self.done = next.is_none();
        let stripped = match &next {
            Some(doc) if self.scored => score::strip(doc.as_raw()),
            _ => None,
        };
        Ok(match stripped {
            Some(doc) => Some(Doc::Owned(doc.into_vec())),
            None => next,
        })
    }

    fn is_exhausted(&self) -> bool {
        self.done
            || self.pass
                && match &self.input {
                    Input::Find(find) => find.is_exhausted(),
                    Input::Plan(executor, _) => executor.is_eof(),
                    Input::Documents(_) => false,
                    Input::Found(found) => found.0.is_empty(),
                    Input::Vector(found) => found.is_exhausted(),
                }
    }

    fn suspend(&mut self) {
        match &mut self.input {
            Input::Find(find) => find.suspend(),
            Input::Plan(executor, _) => executor.suspend(),
            Input::Documents(_) | Input::Found(_) | Input::Vector(_) => {}
        }
        self.rest.suspend();
    }

    fn exec_stats(&self) -> Option<DocBuf> {
        match &self.input {
            Input::Find(find) => find.exec_stats(),
            Input::Plan(executor, _) => Some(crate::explain::exec_stats(executor)),
            Input::Documents(_) | Input::Found(_) | Input::Vector(_) => None,
        }
    }

    fn counts(&self) -> WorkCounts {
        let (own, foreign) = (self.input_counts(), self.context.foreign_counts());
        WorkCounts {
            keys_examined: own.keys_examined + foreign.keys_examined,
            docs_examined: own.docs_examined + foreign.docs_examined,
        }
    }

    fn plan(&self) -> PlanDigest {
        match &self.input {
            Input::Find(find) => find.plan(),
            Input::Plan(_, digest) => digest.clone(),
            Input::Documents(_) | Input::Found(_) | Input::Vector(_) => PlanDigest::default(),
        }
    }
}
