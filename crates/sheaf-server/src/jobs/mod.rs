//! What runs without a client: checkpoints, expiry, monitors.

mod checkpoint;
mod disconnects;
mod memory;
pub mod passes;
mod storage;
mod sweeps;
pub mod ttl;
pub mod vector;

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode};

use crate::server::Server;

/// Address space for the stack of a thread that touches no documents.
const STACK_BYTES: usize = 256 * 1024;

/// Starts the background jobs. They end with the server.
///
/// Errors: the system gives no thread.
pub fn start(server: &Arc<Server>) -> Result<(), Error> {
    sweeps::sweep_cursors(server)?;
    sweeps::sweep_transactions(server)?;
    checkpoint::start(server)?;
    ttl::TtlMonitor::start(server)?;
    vector::VectorMonitor::start(server)?;
    memory::start(server)?;
    storage::start(server)?;
    disconnects::watch(server)
}

fn spawn_with_stack(
    name: &str,
    bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(bytes)
        .spawn(run)
        .map(drop)
        .map_err(|e| {
            Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("cannot start a thread: {e}"),
            )
        })
}
