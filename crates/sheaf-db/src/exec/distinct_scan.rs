//! DISTINCT_SCAN: one key for each distinct prefix. After a key it seeks past every key with the
//! same prefix.
//!
//! Where null does not count (`$min`, `$max`), a key whose next field is null is held back, and the
//! scan continues after the nulls of its prefix:
//!
//! ```text
//!   (1, null) (1, null) (1, 4)    (1, 9)   (2, null)  (3, 5)
//!    held      skipped   returned  skipped  held       prefix 2 is done: (2, null), then (3, 5)
//! ```

use sheaf_bson::error_code::Error;
use sheaf_bson::keystring::KeyStringBuilder;
use sheaf_bson::{RawValue, doc};
use sheaf_query::planner::solution::IndexScanNode;

use super::index_cursor::IndexCursor;
use super::key_document::directions_of;
use super::{
    BuildContext, Member, PlanStage, StageDescription, StageState, WorkContext, WorkCounts,
};

/// See the module.
pub struct DistinctScan {
    cursor: IndexCursor,
    fields: usize,
    /// KeyStrings of null and undefined in the field after the prefix, if they do not count.
    nulls: Option<[Vec<u8>; 2]>,
    /// A key held back because its next field is null, with its prefix.
    held: Option<(Member, Vec<u8>)>,
    /// A key already found, to be returned next.
    ready: Option<Member>,
    done: bool,
}

impl DistinctScan {
    /// Returns one key for each combination of the first `fields` fields. With `passes_null`,
    /// prefers a key whose next field is not null.
    pub fn new(
        cx: &BuildContext,
        scan: &IndexScanNode,
        fields: usize,
        passes_null: bool,
    ) -> Result<Self, Error> {
        let descending = directions_of(&scan.index).is_descending(fields);
        let encoded = |value: RawValue<'_>| {
            let mut out = KeyStringBuilder::default();
            out.append_directed(value, descending);
            out.as_bytes().to_vec()
        };
        Ok(DistinctScan {
            cursor: IndexCursor::checked(cx, scan)?,
            fields,
            nulls: passes_null.then(|| [encoded(RawValue::Null), encoded(RawValue::Undefined)]),
            held: None,
            ready: None,
            done: false,
        })
    }

    fn is_null(&self) -> bool {
        let value = self.cursor.field(self.fields);
        self.nulls
            .as_ref()
            .is_some_and(|nulls| nulls.iter().any(|null| Some(null.as_slice()) == value))
    }
}

impl PlanStage for DistinctScan {
    fn work(&mut self, _: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if let Some(member) = self.ready.take() {
            return Ok(StageState::Advanced(member));
        }
        if self.done {
            return Ok(StageState::Eof);
        }
        match self.cursor.advance()? {
            None => {
                self.done = true;
                Ok(match self.held.take() {
                    Some((member, _)) => StageState::Advanced(member),
                    None => StageState::Eof,
                })
            }
            Some(false) => Ok(StageState::NeedTime),
            Some(true) => {
                let member = Member {
                    record_id: Some(self.cursor.record_id()),
                    key: Some(self.cursor.key()),
                    ..Default::default()
                };
                if self.nulls.is_none() {
                    self.cursor.skip_prefix(self.fields);
                    return Ok(StageState::Advanced(member));
                }
                let prefix = self.cursor.prefix(self.fields).to_vec();
                let before = self.held.take();
                if self.is_null() {
                    self.cursor.skip_prefix(self.fields + 1);
                    // A second kind of null (null, undefined) under the same prefix changes
                    // nothing.
                    let (held, given) = match before {
                        Some((before, of)) if of == prefix => (before, None),
                        Some((before, _)) => (member, Some(before)),
                        None => (member, None),
                    };
                    self.held = Some((held, prefix));
                    return Ok(given.map_or(StageState::NeedTime, StageState::Advanced));
                }
                self.cursor.skip_prefix(self.fields);
                match before {
                    Some((before, of)) if of != prefix => {
                        self.ready = Some(member);
                        Ok(StageState::Advanced(before))
                    }
                    _ => Ok(StageState::Advanced(member)),
                }
            }
        }
    }

    fn is_eof(&self) -> bool {
        self.done && self.ready.is_none()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "DISTINCT_SCAN",
            plan_fields: self.cursor.plan_fields(),
            exec_fields: doc! {
                "keysExamined": self.cursor.keys_examined() as i64,
                "seeks": self.cursor.seeks() as i64,
            },
            keys_examined: self.cursor.keys_examined(),
            seeks: self.cursor.seeks(),
            summary: Some(self.cursor.summary("DISTINCT_SCAN")),
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.keys_examined += self.cursor.keys_examined();
    }

    fn suspend(&mut self) {
        self.cursor.suspend();
    }
}
