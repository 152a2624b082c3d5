//! Statistics for the planner: counts that the engine maintains, and the index keys of a few
//! documents sampled across the collection.
//!
//! ```text
//!   record ids   1 ......... 2^20        one document from each of 256 equal stretches (sample_places)
//!   their keys   index a_1:  ["x"] ["x"] ["y"] ...   sorted, in memory
//!
//!   a: ["x", "x"]   holds 2 of 256 keys: about 0.8 % of the index
//!   a               few distinct values if few of the 256 occur only once
//! ```
//!
//! The sample is taken on first use, is stored and dropped together with the plan cache, and is
//! retaken when the collection has grown or shrunk by a fifth, or the sample is too old. It needs
//! no explicit refresh and is not stored on disk, and a collection whose queries leave no choice
//! never has one.

use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::RawDoc;
use sheaf_bson::error_code::Error;
use sheaf_bson::keystring::{self, Directions};
use sheaf_bson::record_id::RecordKeyBytes;
use sheaf_query::planner::bounds_checker::{EncodedEnd, IndexBoundsChecker, KeyState};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::IndexScanNode;
use sheaf_query::planner::statistics::{KeyEstimate, Prefixes, Statistics};
use smallvec::SmallVec;

use super::sample::{IndexSample, Sample, SampleSlot};
use super::sample_places::Places;
use crate::catalog::ReadView;
use crate::collection::Collection;
use crate::exec::index_cursor::{IndexCursor, encoded_bounds};
use crate::exec::key_document::directions_of;
use crate::index::key_set::KeySet;
use crate::record_key::record_id_of;
use crate::storage_error::IntoClientError;

/// Number of documents in a sample.
const DOCS_MAX: u64 = 256;
/// Maximum size of the documents read for a sample; it is cut short beyond that.
const READ_BYTES_MAX: usize = 8 << 20;
/// Maximum size of the keys in a sample, over all indexes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of keys kept per document and index; each then represents several.
const DOC_KEYS_MAX: usize = 16;
/// Relative change of the record count after which the sample is retaken.
const CHANGED_PART: f64 = 0.2;
/// Maximum age of a sample: documents also change in place.
const AGE_MAX: Duration = Duration::from_secs(300);

impl Sample {
    /// The sample in the slot, retaken if missing or stale. `None` if the collection cannot be
    /// sampled.
    fn of(
        slot: &SampleSlot,
        view: &ReadView,
        collection: &Collection,
        records: u64,
    ) -> Option<Arc<Sample>> {
        if let Some(sample) = slot.kept().filter(|sample| sample.is_of_date(records)) {
            return Some(sample);
        }
        let sample = Arc::new(Sample::take(view, collection, records).ok()??);
        slot.keep(&sample);
        Some(sample)
    }

    fn is_of_date(&self, records: u64) -> bool {
        let change = self.records.abs_diff(records) as f64;
        change <= self.records as f64 * CHANGED_PART && self.taken.elapsed() < AGE_MAX
    }

    fn take(view: &ReadView, collection: &Collection, records: u64) -> Result<Option<Self>, Error> {
        let mut cursor = view
            .snapshot
            .cursor(collection.table())
            .into_client_error()?;
        let mut sample = Sample {
            records,
            taken: Instant::now(),
            indexes: HashMap::new(),
        };
        if !cursor.seek_last().into_client_error()? {
            return Ok(Some(sample));
        }
        let last = RecordKeyBytes::from_slice(cursor.key());
        if !cursor.seek_first().into_client_error()? {
            return Ok(None);
        }
        let places = Places::between(cursor.key(), &last);
        let whole = records <= DOCS_MAX;
        let (mut keys, mut previous) = (KeySet::new(), None);
        let (mut read, mut kept) = (0, 0);
        let mut on = true;
        for turn in 0..DOCS_MAX {
            if !whole {
                // A fixed scatter within each stretch, to avoid resonance with periodic data.
                let scatter = u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
                let part = (u128::from(turn) << 32) + scatter;
                let place = places.at(part, u128::from(DOCS_MAX) << 32);
                on = cursor.seek(&place).into_client_error()?;
            } else if turn > 0 {
                on = cursor.next().into_client_error()?;
            }
            if !on || read > READ_BYTES_MAX || kept > KEPT_BYTES_MAX {
                break;
            }
            let id = record_id_of(cursor.key());
            if std::mem::replace(&mut previous, id.clone()) == id {
                continue;
            }
            let bytes = cursor.value();
            read += bytes.len();
            // An estimate can skip a damaged record; queries that read it fail.
            let doc = match RawDoc::stored(bytes) {
                Ok(doc) => doc,
                Err(damage) => {
                    collection.report_damage(damage);
                    continue;
                }
            };
            let planned = collection.index_list().iter();
            for index in planned.filter(|index| !index.is_vector()) {
                let of_index = sample.indexes.entry(index.table().0).or_default();
                of_index.docs += 1;
                of_index.whole = whole;
                // A document that an index rejects now may have been stored before the index
                // existed.
                if index.keys_of(doc, &mut keys).is_err() {
                    continue;
                }
                let stride = keys.len().div_ceil(DOC_KEYS_MAX).max(1);
                for key in keys.iter().step_by(stride) {
                    kept += key.key.len();
                    of_index.keys.push((key.key.into(), stride as f64));
                }
            }
        }
        for index in sample.indexes.values_mut() {
            index.keys.sort_by(|a, b| a.0.cmp(&b.0));
            debug_assert!(index.keys.iter().all(|(_, weight)| *weight >= 1.0));
        }
        Ok(Some(sample))
    }
}

impl IndexSample {
    /// Number of index keys that one key of the sample represents.
    fn scale(&self, records: u64) -> f64 {
        match self.whole || self.docs == 0 {
            true => 1.0,
            false => records as f64 / self.docs as f64,
        }
    }

    fn keys_within(&self, scan: &IndexScanNode, records: u64) -> Option<KeyEstimate> {
        let directions = directions_of(&scan.index);
        let forward = scan.direction >= 0;
        let bounds = encoded_bounds(&scan.bounds, directions, forward)?;
        let mut checker = IndexBoundsChecker::default();
        let mut hits = 0.0;
        if let Some(range) = bounds.simple_range() {
            let (low, high) = match forward {
                true => (
                    (&range.start, range.start_inclusive),
                    (&range.end, range.end_inclusive),
                ),
                false => (
                    (&range.end, range.end_inclusive),
                    (&range.start, range.start_inclusive),
                ),
            };
            let before = |(ends, inclusive): (&Vec<&EncodedEnd>, bool), is_low: bool| {
                self.keys.partition_point(|(key, _)| {
                    let order = compare_leading(key, ends, directions);
                    // An inclusive lower bound sorts before its keys, an inclusive upper bound
                    // after them.
                    order.is_lt() || order.is_eq() && inclusive != is_low
                })
            };
            let from = before(low, true);
            let to = match high.0.is_empty() {
                true => self.keys.len(),
                false => before(high, false).max(from),
            };
            let from = if low.0.is_empty() { 0 } else { from };
            hits = self.keys[from..to].iter().map(|(_, n)| n).sum();
        } else if checker.start(&bounds).is_some() {
            for at in 0..self.keys.len() {
                let (key, stands_for) = match forward {
                    true => &self.keys[at],
                    false => &self.keys[self.keys.len() - 1 - at],
                };
                let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::new();
                let mut start = 0;
                for field in 0..bounds.fields.len() {
                    let end = keystring::field_end(key, start, directions.is_descending(field))?;
                    parts.push(&key[start..end]);
                    start = end;
                }
                match checker.check_key(&bounds, parts.as_slice()) {
                    KeyState::Valid => hits += stands_for,
                    KeyState::MustAdvance(_) => {}
                    KeyState::Done => break,
                }
            }
        }
        let scale = self.scale(records);
        if self.whole {
            return Some(KeyEstimate {
                keys: hits,
                low: hits,
                high: hits,
            });
        }
        // Two standard deviations of a Poisson count; zero hits are consistent with up to about
        // three.
        let spread = 2.0 * hits.sqrt();
        Some(KeyEstimate {
            keys: hits * scale,
            low: (hits - spread).max(0.0) * scale,
            high: (hits + spread + 3.0) * scale,
        })
    }

    /// Estimates the number of distinct prefixes. Prefixes that occur once in the sample are
    /// assumed to be numerous in the collection, those that occur several times to be few: each of
    /// the former counts as the square root of the number of keys it represents.
    fn distinct_prefixes(&self, index: &IndexEntry, fields: usize, records: u64) -> Option<u64> {
        let counted = self.prefixes.get_or_init(|| self.count_prefixes(index));
        let &(several, single) = counted.get(fields.checked_sub(1)?)?;
        let unseen = self.scale(records).max(1.0).sqrt();
        Some(several + (single as f64 * unseen) as u64)
    }

    /// Computes [`IndexSample::prefixes`]; empty if a key is malformed.
    fn count_prefixes(&self, index: &IndexEntry) -> Vec<(u64, u64)> {
        let directions = directions_of(index);
        let fields = index.fields.len();
        let mut counts = vec![(0, 0); fields];
        // Lengths of the current runs of equal prefixes.
        let mut runs = vec![0u64; fields];
        let close = |count: &mut (u64, u64), run: u64| match run {
            0 => {}
            1 => count.1 += 1,
            _ => count.0 += 1,
        };
        let mut before: &[u8] = &[];
        for (key, _) in &self.keys {
            let (mut start, mut same) = (0, true);
            for field in 0..fields {
                let Some(end) = keystring::field_end(key, start, directions.is_descending(field))
                else {
                    return Vec::new();
                };
                same &= before.get(start..end) == Some(&key[start..end]);
                if !same {
                    close(&mut counts[field], std::mem::take(&mut runs[field]));
                }
                runs[field] += 1;
                start = end;
            }
            before = key;
        }
        for (count, run) in counts.iter_mut().zip(runs) {
            close(count, run);
        }
        counts
    }
}

/// Compares a key's leading fields with the same number of encoded values.
fn compare_leading(key: &[u8], ends: &[&EncodedEnd], directions: Directions) -> Ordering {
    let mut start = 0;
    for (field, end) in ends.iter().enumerate() {
        let Some(stop) = keystring::field_end(key, start, directions.is_descending(field)) else {
            return Ordering::Less;
        };
        let order = key[start..stop].cmp(end.as_slice());
        if order.is_ne() {
            return order;
        }
        start = stop;
    }
    Ordering::Equal
}

/// The statistics of one view of a collection.
pub struct ViewStatistics<'v> {
    view: &'v ReadView,
    collection: &'v Collection,
    records: u64,
    /// Fetched on first use; the inner `None` means that no sample is available.
    sample: OnceCell<Option<Arc<Sample>>>,
}

impl<'v> ViewStatistics<'v> {
    /// Creates the statistics of a view; `None` if the collection does not exist.
    /// Errors: those of counting records.
    pub fn new(view: &'v ReadView) -> Result<Option<Self>, Error> {
        let Some(collection) = &view.collection else {
            return Ok(None);
        };
        Ok(Some(ViewStatistics {
            view,
            collection,
            records: view.record_count()?,
            sample: OnceCell::new(),
        }))
    }

    fn of_index(&self, index: &IndexEntry) -> Option<&IndexSample> {
        let slot = self.collection.plan_cache().sample();
        let sample = self
            .sample
            .get_or_init(|| Sample::of(slot, self.view, self.collection, self.records));
        sample.as_ref()?.indexes.get(&index.ident)
    }
}

impl fmt::Debug for ViewStatistics<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewStatistics")
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl Statistics for ViewStatistics<'_> {
    fn records(&self) -> u64 {
        self.records
    }

    fn keys_within(&self, scan: &IndexScanNode) -> Option<KeyEstimate> {
        self.of_index(&scan.index)?.keys_within(scan, self.records)
    }

    fn distinct_prefixes(&self, index: &IndexEntry, fields: usize) -> Option<u64> {
        let sample = self.of_index(index)?;
        sample.distinct_prefixes(index, fields, self.records)
    }

    fn prefixes(&self, scan: &IndexScanNode, fields: usize, max: usize) -> Option<Prefixes> {
        let mut cursor = IndexCursor::checked_over(&self.view.snapshot, scan).ok()?;
        let mut values = Vec::new();
        // Bounds on fields after the prefix may exclude most keys; give up then.
        let keys_max = 4 * max as u64 + 64;
        while let Some(within) = cursor.advance().ok()? {
            if cursor.keys_examined() > keys_max {
                return None;
            }
            if !within {
                continue;
            }
            if values.len() == max {
                return None;
            }
            let mut prefix = cursor.values().ok()?;
            prefix.truncate(fields);
            values.push(prefix);
            cursor.skip_prefix(fields);
        }
        Some(Prefixes {
            values,
            keys_examined: cursor.keys_examined(),
            seeks: cursor.seeks(),
        })
    }
}
