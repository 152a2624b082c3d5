//! The file in memory, and how far a reader may go in it.
//!
//! ```text
//!   granules   0 ... │ live ─ waiting ─ owned ─ free │ ........... │
//!              checked, lent            written      end of file   end of map: never touched
//! ```
//!
//! A page is read where it lies, as bytes that do not change and do not go. Why that holds:
//!
//! - *Inside the map.* A run is compared with [`Within::end`], and that many granules the map covers.
//! - *Inside the file.* What roots lead to was written before there were these roots. Only `Store::cut` shortens the
//!   file, behind the last granule that anybody has or may see, and with none written behind it meanwhile. Where a
//!   page is read for the first time the file's length is asked, so a pointer of a damaged file is refused too.
//! - *Unchanged.* A writer writes to granules that it owns. They were free: no pinned roots see them, and who holds
//!   bytes of a page holds its roots. Roots are pinned and unpinned under the lock of the free space, so what a
//!   reader did there is over before a writer is given the place.
//!
//! That is so as long as nobody else writes to the file. Other servers are kept out by the folder's lock, other users by
//! the file's mode. A program that overwrites the file all the same gives wrong bytes, which every access still
//! compares with the bounds of its slice; one that shortens it ends the process by a signal. So does a disk that cannot
//! read a page a second time, after the system has let go of it; the first time it is read by a call before it is
//! touched, and fails as any read. Who would rather have an error each time reads through the cache
//! ([`PageReading::Cached`]).
//!
//! [`PageReading::Cached`]: crate::disk::logtree::tree::PageReading::Cached

use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::logtree::budget::Charge;
use crate::disk::logtree::tree::pointer::{GRANULE, Run};
use crate::folder::Map;

/// The file in memory, counted as far as it is used.
pub(in crate::disk::logtree::tree) struct Mapping {
    pub(super) map: Map,
    pub(super) charge: Mutex<Charge>,
}

impl Mapping {
    /// Whether it covers so many granules of the file.
    pub(in crate::disk::logtree::tree) fn reaches(&self, granules: u64) -> bool {
        granules * GRANULE <= self.map.len() as u64
    }
}

/// What a reader may touch: the file up to the end that its roots knew.
#[derive(Clone)]
pub(in crate::disk::logtree::tree) struct Within {
    pub end: u64,
    pub map: Option<Arc<Mapping>>,
}

/// The bytes of a run in the mapped file.
///
/// # Safety
/// The run lies inside the map and inside the file, and nobody writes to it or cuts it off, as long as the bytes are
/// used. See the module's head.
#[inline]
pub(super) unsafe fn mapped(mapping: &Mapping, run: Run) -> &[u8] {
    let map = &mapping.map;
    let start = (run.start * GRANULE) as usize;
    let len = (run.len * GRANULE) as usize;
    debug_assert!(start + len <= map.len());
    // SAFETY: inside the map and the file, and unchanged, as the caller promises. While the caller has the mapping it
    // is not unmapped.
    unsafe { std::slice::from_raw_parts(map.as_ptr().add(start), len) }
}
