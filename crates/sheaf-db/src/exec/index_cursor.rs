//! Scans an index within bounds.
//!
//! ```text
//!   one contiguous range      seek start, next, next, ... until past the end
//!   anything else             the bounds checker locates every key:
//!                             within: return; outside: seek to where it says
//! ```
//!
//! Keys are compared as bytes, never decoded. `keysExamined` counts entries visited (in a
//! contiguous range: returned), `seeks` counts moves other than single steps.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::{self, Directions, Discriminator, KeyStringBuilder};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RecordId, Value, doc, json};
use sheaf_query::planner::bounds::IndexBounds;
use sheaf_query::planner::bounds_checker::{
    EncodedEnd, IndexBoundsChecker, KeyState, ScanBounds, SeekPoint,
};
use sheaf_query::planner::explain_bounds;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::planner::solution::IndexScanNode;
use sheaf_storage::{Cursor, Snapshot, TableId};

use super::key_document::{KeyDocument, directions_of, values_of};
use super::{BuildContext, IndexKey};
use crate::index::wildcard_keys::{FIRST_KEY, is_array_entry};
use crate::storage_error::IntoClientError;

/// See the module.
pub struct IndexCursor {
    cursor: Box<dyn Cursor>,
    index: Arc<IndexEntry>,
    bounds: IndexBounds,
    directions: Directions,
    forward: bool,
    walk: Walk,
    next_move: Move,
    seek_key: KeyStringBuilder,
    /// End offset of each field of the current key (checked walks only).
    ends: Vec<usize>,
    key_len: usize,
    record_id: RecordId,
    keys_examined: u64,
    seeks: u64,
}

enum Walk {
    /// One contiguous range; the bytes are compared with whole entry keys.
    Range { start: Vec<u8>, end: Vec<u8> },
    /// Everything else.
    Checked {
        bounds: ScanBounds<EncodedEnd>,
        checker: IndexBoundsChecker,
    },
}

enum Move {
    /// Seek to the key in `seek_key`.
    Seek,
    /// One step.
    Step,
    /// At the end.
    None,
}

/// Encodes bounds as KeyString pieces; `None` for a range of whole keys.
pub fn encoded_bounds(
    bounds: &IndexBounds,
    directions: Directions,
    forward: bool,
) -> Option<ScanBounds<EncodedEnd>> {
    // Shared buffer: there may be many values.
    let mut out = KeyStringBuilder::new(directions);
    let encode = |field: usize, value: &Value| {
        out.reset();
        out.append_directed(value.as_raw(), directions.is_descending(field));
        EncodedEnd::from_slice(out.as_bytes())
    };
    ScanBounds::compile(bounds, |_| !forward, encode)
}

impl IndexCursor {
    /// A contiguous walk if the bounds are one range, else a checked walk.
    pub fn new(cx: &BuildContext, scan: &IndexScanNode) -> Result<Self, Error> {
        Self::with_mode(&cx.snapshot, scan, true)
    }

    /// Always a checked walk: for scans that skip within a range.
    pub fn checked(cx: &BuildContext, scan: &IndexScanNode) -> Result<Self, Error> {
        Self::checked_over(&cx.snapshot, scan)
    }

    /// Like [`IndexCursor::checked`], without a plan.
    pub fn checked_over(snapshot: &Arc<dyn Snapshot>, scan: &IndexScanNode) -> Result<Self, Error> {
        Self::with_mode(snapshot, scan, false)
    }

    fn with_mode(
        snapshot: &Arc<dyn Snapshot>,
        scan: &IndexScanNode,
        contiguous: bool,
    ) -> Result<Self, Error> {
        let directions = directions_of(&scan.index);
        let forward = scan.direction >= 0;
        // The planner identifies an index by its table.
        let table = TableId(scan.index.ident);
        let mut cursor = IndexCursor {
            cursor: snapshot.cursor(table).into_client_error()?,
            index: scan.index.clone(),
            bounds: scan.bounds.clone(),
            directions,
            forward,
            walk: Walk::Range {
                start: Vec::new(),
                end: Vec::new(),
            },
            next_move: Move::Seek,
            seek_key: KeyStringBuilder::new(directions),
            ends: Vec::new(),
            key_len: 0,
            record_id: RecordId::MIN,
            keys_examined: 0,
            seeks: 0,
        };
        cursor.prepare(contiguous);
        Ok(cursor)
    }

    fn prepare(&mut self, contiguous: bool) {
        let bounds = match &self.bounds {
            IndexBounds::KeyRange {
                start,
                end,
                start_inclusive,
                end_inclusive,
            } => {
                let start = self.edge(start.as_ref(), *start_inclusive, true);
                let end = self.edge(end.as_ref(), *end_inclusive, false);
                self.walk = Walk::Range { start, end };
                return;
            }
            IndexBounds::Fields(_) => encoded_bounds(&self.bounds, self.directions, self.forward),
        };
        let Some(bounds) = bounds else {
            self.next_move = Move::None;
            return;
        };
        let mut checker = IndexBoundsChecker::default();
        let Some(first) = checker.start(&bounds) else {
            self.next_move = Move::None;
            return;
        };
        let range = contiguous
            .then(|| {
                bounds.simple_range().map(|range| {
                    let start = self.edge_of_parts(&range.start, range.start_inclusive, true);
                    let end = self.edge_of_parts(&range.end, range.end_inclusive, false);
                    Walk::Range { start, end }
                })
            })
            .flatten();
        match range {
            Some(walk) => self.walk = walk,
            None => {
                self.seek_to(&bounds, &checker, first);
                self.walk = Walk::Checked { bounds, checker };
            }
        }
    }

    /// A key just outside a range: before all its keys at the start of a forward walk, after all of
    /// them at its end; the reverse for a backward walk.
    fn edge_of_parts(&self, parts: &[&EncodedEnd], inclusive: bool, is_start: bool) -> Vec<u8> {
        let mut key = KeyStringBuilder::new(self.directions);
        for part in parts {
            key.append_encoded(part);
        }
        // The end of the index needs no bound.
        if parts.is_empty() {
            return Vec::new();
        }
        key.append_discriminator(self.outside(inclusive, is_start));
        key.as_bytes().to_vec()
    }

    fn edge(&self, values: Option<&DocBuf>, inclusive: bool, is_start: bool) -> Vec<u8> {
        let Some(values) = values else {
            return Vec::new();
        };
        let mut key = KeyStringBuilder::new(self.directions);
        for element in values.as_raw().iter() {
            key.append(element.value());
        }
        key.append_discriminator(self.outside(inclusive, is_start));
        key.as_bytes().to_vec()
    }

    fn outside(&self, inclusive: bool, is_start: bool) -> Discriminator {
        // An inclusive start of a forward walk sorts before the keys it admits.
        if (is_start == inclusive) == self.forward {
            Discriminator::Before
        } else {
            Discriminator::After
        }
    }

    /// Sets `seek_key` to the point where a checked walk continues.
    fn seek_to(
        &mut self,
        bounds: &ScanBounds<EncodedEnd>,
        checker: &IndexBoundsChecker,
        point: SeekPoint,
    ) {
        self.seek_key.reset();
        if point.prefix_len > 0 {
            let end = self.ends[point.prefix_len - 1];
            self.seek_key.append_encoded(&self.cursor.key()[..end]);
        }
        let mut inclusive = !point.prefix_exclusive;
        if !point.prefix_exclusive {
            for (start, start_inclusive) in checker.suffix(bounds, point.prefix_len) {
                self.seek_key.append_encoded(start);
                if !start_inclusive {
                    inclusive = false;
                    break;
                }
            }
        }
        self.seek_key
            .append_discriminator(self.outside(inclusive, true));
        self.next_move = Move::Seek;
    }

    /// Makes one move. `None` at the end; `Some(true)` on a key within the bounds; `Some(false)` on
    /// a key outside, after which the next move seeks.
    pub fn advance(&mut self) -> Result<Option<bool>, Error> {
        let found = match self.next_move {
            Move::None => return Ok(None),
            Move::Step if self.forward => self.cursor.next(),
            Move::Step => self.cursor.prev(),
            Move::Seek => {
                self.seeks += 1;
                let target = match &self.walk {
                    Walk::Range { start, .. } => start.as_slice(),
                    Walk::Checked { .. } => self.seek_key.as_bytes(),
                };
                match (self.forward, target.is_empty()) {
                    (true, _) => self.cursor.seek(target),
                    (false, false) => self.cursor.seek_for_prev(target),
                    (false, true) => self.cursor.seek_last(),
                }
            }
        };
        let mut found = found.into_client_error()?;
        if found && is_array_entry(self.cursor.key()) {
            // All array-path entries precede the first key.
            found = self.forward && self.cursor.seek(FIRST_KEY).into_client_error()?;
        }
        if !found {
            self.next_move = Move::None;
            return Ok(None);
        }
        self.next_move = Move::Step;
        if let Walk::Range { end, .. } = &self.walk
            && !end.is_empty()
        {
            let past = if self.forward {
                self.cursor.key() > end.as_slice()
            } else {
                self.cursor.key() < end.as_slice()
            };
            if past {
                self.next_move = Move::None;
                return Ok(None);
            }
        }
        self.keys_examined += 1;
        let (record_id, key_len) =
            keystring::decode_record_id(self.cursor.key()).ok_or_else(|| self.damaged())?;
        debug_assert!(
            key_len < self.cursor.key().len(),
            "no record id follows the key"
        );
        self.record_id = record_id;
        self.key_len = key_len;
        let Walk::Checked { bounds, checker } = &mut self.walk else {
            return Ok(Some(true));
        };
        let key = &self.cursor.key()[..key_len];
        self.ends.clear();
        let mut parts: smallvec::SmallVec<[&[u8]; 8]> = smallvec::SmallVec::new();
        let mut start = 0;
        for field in 0..bounds.fields.len() {
            let Some(end) = keystring::field_end(key, start, self.directions.is_descending(field))
            else {
                return Err(self.damaged());
            };
            parts.push(&key[start..end]);
            self.ends.push(end);
            start = end;
        }
        debug_assert_eq!(self.ends.len(), bounds.fields.len());
        debug_assert!(self.ends.is_sorted() && self.ends.last().is_none_or(|end| *end <= key_len));
        match checker.check_key(bounds, parts.as_slice()) {
            KeyState::Valid => Ok(Some(true)),
            KeyState::Done => {
                self.next_move = Move::None;
                Ok(None)
            }
            KeyState::MustAdvance(point) => {
                drop(parts);
                let walk = std::mem::replace(
                    &mut self.walk,
                    Walk::Range {
                        start: Vec::new(),
                        end: Vec::new(),
                    },
                );
                if let Walk::Checked { bounds, checker } = &walk {
                    self.seek_to(bounds, checker, point);
                }
                self.walk = walk;
                Ok(Some(false))
            }
        }
    }

    /// Makes the next move skip every key with the same first `fields` values. Only for checked
    /// walks.
    pub fn skip_prefix(&mut self, fields: usize) {
        let Some(&end) = fields.checked_sub(1).and_then(|at| self.ends.get(at)) else {
            return;
        };
        self.seek_key.reset();
        self.seek_key.append_encoded(&self.cursor.key()[..end]);
        self.seek_key.append_discriminator(if self.forward {
            Discriminator::After
        } else {
            Discriminator::Before
        });
        self.next_move = Move::Seek;
    }

    /// The first `fields` fields of the current key, encoded. Only for checked walks.
    pub fn prefix(&self, fields: usize) -> &[u8] {
        let end = fields.checked_sub(1).and_then(|at| self.ends.get(at));
        &self.cursor.key()[..end.copied().unwrap_or(0)]
    }

    /// A field of the current key, encoded; `None` if absent. Only for checked walks.
    pub fn field(&self, field: usize) -> Option<&[u8]> {
        let start = field
            .checked_sub(1)
            .map_or(Some(0), |at| self.ends.get(at).copied())?;
        self.cursor.key().get(start..*self.ends.get(field)?)
    }

    /// Record id of the current key.
    pub fn record_id(&self) -> RecordId {
        self.record_id.clone()
    }

    /// A copy of the current key.
    pub fn key(&self) -> IndexKey {
        IndexKey {
            index: self.index.clone(),
            key: self.cursor.key()[..self.key_len].into(),
            type_bits: self.cursor.value().into(),
        }
    }

    /// The values of the current key.
    /// Errors: `DataCorruptionDetected` for a malformed key.
    pub fn values(&self) -> Result<Vec<Value>, Error> {
        let key = &self.cursor.key()[..self.key_len];
        values_of(&self.index, key, self.cursor.value())
    }

    /// The current key as a document.
    pub fn decode_into<'d>(&self, document: &'d mut KeyDocument) -> Result<RawDoc<'d>, Error> {
        document.decode_parts(
            &self.index,
            &self.cursor.key()[..self.key_len],
            self.cursor.value(),
        )
    }

    /// Releases what the cursor pins until the next move. The key remains available, its type bits
    /// do not.
    pub fn suspend(&mut self) {
        self.cursor.suspend();
    }

    /// Number of entries visited.
    pub fn keys_examined(&self) -> u64 {
        self.keys_examined
    }

    /// Number of moves other than single steps.
    pub fn seeks(&self) -> u64 {
        self.seeks
    }

    /// `IXSCAN { a: 1, b: -1 }`.
    pub fn summary(&self, stage: &str) -> String {
        format!(
            "{stage} {}",
            json::shell_doc(self.index.key_pattern.as_raw())
        )
    }

    /// The index and walk, for explain.
    pub fn plan_fields(&self) -> DocBuf {
        let mut out = self.index_fields();
        out.append(
            "direction",
            if self.forward { "forward" } else { "backward" },
        );
        let bounds = explain_bounds::to_doc(&self.bounds, &self.index);
        out.append("indexBounds", bounds.as_raw());
        out.finish()
    }

    /// The index and the range of its keys that are counted, for explain.
    pub fn count_fields(&self) -> DocBuf {
        let mut out = self.index_fields();
        let bounds = explain_bounds::one_range(&self.bounds, &self.index);
        out.append("indexBounds", bounds.as_raw());
        out.finish()
    }

    fn index_fields(&self) -> DocBuilder {
        let index = &self.index;
        let mut out = DocBuilder::new();
        out.append("keyPattern", index.key_pattern.as_raw());
        out.append("indexName", index.name.as_str());
        if let Some(collator) = &index.collator {
            out.append_bson("collation", &collator.collation().to_doc());
        }
        out.append("isMultiKey", index.multikey);
        out.begin_document("multiKeyPaths");
        for (field, positions) in index.fields.iter().zip(&index.multikey_paths) {
            out.begin_array(field.path.dotted());
            for &position in positions {
                out.push(field.path.prefix(position + 1));
            }
            out.end();
        }
        out.end();
        out.append("isUnique", index.unique);
        out.append("isSparse", index.sparse || index.wildcard().is_some());
        out.append("isPartial", index.partial_filter.is_some());
        out.append("indexVersion", index.version);
        out
    }

    fn damaged(&self) -> Error {
        Error::new(
            ErrorCode::DATA_CORRUPTION_DETECTED,
            format!(
                "an entry of index '{}' is not a key; run validate on the collection",
                self.index.name
            ),
        )
        .with_extra(doc! {"index": self.index.name.as_str()})
    }
}
