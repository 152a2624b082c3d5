//! Reads that nobody waits for any more are ended.
//!
//! ```text
//!   client ──closes──> socket        every 200 ms: reads that have run for a while
//!                        ▲              └─ is the client still there? (one system call)
//!                        └── no: the operation is killed with ClientDisconnect, its thread is free
//! ```
//!
//! A write goes on to its end: its client may have sent it without waiting for an answer, and half of it
//! would help nobody. So do commands that change collections, indexes or the server.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, ErrorCode};

use super::spawn_with_stack;
use crate::client::ClientState;
use crate::server::Server;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(200);
/// What is done sooner is not looked at.
const RUNNING_MIN: Duration = Duration::from_millis(100);
const STACK_BYTES: usize = 128 * 1024;

/// Starts the thread that looks; it ends with the server.
/// Errors: the system gives no thread.
pub fn watch(server: &Arc<Server>) -> Result<(), Error> {
    let server = Arc::downgrade(server);
    spawn_with_stack("disconnects", STACK_BYTES, move || {
        crate::log::set_context("disconnects");
        loop {
            std::thread::sleep(TICK);
            let Some(server) = server.upgrade() else {
                return;
            };
            for (client, op) in server.operations.awaited(RUNNING_MIN) {
                if client.state() == ClientState::Gone {
                    op.kill(ErrorCode::CLIENT_DISCONNECT);
                }
            }
        }
    })
}
