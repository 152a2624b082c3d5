//! `aggregate`: runs a pipeline over a collection.

use sheaf_bson::{
    ArrayBuf, DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawArray, RawDoc, RawElement,
};
use sheaf_db::aggregate as db_aggregate;
use sheaf_db::explain::Verbosity;
use sheaf_db::{Namespace, ReadView};
use sheaf_query::canonical::Hint;
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{OptimizedPipeline, Pipeline, PipelineSource};

use super::batch::{self, CursorSettings};
use super::coll_stats::append_storage_stats;
use super::context::{CommandContext, unknown_field};
use super::list_collections::cursor_batch_size;
use super::{fields, find};
use crate::startup::host_name;

/// An aggregate command, parsed.
struct Request<'a> {
    pipeline: RawArray<'a>,
    hint: Option<Hint>,
    let_vars: Option<RawDoc<'a>>,
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
    for element in arguments {
        match element.key() {
            "pipeline" => pipeline = Some(fields::array(NAME, &element)?),
            "cursor" => {
                has_cursor = true;
                batch_size = cursor_batch_size(NAME, fields::document(NAME, &element)?)?;
            }
            "hint" => hint = Hint::parse(element.value())?,
            "let" => let_vars = fields::optional_document(NAME, &element)?,
            "allowDiskUse" => allow_disk_use = Some(fields::boolean(NAME, &element)?),
            "explain" => explain = fields::boolean(NAME, &element)?,
            "bypassDocumentValidation" => {
                fields::boolean(NAME, &element)?;
            }
            "collation" => find::refuse_collation(NAME, &element)?,
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(Request {
        pipeline: pipeline.ok_or_else(|| fields::missing(NAME, "pipeline"))?,
        hint,
        let_vars,
        batch_size,
        has_cursor,
        allow_disk_use,
        explain,
    })
}

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let request = parse(cx.arguments())?;
    if cx.first()?.value().is_number() {
        return run_collectionless(cx, request, out);
    }
    let namespace = cx.collection()?;
    if request.explain {
        let body = cx.body;
        return super::explain::explain(cx, body, Verbosity::QueryPlanner, out);
    }
    if !request.has_cursor {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    let context = context(request.let_vars)?;
    let pipeline = Pipeline::parse(request.pipeline, &context)?.optimize();
    let view = cx.view(&namespace)?;
    let options = cx.server.query_options(request.allow_disk_use);
    let source = match &pipeline.rest.source {
        PipelineSource::Collection => {
            db_aggregate::start(&view, &cx.op, &pipeline, request.hint, &context, &options)?
        }
        PipelineSource::Generated { name, spec } => {
            let documents = generate(cx, name, &view, &namespace, spec.as_raw())?;
            db_aggregate::start_over(documents, &pipeline, &options)
        }
        PipelineSource::Documents(docs) => {
            db_aggregate::start_over(docs.to_vec(), &pipeline, &options)
        }
    };
    let reply_namespace = namespace.as_str().to_owned();
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

/// A pipeline over no collection (`aggregate: 1`): its first stage makes the documents.
fn run_collectionless(
    cx: &mut CommandContext<'_>,
    request: Request<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut stages = request.pipeline.iter();
    let documents = match stages.next().and_then(|stage| stage.as_document()) {
        Some(first) if first.get("$currentOp").is_some() => {
            if cx.db != "admin" {
                return Err(Error::new(
                    ErrorCode::INVALID_NAMESPACE,
                    "$currentOp must be run against the 'admin' database with {aggregate: 1}",
                ));
            }
            let spec = first
                .get_element("$currentOp")
                .ok_or_else(|| fields::missing("aggregate", "pipeline"))?;
            super::current_op::stage(cx, fields::document("$currentOp", &spec)?)?
        }
        _ => {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                "{aggregate: 1} is not valid for this pipeline: name a collection",
            ));
        }
    };
    let rest = ArrayBuf::from_values(stages);
    let pipeline = OptimizedPipeline {
        prefix: Default::default(),
        rest: Pipeline::parse(rest.as_raw(), &context(request.let_vars)?)?,
    };
    let namespace = Namespace::new(cx.db, "system.listing")?;
    let reply_namespace = batch::command_namespace(cx.db, "aggregate");
    let options = cx.server.query_options(request.allow_disk_use);
    let source = db_aggregate::start_over(documents, &pipeline, &options);
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

fn context(let_vars: Option<RawDoc<'_>>) -> Result<ParseContext, Error> {
    let mut variables = VariableScope::new(DateTime::now());
    if let Some(vars) = let_vars {
        variables = variables.with_let(vars)?;
    }
    Ok(ParseContext { variables })
}

/// What a first stage makes itself.
fn generate(
    cx: &CommandContext<'_>,
    name: &str,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    match name {
        "$collStats" => Ok(vec![collection_stats(cx, view, namespace, spec)?]),
        "$planCacheStats" => plan_cache_stats(cx, view, spec),
        other => Err(Error::new(
            ErrorCode(40324),
            format!("{other} does not read a collection"),
        )),
    }
}

fn host_and_port(cx: &CommandContext<'_>) -> String {
    format!("{}:{}", host_name(), cx.port())
}

/// The documents of `$planCacheStats`, one an entry. There are no other hosts.
fn plan_cache_stats(
    cx: &CommandContext<'_>,
    view: &ReadView,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    for option in spec.iter() {
        if option.key() != "allHosts" {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!(
                    "$planCacheStats has no option '{}', only 'allHosts'",
                    option.key()
                ),
            ));
        }
        if fields::boolean("$planCacheStats", &option)? {
            return Err(Error::new(
                ErrorCode(4503200),
                "$planCacheStats with allHosts is only for sharded clusters",
            ));
        }
    }
    let Some(collection) = &view.collection else {
        return Ok(Vec::new());
    };
    let host = host_and_port(cx);
    let finish = |out: &mut DocBuilder| {
        out.append("host", host.as_str());
    };
    Ok(collection.plan_cache().stats(finish))
}

/// The document of `$collStats`.
fn collection_stats(
    cx: &CommandContext<'_>,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<DocBuf, Error> {
    const NAME: &str = "$collStats";
    let Some(collection) = &view.collection else {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("Collection [{namespace}] not found."),
        ));
    };
    let mut out = DocBuilder::new();
    out.append("ns", namespace.as_str());
    out.append("host", host_and_port(cx).as_str());
    out.append("localTime", DateTime::now());
    for element in spec.iter() {
        match element.key() {
            "storageStats" => {
                let options = fields::document(NAME, &element)?;
                let mut scale = 1;
                for option in options.iter() {
                    match option.key() {
                        "scale" => scale = super::coll_stats::positive_scale(NAME, &option)?,
                        other => return Err(unknown_field("$collStats.storageStats", other)),
                    }
                }
                out.begin_document("storageStats");
                append_storage_stats(&cx.server.db, collection, scale, &mut out)?;
                out.end();
            }
            "count" => {
                fields::document(NAME, &element)?;
                out.append("count", view.record_count()? as i64);
            }
            known @ ("latencyStats" | "queryExecStats") => {
                return Err(Error::new(
                    ErrorCode::NOT_IMPLEMENTED,
                    format!("$collStats.{known} is not supported"),
                ));
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(out.finish())
}

/// Explains an aggregate command, of which `arguments` are the fields of its own.
pub fn explain<'a>(
    cx: &CommandContext<'_>,
    view: &ReadView,
    namespace: &Namespace,
    arguments: impl Iterator<Item = RawElement<'a>>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let request = parse(arguments)?;
    let context = context(request.let_vars)?;
    let pipeline = Pipeline::parse(request.pipeline, &context)?.optimize();
    if !matches!(pipeline.rest.source, PipelineSource::Collection) {
        out.begin_array("stages");
        for stage in pipeline.rest.serialize() {
            out.push_document_bytes(stage.as_bytes());
        }
        out.end();
        return Ok(());
    }
    let options = cx.server.query_options(request.allow_disk_use);
    let request = db_aggregate::ExplainRequest {
        view,
        op: &cx.op,
        options: &options,
        namespace: namespace.as_str(),
        verbosity,
        hint: request.hint,
    };
    db_aggregate::explain(&request, &pipeline, &context, out)
}
