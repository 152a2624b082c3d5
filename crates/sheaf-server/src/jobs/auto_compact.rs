//! Releases free space of the data file, while `autoCompact` is enabled.

use std::time::Duration;

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::server::Server;

/// How often the free space is compared with the target.
const PERIOD: Duration = Duration::from_secs(10);

pub(super) fn job() -> Job<Server> {
    Job {
        name: "autoCompact",
        is_long: true,
        period: |server| server.auto_compact.enabled().map(|_| PERIOD),
        run: Box::new(|server| {
            if let Some(options) = server.auto_compact.begin_pass() {
                pass(server, options.target_mb);
                server.auto_compact.end_pass(options);
            }
            Next::Period
        }),
    }
}

fn pass(server: &Server, target_mb: u64) {
    let engine = server.db.engine();
    let free = engine.stats().file_free_bytes.unwrap_or(0);
    let target = target_mb.saturating_mul(1 << 20);
    let Some(_writing) = server.write_gate.enter_background() else {
        return;
    };
    if free < target {
        return;
    }
    if let Err(error) = engine.compact() {
        server.log.warning(
            Component::Storage,
            events::AUTO_COMPACT_FAILED,
            "A background compaction failed",
            |attr| {
                attr.append("error", error.to_string().as_str());
            },
        );
    }
}
