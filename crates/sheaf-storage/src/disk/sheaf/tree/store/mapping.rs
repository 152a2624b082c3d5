//! The file in memory, and how far a reader may go in it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::sheaf::budget::Charge;
use crate::disk::sheaf::files::Map;
use crate::disk::sheaf::tree::pointer::{GRANULE, Run};

/// The file in memory, counted as far as it is used.
pub(in crate::disk::sheaf::tree) struct Mapping {
    pub(super) map: Map,
    pub(super) charge: Mutex<Charge>,
}

impl Mapping {
    /// Whether it covers so many granules of the file.
    pub(in crate::disk::sheaf::tree) fn reaches(&self, granules: u64) -> bool {
        granules * GRANULE <= self.map.len() as u64
    }
}

/// What a reader may touch: the file up to the end that its roots knew.
#[derive(Clone)]
pub(in crate::disk::sheaf::tree) struct Within {
    pub end: u64,
    pub map: Option<Arc<Mapping>>,
}

/// The bytes of a run in the mapped file.
///
/// # Safety
/// The run lies inside the map and inside the file, and stays so while the bytes are used: the file
/// is cut only behind what pinned roots may reach. No other program shortens the file.
#[inline]
pub(super) unsafe fn mapped(mapping: &Mapping, run: Run) -> &[u8] {
    let map = &mapping.map;
    let start = (run.start * GRANULE) as usize;
    let len = (run.len * GRANULE) as usize;
    debug_assert!(start + len <= map.len());
    // SAFETY: inside the map and the file, as the caller promises.
    unsafe { std::slice::from_raw_parts(map.as_ptr().add(start), len) }
}
