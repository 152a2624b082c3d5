//! BSON's two kinds of time: date and timestamp.

/// Milliseconds since 1970-01-01T00:00:00Z, signed: BSON's date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DateTime(pub i64);

impl DateTime {
    /// The latest date a value can hold.
    pub const MAX: DateTime = DateTime(i64::MAX);
    /// The earliest date a value can hold.
    pub const MIN: DateTime = DateTime(i64::MIN);

    /// The current time of the system clock, truncated to milliseconds.
    pub fn now() -> DateTime {
        use std::time::{SystemTime, UNIX_EPOCH};
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => DateTime(after.as_millis() as i64),
            Err(before) => DateTime(-(before.duration().as_millis() as i64)),
        }
    }

    /// Milliseconds since 1970.
    pub fn millis(self) -> i64 {
        self.0
    }
}

/// MongoDB's internal timestamp, ordered by time and then increment, both unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub time: u32,
    /// Ordinal within the second.
    pub increment: u32,
}

impl Timestamp {
    /// A timestamp from its two halves.
    pub const fn new(time: u32, increment: u32) -> Timestamp {
        Timestamp { time, increment }
    }

    /// Both halves as one integer that orders like the timestamp.
    pub const fn as_u64(self) -> u64 {
        ((self.time as u64) << 32) | self.increment as u64
    }

    /// The inverse of [`Timestamp::as_u64`].
    pub const fn from_u64(bits: u64) -> Timestamp {
        Timestamp {
            time: (bits >> 32) as u32,
            increment: bits as u32,
        }
    }
}
