//! Segments: the files of the log, their names and their heads.
//!
//! ```text
//!   log.0000000007      head, 64 bytes   zeros to 4096   records ...   zeros, or remains of a former use
//!   log.spare.3         zeros, or remains of a former use: to become a segment
//!
//!   head   0         8         12      16      24       32          40      48        60
//!          "sheaflog" version   zero    log id  number   first seq   size    zeros     crc of 0..60
//! ```
//!
//! A segment is filled with zeros before records overwrite them: a sync then has no change of
//! length and no new blocks to record. It grows by steps, so a small database has a small log. Once
//! everything in it is in the tree it becomes a spare and, under another number, a segment again.

use std::sync::Arc;

use super::record::{u32_at, u64_at};
use crate::error::{Result, StorageError};
use crate::folder::{File, Folder};

/// Offset of the first record.
pub(super) const RECORDS: u64 = 4096;
/// The version of the log's format that is written, and the oldest one that is read.
pub(super) const VERSION: u32 = 2;
const VERSION_MIN: u32 = 1;
const HEAD: usize = 64;
const MAGIC: &[u8; 8] = b"sheaflog";
/// The first, and the largest, amount filled with zeros at a time.
const FILL_MIN: u64 = 256 << 10;
const FILL_MAX: u64 = 4 << 20;
/// Size of one write when filling with zeros.
const ZEROS: usize = 256 << 10;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) log_id: u64,
    pub(super) number: u64,
    pub(super) first_seq: u64,
    pub(super) size: u64,
    /// The version of the segment's contents.
    pub(super) version: u32,
}

/// The result of reading a head.
pub(super) enum Found {
    Head(Head),
    /// A version that this program does not read.
    Newer(u32),
    Nothing,
}

impl Head {
    pub(super) fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_seq.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.size.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; HEAD]) -> Found {
        if &bytes[..8] != MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return Found::Nothing;
        }
        match u32_at(bytes, 8) {
            version @ VERSION_MIN..=VERSION => Found::Head(Head {
                version,
                log_id: u64_at(bytes, 16),
                number: u64_at(bytes, 24),
                first_seq: u64_at(bytes, 32),
                size: u64_at(bytes, 40),
            }),
            version => Found::Newer(version),
        }
    }

    /// The identity that the records of this segment carry.
    pub(super) fn identity(&self) -> u64 {
        self.log_id.wrapping_add(self.number)
    }

    /// Reads the head of a segment.
    pub(super) fn read(file: &dyn File, name: &str) -> Result<Found> {
        let io = |error| StorageError::io(format!("read {name}"), &error);
        if file.len().map_err(io)? < HEAD as u64 {
            return Ok(Found::Nothing);
        }
        let mut bytes = [0; HEAD];
        file.read_at(0, &mut bytes).map_err(io)?;
        Ok(Self::from_bytes(&bytes))
    }
}

pub(super) fn segment_name(number: u64) -> String {
    format!("log.{number:010}")
}

/// The number of the segment with this name; `None` if it is not a segment's name.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log.")?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

pub(super) fn spare_name(number: u64) -> String {
    format!("log.spare.{number}")
}

/// The number of the spare with this name; `None` if it is not a spare's name.
pub(super) fn spare_number(name: &str) -> Option<u64> {
    name.strip_prefix("log.spare.")?.parse().ok()
}

/// A file that is ready to become a segment.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn File>,
    /// Offset up to which the file has blocks.
    pub(super) filled: u64,
    /// Length to which the file may grow.
    pub(super) size: u64,
}

impl Spare {
    /// Prepares the file for a record of `stride` bytes at its beginning.
    pub(super) fn fit(&mut self, stride: u64) -> Result<()> {
        let wanted = RECORDS + stride;
        self.size = self.size.max(wanted);
        if self.filled < wanted {
            let to = filled_next(self.filled, wanted, self.size);
            fill(&*self.file, &self.name, self.filled, to)?;
            self.filled = to;
        }
        Ok(())
    }
}

/// The offset up to which a segment is filled next, so that it has blocks at least up to `wanted`.
pub(super) fn filled_next(filled: u64, wanted: u64, size: u64) -> u64 {
    let step = filled.clamp(FILL_MIN, FILL_MAX);
    (filled + step).max(wanted).min(size.max(wanted))
}

pub(super) fn fill(file: &dyn File, name: &str, from: u64, to: u64) -> Result<()> {
    let zeros = vec![0; ZEROS.min((to - from) as usize)];
    let mut at = from;
    while at < to {
        let length = zeros.len().min((to - at) as usize);
        file.write_at(at, &zeros[..length])
            .map_err(|error| StorageError::io(format!("extend {name} at {at}"), &error))?;
        at += length as u64;
    }
    Ok(())
}

/// Removes a log file that is no longer needed. A file that cannot be removed does no harm.
pub(super) fn discard(folder: &dyn Folder, name: &str) {
    let _ = folder.remove(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_whole_or_nothing() {
        let head = Head {
            log_id: u64::MAX,
            number: 7,
            first_seq: 1 << 40,
            size: 1 << 20,
            version: VERSION,
        };
        assert_eq!(head.identity(), 6);
        let bytes = head.to_bytes();
        assert!(matches!(Head::from_bytes(&bytes), Found::Head(back) if back == head));
        for bit in 0..HEAD * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Head::from_bytes(&damaged), Found::Nothing));
        }
        let old = Head { version: 1, ..head };
        assert!(matches!(Head::from_bytes(&old.to_bytes()), Found::Head(back) if back == old));
        let mut newer = bytes;
        newer[8] = 3;
        let crc = crc32c::crc32c(&newer[..60]);
        newer[60..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Head::from_bytes(&newer), Found::Newer(3)));
    }

    #[test]
    fn names_contain_numbers() {
        assert_eq!(segment_number(&segment_name(7)), Some(7));
        assert_eq!(segment_number(&segment_name(u64::MAX)), Some(u64::MAX));
        for other in ["log.7", "log.spare.7", "log.00000000x7", "tree", "log."] {
            assert_eq!(segment_number(other), None, "{other}");
        }
        assert_eq!(spare_number(&spare_name(3)), Some(3));
        assert_eq!(spare_number("log.0000000003"), None);
    }

    #[test]
    fn files_are_filled_in_steps() {
        assert_eq!(filled_next(0, 100, 64 << 20), FILL_MIN);
        assert_eq!(filled_next(1 << 20, 0, 64 << 20), 2 << 20);
        assert_eq!(filled_next(32 << 20, 0, 64 << 20), 36 << 20);
        assert_eq!(filled_next(63 << 20, 0, 64 << 20), 64 << 20);
        assert_eq!(filled_next(0, 70 << 20, 64 << 20), 70 << 20);
    }
}
