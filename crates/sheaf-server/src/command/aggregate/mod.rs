//! `aggregate`: runs a pipeline over a collection, a view, or the documents that its first stage
//! generates.

mod change_stream;
mod cluster_catalog;
mod sources;

use std::sync::Arc;

use sheaf_bson::{
    CollationChoice, Collator, DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawArray, RawDoc,
    RawElement,
};
use sheaf_db::aggregate::explain::ExplainRequest;
use sheaf_db::aggregate::request::{PipelineRequest, PreparedPipeline};
use sheaf_db::aggregate::{self as db_aggregate, Aggregate, AggregateContext};
use sheaf_db::catalog::ReadView;
use sheaf_db::explain::Verbosity;
use sheaf_db::timeseries::indexes::hint_on_buckets;
use sheaf_db::{Namespace, ResultSource};
use sheaf_query::canonical::Hint;
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{Pipeline, PipelineSource, PipelineTarget};

use super::batch::{self, CursorSettings};
use super::context::CommandContext;
use super::fields::{self, unknown_field};
use super::generic_arguments::arguments;
use super::list_collections::cursor_batch_size;
use super::write_reply::append_write_concern;

/// An aggregate command, parsed.
struct Request<'a> {
    pipeline: RawArray<'a>,
    hint: Option<Hint>,
    let_vars: Option<RawDoc<'a>>,
    collation: CollationChoice,
    batch_size: Option<u64>,
    has_cursor: bool,
    allow_disk_use: Option<bool>,
    explain: bool,
}

fn parse<'a>(arguments: impl Iterator<Item = RawElement<'a>>) -> Result<Request<'a>, Error> {
    const NAME: &str = "aggregate";
    let mut pipeline = None;
    let (mut hint, mut let_vars, mut batch_size, mut allow_disk_use) = (None, None, None, None);
    let (mut has_cursor, mut explain) = (false, false);
    let mut collation = CollationChoice::Unsaid;
    for element in arguments {
        match element.key() {
            "pipeline" => pipeline = Some(fields::array(NAME, &element)?),
            "cursor" => {
                has_cursor = true;
                batch_size = cursor_batch_size(NAME, fields::document(NAME, &element)?)?;
            }
            "hint" => hint = Hint::parse(element.value())?,
            "let" => let_vars = Some(fields::document(NAME, &element)?),
            "allowDiskUse" => allow_disk_use = Some(fields::strict_boolean(NAME, &element)?),
            "explain" => explain = fields::strict_boolean(NAME, &element)?,
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            "collation" => collation = fields::collation(NAME, &element)?,
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(Request {
        pipeline: pipeline.ok_or_else(|| fields::missing(NAME, "pipeline"))?,
        hint,
        let_vars,
        collation,
        batch_size,
        has_cursor,
        allow_disk_use,
        explain,
    })
}

/// Unlike other arguments a null `pipeline` is not absent but of the wrong type.
fn null_pipeline(body: RawDoc<'_>, error: Error) -> Error {
    match body.get_element("pipeline") {
        Some(element) if fields::is_null(&element) => {
            fields::wrong_type("aggregate", &element, "array")
        }
        _ => error,
    }
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let request = parse(cx.arguments()).map_err(|error| null_pipeline(cx.body, error))?;
    cx.server.metrics.count_stages(request.pipeline);
    let target = cx.first()?.value();
    let collectionless = target.is_number();
    if collectionless && target.as_f64() != Some(1.0) {
        return Err(Error::bad_value(
            "the 'aggregate' field must be the name of a collection, or 1",
        ));
    }
    if request.explain && cx.generic.has_write_concern {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "Aggregation explain does not support the 'writeConcern' option",
        ));
    }
    if request.explain && !collectionless {
        let body = cx.body;
        return super::explain::explain(cx, body, Verbosity::QueryPlanner, out);
    }
    if !request.has_cursor && !request.explain {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    cx.begin_query()?;
    if change_stream::is_change_stream(request.pipeline)? {
        return change_stream::run(cx, request, out);
    }
    if collectionless {
        return run_collectionless(cx, request, out);
    }
    let namespace = cx.collection()?;
    reply(cx, &namespace, request, out)
}

/// Runs a pipeline in place of a find on a view.
pub fn run_on_view(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    find: ViewRequest<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let request = Request {
        pipeline: find.pipeline,
        hint: find.hint,
        let_vars: find.let_vars,
        collation: find.collation,
        batch_size: find.batch_size,
        has_cursor: true,
        allow_disk_use: find.allow_disk_use,
        explain: false,
    };
    reply(cx, namespace, request, out)
}

/// All results of a pipeline over a collection or view, for commands that reply without a cursor;
/// none if it ends in `$out` or `$merge`.
pub fn collect(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    stages: RawArray<'_>,
    collation: CollationChoice,
) -> Result<Vec<DocBuf>, Error> {
    let request = Request {
        pipeline: stages,
        hint: None,
        let_vars: None,
        collation,
        batch_size: None,
        has_cursor: true,
        allow_disk_use: None,
        explain: false,
    };
    let (mut source, prepared) = start(cx, namespace, request)?;
    if let Some(sink) = &prepared.pipeline.rest.sink {
        db_aggregate::sink::run(&prepared.context, &cx.op, &mut source, sink)?;
    }
    let mut found = Vec::new();
    let op = cx.op.clone();
    while let Some(doc) = source.next(&op)? {
        op.check_interrupt()?;
        found.push(doc.as_raw().to_buf());
    }
    batch::account(cx, &source, Default::default());
    Ok(found)
}

/// A read of a view as a pipeline, which runs after the view's own.
pub struct ViewRequest<'a> {
    /// The stages.
    pub pipeline: RawArray<'a>,
    /// `hint`.
    pub hint: Option<Hint>,
    /// `let`.
    pub let_vars: Option<RawDoc<'a>>,
    /// `collation`.
    pub collation: CollationChoice,
    /// `batchSize`.
    pub batch_size: Option<u64>,
    /// `allowDiskUse`.
    pub allow_disk_use: Option<bool>,
}

fn reply(
    cx: &mut CommandContext<'_>,
    namespace: &Namespace,
    request: Request<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let batch_size = request.batch_size;
    let (mut source, prepared) = start(cx, namespace, request)?;
    if let Some(sink) = &prepared.pipeline.rest.sink {
        let written = db_aggregate::sink::run(&prepared.context, &cx.op, &mut source, sink);
        if let Err(error) = written {
            cx.connection.deferred_drops.keep(Box::new(source));
            return Err(error);
        }
    }
    let reply_namespace = namespace.as_str().to_owned();
    batch::reply_with_cursor(
        cx,
        Box::new(source),
        CursorSettings {
            namespace: namespace.clone(),
            reply_namespace,
            batch_size,
            single_batch: false,
            no_timeout: false,
        },
        out,
    )?;
    if prepared.pipeline.rest.sink.is_some() {
        append_write_concern(cx, out);
    }
    Ok(())
}

/// Starts the pipeline of a request over a collection or view.
fn start(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    request: Request<'_>,
) -> Result<(Aggregate, PreparedPipeline), Error> {
    let prepared = prepare(
        cx,
        namespace,
        request.pipeline,
        request.let_vars,
        &request.collation,
        request.allow_disk_use,
    )?;
    let PreparedPipeline {
        context,
        pipeline,
        on,
    } = &prepared;
    let view = context.view(&cx.op, on)?;
    let source = match &pipeline.rest.source {
        PipelineSource::Collection | PipelineSource::VectorSearch { .. } => {
            let hint = hint_on(&view, namespace, request.hint);
            db_aggregate::start(context, &view, &cx.op, pipeline, hint.as_ref())?
        }
        PipelineSource::Generated { name, spec } => {
            let documents = context.generate(name, namespace, &view, spec.as_raw())?;
            db_aggregate::start_over(context, documents, pipeline)
        }
        PipelineSource::Documents(_) => {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                "$documents can only be run with {aggregate: 1} or within a stage's pipeline",
            ));
        }
    };
    Ok((source, prepared))
}

/// The hint on the collection that is read: buckets, if `namespace` is a time-series collection or
/// a view on one.
fn hint_on(view: &ReadView, namespace: &Namespace, hint: Option<Hint>) -> Option<Hint> {
    let series = view
        .collection
        .as_ref()
        .filter(|read| read.ns() != namespace);
    match series.and_then(|buckets| buckets.options().timeseries()) {
        Some(options) => hint.map(|hint| hint_on_buckets(hint, options)),
        None => hint,
    }
}

fn prepare(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    stages: RawArray<'_>,
    let_vars: Option<RawDoc<'_>>,
    collation: &CollationChoice,
    allow_disk_use: Option<bool>,
) -> Result<PreparedPipeline, Error> {
    let request = PipelineRequest {
        stages,
        let_vars,
        collation: collation.clone(),
        options: cx.query_options(allow_disk_use),
    };
    let mut prepared =
        PreparedPipeline::new(&cx.server.db, &cx.op, namespace, &request, |ns| cx.view(ns))?;
    prepared.context = prepared.context.with_first_stages(first_stages(cx));
    Ok(prepared)
}

fn first_stages(cx: &CommandContext<'_>) -> Arc<sources::ServerSources> {
    Arc::new(sources::ServerSources {
        server: Arc::downgrade(cx.server),
        port: cx.port(),
        user: (cx.connection.authentication.user.as_ref()).map(|user| user.digest),
    })
}

/// Runs a pipeline over no collection (`aggregate: 1`): its first stage generates the documents.
fn run_collectionless(
    cx: &mut CommandContext<'_>,
    request: Request<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let (parse, pipeline) = parse_collectionless(cx, &request, cx.db)?;
    let pipeline = pipeline.optimize();
    let documents = match &pipeline.rest.source {
        PipelineSource::Generated { name, spec } => sources::of_nothing(cx, name, spec.as_raw())?,
        PipelineSource::Documents(docs) => docs.to_vec(),
        PipelineSource::Collection | PipelineSource::VectorSearch { .. } => {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                "{aggregate: 1} is not valid for this pipeline: name a collection",
            ));
        }
    };
    let options = cx.query_options(request.allow_disk_use);
    let context = AggregateContext::new(&cx.server.db, cx.db, parse, options, cx.op.transaction())
        .with_first_stages(first_stages(cx));
    if request.explain {
        let ns = Namespace::new(cx.db, "system.listing")?;
        let request = ExplainRequest {
            view: &cx.view(&ns)?,
            op: &cx.op,
            namespace: ns.as_str(),
            verbosity: Verbosity::QueryPlanner,
            hint: None,
        };
        let documents = documents.into();
        return db_aggregate::explain::explain_over(&context, &request, documents, &pipeline, out);
    }
    let namespace = Namespace::new(cx.db, "system.listing")?;
    let reply_namespace = batch::command_namespace(cx.db, "aggregate");
    let mut source = db_aggregate::start_over(&context, documents, &pipeline);
    if let Some(sink) = &pipeline.rest.sink {
        db_aggregate::sink::run(&context, &cx.op, &mut source, sink)?;
    }
    batch::reply_with_cursor(
        cx,
        Box::new(source),
        CursorSettings {
            namespace,
            reply_namespace,
            batch_size: request.batch_size,
            single_batch: false,
            no_timeout: false,
        },
        out,
    )
}

fn parse_collectionless(
    cx: &CommandContext<'_>,
    request: &Request<'_>,
    db: &str,
) -> Result<(ParseContext, Pipeline), Error> {
    let parse = parse_context(cx, request.let_vars, request.collation.resolve(None))?;
    let target = match db {
        "admin" => PipelineTarget::Admin,
        _ => PipelineTarget::Database,
    };
    let pipeline = Pipeline::parse_over(request.pipeline, &parse, Some(target))?;
    Ok((parse, pipeline))
}

/// Checks an aggregate command over a collection or view that does not run.
/// Errors: as if it ran.
pub fn check(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    command: RawDoc<'_>,
) -> Result<(), Error> {
    let request = parse(arguments(command))?;
    if change_stream::is_change_stream(request.pipeline)? {
        return Ok(());
    }
    prepare(
        cx,
        namespace,
        request.pipeline,
        request.let_vars,
        &request.collation,
        request.allow_disk_use,
    )
    .map(drop)
}

/// Checks a command with `aggregate: 1` on `db` that does not run.
/// Errors: as if it ran.
pub fn check_collectionless(
    cx: &CommandContext<'_>,
    command: RawDoc<'_>,
    db: &str,
) -> Result<(), Error> {
    let request = parse(arguments(command))?;
    match change_stream::is_change_stream(request.pipeline)? {
        true => Ok(()),
        false => parse_collectionless(cx, &request, db).map(drop),
    }
}

fn parse_context(
    cx: &CommandContext<'_>,
    let_vars: Option<RawDoc<'_>>,
    collator: Option<Arc<Collator>>,
) -> Result<ParseContext, Error> {
    let mut variables = VariableScope::new(DateTime::now())
        .with_collator(collator)
        .with_cluster_time(cx.server.db.cluster_time_of_expressions());
    if let Some(vars) = let_vars {
        variables = variables.with_let(vars)?;
    }
    Ok(ParseContext { variables })
}

/// Explains an aggregate command. `arguments` are its fields without the generic ones.
pub fn explain<'a>(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    arguments: impl Iterator<Item = RawElement<'a>>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let request = parse(arguments)?;
    let find = ViewRequest {
        pipeline: request.pipeline,
        hint: request.hint,
        let_vars: request.let_vars,
        collation: request.collation,
        batch_size: None,
        allow_disk_use: request.allow_disk_use,
    };
    explain_on_view(cx, namespace, find, verbosity, out)
}

/// Explains a pipeline over a collection or view.
pub fn explain_on_view(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    request: ViewRequest<'_>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let prepared = prepare(
        cx,
        namespace,
        request.pipeline,
        request.let_vars,
        &request.collation,
        request.allow_disk_use,
    )?;
    let PreparedPipeline {
        context,
        pipeline,
        on,
    } = &prepared;
    if let Some(sink) = &pipeline.rest.sink
        && verbosity > Verbosity::QueryPlanner
    {
        return Err(Error::new(
            ErrorCode(51029),
            format!(
                "explain of {} supports only the verbosity 'queryPlanner', because the stage \
                 writes",
                sink.name()
            ),
        ));
    }
    let view = context.view(&cx.op, on)?;
    let request = ExplainRequest {
        view: &view,
        op: &cx.op,
        namespace: on.as_str(),
        verbosity,
        hint: hint_on(&view, namespace, request.hint),
    };
    match &pipeline.rest.source {
        PipelineSource::Collection | PipelineSource::VectorSearch { .. } => {
            db_aggregate::explain::explain(context, &request, pipeline, out)
        }
        PipelineSource::Generated { name, spec } => {
            let documents = context.generate(name, namespace, &view, spec.as_raw())?;
            db_aggregate::explain::explain_over(context, &request, documents.into(), pipeline, out)
        }
        PipelineSource::Documents(_) => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            "$documents can only be run with {aggregate: 1} or within a stage's pipeline",
        )),
    }
}
