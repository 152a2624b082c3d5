//! Aggregation: the find layer's part of a pipeline as a plan, the rest pulled
//! through it.
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
mod sample;
pub mod sink;

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_query::canonical::{CanonicalQuery, Hint};
use sheaf_query::pipeline::{DocSource, Documents, OptimizedPipeline, PipelineExec, Stage};
use sheaf_query::planner::solution::QuerySolution;

pub use self::context::AggregateContext;
use self::environment::DbEnvironment;
use crate::catalog::ReadView;
use crate::exec::{Doc, PlanExecutor, WorkCounts};
use crate::find::{self, PlanDigest, ResultSource};
use crate::op_context::OpContext;

/// A pipeline, running.
pub struct Aggregate {
    input: Input,
    rest: PipelineExec,
    context: AggregateContext,
    /// There are no further stages: documents pass as they come.
    pass: bool,
    done: bool,
}

enum Input {
    Find(Box<find::Find>),
    Plan(Box<PlanExecutor>, PlanDigest),
    Documents(Documents),
    /// Documents found already, and what that took.
    Found(Box<(VecDeque<Doc>, WorkCounts)>),
}

/// Starts a pipeline over a collection.
pub fn start(
    cx: &AggregateContext,
    view: &ReadView,
    op: &OpContext,
    pipeline: &OptimizedPipeline,
    hint: Option<&Hint>,
) -> Result<Aggregate, Error> {
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

/// Starts a pipeline over documents made by its first stage (`$collStats`).
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
    let build = find::build_context(view, query, cx.options(), timed);
    let budget = find::budget(view, query, cx.options())?;
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
        }
    }

    /// What was read of the pipeline's own collection.
    fn input_counts(&self) -> WorkCounts {
        match &self.input {
            Input::Find(find) => find.counts(),
            Input::Plan(executor, _) => executor.counts(),
            Input::Documents(_) => WorkCounts::default(),
            Input::Found(found) => found.1,
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
            Input::Found(found) => Ok(found.0.pop_front()),
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
        Ok(next)
    }

    fn is_exhausted(&self) -> bool {
        self.done
            || self.pass
                && match &self.input {
                    Input::Find(find) => find.is_exhausted(),
                    Input::Plan(executor, _) => executor.is_eof(),
                    Input::Documents(_) => false,
                    Input::Found(found) => found.0.is_empty(),
                }
    }

    fn rest(&mut self) {
        match &mut self.input {
            Input::Find(find) => find.rest(),
            Input::Plan(executor, _) => executor.rest(),
            Input::Documents(_) | Input::Found(_) => {}
        }
        self.rest.rest();
    }

    fn exec_stats(&self) -> Option<DocBuf> {
        match &self.input {
            Input::Find(find) => find.exec_stats(),
            Input::Plan(executor, _) => Some(find::exec_stats(executor)),
            Input::Documents(_) | Input::Found(_) => None,
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
            Input::Documents(_) | Input::Found(_) => PlanDigest::default(),
        }
    }
}
