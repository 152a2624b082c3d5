//! Limits on the memory held by writes of open transactions: per transaction, and in total.
//!
//! ```text
//!   statement ends ── size of the unit's writes, oplog entries, locks ─┬─> charged until the unit ends
//!                             exceeds the limit per transaction: 388 ────┤    (permanent error)
//!                             exceeds the total limit: 112 ──────────────┘    (retry later)
//! ```
//!
//! A transaction's writes stay in memory until it commits, so without a limit any client could
//! exhaust it. They are counted after each statement and within large ones: the limit is exceeded
//! by less than a unit's part of a statement (`UNIT_BYTES_MAX` and one document).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sheaf_bson::error_code::label;
use sheaf_bson::{Error, ErrorCode, Result};

/// Default limit per transaction, in bytes.
pub const EACH_BYTES_MAX: u64 = 256 << 20;
/// Default limit of all transactions together, in bytes.
pub const ALL_BYTES_MAX: u64 = 512 << 20;

/// Cost of a write in addition to its key and value: its entries in the overlay and in the lock
/// table.
const WRITE_OVERHEAD_BYTES: u64 = 128;

/// Memory held by open transactions, and its limits.
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
    /// Number of bytes held.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Sets the limits per transaction and in total, in bytes.
    pub fn set_max(&self, each: u64, all: u64) {
        self.each_max.store(each, Ordering::Relaxed);
        self.all_max.store(all, Ordering::Relaxed);
    }
}

/// Memory held by one transaction; released on drop.
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

    /// Charges the memory the transaction now holds: `bytes` in `writes` writes.
    ///
    /// Errors: `TransactionTooLargeForCache`, which a retry cannot fix; `WriteConflict` with the
    /// label `TransientTransactionError` if other transactions hold the memory.
    pub(crate) fn hold(&mut self, bytes: u64, writes: u64) -> Result<()> {
        let memory = &self.memory;
        let bytes = bytes + writes * WRITE_OVERHEAD_BYTES;
        let each_max = memory.each_max.load(Ordering::Relaxed);
        if bytes > each_max {
            return Err(Error::new(
                ErrorCode::TRANSACTION_TOO_LARGE_FOR_CACHE,
                format!(
                    "the writes of this transaction take {bytes} bytes of memory, which exceeds \
                     the limit of {each_max} (transactionMemoryMaxBytes); split it \
                     into several transactions"
                ),
            ));
        }
        let grown = bytes.saturating_sub(self.bytes);
        let all_max = memory.all_max.load(Ordering::Relaxed);
        let used = memory.used.fetch_add(grown, Ordering::Relaxed) + grown;
        self.bytes += grown;
        // A decrease (a statement was rolled back) is released when the charge is dropped.
        if grown > 0 && used > all_max {
            return Err(Error::new(
                ErrorCode::WRITE_CONFLICT,
                format!(
                    "the writes of all open transactions take {used} bytes of memory, which \
                     exceeds the limit of {all_max} (transactionMemoryTotalMaxBytes); \
                     try the transaction again later"
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
