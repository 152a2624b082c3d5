//! Pointers to pages and large values, with the checksum and birth of their targets.
//!
//! ```text
//!   PagePtr    granule 6 | granules, extents flag 2 | crc 4 | birth 4            16 bytes
//!   ExtentPtr  granule 6 | stored 4 | raw 4 | crc 4 | birth 4                    22 bytes
//! ```
//!
//! Both carry the checksum of what they point to, so that a lost or misdirected write is detected
//! as well as damage, and the commit that wrote it (its birth), so that freeing it does not require
//! reading it.

/// The unit of space in the file, in bytes.
pub(super) const GRANULE: u64 = 4096;

/// The granules that hold the superblocks.
pub(super) const FIRST_GRANULE: u64 = 2;

/// Consecutive granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub start: u64,
    pub len: u64,
}

impl Run {
    pub(super) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// Number of granules for `bytes`.
pub(super) fn granules(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(GRANULE)
}

/// A pointer to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePtr {
    pub granule: u64,
    /// At most [`PagePtr::GRANULES_MAX`].
    pub granules: u16,
    /// Whether the page, or a page below it, has large values.
    pub extents: bool,
    pub crc: u32,
    pub birth: u32,
}

impl PagePtr {
    pub(super) const LEN: usize = 16;
    pub(super) const GRANULES_MAX: u64 = 0x7fff;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.granule.to_le_bytes()[..6]);
        let granules = self.granules | u16::from(self.extents) << 15;
        bytes[6..8].copy_from_slice(&granules.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.crc.to_le_bytes());
        bytes[12..].copy_from_slice(&self.birth.to_le_bytes());
        bytes
    }

    /// Returns `None` unless `bytes` has [`PagePtr::LEN`] bytes.
    #[inline]
    pub(super) fn decode(bytes: &[u8]) -> Option<PagePtr> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let first = u64_at(bytes, 0);
        let granules = (first >> 48) as u16;
        Some(PagePtr {
            granule: first & 0xffff_ffff_ffff,
            granules: granules & 0x7fff,
            extents: granules >> 15 != 0,
            crc: u32_at(bytes, 8),
            birth: u32_at(bytes, 12),
        })
    }

    pub(super) fn run(&self) -> Run {
        Run {
            start: self.granule,
            len: u64::from(self.granules),
        }
    }
}

/// A pointer to a large value, which has its own granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentPtr {
    pub granule: u64,
    /// Bytes in the file; fewer than `raw` if compressed.
    pub stored: u32,
    /// Bytes of the value.
    pub raw: u32,
    pub crc: u32,
    pub birth: u32,
}

impl ExtentPtr {
    pub(super) const LEN: usize = 22;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(&self.granule.to_le_bytes()[..6]);
        bytes[6..10].copy_from_slice(&self.stored.to_le_bytes());
        bytes[10..14].copy_from_slice(&self.raw.to_le_bytes());
        bytes[14..18].copy_from_slice(&self.crc.to_le_bytes());
        bytes[18..].copy_from_slice(&self.birth.to_le_bytes());
        bytes
    }

    /// Returns `None` unless `bytes` has [`ExtentPtr::LEN`] bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<ExtentPtr> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        Some(ExtentPtr {
            granule: u64_at(bytes, 0) & 0xffff_ffff_ffff,
            stored: u32_at(bytes, 6),
            raw: u32_at(bytes, 10),
            crc: u32_at(bytes, 14),
            birth: u32_at(bytes, 18),
        })
    }

    pub(super) fn run(&self) -> Run {
        Run {
            start: self.granule,
            len: granules(self.stored as usize),
        }
    }
}

/// The little-endian number at `at`, which must be inside the slice.
#[inline]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

/// Like [`u16_at`].
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Like [`u16_at`].
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
