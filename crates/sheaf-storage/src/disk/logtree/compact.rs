//! Compaction: the file's end goes into free space before it, and the file becomes shorter.
//!
//! ```text
//!   round 1   [ live │ free    │ live │ free │ live ]     what lies last is written anew further in front
//!   round 2   [ live │ live │ free │ waits  ]             nobody reads the old places any more: they are cut off
//!   ...       until a round or two give nothing
//! ```
//!
//! The file is one for all tables, so all of them are compacted. A round is a checkpoint, paced as any other: readers and
//! writers go on beside it. What an old snapshot sees stays where it is.

use std::sync::Arc;

use super::Shared;
use super::checkpoint::{Extra, Urgency};
use crate::error::Result;

/// Rounds that give nothing before it ends: what one frees, the next one cuts off.
const IDLE_MAX: u32 = 2;
/// A bound for a file that is written to faster than it is compacted.
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
