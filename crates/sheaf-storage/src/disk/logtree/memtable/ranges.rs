//! Ranges of keys that batches have deleted, each with the batch's sequence.
//!
//! Kept as pieces that do not overlap, each with the sequences of all ranges that cover it:
//!
//! ```text
//!   5: [b, f)                     [b, d): 5    [d, f): 5, 9    [f, h): 9
//!   9: [d, h)
//! ```
//!
//! A range hides all older versions of its keys, in this generation and in all layers below. Ranges
//! are rare; tables without any skip the search.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

/// Memory charged for a piece and for one of its sequences, in bytes.
const PIECE_BYTES: u64 = 160;
const SEQ_BYTES: u64 = 16;

#[derive(Clone)]
struct Piece {
    hi: Option<Bytes>,
    /// Ascending.
    seqs: Vec<u64>,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<Bytes, Piece>);

/// The newest range that covers a key, and the interval around the key in which it is the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Cover {
    pub(in crate::disk::logtree) seq: u64,
    pub(in crate::disk::logtree) lo: Bytes,
    /// Exclusive; `None` is the end of the table.
    pub(in crate::disk::logtree) hi: Option<Bytes>,
}

impl Ranges {
    /// Adds a range that is not empty. Returns by how many bytes the memory grew.
    pub(super) fn add(&mut self, seq: u64, lo: &Bytes, hi: Option<&Bytes>) -> u64 {
        let mut grown = self.cut(lo);
        if let Some(hi) = hi {
            grown += self.cut(hi);
        }
        let upper = hi.map_or(Bound::Unbounded, |hi| Bound::Excluded(&hi[..]));
        let mut gaps = Vec::new();
        let mut at = Some(lo.clone());
        for (piece_lo, piece) in self
            .0
            .range_mut::<[u8], _>((Bound::Included(&lo[..]), upper))
        {
            if let Some(gap_lo) = at.take_if(|at| *at < *piece_lo) {
                gaps.push((gap_lo, Some(piece_lo.clone())));
            }
            let place = piece.seqs.partition_point(|other| *other < seq);
            piece.seqs.insert(place, seq);
            grown += SEQ_BYTES;
            at = piece.hi.clone();
        }
        if let Some(gap_lo) = at
            && hi.is_none_or(|hi| gap_lo < *hi)
        {
            gaps.push((gap_lo, hi.cloned()));
        }
        for (gap_lo, gap_hi) in gaps {
            grown += PIECE_BYTES + gap_lo.len() as u64;
            let seqs = vec![seq];
            self.0.insert(gap_lo, Piece { hi: gap_hi, seqs });
        }
        debug_assert!(self.is_disjoint(), "pieces do not overlap");
        grown
    }

    fn is_disjoint(&self) -> bool {
        let pieces = self.0.iter();
        let follow = pieces.clone().zip(pieces.skip(1));
        follow
            .map(|((_, piece), (next, _))| (&piece.hi, next))
            .all(|(hi, next)| hi.as_ref().is_some_and(|hi| hi <= next))
    }

    /// Splits the piece that has `at` in its interior.
    fn cut(&mut self, at: &Bytes) -> u64 {
        let below = (Bound::Unbounded, Bound::Excluded(&at[..]));
        let Some((_, piece)) = self.0.range_mut::<[u8], _>(below).next_back() else {
            return 0;
        };
        if piece.hi.as_ref().is_some_and(|hi| hi <= at) {
            return 0;
        }
        let right = piece.clone();
        piece.hi = Some(at.clone());
        let grown = PIECE_BYTES + at.len() as u64 + SEQ_BYTES * right.seqs.len() as u64;
        self.0.insert(at.clone(), right);
        grown
    }

    /// The newest range that covers `key`, among those with sequences from `floor` to `visible`.
    pub(super) fn cover(&self, key: &[u8], floor: u64, visible: u64) -> Option<Cover> {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let (lo, piece) = self.0.range::<[u8], _>(upto).next_back()?;
        if piece.hi.as_ref().is_some_and(|hi| hi.as_ref() <= key) {
            return None;
        }
        let seen = piece.seqs.partition_point(|seq| *seq <= visible);
        let seq = *piece.seqs[..seen].last()?;
        (seq >= floor).then(|| Cover {
            seq,
            lo: lo.clone(),
            hi: piece.hi.clone(),
        })
    }

    /// The pieces that a range with a sequence from `floor` to `visible` covers, ascending.
    pub(super) fn covered(
        &self,
        floor: u64,
        visible: u64,
    ) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.0.iter().filter_map(move |(lo, piece)| {
            let seen = piece.seqs.partition_point(|seq| *seq <= visible);
            let newest = *piece.seqs[..seen].last()?;
            (newest >= floor).then_some((lo, piece.hi.as_ref()))
        })
    }
}

#[cfg(all(test, not(explore)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 10 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_key_is_covered_as_by_the_list_of_ranges(
            added in proptest::collection::vec((0..20_u8, proptest::option::of(0..20_u8)), 0..12),
            floor in 0..6_u64,
            visible in 0..14_u64,
        ) {
            let mut ranges = Ranges::default();
            let mut list = Vec::new();
            for (at, (lo, hi)) in added.iter().enumerate() {
                if hi.is_some_and(|hi| hi <= *lo) {
                    continue;
                }
                let seq = (at as u64 * 5) % 13 + 1;
                let hi_bytes = hi.map(|hi| Bytes::copy_from_slice(&[hi]));
                ranges.add(seq, &Bytes::copy_from_slice(&[*lo]), hi_bytes.as_ref());
                list.push((seq, *lo, *hi));
            }
            for key in 0..20_u8 {
                let expected = list
                    .iter()
                    .filter(|(seq, lo, hi)| {
                        *seq <= visible && *lo <= key && hi.is_none_or(|hi| key < hi)
                    })
                    .map(|(seq, ..)| *seq)
                    .max()
                    .filter(|seq| *seq >= floor);
                let cover = ranges.cover(&[key], floor, visible);
                prop_assert_eq!(cover.as_ref().map(|cover| cover.seq), expected);
                if let Some(cover) = cover {
                    prop_assert!(cover.lo[..] <= [key][..]);
                    prop_assert!(cover.hi.is_none_or(|hi| hi[..] > [key][..]));
                }
                let listed = ranges
                    .covered(floor, visible)
                    .any(|(lo, hi)| lo[..] <= [key][..] && hi.is_none_or(|hi| hi[..] > [key][..]));
                prop_assert_eq!(listed, expected.is_some());
            }
        }
    }
}
