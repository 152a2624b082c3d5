//! Delta encoding: a value as pieces copied from the previous value, and the bytes between them.
//!
//! ```text
//!   base   ....AAAAAAAAxBBBBBBBBBBBBCCCCCCC           a document with a counter x, and a field after C
//!   new    ****AAAAAAAAyBBBBBBBBBBBBCCCCCCCDDDD       its length (****) differs too
//!
//!   delta  lengths  "****" copy A  "y" copy B, C  "DDDD"  checksums of base and new
//! ```
//!
//! Nothing is assumed about the meaning of the values. While they agree, one walk over both finds
//! the pieces. Where they diverge, the encoder looks for the next agreement first near by, then at
//! the common suffix, then by hashes of the base's blocks.
//!
//! Invariants: a delta applied to its base yields the new value. It cannot be applied to another
//! value, because it contains the checksums of the base and of the result.

use super::record::{Input, varint};
use crate::disk::logtree::tree::VALUE_MAX;

/// Values shorter than this are logged whole.
const NEW_MIN: usize = 64;
/// Minimum length of a copied piece; the last one may be shorter.
const COPY_MIN: usize = 8;
/// How far ahead to look for a position where the values agree again.
const NEAR: usize = 32;
/// If the common suffix begins within this distance, it is taken without a further search.
const NEAR_END: usize = 64;
/// Length of the base's blocks that are hashed.
const BLOCK: usize = 16;

/// An encoded delta whose lengths have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Delta<'a> {
    pub(in crate::disk::logtree) base_len: u32,
    pub(in crate::disk::logtree) base_crc: u32,
    pub(in crate::disk::logtree) new_len: u32,
    pub(in crate::disk::logtree) new_crc: u32,
    pieces: &'a [u8],
}

/// A delta that owns its bytes.
#[derive(Clone, Debug)]
pub(in crate::disk::logtree) struct KeptDelta {
    pub(in crate::disk::logtree) base_len: u32,
    base_crc: u32,
    new_len: u32,
    new_crc: u32,
    pieces: Box<[u8]>,
}

impl KeptDelta {
    pub(in crate::disk::logtree) fn as_delta(&self) -> Delta<'_> {
        Delta {
            base_len: self.base_len,
            base_crc: self.base_crc,
            new_len: self.new_len,
            new_crc: self.new_crc,
            pieces: &self.pieces,
        }
    }
}

/// Appends the delta from `base` to `new`. Returns false, and appends nothing, unless the delta is
/// shorter than half of `new`.
pub(super) fn encode(base: &[u8], new: &[u8], out: &mut Vec<u8>) -> bool {
    if new.len() < NEW_MIN || base.len().max(new.len()) > VALUE_MAX {
        return false;
    }
    let start = out.len();
    varint(out, base.len() as u64);
    varint(out, new.len() as u64);
    let mut pieces = Pieces {
        new,
        end: start + new.len() / 2 - 8,
        expected: 0,
        written: 0,
        out,
    };
    if !pieces.find(base) {
        out.truncate(start);
        return false;
    }
    out.extend_from_slice(&crc32c::crc32c(base).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(new).to_le_bytes());
    true
}

/// Writes pieces while the delta is short enough.
struct Pieces<'a, 'o> {
    new: &'a [u8],
    /// Length of `out` at which the delta is too long.
    end: usize,
    /// Where in the base the next piece begins if nothing was inserted or deleted.
    expected: usize,
    /// Number of bytes of `new` that are written.
    written: usize,
    out: &'o mut Vec<u8>,
}

impl Pieces<'_, '_> {
    /// Whether the bytes up to `at` can be written literally.
    fn has_room(&self, at: usize) -> bool {
        self.out.len() + (at - self.written) < self.end
    }

    /// Writes the bytes of `new` up to `at` literally.
    fn literal(&mut self, at: usize) -> bool {
        if !self.has_room(at) {
            return false;
        }
        let bytes = &self.new[self.written..at];
        varint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.expected += bytes.len();
        self.written = at;
        true
    }

    /// Writes a copy of `length` bytes, which are in `new` at `at` and in the base at `from`.
    fn copy(&mut self, at: usize, from: usize, length: usize) -> bool {
        let fits = self.literal(at);
        if fits {
            varint(self.out, length as u64);
            let moved = from as i64 - self.expected as i64;
            varint(self.out, (moved << 1 ^ moved >> 63) as u64);
            self.expected = from + length;
            self.written = at + length;
        }
        fits
    }

    fn find(&mut self, base: &[u8]) -> bool {
        let new = self.new;
        let suffix = common_suffix(base, new);
        // The common suffix begins here.
        let tail = new.len() - suffix;
        let mut blocks = None;
        let (mut i, mut j) = (0, 0);
        while j < new.len() {
            if i > base.len() {
                i = base.len();
            }
            let same = common_prefix(&base[i..], &new[j..]);
            if (same >= COPY_MIN || j + same == new.len()) && same > 0 && !self.copy(j, i, same) {
                return false;
            }
            i += same;
            j += same;
            if j == new.len() {
                break;
            }
            if j >= tail {
                // Everything that is left is the common suffix.
                return self.copy(j, base.len() - (new.len() - j), new.len() - j);
            }
            if new.len() - j <= BLOCK {
                // New bytes at the end: no block of the base can match any more.
                return self.literal(new.len());
            }
            if let Some(near) = agree_near(&base[i..], &new[j..]) {
                (i, j) = (i + near, j + near);
                continue;
            }
            // If the common suffix is near, or the base is used up, a further search is not worth
            // its cost.
            let ended = base.len() - i <= COPY_MIN && new.len() - j <= NEAR_END;
            if ended || suffix >= COPY_MIN && tail - j <= NEAR_END {
                (i, j) = (base.len() - suffix, tail);
                continue;
            }
            let blocks = blocks.get_or_insert_with(|| Blocks::of(base));
            match blocks.find(base, new, j, tail, |at| self.has_room(at)) {
                Some((from, at)) => (i, j) = (from, at),
                None => (i, j) = (base.len() - suffix, tail),
            }
            if !self.has_room(j) {
                return false;
            }
        }
        self.written == new.len() || self.literal(new.len())
    }
}

/// Length of the common prefix.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let length = a.len().min(b.len());
    let mut at = 0;
    while at + 64 <= length && a[at..at + 64] == b[at..at + 64] {
        at += 64;
    }
    while at + 8 <= length {
        let differ = word(a, at) ^ word(b, at);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < length && a[at] == b[at] {
        at += 1;
    }
    at
}

/// Length of the common suffix.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let length = a.len().min(b.len());
    let (a, b) = (&a[a.len() - length..], &b[b.len() - length..]);
    let mut at = length;
    while at >= 64 && a[at - 64..at] == b[at - 64..at] {
        at -= 64;
    }
    while at > 0 && a[at - 1] == b[at - 1] {
        at -= 1;
    }
    length - at
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The distance within which both values agree again, if it is at most [`NEAR`].
fn agree_near(base: &[u8], new: &[u8]) -> Option<usize> {
    let last = base.len().min(new.len()).checked_sub(COPY_MIN)?;
    (1..=last.min(NEAR)).find(|at| word(base, *at) == word(new, *at))
}

/// Hash index of the base's blocks.
struct Blocks {
    /// Offset in the base of a block with this hash, plus one; 0 is empty.
    places: Vec<u32>,
    shift: u32,
}

impl Blocks {
    fn of(base: &[u8]) -> Blocks {
        let count = base.len() / BLOCK;
        let bits = (count * 2).next_power_of_two().trailing_zeros().max(1);
        let mut blocks = Blocks {
            places: vec![0; 1 << bits],
            shift: 64 - bits,
        };
        for number in (0..count).rev() {
            let at = number * BLOCK;
            let slot = blocks.slot(base, at);
            blocks.places[slot] = at as u32 + 1;
        }
        blocks
    }

    fn slot(&self, bytes: &[u8], at: usize) -> usize {
        let low = word(bytes, at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = word(bytes, at + 8).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        ((low.rotate_left(29) ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The first position in `new`, from `from` on, that holds a block of the base, extended
    /// backwards as far as they agree. Returns the positions in the base and in `new`; `None` if
    /// there is none before `to`, or none within the search limit.
    fn find(
        &self,
        base: &[u8],
        new: &[u8],
        from: usize,
        to: usize,
        in_time: impl Fn(usize) -> bool,
    ) -> Option<(usize, usize)> {
        for at in from..(new.len() + 1).saturating_sub(BLOCK).min(to) {
            let place = self.places[self.slot(new, at)] as usize;
            if place > 0 {
                let mut i = place - 1;
                if base[i..i + BLOCK] == new[at..at + BLOCK] {
                    let mut j = at;
                    while i > 0 && j > from && base[i - 1] == new[j - 1] {
                        (i, j) = (i - 1, j - 1);
                    }
                    return Some((i, j));
                }
            }
            if at % 256 == 0 && !in_time(at) {
                return None;
            }
        }
        None
    }
}

impl<'a> Delta<'a> {
    /// Parses a delta, and checks that its pieces are within the base and add up to the new value.
    pub(super) fn decode(input: &mut Input<'a>) -> Result<Delta<'a>, &'static str> {
        let length = |n: u64| match n <= VALUE_MAX as u64 {
            true => Ok(n as u32),
            false => Err("a length too great"),
        };
        let base_len = length(input.varint()?)?;
        let new_len = length(input.varint()?)?;
        let rest = input.0;
        let (mut made, mut at) = (0, 0);
        while made < u64::from(new_len) {
            let piece = piece(input, &mut at, u64::from(new_len) - made)?;
            if piece.from.saturating_add(piece.length) > u64::from(base_len) {
                return Err("a piece beyond the end of its base");
            }
            made = piece
                .length
                .saturating_add(made + piece.literal.len() as u64);
        }
        if made > u64::from(new_len) {
            return Err("pieces that are too long together");
        }
        Ok(Delta {
            base_len,
            new_len,
            pieces: &rest[..rest.len() - input.0.len()],
            base_crc: input.u32()?,
            new_crc: input.u32()?,
        })
    }

    pub(in crate::disk::logtree) fn kept(&self) -> KeptDelta {
        KeptDelta {
            base_len: self.base_len,
            base_crc: self.base_crc,
            new_len: self.new_len,
            new_crc: self.new_crc,
            pieces: self.pieces.into(),
        }
    }

    /// Whether `value` is the base, by its length and checksum.
    pub(in crate::disk::logtree) fn begins_with(&self, value: &[u8]) -> bool {
        value.len() == self.base_len as usize && crc32c::crc32c(value) == self.base_crc
    }

    /// Whether `value` is the result, by its length and checksum.
    pub(in crate::disk::logtree) fn ends_with(&self, value: &[u8]) -> bool {
        value.len() == self.new_len as usize && crc32c::crc32c(value) == self.new_crc
    }

    /// The new value; `None` if `base` is not the delta's base.
    pub(in crate::disk::logtree) fn apply(&self, base: &[u8]) -> Option<Vec<u8>> {
        if !self.begins_with(base) {
            return None;
        }
        let new_len = self.new_len as usize;
        let mut new = Vec::with_capacity(new_len);
        let (mut input, mut at) = (Input(self.pieces), 0);
        while new.len() < new_len {
            let left = (new_len - new.len()) as u64;
            let piece = piece(&mut input, &mut at, left).ok()?;
            new.extend_from_slice(piece.literal);
            let (from, length) = (piece.from as usize, piece.length as usize);
            new.extend_from_slice(base.get(from..from.checked_add(length)?)?);
        }
        self.ends_with(&new).then_some(new)
    }
}

/// Literal bytes, followed by a copy from the base.
struct Piece<'a> {
    literal: &'a [u8],
    from: u64,
    length: u64,
}

/// Parses a piece of a value of which `left` bytes are still missing. `at` is where in the base the
/// next copy is expected.
fn piece<'a>(input: &mut Input<'a>, at: &mut u64, left: u64) -> Result<Piece<'a>, &'static str> {
    let literal = input.slice()?;
    *at = at.saturating_add(literal.len() as u64);
    if literal.len() as u64 >= left {
        let (from, length) = (0, 0);
        return Ok(Piece {
            literal,
            from,
            length,
        });
    }
    let length = input.varint()?;
    let moved = input.varint()?;
    let moved = (moved >> 1) as i64 ^ -((moved & 1) as i64);
    let from = at
        .checked_add_signed(moved)
        .ok_or("a piece before the beginning of its base")?;
    *at = from.saturating_add(length);
    Ok(Piece {
        literal,
        from,
        length,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn delta_of(base: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        let made = encode(base, new, &mut out);
        assert_eq!(&out[..6], b"before");
        assert_eq!(made, out.len() > 6);
        made.then(|| out.split_off(6))
    }

    /// The length of the delta from `base` to `new`.
    fn length(base: &[u8], new: &[u8]) -> Option<usize> {
        let bytes = delta_of(base, new)?;
        assert!(bytes.len() <= new.len() / 2 + 24, "{}", bytes.len());
        let mut input = Input(&bytes);
        let delta = Delta::decode(&mut input).unwrap();
        assert!(input.0.is_empty());
        assert!(delta.begins_with(base) && delta.ends_with(new));
        assert_eq!(delta.apply(base).as_deref(), Some(new));
        Some(bytes.len())
    }

    fn noise(length: usize, mut seed: u64) -> Vec<u8> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn a_delta_contains_only_changes() {
        let base = noise(1000, 1);
        let changed = |at: usize, bytes: &[u8]| {
            let mut new = base.clone();
            new[at..at + bytes.len()].copy_from_slice(bytes);
            new
        };
        // Lengths 2 + 2, checksums 8, then pieces.
        assert_eq!(length(&base, &base), Some(12 + 4));
        assert_eq!(length(&base, &changed(500, &[0; 4])), Some(12 + 12));
        assert_eq!(length(&base, &changed(0, &[0; 4])), Some(12 + 8));
        assert_eq!(length(&base, &changed(996, &[0; 4])), Some(12 + 9));
        // Two changes that keep the length, and one that does not.
        let mut new = changed(0, &[9; 4]);
        new[300..308].copy_from_slice(&[9; 8]);
        new.splice(700..700, [1; 20]);
        assert!(length(&base, &new).unwrap() < 70);
        // Several changes of length: found by blocks.
        let mut new = base.clone();
        new.splice(900..910, []);
        new.splice(600..600, [7; 100]);
        new.splice(300..340, []);
        new.splice(100..100, [8; 50]);
        assert!(length(&base, &new).unwrap() < 220);
        // The two halves are swapped.
        let new = [&base[500..], &base[..500]].concat();
        assert!(length(&base, &new).unwrap() < 40);
    }

    #[test]
    fn another_value_is_no_delta() {
        assert_eq!(length(&noise(1000, 1), &noise(1000, 2)), None);
        assert_eq!(length(&noise(0, 1), &noise(1000, 2)), None);
        assert_eq!(length(&noise(1000, 1), &noise(60, 1)), None);
        assert_eq!(length(&noise(1000, 1), &[]), None);
        assert_eq!(length(&[0; 100_000], &noise(100_000, 1)), None);
        assert!(length(&noise(100_000, 1), &noise(70, 1)).is_some());
        assert!(length(&[0; 10], &[0; 1000]).is_none());
    }

    #[test]
    fn a_delta_is_refused_on_another_base() {
        let base = noise(200, 1);
        let mut new = base.clone();
        new[77] ^= 1;
        let bytes = delta_of(&base, &new).unwrap();
        let delta = Delta::decode(&mut Input(&bytes)).unwrap();
        for bit in (0..200 * 8).step_by(7) {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(delta.apply(&other), None);
        }
        assert_eq!(delta.apply(&base[..199]), None);
        assert_eq!(delta.apply(&[]), None);
    }

    #[test]
    fn a_delta_of_a_damaged_record_leads_nowhere_else() {
        let base = noise(300, 1);
        let mut new = base.clone();
        new.splice(100..120, noise(40, 3));
        let bytes = delta_of(&base, &new).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(delta) = Delta::decode(&mut Input(&damaged)) {
                let made = delta.apply(&base);
                assert!(made.is_none_or(|made| made == new), "bit {bit}");
            }
        }
    }

    /// A value, and another one made from it by a few changes.
    fn pair() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let value = prop_oneof![
            (0_usize..3000, any::<u64>()).prop_map(|(length, seed)| noise(length, seed)),
            // Very repetitive values.
            proptest::collection::vec(0_u8..3, 0..600),
            (0_usize..600, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        ];
        let change = (
            any::<prop::sample::Index>(),
            0_usize..60,
            0_usize..60,
            any::<u64>(),
        );
        (value, proptest::collection::vec(change, 0..6)).prop_map(|(base, changes)| {
            let mut new = base.clone();
            for (at, out, put, seed) in changes {
                let at = at.index(new.len() + 1);
                let out = out.min(new.len() - at);
                new.splice(at..at + out, noise(put, seed));
            }
            (base, new)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn a_delta_applied_to_its_base_is_the_new_value((base, new) in pair()) {
            length(&base, &new);
        }

        #[test]
        fn any_bytes_are_a_delta_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(delta) = Delta::decode(&mut Input(&bytes)) {
                prop_assert!(delta.new_len as usize <= VALUE_MAX);
                let _ = delta.apply(&noise(delta.base_len.min(4096) as usize, 1));
            }
        }
    }
}
