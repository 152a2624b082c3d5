//! Memory of large messages, of all connections together.
//!
//! ```text
//!   header of a large frame ──> reserve its length, and that of its content if it is compressed
//!                                 ├─ there is room: read on, decode, handle ──> released
//!                                 └─ none for PATIENCE: the frame is refused and skipped
//!   a large reply           ──> held while it is sent, whether or not there is room
//! ```
//!
//! A connection reserves all that one message takes before it reads it, and waits for nothing else
//! while it holds a reservation, so two connections never wait for each other. Small messages are
//! not counted: a connection keeps a buffer of their size anyway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Messages up to this size are not counted.
pub(super) const COUNTED_BYTES_MIN: usize = 1 << 20;

/// How often a waiting connection checks whether it is to give up.
const SLICE: Duration = Duration::from_millis(100);

/// The limit, and what is held.
#[derive(Debug)]
pub struct MessageMemory {
    bytes_max: usize,
    patience: Duration,
    held: Mutex<usize>,
    released: Condvar,
}

impl Default for MessageMemory {
    /// Without a limit.
    fn default() -> MessageMemory {
        MessageMemory {
            bytes_max: usize::MAX,
            patience: Duration::ZERO,
            held: Mutex::new(0),
            released: Condvar::new(),
        }
    }
}

impl MessageMemory {
    /// All messages together may hold `bytes_max`; a connection waits for `patience`.
    pub fn new(bytes_max: usize, patience: Duration) -> Arc<MessageMemory> {
        Arc::new(MessageMemory {
            bytes_max,
            patience,
            ..MessageMemory::default()
        })
    }

    /// Waits until `bytes` are free, or until nothing is held. Returns `None` if there was no room
    /// in time, or `gives_up` returned true.
    pub(super) fn reserve(
        self: &Arc<Self>,
        bytes: usize,
        gives_up: impl Fn() -> bool,
    ) -> Option<Reservation> {
        let end = Instant::now() + self.patience;
        let mut held = self.held.lock();
        while *held > 0 && held.saturating_add(bytes) > self.bytes_max {
            if Instant::now() >= end || gives_up() {
                return None;
            }
            self.released.wait_for(&mut held, SLICE.min(self.patience));
        }
        *held += bytes;
        drop(held);
        Some(self.reservation(bytes))
    }

    /// Holds `bytes` that are in use already.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize) -> Reservation {
        *self.held.lock() += bytes;
        self.reservation(bytes)
    }

    fn reservation(self: &Arc<Self>, bytes: usize) -> Reservation {
        Reservation {
            memory: Arc::clone(self),
            bytes,
        }
    }
}

/// Bytes held; released when dropped.
pub(super) struct Reservation {
    memory: Arc<MessageMemory>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.memory.held.lock() -= self.bytes;
        self.memory.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_waits_until_there_is_room() {
        let memory = MessageMemory::new(100, Duration::from_secs(60));
        let first = memory.reserve(80, || false).unwrap();
        assert!(memory.reserve(30, || true).is_none());
        assert!(memory.reserve(20, || true).is_some());
        let waiting = Arc::clone(&memory);
        let second = std::thread::spawn(move || waiting.reserve(30, || false).is_some());
        drop(first);
        assert!(second.join().unwrap());
    }

    #[test]
    fn a_message_above_the_limit_passes_alone() {
        let memory = MessageMemory::new(100, Duration::ZERO);
        let large = memory.reserve(500, || false).unwrap();
        assert!(memory.reserve(1, || false).is_none());
        drop(large);
        let reply = memory.hold(500);
        assert!(memory.reserve(1, || false).is_none());
        drop(reply);
        assert!(memory.reserve(1, || false).is_some());
    }
}
