//! The UUID that identifies a collection across renames.

use std::fmt;

use sheaf_bson::RawValue;

/// Sixteen bytes, version 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// BSON's binary subtype for a UUID.
    pub const SUBTYPE: u8 = 4;

    /// Creates a version 4 UUID from random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// The 16 bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// As BSON binary of subtype 4.
    pub fn as_raw(&self) -> RawValue<'_> {
        RawValue::Binary {
            subtype: Uuid::SUBTYPE,
            bytes: &self.0,
        }
    }

    /// The inverse of [`Uuid::as_raw`]; `None` for any other value.
    pub fn from_raw(value: RawValue<'_>) -> Option<Uuid> {
        match value {
            RawValue::Binary {
                subtype: Uuid::SUBTYPE,
                bytes,
            } => bytes.try_into().ok().map(Uuid),
            _ => None,
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bson() {
        let uuid = Uuid::from_random([0xff; 16]);
        assert_eq!(uuid.to_string(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(Uuid::from_raw(uuid.as_raw()), Some(uuid));
        assert_eq!(Uuid::from_raw(RawValue::Int32(1)), None);
        let short = RawValue::Binary {
            subtype: 4,
            bytes: &[1, 2],
        };
        assert_eq!(Uuid::from_raw(short), None);
    }
}
