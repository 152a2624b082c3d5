//! Type bits: what a KeyString does not record, as a bit string in the order of the values.
//!
//! ```text
//!  int 00   long 01   double 10   decimal 11 + 14 bits of exponent
//!  zero:    double 10 + sign      decimal 11 + sign + 14 bits of exponent
//!  string 0           symbol 1
//! ```
//!
//! Trailing zero bits are not stored and read as zeros, so keys of ints and strings have no type
//! bits at all. Bits fill a byte from its lowest bit.

/// The type bits of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits {
    bytes: Vec<u8>,
    /// Bits appended, including trailing zeros that are not stored.
    len: usize,
}

impl TypeBits {
    /// The bytes to store; empty in the common case.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }

    /// Appends the lowest `count` bits (at most 16) of `bits`.
    #[inline]
    pub(super) fn push(&mut self, bits: u16, count: usize) {
        let mut rest = u32::from(bits) << (self.len % 8);
        let mut at = self.len / 8;
        self.len += count;
        while rest > 0 {
            if self.bytes.len() <= at {
                self.bytes.resize(at + 1, 0);
            }
            self.bytes[at] |= rest as u8;
            rest >>= 8;
            at += 1;
        }
    }
}

/// Reads type bits in order; past the end it reads zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeBitsReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> TypeBitsReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> TypeBitsReader<'a> {
        TypeBitsReader { bytes, at: 0 }
    }

    /// The next `count` bits (at most 16), lowest first.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> u16 {
        let byte = |i: usize| u32::from(self.bytes.get(self.at / 8 + i).copied().unwrap_or(0));
        let window = byte(0) | byte(1) << 8 | byte(2) << 16;
        let bits = (window >> (self.at % 8)) & ((1 << count) - 1);
        self.at += count;
        bits as u16
    }
}
