//! Requests a checkpoint from the engine every `--syncdelay` seconds, if anything was written.
//!
//! Only for an engine that makes no checkpoints itself under steady writes: an engine that does
//! paces them, and a second checkpoint at full speed would defeat that.

use std::time::Duration;

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::server::Server;

/// The job, where the engine needs it.
pub(super) fn job(server: &Server) -> Option<Job<Server>> {
    if server.db.engine().checkpoints_itself() {
        return None;
    }
    let mut commits_seen = 0;
    Some(Job {
        name: "checkpointer",
        is_long: true,
        period,
        run: Box::new(move |server| {
            let commits = server.db.engine().stats().commits;
            if commits != commits_seen && !server.write_gate.is_locked() {
                commits_seen = commits;
                checkpoint(server);
            }
            Next::Period
        }),
    })
}

fn period(server: &Server) -> Option<Duration> {
    let seconds = server.settings.storage.sync_period_secs;
    let period = Duration::try_from_secs_f64(seconds).ok()?;
    (!period.is_zero()).then_some(period)
}

fn checkpoint(server: &Server) {
    if let Err(error) = server.db.engine().checkpoint() {
        log_failure(server, &error.to_string());
    }
}

/// Logs that a checkpoint failed; the engine tries again.
pub(super) fn log_failure(server: &Server, error: &str) {
    server.log.warning(
        Component::Storage,
        events::CHECKPOINT_FAILED,
        "A checkpoint failed",
        |attr| {
            attr.append("error", error);
        },
    );
}
