//! Returns memory that is free in the heap to the system.
//!
//! Once a second it compares what is resident with what the storage engine counts. What the rest
//! of the server uses is in the difference too, so it acts only when that has grown by much since
//! it last saw a heap without holes.

use std::time::Duration;

use super::schedule::{Job, Next};
use crate::host::{give_back_unused, resident_anonymous};
use crate::server::Server;

const PERIOD: Duration = Duration::from_secs(1);
/// By how much the difference must have grown, in bytes; or by a quarter of what the engine counts.
const GROWN_MIN: u64 = 32 << 20;

pub(super) fn job() -> Job<Server> {
    let mut least = None;
    Job {
        name: "memory",
        is_long: false,
        period: |_| Some(PERIOD),
        run: Box::new(move |server| run(server, &mut least).map_or(Next::Never, |()| Next::Period)),
    }
}

/// `None` where the engine does not count its memory, or the system does not report ours.
fn run(server: &Server, least: &mut Option<u64>) -> Option<()> {
    let counted = server.db.engine().stats().heap_bytes?;
    let uncounted = resident_anonymous()?.saturating_sub(counted);
    if has_grown(least, uncounted, counted) {
        give_back_unused();
        let left = resident_anonymous().unwrap_or(0).saturating_sub(counted);
        *least = Some(left);
    }
    Some(())
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
