//! The open connections, their traffic, and their limit.
//!
//! Each connection has its own counters, on its own cache line. They are summed
//! on request. The totals of closed connections are kept separately.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheaf_server::traffic::{ConnectionStats, NetworkStats};

use super::Link;
use super::link::Counters;

/// The server's open connections.
pub struct Connections {
    max: usize,
    created: AtomicU64,
    rejected: AtomicU64,
    open: Mutex<Open>,
    /// Notified when a connection is removed.
    closed: Condvar,
}

#[derive(Default)]
struct Open {
    links: HashMap<u64, Arc<Link>>,
    /// Totals of the closed connections.
    past: NetworkStats,
    /// No further connections are accepted.
    stopping: bool,
}

fn add(sum: &mut NetworkStats, counters: &Counters) {
    sum.bytes_in += counters.bytes_in.load(Ordering::Relaxed);
    sum.bytes_out += counters.bytes_out.load(Ordering::Relaxed);
    sum.requests += counters.requests.load(Ordering::Relaxed);
    counters.compression.add_to(&mut sum.compression);
}

impl Connections {
    /// An empty set with a limit of `max` connections.
    pub fn new(max: usize) -> Arc<Connections> {
        Arc::new(Connections {
            max,
            created: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            open: Mutex::default(),
            closed: Condvar::new(),
        })
    }

    /// The maximum number of open connections.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Counts for `serverStatus`.
    pub fn stats(&self) -> ConnectionStats {
        let open = self.open.lock();
        let current = open.links.len() as u64;
        ConnectionStats {
            current,
            available: (self.max as u64).saturating_sub(current),
            total_created: self.created.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            active: open.links.values().filter(|link| link.is_active()).count() as u64,
        }
    }

    /// Bytes and requests of all connections, open and past.
    pub fn network(&self) -> NetworkStats {
        let open = self.open.lock();
        let mut sum = open.past;
        for link in open.links.values() {
            add(&mut sum, &link.counters);
        }
        sum
    }

    /// The open connections, in no particular order.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.open.lock().links.values().cloned().collect()
    }

    /// The number of the next connection; `None` if the limit is reached or the
    /// server is stopping.
    pub(super) fn admit(&self) -> Option<u64> {
        let open = self.open.lock();
        if open.stopping {
            return None;
        }
        if open.links.len() >= self.max {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.created.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds an admitted connection. Returns the number of open connections.
    pub(super) fn insert(&self, link: &Arc<Link>) -> usize {
        let mut open = self.open.lock();
        open.links.insert(link.id(), Arc::clone(link));
        if open.stopping {
            link.close_soon();
        }
        open.links.len()
    }

    /// Removes a connection. Returns the number of open connections.
    pub(super) fn remove(&self, link: &Link) -> usize {
        let mut open = self.open.lock();
        if open.links.remove(&link.id()).is_some() {
            add(&mut open.past, &link.counters);
        }
        let left = open.links.len();
        drop(open);
        self.closed.notify_all();
        left
    }

    /// Closes every connection after its current request and admits no more.
    pub(super) fn close_soon(&self) {
        let mut open = self.open.lock();
        open.stopping = true;
        for link in open.links.values() {
            link.close_soon();
        }
    }

    /// Closes every connection immediately.
    pub(super) fn close_now(&self) {
        for link in self.open.lock().links.values() {
            link.close_now();
        }
    }

    /// Waits until no connection is open. False if `limit` passed first.
    pub(super) fn wait_closed(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut open = self.open.lock();
        while !open.links.is_empty() {
            if self.closed.wait_until(&mut open, end).timed_out() {
                return open.links.is_empty();
            }
        }
        true
    }
}
