//! The thread that deletes what has expired.
//!
//! Every `ttlMonitorSleepSecs` seconds it makes a pass over all TTL indexes
//! ([`sheaf_db::ttl`]), unless `ttlMonitorEnabled` is off. Both are looked at
//! several times a second, so a change takes effect at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{DateTime, DocBuilder, Error, ErrorCode};
use sheaf_db::OpContext;
use sheaf_db::ttl::TtlCounters;

use crate::log::Component;
use crate::parameters::Parameter;
use crate::server::{Server, spawn_with_stack};

/// How often the thread looks whether it is time.
const TICK: Duration = Duration::from_millis(100);
/// Documents may be nested to their limit.
const STACK_BYTES: usize = 4 << 20;

/// What the server knows of its TTL thread.
#[derive(Debug, Default)]
pub struct TtlMonitor {
    counters: TtlCounters,
    stopped: AtomicBool,
    /// The pass under way.
    pass: Mutex<Option<Arc<OpContext>>>,
}

impl TtlMonitor {
    /// Starts the thread; it ends with the server.
    /// Errors: the system gives no thread.
    pub fn start(server: &Arc<Server>) -> Result<(), Error> {
        let server = Arc::downgrade(server);
        spawn_with_stack("TTLMonitor", STACK_BYTES, move || {
            crate::log::set_context("TTLMonitor");
            let mut last_pass = Instant::now();
            loop {
                std::thread::sleep(TICK);
                let Some(server) = server.upgrade() else {
                    return;
                };
                if server.ttl.stopped.load(Relaxed) {
                    return;
                }
                let seconds = server.parameters.int(Parameter::TtlMonitorSleepSecs);
                if last_pass.elapsed() < Duration::from_secs(seconds.unsigned_abs()) {
                    continue;
                }
                if server.parameters.bool(Parameter::TtlMonitorEnabled) {
                    pass(&server);
                }
                last_pass = Instant::now();
            }
        })
    }

    /// Ends the pass under way at its next step, and lets none begin.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Some(op) = &*self.pass.lock() {
            op.kill(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        }
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
    let op = Arc::new(OpContext::new());
    *server.ttl.pass.lock() = Some(op.clone());
    // Stopped before it was there to be killed.
    if server.ttl.stopped.load(Relaxed) {
        return;
    }
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
    let counters = &server.ttl.counters;
    let done = server
        .db
        .ttl_pass(&op, DateTime::now(), counters, &mut failed);
    if let Err(error) = done
        && !op.is_killed()
    {
        failed("", &error);
    }
    *server.ttl.pass.lock() = None;
}
