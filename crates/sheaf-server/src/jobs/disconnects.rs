//! Ends reads whose client has disconnected.
//!
//! ```text
//!   client ──closes──> socket        several times a second: reads that have run for a while
//!                        ▲              └─ is the client still there? (one system call)
//!                        └── no: the operation is killed with ClientDisconnect, its thread is free
//! ```
//!
//! A write runs to its end: its client may have sent it without waiting for a reply, and a partial
//! write is useless. So do commands that change collections, indexes or the server.

use std::time::Duration;

use sheaf_bson::ErrorCode;

use super::schedule::{Job, Next};
use crate::client::ClientState;
use crate::server::Server;

/// How often clients of running reads are checked.
const PERIOD: Duration = Duration::from_millis(200);
/// How often it is checked whether reads run at all.
const PERIOD_IDLE: Duration = Duration::from_millis(500);
/// Operations that end sooner are not checked.
const RUNNING_MIN: Duration = Duration::from_millis(100);

pub(super) fn job() -> Job<Server> {
    Job {
        name: "disconnects",
        is_long: false,
        period: |_| Some(PERIOD_IDLE),
        run: Box::new(run),
    }
}

fn run(server: &Server) -> Next {
    let awaited = server.operations.awaited(RUNNING_MIN);
    for (client, op) in &awaited {
        if client.state() == ClientState::Gone {
            op.kill(ErrorCode::CLIENT_DISCONNECT);
        }
    }
    match awaited.is_empty() {
        true => Next::Period,
        false => Next::After(PERIOD),
    }
}
