//! A pipeline over a name: the one place where a view's stages are prepended to a pipeline.
//!
//! ```text
//!   v: [B] on w, w: [A] on c       [C] on v  ──>  [A, B, C] on c
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{CollationChoice, DateTime, RawArray, RawDoc};
use sheaf_query::canonical::Hint;
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{OptimizedPipeline, Pipeline, PipelineSource, PipelineTarget, Stage};

use super::{Aggregate, AggregateContext};
use crate::catalog::views::not_on_view;
use crate::catalog::{Namespace, ReadView};
use crate::database::Db;
use crate::planning::QueryOptions;
use crate::statement::StatementContext;

/// The pipeline of an aggregate command.
#[derive(Debug, Clone)]
pub struct PipelineRequest<'a> {
    /// The stages.
    pub stages: RawArray<'a>,
    /// `let`.
    pub let_vars: Option<RawDoc<'a>>,
    /// `collation`.
    pub collation: CollationChoice,
    /// Options of queries.
    pub options: QueryOptions,
}

/// A pipeline ready to start.
pub struct PreparedPipeline {
    /// Context to run in.
    pub context: AggregateContext,
    /// The stages, preceded by those of a view.
    pub pipeline: OptimizedPipeline,
    /// The collection it reads; differs from the requested name for a view.
    pub on: Namespace,
}

impl PreparedPipeline {
    /// Prepares the pipeline over `ns`: a collection, a view, or a time-series collection. `read`
    /// returns the operation's view of a collection; it is called once.
    ///
    /// Errors: those of the stages; `OptionNotSupportedOnView` for a collation other than the
    /// view's; `CommandNotSupportedOnView` for a first stage that reads no documents of the view;
    /// those of `read`.
    pub fn new(
        db: &Arc<Db>,
        op: &StatementContext,
        ns: &Namespace,
        request: &PipelineRequest<'_>,
        read: impl FnOnce(&Namespace) -> Result<ReadView>,
    ) -> Result<PreparedPipeline> {
        // The collection is read once: its collation and its data must be consistent.
        let (collator, view) = match db.resolve_view(ns)? {
            Some(view) => {
                // A time-series collection has a default collation, as a collection has.
                match db.catalog().timeseries(ns) {
                    Some(_) => {
                        let default = view.collator.as_ref();
                        (request.collation.resolve(default), None)
                    }
                    None => {
                        view.check_collation(ns, &request.collation)?;
                        (view.collator, None)
                    }
                }
            }
            None => {
                let view = read(ns)?;
                (view.collator(&request.collation), Some(view))
            }
        };
        let mut variables = VariableScope::new(DateTime::now())
            .with_collator(collator)
            .with_cluster_time(db.cluster_time_of_expressions());
        if let Some(vars) = request.let_vars {
            variables = variables.with_let(vars)?;
        }
        let parse = ParseContext { variables };
        let target = match ns.as_str() {
            "config.system.sessions" => PipelineTarget::Sessions,
            _ => PipelineTarget::Collection,
        };
        let pipeline = Pipeline::parse_over(request.stages, &parse, Some(target))?;
        check_foreign_views(db, ns.db(), &parse, &pipeline)?;
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

    /// Starts the pipeline on its collection.
    /// Errors: those of [`super::start`].
    pub fn start(&self, op: &StatementContext, hint: Option<&Hint>) -> Result<Aggregate> {
        let view = self.context.view(op, &self.on)?;
        super::start(&self.context, &view, op, &self.pipeline, hint)
    }
}

/// The collection that `pipeline` on `ns` reads, and the pipeline, with a view's stages prepended
/// if `ns` is a view. `parse` is the context the pipeline was parsed with.
///
/// Errors: those of [`view_stages`]; 40602 for a pipeline on a view whose first stage describes a
/// collection, unless the view has no stages; `CommandNotSupportedOnView` for another first stage
/// that does not read the view's documents.
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
        // It describes the name itself.
        PipelineSource::Generated { name, .. } if *name == "$collStats" => {
            return match db.catalog().kind(ns).is_view() {
                true => Ok((ns.clone(), pipeline)),
                false => Ok((on, pipeline)),
            };
        }
        // A time-series collection shows the indexes that users defined.
        PipelineSource::Generated { name, .. }
            if stages.is_empty()
                || (*name == "$indexStats" && !db.catalog().kind(ns).is_view()) => {}
        PipelineSource::Generated { name, .. } => {
            return Err(Error::new(
                ErrorCode(40602),
                format!(
                    "{name} is only valid as the first stage in a pipeline, and the stages of {ns} precede it."
                ),
            ));
        }
        _ => return Err(not_on_view(ns)),
    }
    Ok((on, pipeline))
}

/// Checks the views that the stages read, also those that are never reached.
/// Errors: `OptionNotSupportedOnView` for a view with another collation.
fn check_foreign_views(
    db: &Db,
    database: &str,
    parse: &ParseContext,
    pipeline: &Pipeline,
) -> Result<()> {
    for name in pipeline.foreign_collections() {
        let Ok(ns) = Namespace::new(database, &name) else {
            continue;
        };
        if db.catalog().kind(&ns).is_view()
            && let Some(view) = db.resolve_view(&ns)?
        {
            view.check_collation(&ns, &parse.collator().cloned().into())?;
        }
    }
    Ok(())
}

/// The collection underlying the view `ns`, and the view's stages; `None` if `ns` is not a view.
/// Errors: `OptionNotSupportedOnView` for a collation other than the view's;
/// `ViewDepthLimitExceeded`.
pub(super) fn view_stages(
    db: &Db,
    ns: &Namespace,
    parse: &ParseContext,
) -> Result<Option<(Namespace, Vec<Stage>)>> {
    let Some(view) = db.resolve_view(ns)? else {
        return Ok(None);
    };
    if db.catalog().timeseries(ns).is_none() {
        let collation = parse.collator().cloned().into();
        view.check_collation(ns, &collation)?;
    }
    let pipeline = Pipeline::parse(view.pipeline.as_raw(), parse)?;
    Ok(Some((view.on, pipeline.stages)))
}
