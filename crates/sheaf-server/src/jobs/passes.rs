//! Threads that go over the database again and again beside its clients: what they share.
//!
//! ```text
//!   thread: every tick ── due? ──> a pass, an operation of its own ── stop() kills it ──> the thread ends
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use sheaf_bson::{Error, ErrorCode};
use sheaf_db::OpContext;

use super::spawn_with_stack;
use crate::server::Server;

/// How often a thread looks whether it is time, and whether the server stops.
const TICK: Duration = Duration::from_millis(100);
/// Documents may be nested to their limit.
const STACK_BYTES: usize = 4 << 20;

/// What the server knows of one of them.
#[derive(Debug, Default)]
pub struct Passes {
    stopped: AtomicBool,
    /// The pass under way.
    running: Mutex<Option<Arc<OpContext>>>,
}

impl Passes {
    /// Starts a thread of this name, which also stands in its lines of the log, and calls `tick` several times a
    /// second. It ends with the server.
    /// Errors: the system gives no thread.
    pub fn start(
        server: &Arc<Server>,
        name: &'static str,
        of: fn(&Server) -> &Passes,
        mut tick: impl FnMut(&Server) + Send + 'static,
    ) -> Result<(), Error> {
        let server = Arc::downgrade(server);
        spawn_with_stack(name, STACK_BYTES, move || {
            crate::log::set_context(name);
            loop {
                std::thread::sleep(TICK);
                let Some(server) = server.upgrade() else {
                    return;
                };
                if of(&server).stopped.load(Relaxed) {
                    return;
                }
                tick(&server);
            }
        })
    }

    /// Makes a pass, unless the server stops. A pass that is ended by that is no failure.
    /// Errors: the pass's.
    pub fn run(
        &self,
        pass: impl FnOnce(&Arc<OpContext>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let op = Arc::new(OpContext::new());
        *self.running.lock() = Some(op.clone());
        // Stopped before it was there to be killed.
        if self.stopped.load(Relaxed) {
            return Ok(());
        }
        let done = pass(&op);
        *self.running.lock() = None;
        if op.is_killed() { Ok(()) } else { done }
    }

    /// Ends the pass under way at its next step, and lets none begin.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Some(op) = &*self.running.lock() {
            op.kill(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        }
    }
}
