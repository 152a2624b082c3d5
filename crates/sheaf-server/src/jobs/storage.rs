//! The thread that tells the log when the storage engine has stopped taking writes.
//!
//! A failed write or sync of its files ends all writing until the next start. Each client is told when it writes; who
//! runs the server is told here, once.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::Error;

use super::spawn_with_stack;
use crate::log::Component;
use crate::server::Server;

const TICK: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 256 << 10;

/// Starts the thread; it ends with the server, or when it has told.
/// Errors: the system gives no thread.
pub fn start(server: &Arc<Server>) -> Result<(), Error> {
    let server = Arc::downgrade(server);
    spawn_with_stack("storage", STACK_BYTES, move || {
        crate::log::set_context("storage");
        loop {
            std::thread::sleep(TICK);
            let Some(server) = server.upgrade() else {
                return;
            };
            if let Some(why) = server.db.engine().stats().refuses_writes {
                server.log.error(
                    Component::Storage,
                    9_000_043,
                    "The storage engine has stopped taking writes; reads go on. Remove the cause and restart the server",
                    |attr| {
                        attr.append("error", why.as_str());
                    },
                );
                return;
            }
        }
    })
}
