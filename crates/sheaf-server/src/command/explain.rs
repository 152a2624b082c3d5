//! `explain`: the plan of another command, and its execution statistics.

use std::sync::Arc;

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::Namespace;
use sheaf_db::aggregate::view_reads;
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::explain::Verbosity;
use sheaf_db::explain::query::{self, Explained};
use sheaf_db::find::canonicalize;
use sheaf_db::modify::explain::{Target, explain_delete, explain_update};
use sheaf_db::timeseries::{Timeseries, explain as series_explain, refuse_find_and_update};
use sheaf_query::query_shape;

use super::build_info::COMPATIBLE_VERSION;
use super::context::CommandContext;
use super::find::FindRequest;
use super::find_and_modify::{self, Change};
use super::generic_arguments::arguments;
use super::{aggregate, api_version, count, delete, distinct, fields, map_reduce, update};
use crate::command_facts::ExplainedAs;
use crate::host::host_name;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "explain";
    let first = cx.first()?;
    if fields::is_absent(first.value()) {
        return Err(fields::missing(NAME, NAME));
    }
    let command = fields::document(NAME, &first)?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for element in cx.arguments() {
        match element.key() {
            "verbosity" => verbosity = Verbosity::parse(fields::string(NAME, &element)?)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    explain(cx, command, verbosity, out)
}

/// Explains `command`. Also serves `aggregate` with `explain: true`.
pub fn explain(
    cx: &mut CommandContext<'_>,
    command: RawDoc<'_>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let first = command.first().ok_or_else(|| {
        Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            "Explain failed due to unknown command: explain needs a command to explain",
        )
    })?;
    let explained_as = explained_as(cx, first.key(), command)?;
    // Also explained if it would be rejected.
    let server = cx.server;
    cx.report.query_settings = server.query_settings.of(&server.db, command, cx.db);
    let cx = &*cx;
    if command.get("writeConcern").is_some() {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("explain of {} does not take a writeConcern", first.key()),
        ));
    }
    let Some(collection) = first.value().as_str() else {
        return Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("explain of {} needs the name of a collection", first.key()),
        ));
    };
    let namespace = Namespace::new(cx.db, collection)?;
    // A pipeline finds the view's stages itself.
    let is_pipeline = matches!(explained_as, ExplainedAs::Pipeline | ExplainedAs::MapReduce);
    if !is_pipeline && cx.server.db.catalog().view(&namespace).is_some() {
        out.append("explainVersion", "1");
        explain_on_view(cx, explained_as, command, &namespace, verbosity, out)?;
        append_tail(cx, command, out);
        return Ok(());
    }
    let view = cx.view(&namespace)?;
    out.append("explainVersion", "1");
    let arguments = arguments(command);
    let explained = |query, options| Explained {
        view: &view,
        op: &cx.op,
        query,
        options,
        namespace: namespace.as_str(),
        verbosity,
        is_pipeline: false,
    };
    let target = |options| Target {
        engine: &**cx.server.db.engine(),
        view: &view,
        op: &cx.op,
        options,
        namespace: namespace.as_str(),
        verbosity,
    };
    match explained_as {
        ExplainedAs::Find => {
            let request = FindRequest::parse(arguments)?;
            let options = cx.query_options(request.allow_disk_use);
            let query = Arc::new(canonicalize(&view, request.spec)?);
            query::find(&explained(&query, &options), out)?;
        }
        ExplainedAs::Count => {
            let options = cx.query_options(None);
            let query = Arc::new(canonicalize(&view, count::parse(arguments)?)?);
            query::count(&explained(&query, &options), out)?;
        }
        ExplainedAs::Distinct => {
            let (key, spec) = distinct::parse(arguments)?;
            let options = cx.query_options(None);
            let query = Arc::new(canonicalize(&view, spec)?);
            let (executor, _) =
                sheaf_db::distinct::start(&view, &cx.op, &key, &query, &options, true)?;
            query::distinct(&explained(&query, &options), key.dotted(), executor, out)?;
        }
        ExplainedAs::Pipeline => aggregate::explain(cx, &namespace, arguments, verbosity, out)?,
        ExplainedAs::MapReduce => {
            map_reduce::explain(cx, &namespace, arguments, verbosity, out)?;
        }
        ExplainedAs::Update => {
            let options = cx.query_options(None);
            let statement = only_statement(command, "updates")?;
            let let_vars = command.get("let").and_then(|value| value.as_document());
            let statement = update::parse_statement(statement, let_vars)?;
            explain_update(&target(&options), &statement, out)?;
        }
        ExplainedAs::Delete => {
            let options = cx.query_options(None);
            let statement = only_statement(command, "deletes")?;
            let let_vars = command.get("let").and_then(|value| value.as_document());
            let statement = delete::parse_statement(statement, let_vars)?;
            explain_delete(&target(&options), &statement, out)?;
        }
        ExplainedAs::FindAndModify => {
            check_database(cx)?;
            let options = cx.query_options(None);
            match find_and_modify::parse(arguments)? {
                Change::Update(statement) => explain_update(&target(&options), &statement, out)?,
                Change::Remove(statement) => explain_delete(&target(&options), &statement, out)?,
            }
        }
    }
    append_tail(cx, command, out);
    Ok(())
}

/// What kind of command a name is to explain.
/// Errors: CommandNotFound, and IllegalOperation for a command without a plan.
fn explained_as(
    cx: &CommandContext<'_>,
    name: &str,
    command: RawDoc<'_>,
) -> Result<ExplainedAs, Error> {
    let Some(row) = super::find(name) else {
        return Err(Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("Explain failed due to unknown command: {name}"),
        ));
    };
    let Some(explained_as) = row.command.explained else {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!("Cannot explain cmd: {name}"),
        ));
    };
    if cx.generic.api.is_strict() {
        api_version::check_strict(&row.command, name, command)?;
    }
    Ok(explained_as)
}

/// findAndModify, unlike update and delete, needs its database.
/// Errors: NamespaceNotFound.
fn check_database(cx: &CommandContext<'_>) -> Result<(), Error> {
    match cx.server.db.catalog().database(cx.db) {
        Some(_) => Ok(()),
        None => Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("database {} does not exist", cx.db),
        )),
    }
}

/// Explains a read of a view as a pipeline, or a write to a time-series collection.
///
/// Errors: `CommandNotSupportedOnView` for a write to an ordinary view.
fn explain_on_view(
    cx: &CommandContext<'_>,
    explained_as: ExplainedAs,
    command: RawDoc<'_>,
    namespace: &Namespace,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let arguments = arguments(command);
    let plain = |stages, collation| aggregate::ViewRequest {
        pipeline: stages,
        hint: None,
        let_vars: None,
        collation,
        batch_size: None,
        allow_disk_use: None,
    };
    match explained_as {
        ExplainedAs::Find => {
            let request = FindRequest::parse(arguments)?;
            let stages = view_reads::find_stages(&request.spec)?;
            let request = request.on_view(&stages);
            aggregate::explain_on_view(cx, namespace, request, verbosity, out)
        }
        ExplainedAs::Count => {
            let spec = count::parse(arguments)?;
            let stages = view_reads::count_stages(&spec);
            let request = plain(stages.as_raw(), spec.collation);
            aggregate::explain_on_view(cx, namespace, request, verbosity, out)
        }
        ExplainedAs::Distinct => {
            let (key, spec) = distinct::parse(arguments)?;
            let stages = view_reads::distinct_stages(key.dotted(), &spec);
            let request = plain(stages.as_raw(), spec.collation);
            aggregate::explain_on_view(cx, namespace, request, verbosity, out)
        }
        _ => match cx.server.db.catalog().timeseries(namespace) {
            Some(series) => explain_modify(cx, explained_as, command, &series, verbosity, out),
            None => Err(not_on_view(namespace)),
        },
    }
}

/// Explains an update, delete or findAndModify of a time-series collection.
fn explain_modify(
    cx: &CommandContext<'_>,
    explained_as: ExplainedAs,
    command: RawDoc<'_>,
    series: &Timeseries,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let namespace = series.buckets.ns();
    let view = cx.view(namespace)?;
    let options = cx.query_options(None);
    let target = Target {
        view: &view,
        op: &cx.op,
        options: &options,
        namespace: namespace.as_str(),
        verbosity,
        engine: &**cx.server.db.engine(),
    };
    let let_vars = command.get("let").and_then(|value| value.as_document());
    match explained_as {
        ExplainedAs::Delete => {
            let statement = delete::parse_statement(only_statement(command, "deletes")?, let_vars)?;
            series_explain::explain_delete(&target, series, &statement, out)
        }
        ExplainedAs::Update => {
            let statement = update::parse_statement(only_statement(command, "updates")?, let_vars)?;
            series_explain::explain_update(&target, series, &statement, out)
        }
        _ => match find_and_modify::parse(arguments(command))? {
            Change::Remove(statement) => {
                series_explain::explain_delete(&target, series, &statement, out)
            }
            Change::Update(_) => Err(refuse_find_and_update(namespace)),
        },
    }
}

/// Appends `queryShapeHash`, `command`, `serverInfo` and `serverParameters`.
fn append_tail(cx: &CommandContext<'_>, command: RawDoc<'_>, out: &mut DocBuilder) {
    if let Some(hash) = query_shape::hash_of_command(command, cx.db) {
        out.append("queryShapeHash", hash.as_str());
    }
    let mut explained = DocBuilder::new();
    for element in command.iter() {
        if element.key() != "$db" {
            explained.append_raw_element(element);
        }
    }
    explained.append("$db", cx.db);
    out.append_bson("command", &explained.finish());
    out.begin_document("serverInfo");
    out.append("host", host_name().as_str());
    out.append("port", cx.port());
    out.append("version", COMPATIBLE_VERSION);
    out.append("gitVersion", "unknown");
    out.end();
    out.begin_document("serverParameters");
    for name in [
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "internalQueryMaxScansToExplode",
    ] {
        cx.server.parameters.append_value(name, name, out);
    }
    out.end();
}

/// The statement in `updates` or `deletes`: explain accepts exactly one.
fn only_statement<'a>(command: RawDoc<'a>, list: &str) -> Result<RawDoc<'a>, Error> {
    let statements = match command.get(list) {
        Some(RawValue::Array(statements)) => statements,
        _ => return Err(fields::missing("explain", list)),
    };
    let mut statements = statements.iter();
    match (statements.next(), statements.next()) {
        (Some(RawValue::Document(statement)), None) => Ok(statement),
        _ => Err(Error::bad_value(
            "explained write batches must be of size 1",
        )),
    }
}
