//! Back-pressure: slows writers down in proportion to the checkpoint debt.
//!
//! ```text
//!   admitted rate
//!   all ─────────────┐
//!                     ╲   drain rate / (2 · pressure)
//!   drain rate ─ ─ ─ ─ ╲─ ─ ─ half-way, the admitted rate equals the drain rate
//!                        ╲______
//!            0      soft    |    hard       debt: bytes that checkpoints have to merge
//! ```
//!
//! A writer that is slowed down sleeps before it has a sequence or a lock, so no other thread waits
//! for it. Short delays accumulate: all writers advance one common clock, and only a writer that
//! would be far ahead of it sleeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Delays below this are not worth a sleep.
const SHORT: Duration = Duration::from_micros(200);
/// Maximum length of one sleep, after which the pressure is computed again.
const LONG: Duration = Duration::from_millis(50);
/// Assumed rate of checkpoints, in bytes per second, before one has been measured.
const RATE_FIRST: u64 = 50 << 20;
const RATE_MIN: u64 = 1 << 20;

/// See the module's head.
pub(super) struct Throttle {
    start: Instant,
    /// When the next writer may continue, in nanoseconds since `start`.
    next: AtomicU64,
    /// Measured rate of checkpoints, in bytes per second.
    rate: AtomicU64,
    stalls: AtomicU64,
    stalled_micros: AtomicU64,
}

impl Throttle {
    pub(super) fn new() -> Throttle {
        Throttle {
            start: Instant::now(),
            next: AtomicU64::new(0),
            rate: AtomicU64::new(RATE_FIRST),
            stalls: AtomicU64::new(0),
            stalled_micros: AtomicU64::new(0),
        }
    }

    /// Number of sleeps, and their total duration in microseconds.
    pub(super) fn stalls(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.stalls), load(&self.stalled_micros))
    }

    /// Records the bytes and the duration of a checkpoint.
    pub(super) fn drained(&self, bytes: u64, took: Duration) {
        let micros = took.as_micros().max(1);
        let rate = u128::from(bytes) * 1_000_000 / micros;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(RATE_MIN);
        // Averaged with the old rate: a single checkpoint may have run on a busy disk.
        let before = self.rate.load(Ordering::Relaxed);
        self.rate.store(before / 2 + rate / 2, Ordering::Relaxed);
    }

    /// Slows down a writer of `bytes` bytes. `pressure` is 0 at the soft limit and 1 at the hard
    /// one, and may be more.
    pub(super) fn slow_down(&self, bytes: u64, pressure: f64) {
        debug_assert!(
            pressure.is_finite() && pressure > 0.0,
            "pressure {pressure}"
        );
        let cost = cost(bytes, self.rate.load(Ordering::Relaxed), pressure);
        let now = self.nanos();
        let mut next = self.next.load(Ordering::Relaxed);
        let turn = loop {
            let turn = next.max(now) + cost;
            match self
                .next
                .compare_exchange_weak(next, turn, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => break turn,
                Err(other) => next = other,
            }
        };
        let ahead = Duration::from_nanos(turn - now);
        if ahead > SHORT {
            self.sleep(ahead.min(LONG));
        }
    }

    /// Sleeps, and counts the stall.
    pub(super) fn sleep(&self, time: Duration) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        let micros = time.as_micros() as u64;
        self.stalled_micros.fetch_add(micros, Ordering::Relaxed);
        thread::sleep(time);
    }

    fn nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// The time that `bytes` bytes may take, all writers together, in nanoseconds.
fn cost(bytes: u64, rate: u64, pressure: f64) -> u64 {
    (bytes as f64 / rate as f64 * 2.0 * pressure * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_what_checkpoints_take_in() {
        let throttle = Throttle::new();
        for _ in 0..20 {
            throttle.drained(10 << 20, Duration::from_secs(1));
        }
        let rate = throttle.rate.load(Ordering::Relaxed);
        assert!((9 << 20..12 << 20).contains(&rate), "{rate}");
    }

    #[test]
    fn in_the_middle_input_equals_output() {
        let second = 1_000_000_000;
        assert_eq!(cost(1 << 20, 1 << 20, 0.5), second);
        assert_eq!(cost(1 << 20, 1 << 20, 1.0), 2 * second);
        assert_eq!(cost(1 << 10, 1 << 20, 0.5), second / 1024);
        assert_eq!(cost(1 << 20, 1 << 20, 0.0), 0);
    }
}
