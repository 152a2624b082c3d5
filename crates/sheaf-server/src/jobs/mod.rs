//! Background jobs: expiry, checkpoints, monitors.
//!
//! ```text
//!   timer thread ── due? ─┬─ short job ──> runs on the timer
//!        ▲                └─ long job ───> a worker; another one if it has to wait
//!        └──────── next run, a period after the end of this one ───────┘
//! ```
//!
//! Periods are computed again when parameters change, so that a change takes effect at once. Due
//! times lie on a common grid: jobs with similar periods share their wake-ups.
//!
//! Invariant: a server without [`start`] has no thread here, and after [`Jobs::stop`] no job
//! begins.

mod auto_compact;
mod certificate;
mod checkpoint;
mod disconnects;
mod memory;
mod schedule;
mod storage;
mod sweeps;
mod ttl;
mod vector;

use std::sync::Arc;

use sheaf_bson::Error;

pub use certificate::{expires_soon, warn_of_expiry};
pub use schedule::Jobs;

use crate::server::Server;

/// Starts the background jobs. They end with the server.
///
/// Errors: no thread could be started.
pub fn start(server: &Arc<Server>) -> Result<(), Error> {
    let mut jobs = vec![
        sweeps::transactions(),
        sweeps::cursors(),
        disconnects::job(),
        memory::job(),
        storage::job(),
        ttl::job(),
        vector::job(),
        auto_compact::job(),
        certificate::job(),
    ];
    jobs.extend(checkpoint::job(server));
    warn_of_expiry(server);
    server.jobs.start(server, &server.log, jobs)
}
