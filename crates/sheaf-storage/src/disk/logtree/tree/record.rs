//! The directory's record of a table: its root and its sizes.
//!
//! The directory is itself a tree in this file, from table numbers (big-endian) to records.

use super::page::LEVEL_MAX;
use super::pointer::{GRANULE, PagePtr, u64_at};
use crate::engine::{TableId, TableStats};

/// The table number in the directory's pages; not used by any table.
pub(super) const DIRECTORY: u64 = u64::MAX;

/// A table as of one commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableRecord {
    /// The root page and its level; `None` for an empty table.
    pub root: Option<(PagePtr, u8)>,
    /// Whether pages and values are compressed.
    pub lz4: bool,
    pub entries: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// Granules of the pages and large values.
    pub granules: u64,
}

const HAS_ROOT: u8 = 1;
const LZ4: u8 = 2;

impl TableRecord {
    pub(super) const LEN: usize = 56;

    pub(super) fn key(table: TableId) -> [u8; 8] {
        table.0.to_be_bytes()
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        *self = TableRecord {
            lz4: self.lz4,
            ..TableRecord::default()
        };
    }

    /// Subtracts the granules of a page or a large value of the table. `None` if they are more than
    /// the record counts, as when pages of a damaged file refer to each other.
    pub(super) fn release(&mut self, granules: u64) -> Option<()> {
        self.granules = self.granules.checked_sub(granules)?;
        Some(())
    }

    /// Mean length of an entry, key and value; `None` without entries.
    pub(super) fn mean(&self) -> Option<u64> {
        (self.key_bytes + self.value_bytes).checked_div(self.entries)
    }

    pub(super) fn stats(&self) -> TableStats {
        TableStats {
            entries: self.entries,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            disk_bytes: self.granules * GRANULE,
        }
    }

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        if let Some((root, level)) = &self.root {
            bytes[0] |= HAS_ROOT;
            bytes[1] = *level;
            bytes[8..24].copy_from_slice(&root.encode());
        }
        bytes[0] |= u8::from(self.lz4) * LZ4;
        bytes[24..32].copy_from_slice(&self.entries.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.key_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.granules.to_le_bytes());
        bytes
    }

    /// `None` if the bytes are not an entry of the directory.
    pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<(TableId, TableRecord)> {
        let table = TableId(u64::from_be_bytes(key.try_into().ok()?));
        let bytes: &[u8; Self::LEN] = value.try_into().ok()?;
        let root = PagePtr::decode(&bytes[8..24]).filter(|_| bytes[0] & HAS_ROOT != 0);
        // Sizes beyond those of any file would overflow when added up.
        let sum = |at| Some(u64_at(bytes, at)).filter(|sum| *sum < 1 << 56);
        if table.0 == DIRECTORY || bytes[0] & !(HAS_ROOT | LZ4) != 0 || bytes[1] > LEVEL_MAX {
            return None;
        }
        let record = TableRecord {
            root: root.map(|root| (root, bytes[1])),
            lz4: bytes[0] & LZ4 != 0,
            entries: sum(24)?,
            key_bytes: sum(32)?,
            value_bytes: sum(40)?,
            granules: sum(48).filter(|granules| *granules < 1 << 48)?,
        };
        Some((table, record))
    }
}
