//! Compaction: moves the end of the file into free space, and truncates the file.
//!
//! ```text
//!   round 1   [ live │ free    │ live │ free │ live ]     the last pages are rewritten further in front
//!   round 2   [ live │ live │ free │ waits  ]             no reader uses the old places: they are cut off
//!   ...       until two rounds in a row free nothing
//! ```
//!
//! All tables share one file, so all of them are compacted. A round is a paced checkpoint: readers
//! and writers continue concurrently. Pages that an old snapshot uses are not moved.

use std::sync::Arc;

use super::Shared;
use super::checkpoint::{Extra, Urgency};
use crate::error::Result;

/// Number of rounds without a gain after which compaction ends. Two, because space that one round
/// frees is only cut off in the next.
const IDLE_MAX: u32 = 2;
/// Maximum number of rounds, for a file that grows faster than it is compacted.
const ROUNDS_MAX: u32 = 64;

impl Shared {
    /// See [`crate::StorageEngine::compact`].
    pub(super) fn compact(self: &Arc<Self>) -> Result<u64> {
        self.check_open()?;
        let before = self.tree.stats().file_bytes;
        let (mut least, mut idle) = (before, 0);
        for _ in 0..ROUNDS_MAX {
            self.check_open()?;
            self.checkpoint(Urgency::Paced, true, Extra::Compaction)?;
            let now = self.tree.stats().file_bytes;
            idle = if now < least { 0 } else { idle + 1 };
            least = least.min(now);
            if idle == IDLE_MAX {
                break;
            }
        }
        Ok(before.saturating_sub(self.tree.stats().file_bytes))
    }
}
