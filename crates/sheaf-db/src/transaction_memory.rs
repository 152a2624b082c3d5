//! How much memory the writes of open transactions may hold: each of them, and all together.
//!
//! ```text
//!   statement ends ── the unit's writes, entries for the oplog, locks: so many bytes ─┬─> charged, until the unit ends
//!                                     more than one transaction may have: 388, for good ─┤
//!                                     more than all may have: 112, try again later ──────┘
//! ```
//!
//! A transaction's writes are in memory until it commits, so without a bound any client could take all of it. They
//! are counted after each statement and within large ones: what is held beyond the bound is less than a unit's part
//! of a statement (`UNIT_BYTES_MAX` and one document).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_bson::error_code::label;
use sheaf_bson::{Error, ErrorCode, Result};

/// Bytes that one transaction may hold, unless told otherwise.
pub const EACH_BYTES_MAX: u64 = 256 << 20;
/// Bytes that all transactions together may hold, unless told otherwise.
pub const ALL_BYTES_MAX: u64 = 512 << 20;

/// What a write costs beside its key and value: its places in the overlay and in the lock table.
const WRITE_OVERHEAD_BYTES: u64 = 128;

/// The memory that open transactions hold, and its bounds.
#[derive(Debug)]
pub struct TransactionMemory {
    used: AtomicU64,
    each_max: AtomicU64,
    all_max: AtomicU64,
}

impl Default for TransactionMemory {
    fn default() -> Self {
        TransactionMemory {
            used: AtomicU64::new(0),
            each_max: AtomicU64::new(EACH_BYTES_MAX),
            all_max: AtomicU64::new(ALL_BYTES_MAX),
        }
    }
}

impl TransactionMemory {
    /// Bytes held now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets how many bytes one transaction, and all together, may hold.
    pub fn set_max(&self, each: u64, all: u64) {
        self.each_max.store(each, Ordering::Relaxed);
        self.all_max.store(all, Ordering::Relaxed);
    }
}

/// What one transaction holds; given back when dropped.
pub(crate) struct Charge {
    memory: Arc<TransactionMemory>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn new(memory: &Arc<TransactionMemory>) -> Charge {
        Charge {
            memory: memory.clone(),
            bytes: 0,
        }
    }

    /// Charges what the transaction holds now: so many bytes given to so many writes.
    ///
    /// Errors: `TransactionTooLargeForCache`, which no retry will change; `WriteConflict` with the label
    /// `TransientTransactionError` when others hold the memory.
    pub(crate) fn hold(&mut self, bytes: u64, writes: u64) -> Result<()> {
        let memory = &self.memory;
        let bytes = bytes + writes * WRITE_OVERHEAD_BYTES;
        let each_max = memory.each_max.load(Ordering::Relaxed);
        if bytes > each_max {
            return Err(Error::new(
                ErrorCode::TRANSACTION_TOO_LARGE_FOR_CACHE,
                format!(
                    "the writes of this transaction take {bytes} bytes of memory, more than the {each_max} that one \
                     may hold (transactionMemoryMaxBytes); make several transactions of it"
                ),
            ));
        }
        let grown = bytes.saturating_sub(self.bytes);
        let all_max = memory.all_max.load(Ordering::Relaxed);
        let used = memory.used.fetch_add(grown, Ordering::Relaxed) + grown;
        self.bytes += grown;
        // Shrinking (a statement was rolled back) is given back with the rest.
        if grown > 0 && used > all_max {
            return Err(Error::new(
                ErrorCode::WRITE_CONFLICT,
                format!(
                    "the writes of all open transactions take {used} bytes of memory, more than the {all_max} that \
                     they may hold (transactionMemoryTotalMaxBytes); try the transaction again later"
                ),
            )
            .with_label(label::TRANSIENT_TRANSACTION));
        }
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "more is released than was charged");
    }
}
