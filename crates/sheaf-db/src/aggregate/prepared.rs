//! A pipeline over another collection that runs for many documents, each time with different
//! variables in its leading filter.
//!
//! ```text
//!   pipeline: [{$match: {$expr: {$eq: ["$b", "$$x"]}}}, {$sort: ...}, ...]
//!
//!   once      parsed, optimised, split            prefix | rest
//!   for each  the filter with x = 7 ──> query ──> same shape as before?
//!                                                   │ yes: the only plan there was, rebuilt,
//!                                                   │      or the plan cache's entry
//!                                                   └ no: planned
//! ```
//!
//! A plan that had alternatives comes from the collection's plan cache, and is replanned when it
//! needs ten times its works, as for any query.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::{self, ParseContext};
use sheaf_query::pipeline::environment::{ForeignCounts, PreparedRequest};
use sheaf_query::pipeline::{CursorPrefix, OptimizedPipeline};

use super::{Aggregate, AggregateContext, Input, execute, foreign, plan};
use crate::catalog::ReadView;
use crate::exec::Doc;
use crate::find;
use crate::op_context::OpContext;
use crate::planning::PlanDigest;
use crate::planning::plan_cache::CachedPlan;
use crate::planning::selector;
use crate::result_source::ResultSource;

/// See the module.
pub(super) struct Prepared {
    cx: AggregateContext,
    view: ReadView,
    /// Its filter is that of the last run.
    prefix: CursorPrefix,
    pipeline: Arc<OptimizedPipeline>,
    known: Known,
    /// Number of shape changes so far.
    changes: u32,
    current: Option<Box<Aggregate>>,
    doc: Option<Doc>,
    counts: ForeignCounts,
}

/// Knowledge from earlier runs.
enum Known {
    Nothing,
    /// The query reads these fields of documents (`None`: all); `text` is its key in the plan
    /// cache.
    Query {
        projection: Option<DocBuf>,
        text: String,
        /// Its plan, if there are no alternatives.
        plan: Option<Box<CachedPlan>>,
    },
    /// The plan is not that of a find, or shapes change too often.
    NotKept,
}

/// Maximum number of shape changes for which plans are looked up.
const CHANGES_MAX: u32 = 16;

impl Prepared {
    /// Prepares a pipeline over a collection; `None` for a view, whose stages come first.
    pub(super) fn open(
        cx: &AggregateContext,
        op: &OpContext,
        request: &PreparedRequest<'_>,
    ) -> Result<Option<Prepared>> {
        let cx = cx.with_parse(request.context);
        let (ns, in_front) = foreign::resolve(&cx, request.from)?;
        if in_front.is_some() {
            return Ok(None);
        }
        Ok(Some(Prepared {
            view: cx.view(op, &ns)?,
            cx,
            prefix: request.pipeline.prefix.clone(),
            pipeline: request.pipeline.clone(),
            known: Known::Nothing,
            changes: 0,
            current: None,
            doc: None,
            counts: ForeignCounts::default(),
        }))
    }

    /// Starts a new run.
    /// Errors: those of parsing the filter with these variables, and of planning.
    pub(super) fn run(
        &mut self,
        op: &OpContext,
        also: Option<&DocBuf>,
        context: ParseContext,
    ) -> Result<()> {
        self.finish();
        let cx = self.cx.with_own_parse(context);
        let filter = &self.pipeline.prefix.filter;
        self.prefix.filter = match also {
            None => filter.clone(),
            Some(also) => matcher::conjunction(also, filter),
        };
        let input = self.input(&cx, op)?;
        let started = Aggregate::new(&cx, input, &self.pipeline.rest.stages);
        foreign::record_plan(&started, &mut self.counts);
        self.current = Some(Box::new(started));
        Ok(())
    }

    fn input(&mut self, cx: &AggregateContext, op: &OpContext) -> Result<Input> {
        let (view, options) = (&self.view, cx.options());
        if let Known::Query {
            projection,
            text,
            plan,
        } = &self.known
        {
            let query = self.query(cx, projection.as_ref())?;
            let key = selector::cache_key(view, op, &query, options)?;
            if key.text == *text {
                if let Some(plan) = plan
                    && let Some(made) = selector::make_again(view, op, plan, &key, &query, options)?
                {
                    op.record_query(&query);
                    let executor = execute(cx, view, op, &query, made, false)?;
                    let digest = PlanDigest::solution(executor.solution());
                    return Ok(Input::Plan(Box::new(executor), digest));
                }
                return Ok(Input::Find(Box::new(find::find(view, op, query, options)?)));
            }
        }
        let (query, special) = plan::plan(cx, view, &self.prefix, None)?;
        if let Some(solution) = special {
            self.known = Known::NotKept;
            let executor = execute(cx, view, op, &query, solution, false)?;
            let digest = PlanDigest::solution(executor.solution());
            return Ok(Input::Plan(Box::new(executor), digest));
        }
        let found = find::find(view, op, query.clone(), options)?;
        self.changes += 1;
        if self.changes > CHANGES_MAX {
            self.known = Known::NotKept;
        }
        if !matches!(self.known, Known::NotKept) && view.collection.is_some() {
            let plan = match found.only_solution() {
                Some(only) => selector::keep_only_plan(view, op, &query, options, only)?,
                None => None,
            };
            self.known = Known::Query {
                projection: query
                    .projection
                    .is_some()
                    .then(|| query.projection_spec.clone()),
                text: selector::cache_key(view, op, &query, options)?.text,
                plan: plan.map(Box::new),
            };
        }
        Ok(Input::Find(Box::new(found)))
    }

    fn query(
        &self,
        cx: &AggregateContext,
        projection: Option<&DocBuf>,
    ) -> Result<Arc<CanonicalQuery>> {
        let spec = FindSpec {
            projection: projection.map(DocBuf::as_raw),
            ..self.prefix.find_spec()
        };
        CanonicalQuery::with_context(spec, cx.parse()).map(Arc::new)
    }

    /// Adds up the work of the last run.
    fn finish(&mut self) {
        self.doc = None;
        if let Some(current) = self.current.take() {
            let read = current.input_counts();
            self.counts.keys_examined += read.keys_examined;
            self.counts.docs_examined += read.docs_examined;
            self.cx.add_foreign_counts(read);
        }
    }

    pub(super) fn advance(&mut self, op: &OpContext) -> Result<Option<RawDoc<'_>>> {
        self.doc = match &mut self.current {
            Some(current) => current.next(op)?,
            None => None,
        };
        if self.doc.is_none() {
            self.finish();
        }
        Ok(self.doc.as_ref().map(Doc::as_raw))
    }

    /// Releases what the cursors pin until the next document is requested.
    pub(super) fn suspend(&mut self) {
        if let Some(current) = &mut self.current {
            current.suspend();
        }
    }

    pub(super) fn counts(&self) -> ForeignCounts {
        let mut counts = self.counts.clone();
        if let Some(current) = &self.current {
            let read = current.input_counts();
            counts.keys_examined += read.keys_examined;
            counts.docs_examined += read.docs_examined;
        }
        counts
    }
}
