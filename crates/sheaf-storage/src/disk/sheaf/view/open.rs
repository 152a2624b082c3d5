//! The snapshots that are alive: how many, and since when.
//!
//! Every snapshot passes here twice, so the list is cut into parts by thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::disk::sheaf::files::FolderLock;
use crate::disk::sheaf::memtable::thread_number;

const PARTS: usize = 16;

/// See the module's head.
#[derive(Default)]
pub(in crate::disk::sheaf) struct OpenSnapshots {
    parts: [Mutex<Part>; PARTS],
    /// Whether there is a lock to be released.
    is_closed: AtomicBool,
    /// Kept until the last snapshot has gone.
    lock: Mutex<Option<FolderLock>>,
}

#[derive(Default)]
struct Part {
    /// When each was taken; `None` is a free place.
    taken: Vec<Option<Instant>>,
    free: Vec<usize>,
}

impl OpenSnapshots {
    /// How many there are, and the age of the oldest.
    pub(in crate::disk::sheaf) fn count_and_oldest(&self) -> (u64, Option<Duration>) {
        let (mut count, mut oldest) = (0, None::<Instant>);
        for part in &self.parts {
            for taken in part.lock().taken.iter().flatten() {
                count += 1;
                oldest = Some(oldest.map_or(*taken, |oldest| oldest.min(*taken)));
            }
        }
        (count, oldest.map(|taken| taken.elapsed()))
    }

    /// Keeps others out of the files until the last snapshot has gone: they would write over what it reads.
    pub(in crate::disk::sheaf) fn keep(&self, lock: FolderLock) {
        *self.lock.lock() = Some(lock);
        self.is_closed.store(true, Ordering::SeqCst);
        self.release_if_alone();
    }

    fn release_if_alone(&self) {
        if self.lock.lock().is_some() && self.count_and_oldest().0 == 0 {
            *self.lock.lock() = None;
        }
    }

    /// Counts a snapshot until the answer is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let part = thread_number() % PARTS;
        let mut entered = self.parts[part].lock();
        let now = Some(Instant::now());
        let place = match entered.free.pop() {
            Some(place) => {
                entered.taken[place] = now;
                place
            }
            None => {
                entered.taken.push(now);
                entered.taken.len() - 1
            }
        };
        drop(entered);
        Entry {
            open: self.clone(),
            part,
            place,
        }
    }
}

/// A snapshot's entry in the list.
pub(super) struct Entry {
    open: Arc<OpenSnapshots>,
    part: usize,
    place: usize,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut part = self.open.parts[self.part].lock();
        part.taken[self.place] = None;
        part.free.push(self.place);
        drop(part);
        if self.open.is_closed.load(Ordering::Acquire) {
            self.open.release_if_alone();
        }
    }
}
