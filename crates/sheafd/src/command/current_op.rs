//! `currentOp`: operations in progress.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, RawDoc};
use sheaf_query::matcher;

use super::context::{CommandContext, unknown_field};
use super::fields;
use crate::session::operations::OperationSlot;
use crate::startup::host_name;

/// Runs it. Every field that is not an option is a condition on the operations shown.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let (mut all, mut own_only) = (false, false);
    let mut filter = DocBuilder::new();
    for element in cx.arguments() {
        match element.key() {
            "$all" => all = fields::boolean("currentOp", &element)?,
            "$ownOps" => own_only = fields::boolean("currentOp", &element)?,
            "$truncateOps" => {}
            _ => {
                filter.append_raw_element(element);
            }
        }
    }
    let filter = filter.finish();
    let filter = matcher::parse(filter.as_raw(), &matcher::ParseContext::default())?;
    let own = cx.connection.operations.connection_id();
    out.begin_array("inprog");
    for slot in cx.server.operations.slots() {
        if own_only && slot.connection_id() != own {
            continue;
        }
        if let Some(doc) = describe(&slot, all)
            && filter.matches(doc.as_raw())?
        {
            out.push_document_bytes(doc.as_bytes());
        }
    }
    out.end();
    Ok(())
}

/// The documents of the `$currentOp` stage.
/// Errors: an option that the stage does not have.
pub fn stage(cx: &CommandContext<'_>, spec: RawDoc<'_>) -> Result<Vec<DocBuf>, Error> {
    const NAME: &str = "$currentOp";
    let mut idle_too = false;
    for element in spec.iter() {
        match element.key() {
            "idleConnections" => idle_too = fields::boolean(NAME, &element)?,
            // There are no users, and nothing but operations to show.
            "allUsers" | "idleCursors" | "idleSessions" | "localOps" | "backtrace"
            | "targetAllNodes" | "truncateOps" => {
                fields::boolean(NAME, &element)?;
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    let slots = cx.server.operations.slots();
    Ok(slots
        .iter()
        .filter_map(|slot| describe(slot, idle_too))
        .collect())
}

fn describe(slot: &OperationSlot, idle_too: bool) -> Option<DocBuf> {
    let operation = slot.current();
    if operation.is_none() && !idle_too {
        return None;
    }
    let mut out = DocBuilder::new();
    out.append("type", "op");
    out.append("host", host_name().as_str());
    out.append("desc", format!("conn{}", slot.connection_id()).as_str());
    out.append("connectionId", slot.connection_id() as i64);
    out.append("client", slot.client());
    let app_name = slot.app_name();
    if !app_name.is_empty() {
        out.append("appName", app_name.as_str());
    }
    out.append("active", operation.is_some());
    out.append("currentOpTime", DateTime::now());
    let Some(operation) = operation else {
        out.append("op", "none");
        return Some(out.finish());
    };
    let elapsed = operation.op.started().elapsed();
    out.append("opid", operation.opid);
    out.append("secs_running", elapsed.as_secs() as i64);
    out.append("microsecs_running", elapsed.as_micros() as i64);
    out.append(
        "op",
        match operation.command.name {
            "find" => "query",
            "getMore" => "getmore",
            name @ ("insert" | "update") => name,
            "delete" => "remove",
            _ => "command",
        },
    );
    let ns = operation
        .body
        .as_ref()
        .and_then(|body| body.as_raw().first())
        .and_then(|first| first.value().as_str())
        .map_or_else(
            || format!("{}.$cmd", operation.db),
            |collection| format!("{}.{collection}", operation.db),
        );
    out.append("ns", ns.as_str());
    if let Some(body) = &operation.body {
        out.append_bson("command", body);
    }
    let counts = operation.op.counters().counts();
    out.append("keysExamined", counts.keys_examined as i64);
    out.append("docsExamined", counts.docs_examined as i64);
    if let Some(progress) = operation.op.progress() {
        let (done, total) = progress.done_of_total();
        let percent = (done * 100).checked_div(total).unwrap_or(100).min(100);
        out.append(
            "msg",
            format!("{} {}/{} {percent}%", progress.phase(), done, total).as_str(),
        );
        out.begin_document("progress");
        out.append("done", done as i64);
        out.append("total", total as i64);
        out.end();
    }
    out.append("killPending", operation.op.is_killed());
    out.append("numYields", 0);
    out.begin_document("locks");
    out.end();
    out.append("waitingForLock", false);
    Some(out.finish())
}
