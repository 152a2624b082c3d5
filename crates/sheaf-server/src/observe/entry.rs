//! The fields of a slow-operation line and of a profiler document.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc};

use sheaf_db::planning::plan_hashes;
use sheaf_query::query_shape;

use super::finished::Finished;
use super::shown::shown;
use crate::command_facts::{CountsAs, Kind};
use crate::log::Log;
use crate::op_report::WriteReport;

/// Commands up to this size are shown whole, larger ones truncated.
const COMMAND_BYTES_MAX: usize = 8 * 1024;
/// The same limit in `system.profile`, from the manual.
const PROFILED_COMMAND_BYTES_MAX: usize = 50 * 1024;

/// Attributes of a command's line.
pub(super) fn command_attributes(finished: &Finished<'_>, log: &Log, out: &mut DocBuilder) {
    let (report, op) = (finished.report, finished.op);
    out.append(
        "type",
        if finished.command.counts_as == CountsAs::GetMore {
            "getmore"
        } else {
            "command"
        },
    );
    out.append("ns", namespace(finished).as_str());
    append_client(finished, out);
    let command = shown(
        finished.body,
        finished.command.sensitive,
        op.comment(),
        COMMAND_BYTES_MAX,
    );
    out.append("command", log.client_document(&command).as_raw());
    if let Some(origin) = &report.originating_command {
        let origin = log.client_document(origin);
        out.append("originatingCommand", origin.as_raw());
    }
    append_query_facts(finished, out);
    append_hashes(finished, None, out);
    if let Some(settings) = &report.query_settings {
        let settings = log.client_document(&settings.shown);
        out.append("querySettings", settings.as_raw());
    }
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
        out.append("errMsg", log.client_text(error.message()));
        out.append("errName", &*error.code_name());
        out.append("errCode", error.code().0);
    }
    out.append("reslen", finished.reply_len as i64);
    out.append("locks", RawDoc::EMPTY);
    out.append("remote", finished.slot.client());
    out.append("protocol", "op_msg");
    out.append("durationMillis", finished.elapsed.as_millis() as i64);
}

/// Attributes of one write statement's line.
pub(super) fn write_attributes(
    finished: &Finished<'_>,
    write: &WriteReport,
    log: &Log,
    out: &mut DocBuilder,
) {
    out.append("type", write.kind);
    match &write.namespace {
        Some(ns) => out.append("ns", ns.as_str()),
        None => out.append("ns", namespace(finished).as_str()),
    };
    append_client(finished, out);
    let comment = finished.op.comment();
    let command = shown(write.statement.as_raw(), &[], comment, COMMAND_BYTES_MAX);
    out.append("command", log.client_document(&command).as_raw());
    append_write_facts(write, out);
    out.append("numYields", 0);
    out.append("locks", RawDoc::EMPTY);
    out.append("remote", finished.slot.client());
    out.append("durationMillis", write.elapsed.as_millis() as i64);
}

/// The document in `system.profile` of a write statement, or of a whole command.
pub(super) fn profile_entry(finished: &Finished<'_>, write: Option<&WriteReport>) -> DocBuf {
    let mut out = DocBuilder::new();
    let (report, op) = (finished.report, finished.op);
    // findAndModify is profiled as a command; so is a write command that did not reach its
    // statements.
    let statement = write.filter(|_| finished.command.counts_as.has_statements());
    let kind = statement.map_or(finished.command.counts_as.profiled(), |write| write.kind);
    out.append("op", kind);
    match write.and_then(|write| write.namespace.as_ref()) {
        Some(ns) => out.append("ns", ns.as_str()),
        None => out.append("ns", namespace(finished).as_str()),
    };
    let with_hint = statement.and_then(|write| with_named_hint(write.statement.as_raw()));
    let command = match (&with_hint, statement) {
        (Some(statement), _) => statement.as_raw(),
        (None, Some(write)) if write.kind != "insert" => write.statement.as_raw(),
        _ => finished.body,
    };
    let command = shown(
        command,
        finished.command.sensitive,
        op.comment(),
        PROFILED_COMMAND_BYTES_MAX,
    );
    out.append("command", command.as_raw());
    if let Some(origin) = &report.originating_command {
        out.append("originatingCommand", origin.as_raw());
    }
    match write {
        Some(write) => {
            let upsert = write.statement.get("upsert");
            if upsert.is_some_and(|upsert| upsert.is_truthy()) {
                out.append("upsert", true);
            }
            append_write_facts(write, &mut out);
        }
        None => append_query_facts(finished, &mut out),
    }
    // With several statements it is unknown whose query was planned.
    if report.writes.len() <= 1 {
        append_hashes(finished, write, &mut out);
    }
    if write.is_some() || report.plan.summary().is_some() {
        out.append("queryFramework", "classic");
    }
    out.append("numYield", 0);
    if let Some(error) = finished.error {
        out.append("ok", 0);
        out.append("errMsg", error.message());
        out.append("errName", &*error.code_name());
        out.append("errCode", error.code().0);
    }
    out.append("locks", RawDoc::EMPTY);
    if statement.is_none() {
        out.append("responseLength", finished.reply_len as i32);
        out.append("protocol", "op_msg");
    }
    if let Some(stats) = &report.exec_stats {
        out.append_bson("execStats", stats);
    }
    let elapsed = statement.map_or(finished.elapsed, |write| write.elapsed);
    out.append(
        "millis",
        i32::try_from(elapsed.as_millis()).unwrap_or(i32::MAX),
    );
    append_profile_tail(finished, &mut out);
    out.finish()
}

/// Hashes of the command's shape, and of its query's shape, alone and with the existing indexes.
fn append_hashes(finished: &Finished<'_>, write: Option<&WriteReport>, out: &mut DocBuilder) {
    let origin = finished.report.originating_command.as_ref();
    let command = origin.map_or(finished.body, |command| command.as_raw());
    if let Some(hash) = query_shape::hash_of_command(command, finished.db) {
        out.append("queryShapeHash", hash.as_str());
    }
    let namespace = write
        .and_then(|write| write.namespace.as_ref())
        .or(finished.report.namespace.as_ref());
    let (Some(query), Some(namespace)) = (finished.op.query(), namespace) else {
        return;
    };
    let view = finished.database.read_view(namespace);
    let settings = finished.report.query_settings.clone();
    if let Ok(Some((shape, key))) = view.and_then(|view| plan_hashes(&view, query, settings)) {
        out.append("queryHash", shape.as_str());
        out.append("planCacheShapeHash", shape.as_str());
        out.append("planCacheKey", key.as_str());
    }
}

fn append_profile_tail(finished: &Finished<'_>, out: &mut DocBuilder) {
    out.append("ts", DateTime::now());
    out.append("client", finished.slot.client());
    let app_name = finished.slot.app_name();
    if !app_name.is_empty() {
        out.append("appName", app_name.as_str());
    }
    out.append_bson("allUsers", &sheaf_bson::ArrayBuf::new());
    out.append("user", "");
}

fn append_client(finished: &Finished<'_>, out: &mut DocBuilder) {
    let app_name = finished.slot.app_name();
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
}

/// `keysInserted` and `keysDeleted` are absent if no document was changed.
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

/// A statement whose hint is the name of an index, with the hint as MongoDB's entries have it:
/// `{$hint: name}`. `None` for other statements.
fn with_named_hint(statement: RawDoc<'_>) -> Option<DocBuf> {
    statement.get("hint")?.as_str()?;
    let mut out = DocBuilder::new();
    for element in statement.iter() {
        match element.key() {
            "hint" => {
                out.begin_document("hint");
                out.append("$hint", element.value()).end();
            }
            _ => {
                out.append_raw_element(element);
            }
        }
    }
    Some(out.finish())
}
