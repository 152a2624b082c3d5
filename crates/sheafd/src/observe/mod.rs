//! What operators see of operations: counters, slow-operation lines, the profiler.
//!
//! Every command passes through [`finished`] once. Text is made only for
//! operations that are logged or profiled.

mod entry;
mod metrics;
mod profiler;

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, RawDoc};
use sheaf_db::OpContext;
use sheaf_db::catalog::usage::LatencyKind;

pub use metrics::Metrics;
pub use profiler::{ProfileSettings, Profiler};

use crate::command::context::OpReport;
use crate::command::{Command, Kind};
use crate::log::{Component, Severity};
use crate::server::{ConnectionState, Server};

/// A command that has ended.
pub struct Finished<'a> {
    /// The whole server.
    pub server: &'a Arc<Server>,
    /// Where it came from.
    pub connection: &'a ConnectionState,
    /// Which command.
    pub command: &'static Command,
    /// `$db`.
    pub db: &'a str,
    /// The command document.
    pub body: RawDoc<'a>,
    /// Its counters.
    pub op: &'a OpContext,
    /// What its handler says.
    pub report: &'a OpReport,
    /// How it failed, if it did.
    pub error: Option<&'a Error>,
    /// How long it took.
    pub elapsed: Duration,
    /// Bytes of the reply.
    pub reply_len: usize,
}

/// Counts, logs and profiles a command.
pub fn finished(finished: Finished<'_>) {
    let server = finished.server;
    server.metrics.count(&finished);
    if let Some(namespace) = &finished.report.namespace
        && let Some(collection) = server.db.catalog().collection(namespace)
    {
        let kind = match finished.command.kind {
            Kind::Read => LatencyKind::Reads,
            Kind::Write => LatencyKind::Writes,
            _ => LatencyKind::Commands,
        };
        collection.usage().count_operation(kind, finished.elapsed);
    }
    let settings = server.profiler.settings(finished.db);
    let slow = settings.is_slow(finished.elapsed);
    let log = &server.log;
    if slow || log.enabled(Severity::Debug(1), Component::Command) {
        let severity = if slow {
            Severity::Info
        } else {
            Severity::Debug(1)
        };
        log.line(severity, Component::Command, 51803, "Slow query", |attr| {
            entry::command_attributes(&finished, attr);
        });
    }
    let writes_logged = log.enabled(Severity::Debug(1), Component::Write);
    for write in &finished.report.writes {
        if write.kind != "insert" && (writes_logged || settings.is_slow(write.elapsed)) {
            let severity = if writes_logged {
                Severity::Debug(1)
            } else {
                Severity::Info
            };
            log.line(severity, Component::Write, 51803, "Slow query", |attr| {
                entry::write_attributes(&finished, write, attr);
            });
        }
    }
    if settings.wants(finished.elapsed) {
        server.profiler.record(&finished);
    }
}
