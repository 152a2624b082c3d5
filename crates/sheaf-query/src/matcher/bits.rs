//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
//!
//! Numbers are tested as 64-bit two's complement with unlimited sign extension, binary data as
//! little-endian bytes followed by an unlimited number of zeros. Other values, and numbers that are
//! not 64-bit integers, do not match.

use std::sync::Arc;

use sheaf_bson::RawValue;
use sheaf_bson::path::FieldPath;

/// `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
#[derive(Debug, Clone)]
pub struct BitsTest {
    /// The field tested.
    pub path: Arc<FieldPath>,
    /// The operator.
    pub op: BitsOp,
    /// Bit positions, sorted, without duplicates.
    pub positions: Arc<Vec<u32>>,
}

/// A bit test operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum BitsOp {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}

impl BitsOp {
    /// `$bitsAllSet`, ...
    pub fn name(self) -> &'static str {
        match self {
            BitsOp::AllSet => "$bitsAllSet",
            BitsOp::AllClear => "$bitsAllClear",
            BitsOp::AnySet => "$bitsAnySet",
            BitsOp::AnyClear => "$bitsAnyClear",
        }
    }
}

impl BitsTest {
    /// Whether this value passes. Does not traverse arrays; the caller must.
    pub fn test(&self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::Binary { bytes, .. } => self.holds(|position| {
                bytes
                    .get(position as usize / 8)
                    .is_some_and(|byte| byte >> (position % 8) & 1 == 1)
            }),
            _ => match value.as_i64_exact() {
                Some(number) => self.holds(|position| number >> position.min(63) & 1 == 1),
                None => false,
            },
        }
    }

    fn holds(&self, is_set: impl Fn(u32) -> bool) -> bool {
        let mut positions = self.positions.iter().copied();
        match self.op {
            BitsOp::AllSet => positions.all(is_set),
            BitsOp::AllClear => positions.all(|p| !is_set(p)),
            BitsOp::AnySet => positions.any(is_set),
            BitsOp::AnyClear => positions.any(|p| !is_set(p)),
        }
    }
}
