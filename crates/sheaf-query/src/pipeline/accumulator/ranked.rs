//! Accumulators that keep n values: `$top`, `$topN`, `$bottom`, `$bottomN` by a sort pattern over
//! the document, `$minN`, `$maxN` by the value itself, `$firstN` and `$lastN` by arrival.
//!
//! All keep at most n entries in a map ordered by (key, arrival): the first n, or the last n.
//!
//! ```text
//!   $topN     key of the document     first n
//!   $bottomN  key of the document     last n, still in the sort's order
//!   $minN     key of the value        first n
//!   $maxN     key of the value        last n, returned in reverse
//!   $firstN   no key: arrival only    first n
//!   $lastN    no key                  last n
//! ```

use std::collections::BTreeMap;

use sheaf_bson::{ArrayBuilder, RawArray, RawValue, Value};

use super::size;

/// A running selection of at most n values.
#[derive(Debug)]
pub(crate) struct Ranked {
    n: usize,
    /// Keep the last entries instead of the first.
    last: bool,
    entries: BTreeMap<(Box<[u8]>, u64), Value>,
    arrived: u64,
    bytes: usize,
}

impl Ranked {
    pub(crate) fn new(n: usize, last: bool) -> Ranked {
        Ranked {
            n,
            last,
            entries: BTreeMap::new(),
            arrived: 0,
            bytes: 0,
        }
    }

    /// Approximate bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn entry_bytes(key: &[u8], value: RawValue<'_>) -> usize {
        key.len() + size(value) + 64
    }

    /// Whether a value with this key, arriving now, would be kept.
    pub(crate) fn would_keep(&self, key: &[u8]) -> bool {
        if self.entries.len() < self.n {
            return true;
        }
        let worst = if self.last {
            self.entries.first_key_value()
        } else {
            self.entries.last_key_value()
        };
        let Some(((worst, _), _)) = worst else {
            return false;
        };
        // Among equal keys the earlier arrival is first, so a later one displaces it only if the
        // last entries are kept.
        if self.last {
            key >= &**worst
        } else {
            key < &**worst
        }
    }

    /// Adds a value; returns by how many bytes the state grew.
    pub(crate) fn add(&mut self, key: &[u8], value: RawValue<'_>) -> usize {
        let arrival = self.arrived;
        self.arrived += 1;
        if !self.would_keep(key) {
            return 0;
        }
        let before = self.bytes;
        self.bytes += Self::entry_bytes(key, value);
        self.entries.insert((key.into(), arrival), value.to_value());
        while self.entries.len() > self.n {
            let gone = if self.last {
                self.entries.pop_first()
            } else {
                self.entries.pop_last()
            };
            if let Some(((key, _), value)) = gone {
                self.bytes -= Self::entry_bytes(&key, value.as_raw());
            }
        }
        self.bytes.saturating_sub(before)
    }

    /// The kept values, ordered by key and arrival.
    pub(crate) fn into_values(self) -> impl DoubleEndedIterator<Item = Value> {
        self.entries.into_values()
    }

    /// Alternating keys and values, in order of arrival.
    pub(super) fn into_partial(self) -> Value {
        let mut entries: Vec<_> = self.entries.into_iter().collect();
        entries.sort_by_key(|((_, arrival), _)| *arrival);
        let mut out = ArrayBuilder::new();
        for ((key, _), value) in &entries {
            out.push(RawValue::Binary {
                subtype: 0,
                bytes: key,
            });
            out.push(value.as_raw());
        }
        Value::Array(out.finish())
    }

    /// Adds what another state kept, as later arrivals; returns by how many bytes the state grew.
    /// `None` if `partial` is not a state.
    pub(super) fn merge(&mut self, partial: RawArray<'_>) -> Option<usize> {
        let mut values = partial.iter();
        let mut grown = 0;
        while let Some(key) = values.next() {
            let RawValue::Binary { bytes, .. } = key else {
                return None;
            };
            grown += self.add(bytes, values.next()?);
        }
        Some(grown)
    }
}
