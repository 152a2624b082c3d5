//! `explain`: the plan of another command, and what carrying it out would cost.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue};
use sheaf_db::explain::Verbosity;
use sheaf_db::find as db_find;
use sheaf_db::{Namespace, ReadView, explain as db_explain};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use super::build_info::COMPATIBLE_VERSION;
use super::context::{CommandContext, is_generic};
use super::find::FindRequest;
use super::host_info::hostname;
use super::{aggregate, count, distinct, fields, update};

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "explain";
    let command = fields::document(NAME, &cx.first()?)?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for element in cx.arguments() {
        match element.key() {
            "verbosity" => verbosity = Verbosity::parse(fields::string(NAME, &element)?)?,
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    explain(cx, command, verbosity, out)
}

/// Explains `command`, for `aggregate` with `explain: true` too.
pub fn explain(
    cx: &mut CommandContext<'_>,
    command: RawDoc<'_>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let first = command.first().ok_or_else(|| {
        Error::new(ErrorCode::FAILED_TO_PARSE, "explain needs a command to explain")
    })?;
    if !matches!(
        first.key(),
        "find" | "count" | "distinct" | "aggregate" | "update" | "delete" | "findAndModify"
            | "findandmodify"
    ) {
        return Err(Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("Explain failed due to unknown command: {}", first.key()),
        ));
    }
    let Some(collection) = first.value().as_str() else {
        return Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("explain of {} needs the name of a collection", first.key()),
        ));
    };
    let namespace = Namespace::new(cx.db, collection)?;
    let view = cx.server.view(&namespace)?;
    out.append("explainVersion", "1");
    let arguments = command
        .iter()
        .skip(1)
        .filter(|element| !is_generic(element.key()));
    match first.key() {
        "find" => {
            let request = FindRequest::parse(arguments)?;
            let options = cx.server.query_options(request.allow_disk_use);
            let query = Arc::new(CanonicalQuery::new(request.spec)?);
            db_find::explain(
                &view,
                &cx.op,
                &query,
                &options,
                namespace.as_str(),
                verbosity,
                out,
            )?;
        }
        "count" => explain_count(cx, &view, &namespace, count::parse(arguments)?, verbosity, out)?,
        "distinct" => {
            let (key, spec) = distinct::parse(arguments)?;
            let options = cx.server.query_options(None);
            let query = Arc::new(CanonicalQuery::new(spec)?);
            let (executor, _) =
                sheaf_db::distinct::start(&view, &cx.op, &key, &query, &options, true)?;
            db_find::explain_executor(
                &view,
                &cx.op,
                &query,
                executor,
                namespace.as_str(),
                verbosity,
                out,
            )?;
        }
        "aggregate" => aggregate::explain(cx, &view, &namespace, command, verbosity, out)?,
        _ => update::explain(cx, &view, &namespace, command, verbosity, out)?,
    }
    append_tail(cx, command, out);
    Ok(())
}

fn explain_count(
    cx: &CommandContext<'_>,
    view: &ReadView,
    namespace: &Namespace,
    spec: FindSpec<'_>,
    verbosity: Verbosity,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let options = cx.server.query_options(None);
    let query = Arc::new(CanonicalQuery::new(spec)?);
    db_explain::explain_count(
        view,
        &cx.op,
        &query,
        &options,
        namespace.as_str(),
        verbosity,
        out,
    )
}

/// `command`, `serverInfo`, `serverParameters`.
fn append_tail(cx: &CommandContext<'_>, command: RawDoc<'_>, out: &mut DocBuilder) {
    let mut explained = DocBuilder::new();
    for element in command.iter() {
        if element.key() != "$db" {
            explained.append_raw_element(element);
        }
    }
    explained.append("$db", cx.db);
    out.append_bson("command", &explained.finish());
    out.begin_document("serverInfo");
    out.append("host", hostname().as_str());
    out.append("port", cx.server.port);
    out.append("version", COMPATIBLE_VERSION);
    out.append("gitVersion", "unknown");
    out.end();
    out.begin_document("serverParameters");
    for name in [
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "internalQueryMaxScansToExplode",
    ] {
        cx.server.parameters.append(name, out);
    }
    out.end();
}

/// A field of the explained command, by name.
pub fn argument<'a>(command: RawDoc<'a>, name: &str) -> Option<RawElement<'a>> {
    command.get_element(name)
}

/// A statement inside `updates` or `deletes`: explain takes exactly one.
pub fn only_statement(command: RawDoc<'_>, list: &str) -> Result<DocBuf, Error> {
    let statements = match command.get(list) {
        Some(RawValue::Array(statements)) => statements,
        _ => return Err(fields::missing("explain", list)),
    };
    let mut statements = statements.iter();
    match (statements.next(), statements.next()) {
        (Some(RawValue::Document(statement)), None) => Ok(statement.to_buf()),
        _ => Err(Error::bad_value(
            "explained write batches must be of size 1",
        )),
    }
}
