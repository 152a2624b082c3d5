//! The fields of a slow-operation line and of a profiler document.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc};

use super::Finished;
use crate::command::Kind;
use crate::command::context::WriteReport;

/// Commands are shown up to this size, longer ones by their first fields.
const COMMAND_BYTES_MAX: usize = 8 * 1024;

/// Attributes of a command's line.
pub(super) fn command_attributes(finished: &Finished<'_>, out: &mut DocBuilder) {
    let (report, op) = (finished.report, finished.op);
    out.append(
        "type",
        if finished.command.name == "getMore" {
            "getmore"
        } else {
            "command"
        },
    );
    out.append("ns", namespace(finished).as_str());
    append_client(finished, out);
    out.append("command", shown(finished.body).as_raw());
    if let Some(origin) = &report.originating_command {
        out.append("originatingCommand", origin.as_raw());
    }
    append_query_facts(finished, out);
    let counts = op.counters().counts();
    for (name, n) in [
        ("ninserted", counts.docs_inserted),
        ("nModified", counts.docs_modified),
        ("ndeleted", counts.docs_deleted),
        ("keysInserted", counts.keys_inserted),
        ("keysDeleted", counts.keys_deleted),
        ("bytesLogged", counts.bytes_logged),
        ("writeConflicts", counts.write_conflicts),
    ] {
        if n > 0 {
            out.append(name, n as i64);
        }
    }
    out.append("numYields", 0);
    if let Some(error) = finished.error {
        out.append("ok", 0);
        out.append("errMsg", error.message());
        out.append("errName", &*error.code_name());
        out.append("errCode", error.code().0);
    }
    out.append("reslen", finished.reply_len as i64);
    out.append("locks", RawDoc::EMPTY);
    out.append("remote", finished.connection.operations.client());
    out.append("protocol", "op_msg");
    out.append("durationMillis", finished.elapsed.as_millis() as i64);
}

/// Attributes of one write statement's line.
pub(super) fn write_attributes(finished: &Finished<'_>, write: &WriteReport, out: &mut DocBuilder) {
    out.append("type", write.kind);
    out.append("ns", namespace(finished).as_str());
    append_client(finished, out);
    out.append("command", shown(write.statement.as_raw()).as_raw());
    append_write_facts(write, out);
    out.append("numYields", 0);
    out.append("locks", RawDoc::EMPTY);
    out.append("remote", finished.connection.operations.client());
    out.append("durationMillis", write.elapsed.as_millis() as i64);
}

/// What `system.profile` holds of a write statement.
pub(super) fn profile_write(finished: &Finished<'_>, write: &WriteReport) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("op", write.kind);
    out.append("ns", namespace(finished).as_str());
    out.append("command", shown(write.statement.as_raw()).as_raw());
    append_write_facts(write, &mut out);
    out.append("numYield", 0);
    out.append("locks", RawDoc::EMPTY);
    out.append("millis", write.elapsed.as_millis() as i32);
    append_profile_tail(finished, &mut out);
    out.finish()
}

/// What `system.profile` holds of any other command.
pub(super) fn profile_command(finished: &Finished<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    let op = match finished.command.name {
        "find" => "query",
        "getMore" => "getmore",
        "insert" => "insert",
        _ => "command",
    };
    out.append("op", op);
    out.append("ns", namespace(finished).as_str());
    out.append("command", shown(finished.body).as_raw());
    if let Some(origin) = &finished.report.originating_command {
        out.append("originatingCommand", origin.as_raw());
    }
    append_query_facts(finished, &mut out);
    let counts = finished.op.counters().counts();
    if op == "insert" {
        out.append("ninserted", counts.docs_inserted as i64);
        out.append("keysInserted", counts.keys_inserted as i64);
    }
    if counts.bytes_logged > 0 {
        out.append("bytesLogged", counts.bytes_logged as i64);
    }
    out.append("numYield", 0);
    if let Some(error) = finished.error {
        out.append("ok", 0);
        out.append("errMsg", error.message());
        out.append("errName", &*error.code_name());
        out.append("errCode", error.code().0);
    }
    out.append("responseLength", finished.reply_len as i32);
    out.append("protocol", "op_msg");
    out.append("locks", RawDoc::EMPTY);
    out.append("millis", finished.elapsed.as_millis() as i32);
    append_profile_tail(finished, &mut out);
    out.finish()
}

fn append_profile_tail(finished: &Finished<'_>, out: &mut DocBuilder) {
    out.append("ts", DateTime::now());
    out.append("client", finished.connection.operations.client());
    let app_name = finished.connection.operations.app_name();
    if !app_name.is_empty() {
        out.append("appName", app_name.as_str());
    }
    out.append_bson("allUsers", &sheaf_bson::ArrayBuf::new());
    out.append("user", "");
}

fn append_client(finished: &Finished<'_>, out: &mut DocBuilder) {
    let app_name = finished.connection.operations.app_name();
    if !app_name.is_empty() {
        out.append("appName", app_name.as_str());
    }
}

fn append_query_facts(finished: &Finished<'_>, out: &mut DocBuilder) {
    let report = finished.report;
    let Some(summary) = report.plan.summary() else {
        if let Some(n) = report.n_returned {
            out.append("nreturned", n as i64);
        }
        return;
    };
    out.append("planSummary", summary.as_str());
    if let Some(id) = report.cursor_id {
        out.append("cursorid", id);
    }
    super::metrics::append_counts(finished.op, out);
    if report.plan.has_sort_stage() {
        out.append("hasSortStage", true);
    }
    if report.used_disk {
        out.append("usedDisk", true);
    }
    if report.plan.from_cache {
        out.append("fromPlanCache", true);
    }
    if report.plan.replanned {
        out.append("replanned", true);
    }
    if report.cursor_exhausted && finished.command.kind == Kind::Read {
        out.append("cursorExhausted", true);
    }
    if let Some(n) = report.n_returned {
        out.append("nreturned", n as i64);
    }
    if let Some(hash) = &report.query_hash {
        out.append("queryHash", hash.as_str());
        out.append("planCacheShapeHash", hash.as_str());
    }
    if let Some(key) = &report.plan_cache_key {
        out.append("planCacheKey", key.as_str());
    }
}

/// keysInserted and keysDeleted are absent when no document was changed at all.
fn append_write_facts(write: &WriteReport, out: &mut DocBuilder) {
    if let Some(summary) = write.plan.summary() {
        out.append("planSummary", summary.as_str());
    }
    out.append("keysExamined", write.keys_examined as i64);
    out.append("docsExamined", write.docs_examined as i64);
    match write.kind {
        "update" => {
            out.append("nMatched", write.n_matched as i64);
            out.append("nModified", write.n_modified as i64);
            out.append("nUpserted", write.n_upserted as i64);
        }
        "remove" => {
            out.append("ndeleted", write.n_deleted as i64);
        }
        _ => {
            out.append("ninserted", write.n_inserted as i64);
        }
    }
    if let Some(n) = write.keys_inserted {
        out.append("keysInserted", n as i64);
    }
    if let Some(n) = write.keys_deleted {
        out.append("keysDeleted", n as i64);
    }
    if let Some(n) = write.bytes_logged {
        out.append("bytesLogged", n as i64);
    }
    if write.write_conflicts > 0 {
        out.append("writeConflicts", write.write_conflicts as i64);
    }
}

fn namespace(finished: &Finished<'_>) -> String {
    match &finished.report.namespace {
        Some(ns) => ns.as_str().to_owned(),
        None => format!("{}.$cmd", finished.db),
    }
}

/// A command as logs show it: whole, or its leading fields.
fn shown(command: RawDoc<'_>) -> DocBuf {
    if command.len_bytes() <= COMMAND_BYTES_MAX {
        return command.to_buf();
    }
    let mut out = DocBuilder::new();
    for element in command.iter() {
        if out.current_len() + element.as_bytes().len() > COMMAND_BYTES_MAX {
            out.append("$truncated", true);
            break;
        }
        out.append_raw_element(element);
    }
    out.finish()
}
