//! CLUSTERED_IXSCAN: the records of a clustered collection within bounds on `_id`, by seeks.
//!
//! ```text
//!   bounds      [3, 5]        (9, inf.0]        in the order of the scan
//!   walks     k(3) .. k(5)+   k(9)+ ..          byte ranges: k(v) is v's KeyString, k(v)+ is past it
//! ```
//!
//! A record is stored under the KeyString of its `_id`, padded with zeros if short. No KeyString is
//! a prefix of another, so `k(v)` sorts at or before the record of v and after all lesser ones, and
//! `k(v)` followed by FF sorts after the record and before all greater ones: a walk includes its
//! lower end and excludes its upper end.
//!
//! Each interval costs one seek; only records within are read, so `docsExamined` counts the records
//! that the bounds admit.

use std::collections::VecDeque;

use sheaf_bson::collation::shown_key_value;
use sheaf_bson::error_code::Error;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, RecordId, Value, doc};
use sheaf_query::planner::bounds::{IndexBounds, Interval};
use sheaf_query::planner::explain_bounds;
use sheaf_query::planner::solution::IndexScanNode;
use sheaf_query::planner::statistics::{SCAN_COST, SEEK_COST};
use sheaf_storage::Cursor;

use super::{Doc, Member, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};
use crate::damage::{in_record, not_a_record_id};
use crate::record_key::record_id_of;
use crate::storage_error::IntoClientError;

/// See the module.
pub struct ClusteredScan {
    cursor: Box<dyn Cursor>,
    scan: IndexScanNode,
    forward: bool,
    /// Remaining walks, the current one first.
    walks: VecDeque<Walk>,
    /// Whether the cursor is on a record of the first walk.
    on_walk: bool,
    docs_examined: u64,
    seeks: u64,
}

/// A range of keys, from `low` inclusive to `high` exclusive; empty bytes are the end of the
/// collection.
#[derive(Debug, PartialEq, Eq)]
struct Walk {
    low: Vec<u8>,
    high: Vec<u8>,
}

impl Walk {
    /// The range of an interval whose lesser end is `low`.
    fn between(
        low: Option<RawValue<'_>>,
        low_in: bool,
        high: Option<RawValue<'_>>,
        high_in: bool,
    ) -> Walk {
        Walk {
            low: low.map_or(Vec::new(), |value| edge(value, !low_in)),
            high: high.map_or(Vec::new(), |value| edge(value, high_in)),
        }
    }
}

/// A key at or before the record with this `_id`, or past it.
fn edge(value: RawValue<'_>, past: bool) -> Vec<u8> {
    let mut key = KeyStringBuilder::new(Directions::ascending());
    // If the collection has a collation, bounds hold sort keys.
    key.append(value);
    let mut bytes = key.as_bytes().to_vec();
    if past {
        bytes.push(0xFF);
    }
    bytes
}

/// The ends of an interval in ascending order, each with whether it is inclusive.
fn ascending(interval: &Interval, forward: bool) -> [(&Value, bool); 2] {
    let start = (&interval.start, interval.start_inclusive);
    let end = (&interval.end, interval.end_inclusive);
    match forward {
        true => [start, end],
        false => [end, start],
    }
}

fn walks_of(bounds: &IndexBounds, forward: bool) -> VecDeque<Walk> {
    match bounds {
        IndexBounds::Fields(lists) => {
            let intervals = lists.first().map_or(&[][..], |list| list.intervals());
            let walk = |interval: &Interval| {
                let [(low, low_in), (high, high_in)] = ascending(interval, forward);
                // Extreme values may themselves occur as `_id`; open ends admit them.
                let low = (!matches!(low, Value::MinKey) || !low_in).then(|| low.as_raw());
                let high = (!matches!(high, Value::MaxKey) || !high_in).then(|| high.as_raw());
                Walk::between(low, low_in, high, high_in)
            };
            intervals.iter().map(walk).collect()
        }
        IndexBounds::KeyRange {
            start,
            end,
            start_inclusive,
            end_inclusive,
        } => {
            let (mut low, mut high) = (only_value(start), only_value(end));
            let (mut low_in, mut high_in) = (*start_inclusive, *end_inclusive);
            if !forward {
                std::mem::swap(&mut low, &mut high);
                std::mem::swap(&mut low_in, &mut high_in);
            }
            let (low, high) = (
                low.as_ref().map(Value::as_raw),
                high.as_ref().map(Value::as_raw),
            );
            VecDeque::from([Walk::between(low, low_in, high, high_in)])
        }
    }
}

impl ClusteredScan {
    /// Scans the records with `cursor`, which must be on their table.
    pub fn new(cursor: Box<dyn Cursor>, scan: &IndexScanNode) -> Self {
        let forward = scan.direction >= 0;
        debug_assert!(scan.index.clustered, "{} has keys", scan.index.name);
        ClusteredScan {
            cursor,
            walks: walks_of(&scan.bounds, forward),
            scan: scan.clone(),
            forward,
            on_walk: false,
            docs_examined: 0,
            seeks: 0,
        }
    }

    fn record_id(&self) -> Result<RecordId, Error> {
        let key = self.cursor.key();
        record_id_of(key).ok_or_else(|| not_a_record_id(key))
    }

    fn document(&self) -> Result<RawDoc<'_>, Error> {
        RawDoc::stored(self.cursor.value()).map_err(|e| match self.record_id() {
            Ok(id) => in_record(e, &id),
            Err(no_record) => no_record,
        })
    }

    /// Moves to the next record; returns false at the end of the walk.
    fn step(&mut self, cx: &mut WorkContext<'_>, walk: &Walk) -> Result<bool, Error> {
        let found = match (self.on_walk, self.forward) {
            (true, true) => self.cursor.next(),
            (true, false) => self.cursor.prev(),
            (false, forward) => {
                self.seeks += 1;
                cx.cost += SEEK_COST;
                match (forward, walk.high.is_empty()) {
                    (true, _) => self.cursor.seek(&walk.low),
                    (false, true) => self.cursor.seek_last(),
                    (false, false) => match self.cursor.seek_for_prev(&walk.high) {
                        // The upper end is exclusive.
                        Ok(true) if self.cursor.key() >= walk.high.as_slice() => self.cursor.prev(),
                        found => found,
                    },
                }
            }
        };
        if !found.into_client_error()? {
            return Ok(false);
        }
        let key = self.cursor.key();
        Ok(match self.forward {
            true => walk.high.is_empty() || key < walk.high.as_slice(),
            false => key >= walk.low.as_slice(),
        })
    }
}

impl PlanStage for ClusteredScan {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let Some(walk) = self.walks.pop_front() else {
            return Ok(StageState::Eof);
        };
        self.on_walk = self.step(cx, &walk)?;
        if !self.on_walk {
            return Ok(match self.walks.is_empty() {
                true => StageState::Eof,
                false => StageState::NeedTime,
            });
        }
        debug_assert!(self.cursor.key() >= walk.low.as_slice());
        debug_assert!(walk.high.is_empty() || self.cursor.key() < walk.high.as_slice());
        self.walks.push_front(walk);
        self.docs_examined += 1;
        cx.cost += SCAN_COST;
        let document = self.document()?;
        if let Some(filter) = &self.scan.filter
            && !filter.matches(document)?
        {
            return Ok(StageState::NeedTime);
        }
        Ok(StageState::Advanced(Member {
            record_id: Some(self.record_id()?),
            doc: Some(Doc::Shared(self.cursor.value_bytes())),
            key: None,
            sort_key: None,
        }))
    }

    fn is_eof(&self) -> bool {
        self.walks.is_empty()
    }

    fn describe(&self) -> StageDescription {
        let is_full = self.scan.is_full();
        let stage = match is_full {
            true => "COLLSCAN",
            false => "CLUSTERED_IXSCAN",
        };
        let mut plan = DocBuilder::new();
        plan.append(
            "direction",
            if self.forward { "forward" } else { "backward" },
        );
        if !is_full {
            append_extent(&self.scan, &mut plan);
        }
        let mut exec = doc! {"docsExamined": self.docs_examined as i64};
        if !is_full {
            exec = doc! {"docsExamined": self.docs_examined as i64, "seeks": self.seeks as i64};
        }
        StageDescription {
            stage,
            filter: self.scan.filter.as_ref().map(|f| f.serialize()),
            plan_fields: plan.finish(),
            exec_fields: exec,
            docs_examined: self.docs_examined,
            seeks: self.seeks,
            summary: Some(stage.into()),
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.docs_examined += self.docs_examined;
    }

    fn suspend(&mut self) {
        self.cursor.suspend();
    }
}

/// `minRecord` and `maxRecord`: the least and greatest `_id` in bounds. If there are several
/// intervals, also the intervals, as `indexBounds`.
fn append_extent(scan: &IndexScanNode, out: &mut DocBuilder) {
    let forward = scan.direction >= 0;
    let (first, last) = match &scan.bounds {
        IndexBounds::Fields(lists) => {
            let intervals = lists.first().map_or(&[][..], |list| list.intervals());
            if intervals.len() != 1 {
                let bounds = explain_bounds::to_doc(&scan.bounds, &scan.index);
                out.append_bson("indexBounds", &bounds);
            }
            (
                intervals.first().map(|i| i.start.clone()),
                intervals.last().map(|i| i.end.clone()),
            )
        }
        IndexBounds::KeyRange { start, end, .. } => (only_value(start), only_value(end)),
    };
    let (least, greatest) = match forward {
        true => (first, last),
        false => (last, first),
    };
    let is_extreme = |value: &Value| matches!(value, Value::MinKey | Value::MaxKey);
    for (name, value) in [("minRecord", least), ("maxRecord", greatest)] {
        let Some(value) = value.filter(|value| !is_extreme(value)) else {
            continue;
        };
        match &scan.index.collator {
            Some(_) => out.append(name, &shown_key_value(value.as_raw())),
            None => out.append(name, value.as_raw()),
        };
    }
}

/// The value of a key of one field.
fn only_value(key: &Option<DocBuf>) -> Option<Value> {
    Some(key.as_ref()?.iter().next()?.value().to_value())
}
