//! Side writes: what writers record for a build, one key of one document added or removed.
//!
//! ```text
//!   key    sequence, 8 bytes big endian
//!   value  | index | 1 added, 0 removed | length of entry, 4 bytes LE | entry | type bits |
//! ```

use sheaf_bson::{Error, ErrorCode, Result};

/// One side write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note<'a> {
    /// Position of the index within the build.
    pub(crate) index: u8,
    /// True if the entry was added, false if removed.
    pub(crate) present: bool,
    /// The entry's key.
    pub(crate) entry: &'a [u8],
    /// The entry's value.
    pub(crate) type_bits: &'a [u8],
}

impl<'a> Note<'a> {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(6 + self.entry.len() + self.type_bits.len());
        out.push(self.index);
        out.push(u8::from(self.present));
        out.extend_from_slice(&(self.entry.len() as u32).to_le_bytes());
        out.extend_from_slice(self.entry);
        out.extend_from_slice(self.type_bits);
        out
    }

    /// Errors: `DataCorruptionDetected`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Note<'a>> {
        let parsed = || {
            let (&[index, present], rest) = bytes.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let length = u32::from_le_bytes(*length) as usize;
            let (entry, type_bits) = rest.split_at_checked(length)?;
            Some(Note {
                index,
                present: present == 1,
                entry,
                type_bits,
            })
        };
        parsed().ok_or_else(|| {
            Error::new(
                ErrorCode::DATA_CORRUPTION_DETECTED,
                "a side write of an index build is damaged; create the index again",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let note = Note {
            index: 3,
            present: true,
            entry: b"key",
            type_bits: b"t",
        };
        let bytes = note.to_bytes();
        assert_eq!(Note::parse(&bytes).unwrap(), note);
        for cut in 0..9 {
            assert!(Note::parse(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
