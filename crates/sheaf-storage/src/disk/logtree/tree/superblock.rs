//! The superblock: the locations of the newest directory and of the list of free space.
//!
//! There are two, at the beginning of the file, a granule apart, written alternately. Each fits one
//! sector of 512 bytes, the unit that a disk writes atomically, and is stored twice in its granule,
//! so that damage to one sector does not undo a commit.
//!
//! ```text
//!   commit 7 ──> slot 1      a crash while slot 0 is written for commit 8 leaves commit 7
//!   commit 8 ──> slot 0      intact in slot 1, with every page that it needs
//! ```

use super::page::LEVEL_MAX;
use super::pointer::{FIRST_GRANULE, GRANULE, PagePtr, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"sheaftre";
pub(super) const VERSION: u32 = 1;
/// Bytes of a superblock that are used.
pub(super) const LEN: usize = 512;
const CRC_AT: usize = LEN - 4;
/// Offsets of a superblock's copies in its granule.
const COPIES: [u64; 2] = [0, 2048];

/// The location of the list of free granules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeMap {
    /// 0 if nothing is free.
    pub granule: u64,
    pub granules: u32,
    /// Bytes of the list.
    pub len: u32,
    pub crc: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Which of the two it is, known from its offset; the next commit writes the other.
    pub slot: u8,
    /// Increases with every commit, by one or more; the greater of two superblocks is the newer.
    pub version: u32,
    pub sequence: u64,
    /// The granule after the last one in use.
    pub end: u64,
    /// The root of the directory of tables, and its level.
    pub directory: Option<(PagePtr, u8)>,
    pub free: FreeMap,
}

/// The content found at the offset of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Whole(Superblock),
    /// The magic is present, and the format version is newer than the supported one.
    Newer(u32),
    /// The magic is present, and the remaining bytes are invalid.
    Damaged,
    /// Not a file of this format.
    Foreign,
}

impl Superblock {
    /// Offsets in the file of the copies of the superblock in a slot (0 or 1).
    pub(super) fn places(slot: u8) -> [u64; 2] {
        COPIES.map(|copy| u64::from(slot) * GRANULE + copy)
    }

    pub(super) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(GRANULE as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.version.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.end.to_le_bytes());
        if let Some((root, level)) = &self.directory {
            bytes[40] = 1;
            bytes[41] = *level;
            bytes[48..64].copy_from_slice(&root.encode());
        }
        bytes[64..72].copy_from_slice(&self.free.granule.to_le_bytes());
        bytes[72..76].copy_from_slice(&self.free.len.to_le_bytes());
        bytes[76..80].copy_from_slice(&self.free.crc.to_le_bytes());
        bytes[80..84].copy_from_slice(&self.free.granules.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; LEN], slot: u8) -> Found {
        if bytes[..8] != *MAGIC {
            return Found::Foreign;
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
            return Found::Damaged;
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            newer if newer > VERSION => return Found::Newer(newer),
            _ => return Found::Damaged,
        }
        let found = Superblock {
            slot,
            version: u32_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            end: u64_at(bytes, 32),
            directory: match bytes[40] {
                0 => None,
                _ => PagePtr::decode(&bytes[48..64]).map(|root| (root, bytes[41])),
            },
            free: FreeMap {
                granule: u64_at(bytes, 64),
                len: u32_at(bytes, 72),
                crc: u32_at(bytes, 76),
                granules: u32_at(bytes, 80),
            },
        };
        let level = found.directory.map_or(0, |(_, level)| level);
        if u32_at(bytes, 12) != GRANULE as u32
            // No file has that many commits; a greater version could overflow.
            || found.version > u32::MAX / 2
            || found.end < FIRST_GRANULE
            || found.end > 1 << 48
            || level > LEVEL_MAX
        {
            return Found::Damaged;
        }
        Found::Whole(found)
    }
}
