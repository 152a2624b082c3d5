//! Returns memory that is free in the heap to the system.
//!
//! Once a second it compares resident memory with what the storage engine counts. The difference
//! includes the memory of the rest of the server, so it acts only when the difference has grown far
//! beyond its minimum since the last release.

use std::time::Duration;

use super::schedule::{Job, Next};
use crate::host::{resident_anonymous, trim_heap};
use crate::server::Server;

const PERIOD: Duration = Duration::from_secs(1);
/// Minimum growth of the difference, in bytes; a quarter of what the engine counts if that is
/// more.
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

/// `None` if the engine does not count its memory, or the system does not report the process's.
fn run(server: &Server, least: &mut Option<u64>) -> Option<()> {
    let counted = server.db.engine().stats().heap_bytes?;
    let uncounted = resident_anonymous()?.saturating_sub(counted);
    if has_grown(least, uncounted, counted) {
        trim_heap();
        let left = resident_anonymous().unwrap_or(0).saturating_sub(counted);
        *least = Some(left);
    }
    Some(())
}

/// Whether uncounted resident memory has grown enough beyond its minimum `least`, which this
/// updates.
fn has_grown(least: &mut Option<u64>, uncounted: u64, counted: u64) -> bool {
    let before = least.map_or(uncounted, |least| least.min(uncounted));
    *least = Some(before);
    uncounted > before + GROWN_MIN.max(counted / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_measured_from_the_minimum() {
        const MB: u64 = 1 << 20;
        let mut least = None;
        assert!(!has_grown(&mut least, 100 * MB, 50 * MB));
        assert!(!has_grown(&mut least, 130 * MB, 50 * MB));
        assert!(has_grown(&mut least, 133 * MB, 50 * MB));
        // With a large count the threshold is a quarter of it.
        assert!(!has_grown(&mut least, 150 * MB, 400 * MB));
        assert!(has_grown(&mut least, 201 * MB, 400 * MB));
        // A lower value is the new minimum.
        assert!(!has_grown(&mut least, 20 * MB, 50 * MB));
        assert!(has_grown(&mut least, 60 * MB, 50 * MB));
    }
}
