//! Asks the engine for a checkpoint every `--syncdelay` seconds, if anything was written.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::Error;

use super::{STACK_BYTES, spawn_with_stack};
use crate::log::Component;
use crate::server::Server;

/// Every `--syncdelay` seconds the engine does its housekeeping, if anything was written.
pub(super) fn start(server: &Arc<Server>) -> Result<(), Error> {
    let seconds = server.settings.storage.sync_period_secs;
    let Ok(period) = Duration::try_from_secs_f64(seconds) else {
        return Ok(());
    };
    if period.is_zero() {
        return Ok(());
    }
    let server = Arc::downgrade(server);
    spawn_with_stack("checkpoint", STACK_BYTES, move || {
        crate::log::set_context("checkpointer");
        let mut seen = 0;
        loop {
            std::thread::sleep(period);
            let Some(server) = server.upgrade() else {
                return;
            };
            let engine = server.db.engine();
            let commits = engine.stats().commits;
            if commits == seen {
                continue;
            }
            seen = commits;
            if let Err(error) = engine.checkpoint() {
                server.log.warning(
                    Component::Storage,
                    9_000_044,
                    "A checkpoint failed",
                    |attr| {
                        attr.append("error", error.to_string().as_str());
                    },
                );
            }
        }
    })
}
