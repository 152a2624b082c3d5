//! The mapped file, and the limits within which a reader may access it.
//!
//! ```text
//!   granules   0 ... │ live ─ waiting ─ owned ─ free │ ........... │
//!              checked, lent            written      end of file   end of map: never touched
//! ```
//!
//! A page is read in place, as bytes that neither change nor disappear. The reasons:
//!
//! - *Inside the map.* A run is compared with [`Within::end`], and the map covers that many
//!   granules.
//! - *Inside the file.* Everything that roots refer to was written before these roots existed. Only
//!   `Store::cut` shortens the file, after the last granule that anything uses or may see, and
//!   while nothing is written after it. When a page is read for the first time the file's length is
//!   checked, so an invalid pointer in a damaged file is rejected, too.
//! - *Unchanged.* A writer writes to granules that it owns. They were free: no pinned roots see
//!   them, and a holder of a page's bytes holds its roots. Roots are pinned and unpinned under the
//!   lock of the free space, so a reader's accesses are complete before a writer gets the granules.
//!
//! This holds as long as no other program writes to the file. Other servers are kept out by the
//! folder's lock, other users by the file's mode. A program that nevertheless overwrites the file
//! causes wrong bytes, which every access still bounds-checks; one that shortens it ends the
//! process by a signal. So does a disk that cannot read a page a second time, after the system has
//! evicted it; the first time the page is read by a system call before it is accessed, which fails
//! like any read. To get an error in every case, read through the cache ([`PageReading::Cached`]).
//!
//! [`PageReading::Cached`]: crate::disk::logtree::tree::PageReading::Cached

use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::logtree::budget::Charge;
use crate::disk::logtree::tree::pointer::{GRANULE, Run};
use crate::folder::Map;

/// The mapped file; its used part is charged to the budget.
pub(in crate::disk::logtree::tree) struct Mapping {
    pub(super) map: Map,
    pub(super) charge: Mutex<Charge>,
}

impl Mapping {
    /// Whether it covers the first `granules` granules of the file.
    pub(in crate::disk::logtree::tree) fn reaches(&self, granules: u64) -> bool {
        granules * GRANULE <= self.map.len() as u64
    }
}

/// The part of the file that a reader may access: up to the end of its roots.
#[derive(Clone)]
pub(in crate::disk::logtree::tree) struct Within {
    pub end: u64,
    pub map: Option<Arc<Mapping>>,
}

/// The bytes of a run in the mapped file.
///
/// # Safety
/// The run must be inside the map and inside the file, and must not be written to or cut off as
/// long as the bytes are used. See the module's head.
#[inline]
pub(super) unsafe fn mapped(mapping: &Mapping, run: Run) -> &[u8] {
    let map = &mapping.map;
    let start = (run.start * GRANULE) as usize;
    let len = (run.len * GRANULE) as usize;
    debug_assert!(start + len <= map.len());
    // SAFETY: inside the map and the file, and unchanged, as the caller guarantees. The caller's
    // reference to the mapping keeps it mapped.
    unsafe { std::slice::from_raw_parts(map.as_ptr().add(start), len) }
}
