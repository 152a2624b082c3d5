//! A pipeline over a name: the one place where the stages of a view come in front of a pipeline.
//!
//! ```text
//!   v: [B] on w, w: [A] on c       [C] on v  ──>  [A, B, C] on c
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{CollationChoice, DateTime, RawArray, RawDoc};
use sheaf_query::canonical::Hint;
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{OptimizedPipeline, Pipeline, PipelineSource, Stage};

use super::{Aggregate, AggregateContext};
use crate::catalog::views::not_on_view;
use crate::catalog::{Namespace, ReadView};
use crate::database::Db;
use crate::planning::QueryOptions;
use crate::statement::StatementContext;

/// What an aggregate command asks of a name.
#[derive(Debug, Clone)]
pub struct PipelineRequest<'a> {
    /// The stages.
    pub stages: RawArray<'a>,
    /// `let`.
    pub let_vars: Option<RawDoc<'a>>,
    /// `collation`.
    pub collation: CollationChoice,
    /// How plans run.
    pub options: QueryOptions,
}

/// A pipeline ready to start.
pub struct PreparedPipeline {
    /// Where it runs.
    pub context: AggregateContext,
    /// Its stages, those of a view in front.
    pub pipeline: OptimizedPipeline,
    /// The collection that it reads: another than was named where that is a view.
    pub on: Namespace,
}

impl PreparedPipeline {
    /// The pipeline over whatever `ns` is: a collection, a view, a time-series collection. `read` returns what the
    /// operation sees of a collection; it is called once.
    ///
    /// Errors: those of the stages; `OptionNotSupportedOnView` for a collation other than the view's;
    /// `CommandNotSupportedOnView` for a first stage that reads no documents of the view; those of `read`.
    pub fn new(
        db: &Arc<Db>,
        op: &StatementContext,
        ns: &Namespace,
        request: &PipelineRequest<'_>,
        read: impl FnOnce(&Namespace) -> Result<ReadView>,
    ) -> Result<PreparedPipeline> {
        // A collection is looked at once: its collation and its data belong together.
        let (collator, view) = match db.resolve_view(ns)? {
            Some(view) => {
                view.check_collation(ns, &request.collation)?;
                (view.collator, None)
            }
            None => {
                let view = read(ns)?;
                (view.collator(&request.collation), Some(view))
            }
        };
        let mut variables = VariableScope::new(DateTime::now()).with_collator(collator);
        if let Some(vars) = request.let_vars {
            variables = variables.with_let(vars)?;
        }
        let parse = ParseContext { variables };
        let pipeline = Pipeline::parse(request.stages, &parse)?;
        let (on, pipeline) = on_collection(db, ns, &parse, pipeline)?;
        let options = request.options.clone();
        let mut context = AggregateContext::new(db, ns.db(), parse, options, op.transaction());
        if let Some(view) = view {
            context = context.with_view(ns, view);
        }
        Ok(PreparedPipeline {
            context,
            pipeline: pipeline.optimize(),
            on,
        })
    }

    /// Starts it over the documents of its collection.
    /// Errors: those of [`super::start`].
    pub fn start(&self, op: &StatementContext, hint: Option<&Hint>) -> Result<Aggregate> {
        let view = self.context.view(op, &self.on)?;
        super::start(&self.context, &view, op, &self.pipeline, hint)
    }
}

/// The collection that `pipeline` on `ns` reads, and the pipeline with the stages of the view in front, if `ns` is
/// one. `parse` is what the pipeline was parsed with.
///
/// Errors: those of [`view_stages`]; `CommandNotSupportedOnView` for a pipeline on a view whose first stage does
/// not read its documents, unless it describes a time-series collection.
pub fn on_collection(
    db: &Db,
    ns: &Namespace,
    parse: &ParseContext,
    mut pipeline: Pipeline,
) -> Result<(Namespace, Pipeline)> {
    let Some((on, mut stages)) = view_stages(db, ns, parse)? else {
        return Ok((ns.clone(), pipeline));
    };
    match &pipeline.source {
        PipelineSource::Collection => {
            stages.append(&mut pipeline.stages);
            pipeline.stages = stages;
        }
        PipelineSource::Generated { .. } if db.catalog().timeseries(ns).is_some() => {}
        _ => return Err(not_on_view(ns)),
    }
    Ok((on, pipeline))
}

/// The collection that the view `ns` stands on and its stages; `None` where `ns` is no view.
/// Errors: `OptionNotSupportedOnView` where text compares otherwise than in the view; `ViewDepthLimitExceeded`.
pub(super) fn view_stages(
    db: &Db,
    ns: &Namespace,
    parse: &ParseContext,
) -> Result<Option<(Namespace, Vec<Stage>)>> {
    let Some(view) = db.resolve_view(ns)? else {
        return Ok(None);
    };
    let collation = parse.collator().cloned().into();
    view.check_collation(ns, &collation)?;
    let pipeline = Pipeline::parse(view.pipeline.as_raw(), parse)?;
    Ok(Some((view.on, pipeline.stages)))
}
