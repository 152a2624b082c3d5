//! The thread that deletes what has expired.
//!
//! Every `ttlMonitorSleepSecs` seconds it makes a pass over all TTL indexes
//! ([`sheaf_db::ttl`]), unless `ttlMonitorEnabled` is off. Both are looked at
//! several times a second, so a change takes effect at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use sheaf_bson::{DateTime, DocBuilder, Error};
use sheaf_db::StatementContext;
use sheaf_db::ttl::TtlCounters;

use super::passes::Passes;
use crate::log::Component;
use crate::parameters::Parameter;
use crate::server::Server;

/// What the server knows of its TTL thread.
#[derive(Debug, Default)]
pub struct TtlMonitor {
    counters: TtlCounters,
    passes: Passes,
}

impl TtlMonitor {
    /// Starts the thread; it ends with the server.
    /// Errors: the system gives no thread.
    pub fn start(server: &Arc<Server>) -> Result<(), Error> {
        let mut last_pass = Instant::now();
        Passes::start(
            server,
            "TTLMonitor",
            |server| &server.ttl.passes,
            move |server| {
                let seconds = server.parameters.int(Parameter::TtlMonitorSleepSecs);
                if last_pass.elapsed() < Duration::from_secs(seconds.unsigned_abs()) {
                    return;
                }
                if server.parameters.bool(Parameter::TtlMonitorEnabled) {
                    pass(server);
                }
                last_pass = Instant::now();
            },
        )
    }

    /// Ends the pass under way at its next step, and lets none begin.
    pub fn stop(&self) {
        self.passes.stop();
    }

    /// Appends `ttl`.
    pub fn append_metrics(&self, out: &mut DocBuilder) {
        let counters = &self.counters;
        out.begin_document("ttl");
        for (name, counter) in [
            ("deletedDocuments", &counters.deleted_documents),
            ("passes", &counters.passes),
            ("subPasses", &counters.sub_passes),
        ] {
            out.append(name, counter.load(Relaxed) as i64);
        }
        out.end();
    }
}

fn pass(server: &Server) {
    let mut failed = |index: &str, error: &Error| {
        server.log.warning(
            Component::Index,
            5_400_703,
            "Error running TTL job on collection",
            |attr| {
                attr.append("index", index);
                attr.append("error", error.message());
            },
        );
    };
    let TtlMonitor { counters, passes } = &server.ttl;
    let done = passes.run(|op| {
        let now = DateTime::now();
        let statement = StatementContext::from(op.clone());
        server.db.ttl_pass(&statement, now, counters, &mut failed)
    });
    if let Err(error) = done {
        failed("", &error);
    }
}
