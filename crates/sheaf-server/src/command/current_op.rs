//! `currentOp` and the stage `$currentOp`: operations in progress, and idle connections, cursors
//! and transactions.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, RawDoc, RawElement};
use sheaf_query::matcher;

use super::context::CommandContext;
use super::fields::{self, unknown_field, wrong_type};
use crate::access::digest;
use crate::host::host_name;
use crate::observe;
use crate::session::logical::session_id;
use crate::session::operations::{Operation, OperationSlot};

/// Commands longer than this are truncated on request.
const TRUNCATED_BYTES: usize = 1024;

/// The options that select what is shown.
#[derive(Debug, Default, Clone, Copy)]
struct Shown {
    idle_connections: bool,
    idle_cursors: bool,
    idle_sessions: bool,
    truncated: bool,
    /// Only the operations of this user, or without users of this connection.
    own_only: bool,
}

/// Runs the command. Every field that is not an option is part of the filter on the operations.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "currentOp";
    let mut shown = Shown {
        idle_sessions: true,
        ..Shown::default()
    };
    let mut filter = DocBuilder::new();
    for element in cx.arguments_as_sent() {
        match element.key() {
            "$all" => {
                let all = fields::boolean(NAME, &element)?;
                (shown.idle_connections, shown.idle_cursors) = (all, all);
            }
            "$ownOps" => shown.own_only = fields::boolean(NAME, &element)?,
            "$truncateOps" => shown.truncated = fields::boolean(NAME, &element)?,
            _ => {
                filter.append_raw_element(element);
            }
        }
    }
    let filter = filter.finish();
    let filter = matcher::parse(filter.as_raw(), &matcher::ParseContext::default())?;
    out.begin_array("inprog");
    for doc in documents(cx, shown) {
        if filter.matches(doc.as_raw())? {
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
    let mut shown = Shown {
        idle_sessions: true,
        ..Shown::default()
    };
    let mut all_users = false;
    for element in spec.iter() {
        let asked = match element.key() {
            "allUsers" | "idleConnections" | "idleCursors" | "idleSessions" | "localOps"
            | "backtrace" | "targetAllNodes" | "truncateOps" => strict(NAME, &element)?,
            other => return Err(unknown_field(NAME, other)),
        };
        match element.key() {
            "idleConnections" => shown.idle_connections = asked,
            "idleCursors" => shown.idle_cursors = asked,
            "idleSessions" => shown.idle_sessions = asked,
            "truncateOps" => shown.truncated = asked,
            "allUsers" => all_users = asked,
            // Ignored: there are no other nodes, and no threads that wait for latches.
            _ => {}
        }
    }
    shown.own_only = cx.server.settings.authorization && !all_users;
    Ok(documents(cx, shown))
}

/// An option that must be a boolean, not even null.
fn strict(name: &str, element: &RawElement<'_>) -> Result<bool, Error> {
    let value = element.value().as_bool();
    value.ok_or_else(|| wrong_type(name, element, "bool"))
}

fn documents(cx: &CommandContext<'_>, shown: Shown) -> Vec<DocBuf> {
    let host = format!("{}:{}", host_name(), cx.port());
    let own = cx.connection.operations.connection_id();
    let user = cx.connection.operations.user();
    // With access control one's own are those of the user, otherwise those of the connection.
    let is_own = |slot: &OperationSlot| match cx.server.settings.authorization {
        true => slot.user() == user,
        false => slot.connection_id() == own,
    };
    let mut docs = Vec::new();
    for slot in cx.server.operations.slots() {
        if !shown.own_only || is_own(&slot) {
            docs.extend(connection(&slot, &host, shown));
        }
    }
    if shown.idle_cursors {
        for cursor in cx.server.cursors.idle() {
            if shown.own_only && cx.server.settings.authorization && cursor.owner != user {
                continue;
            }
            let mut out = DocBuilder::new();
            out.append("type", "idleCursor");
            out.append("host", host.as_str());
            out.append("ns", cursor.namespace.as_str());
            if let Some(lsid) = &cursor.lsid {
                out.append_bson("lsid", lsid);
            }
            out.append_bson("cursor", &cursor.description);
            docs.push(out.finish());
        }
    }
    if shown.idle_sessions {
        let digest = user.as_ref().map(digest);
        for (lsid, number, age) in cx.server.sessions.idle_transactions() {
            let uid = session_id(lsid.as_raw()).and_then(|id| id.uid);
            if shown.own_only && cx.server.settings.authorization && uid != digest {
                continue;
            }
            let micros = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            let mut out = DocBuilder::new();
            out.append("type", "idleSession");
            out.append("host", host.as_str());
            out.append("desc", "inactive transaction");
            out.append_bson("lsid", &lsid);
            out.begin_document("transaction");
            append_number(number, &mut out);
            out.append(
                "startWallClockTime",
                DateTime(DateTime::now().0 - micros / 1000),
            );
            out.append("timeOpenMicros", micros);
            out.end();
            out.append("active", false);
            out.append("waitingForLock", false);
            docs.push(out.finish());
        }
    }
    docs
}

fn connection(slot: &OperationSlot, host: &str, shown: Shown) -> Option<DocBuf> {
    let operation = slot.current();
    if operation.is_none() && !shown.idle_connections {
        return None;
    }
    let mut out = DocBuilder::new();
    out.append("type", "op");
    out.append("host", host);
    out.append("desc", format!("conn{}", slot.connection_id()).as_str());
    out.append("connectionId", slot.connection_id() as i64);
    out.append("client", slot.client());
    let app_name = slot.app_name();
    if !app_name.is_empty() {
        out.append("appName", app_name.as_str());
    }
    if let Some(metadata) = slot.metadata() {
        out.append_bson("clientMetadata", &metadata);
    }
    if let Some(user) = slot.user() {
        out.begin_array("effectiveUsers");
        out.push_begin_document();
        out.append("user", user.user.as_str());
        out.append("db", user.db.as_str());
        out.end();
        out.end();
    }
    out.append("active", operation.is_some());
    out.append("currentOpTime", DateTime::now());
    out.append("threaded", true);
    match operation {
        Some(operation) => append_operation(&operation, shown, &mut out),
        None => {
            out.append("op", "none");
        }
    }
    Some(out.finish())
}

fn append_operation(operation: &Operation, shown: Shown, out: &mut DocBuilder) {
    let op = &operation.op;
    let elapsed = op.started().elapsed();
    out.append("opid", operation.opid);
    if let Some(lsid) = &operation.lsid {
        out.append_bson("lsid", lsid);
    }
    if let Some((number, true)) = operation.number {
        out.begin_document("transaction");
        append_number(number, out);
        out.end();
    }
    out.append("secs_running", elapsed.as_secs() as i64);
    out.append("microsecs_running", elapsed.as_micros() as i64);
    out.append("op", operation.command.counts_as.current_op());
    let collection = operation.collection.as_deref().unwrap_or("$cmd");
    let ns = format!("{}.{collection}", operation.db);
    out.append("ns", ns.as_str());
    out.append("redacted", false);
    let bytes_max = if shown.truncated {
        TRUNCATED_BYTES
    } else {
        usize::MAX
    };
    let command = observe::shown(operation.body.as_raw(), &[], op.comment(), bytes_max);
    out.append_bson("command", &command);
    if let Some(cursor) = &operation.cursor {
        out.append_bson("cursor", cursor);
    }
    let counts = op.counters().counts();
    out.append("keysExamined", counts.keys_examined as i64);
    out.append("docsExamined", counts.docs_examined as i64);
    out.append("writeConflicts", counts.write_conflicts as i64);
    if let Some(progress) = op.progress() {
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
    out.append("killPending", op.is_killed());
    out.append("numYields", 0);
    out.begin_document("locks");
    out.end();
    out.append("waitingForLock", false);
    out.append("waitingForFlowControl", false);
}

fn append_number(number: i64, out: &mut DocBuilder) {
    out.begin_document("parameters");
    out.append("txnNumber", number);
    out.append("autocommit", false);
    out.end();
}
