//! The thread that builds vector indexes anew which their collections have outgrown.
//!
//! A vector index divides its vectors into lists when it is built. Where there are many more vectors since, or far
//! fewer, the thread has it built again ([`sheaf_db::catalog::search_indexes`]), beside reads and writes. It looks
//! every second; a look takes some microseconds an index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode};
use sheaf_db::OpContext;

use crate::log::Component;
use crate::server::{Server, spawn_with_stack};

/// How often the thread looks whether the server stops.
const TICK: Duration = Duration::from_millis(100);
/// How often it looks at the indexes.
const PASS_INTERVAL: Duration = Duration::from_secs(1);
/// How long it leaves all indexes alone after one could not be built.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// Documents may be nested to their limit.
const STACK_BYTES: usize = 4 << 20;

/// What the server knows of the thread.
#[derive(Debug, Default)]
pub struct VectorMonitor {
    stopped: AtomicBool,
    /// The pass under way.
    pass: Mutex<Option<Arc<OpContext>>>,
}

impl VectorMonitor {
    /// Starts the thread; it ends with the server.
    /// Errors: the system gives no thread.
    pub fn start(server: &Arc<Server>) -> Result<(), Error> {
        let server = Arc::downgrade(server);
        spawn_with_stack("VectorMonitor", STACK_BYTES, move || {
            crate::log::set_context("VectorMonitor");
            let mut next_pass = Instant::now() + PASS_INTERVAL;
            loop {
                std::thread::sleep(TICK);
                let Some(server) = server.upgrade() else {
                    return;
                };
                if server.vectors.stopped.load(Relaxed) {
                    return;
                }
                if Instant::now() < next_pass {
                    continue;
                }
                let failed = pass(&server);
                let pause = if failed {
                    PAUSE_AFTER_FAILURE
                } else {
                    PASS_INTERVAL
                };
                next_pass = Instant::now() + pause;
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
}

/// Whether some index could not be built.
fn pass(server: &Server) -> bool {
    let op = Arc::new(OpContext::new());
    *server.vectors.pass.lock() = Some(op.clone());
    // Stopped before it was there to be killed.
    if server.vectors.stopped.load(Relaxed) {
        return false;
    }
    let mut any = false;
    let mut failed = |index: &str, error: &Error| {
        any = true;
        server.log.warning(
            Component::Index,
            9_300_001,
            "A vector index could not be built anew",
            |attr| {
                attr.append("index", index);
                attr.append("error", error.message());
            },
        );
    };
    let done = server.db.retrain_search_indexes(&op, &mut failed);
    if let Err(error) = done
        && !op.is_killed()
    {
        failed("", &error);
    }
    *server.vectors.pass.lock() = None;
    any
}
