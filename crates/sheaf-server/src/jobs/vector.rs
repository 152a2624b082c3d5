//! The thread that builds vector indexes anew which their collections have outgrown.
//!
//! A vector index divides its vectors into lists when it is built. Where there are many more vectors since, or far
//! fewer, the thread has it built again ([`sheaf_db::catalog::search_indexes`]), beside reads and writes. It looks
//! every second; a look takes some microseconds an index.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::Error;

use super::passes::Passes;
use crate::log::Component;
use crate::server::Server;

/// How often it looks at the indexes.
const PASS_INTERVAL: Duration = Duration::from_secs(1);
/// How long it leaves all indexes alone after one could not be built.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// What the server knows of the thread.
#[derive(Debug, Default)]
pub struct VectorMonitor {
    passes: Passes,
}

impl VectorMonitor {
    /// Starts the thread; it ends with the server.
    /// Errors: the system gives no thread.
    pub fn start(server: &Arc<Server>) -> Result<(), Error> {
        let mut next_pass = Instant::now() + PASS_INTERVAL;
        Passes::start(
            server,
            "VectorMonitor",
            |server| &server.vectors.passes,
            move |server| {
                if Instant::now() < next_pass {
                    return;
                }
                let pause = match pass(server) {
                    true => PAUSE_AFTER_FAILURE,
                    false => PASS_INTERVAL,
                };
                next_pass = Instant::now() + pause;
            },
        )
    }

    /// Ends the pass under way at its next step, and lets none begin.
    pub fn stop(&self) {
        self.passes.stop();
    }
}

/// Whether some index could not be built.
fn pass(server: &Server) -> bool {
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
    let done = server.vectors.passes.run(|op| {
        let trained = server.db.retrain_search_indexes(op, &mut failed);
        trained.map(drop)
    });
    if let Err(error) = done {
        failed("", &error);
    }
    any
}
