//! The thread that sees to it that memory which is free in the heap goes back to the system.
//!
//! Once a second it compares what is resident with what the storage engine counts. What the rest of the server
//! uses is in the difference too, so it acts only when that has grown by much since it last looked at a heap
//! without holes.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::Error;

use super::spawn_with_stack;
use crate::host::{give_back_unused, resident_anonymous};
use crate::server::Server;

const TICK: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 256 << 10;
/// By how much the difference must have grown, in bytes; or by a quarter of what the engine counts.
const GROWN_MIN: u64 = 32 << 20;

/// Starts the thread; it ends with the server.
/// Errors: the system gives no thread.
pub fn start(server: &Arc<Server>) -> Result<(), Error> {
    let server = Arc::downgrade(server);
    spawn_with_stack("memory", STACK_BYTES, move || {
        let mut least = None;
        loop {
            std::thread::sleep(TICK);
            let counted = {
                let Some(server) = server.upgrade() else {
                    return;
                };
                server.db.engine().stats().memory
            };
            let Some(counted) = counted else {
                // An engine that does not count its memory.
                return;
            };
            let counted = counted.total.bytes - counted.mapped.bytes.min(counted.total.bytes);
            let Some(uncounted) = resident_anonymous().map(|all| all.saturating_sub(counted))
            else {
                return;
            };
            if has_grown(&mut least, uncounted, counted) {
                give_back_unused();
                let left = resident_anonymous().unwrap_or(0).saturating_sub(counted);
                least = Some(left);
            }
        }
    })
}

/// Whether so much is resident beside what is counted that it is worth a look. `least` is the least that there was.
fn has_grown(least: &mut Option<u64>, uncounted: u64, counted: u64) -> bool {
    let before = least.map_or(uncounted, |least| least.min(uncounted));
    *least = Some(before);
    uncounted > before + GROWN_MIN.max(counted / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_from_the_least_there_was() {
        const MB: u64 = 1 << 20;
        let mut least = None;
        assert!(!has_grown(&mut least, 100 * MB, 50 * MB));
        assert!(!has_grown(&mut least, 130 * MB, 50 * MB));
        assert!(has_grown(&mut least, 133 * MB, 50 * MB));
        // Of much that is counted, a quarter.
        assert!(!has_grown(&mut least, 150 * MB, 400 * MB));
        assert!(has_grown(&mut least, 201 * MB, 400 * MB));
        // Less is the new least.
        assert!(!has_grown(&mut least, 20 * MB, 50 * MB));
        assert!(has_grown(&mut least, 60 * MB, 50 * MB));
    }
}
