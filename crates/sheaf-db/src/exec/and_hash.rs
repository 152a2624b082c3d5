//! AND_HASH: the records that all children return, in any order.
//!
//! The first child is read completely into a table; each further child except the last reduces the
//! table to the records it also returns; the last is streamed against the remainder.

use std::collections::HashSet;

use sheaf_bson::DocBuilder;
use sheaf_bson::RecordId;
use sheaf_bson::error_code::{Error, ErrorCode};

use super::and_sorted::no_record;
use super::{Member, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// Maximum size of the record id table, in bytes, as in MongoDB.
const MEMORY_BYTES_MAX: usize = 32 << 20;
/// Approximate size of one id in the table, in bytes.
const ENTRY_BYTES: usize = 16;

/// See the module.
pub struct AndHash {
    children: Vec<Node>,
    current: usize,
    /// Records returned by all children before the current one.
    table: HashSet<RecordId>,
    /// Those that the current child, if not the first, has returned as well.
    kept: HashSet<RecordId>,
    map_after: Vec<u64>,
    done: bool,
}

impl AndHash {
    /// Requires at least two children.
    pub fn new(children: Vec<Node>) -> Self {
        debug_assert!(children.len() >= 2);
        AndHash {
            children,
            current: 0,
            table: HashSet::new(),
            kept: HashSet::new(),
            map_after: Vec::new(),
            done: false,
        }
    }

    /// Called when the current child has ended.
    fn next_child(&mut self) -> StageState {
        if self.current > 0 {
            self.table = std::mem::take(&mut self.kept);
        }
        debug_assert!(self.kept.is_empty(), "of a child that has ended");
        debug_assert_eq!(self.map_after.len(), self.current);
        self.map_after.push(self.table.len() as u64);
        self.current += 1;
        if self.table.is_empty() || self.current == self.children.len() {
            self.done = true;
            return StageState::Eof;
        }
        StageState::NeedTime
    }
}

impl PlanStage for AndHash {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.done {
            return Ok(StageState::Eof);
        }
        let is_last = self.current + 1 == self.children.len();
        let member = match self.children[self.current].work(cx)? {
            StageState::Advanced(member) => member,
            StageState::NeedTime => return Ok(StageState::NeedTime),
            StageState::Eof if is_last => {
                self.done = true;
                return Ok(StageState::Eof);
            }
            StageState::Eof => return Ok(self.next_child()),
        };
        let id = member.record_id.ok_or_else(no_record)?;
        if is_last {
            // Removed, so that a record that the child returns twice is returned once.
            if self.table.remove(&id) {
                return Ok(StageState::Advanced(Member {
                    record_id: Some(id),
                    ..Default::default()
                }));
            }
            return Ok(StageState::NeedTime);
        }
        if self.current == 0 {
            self.table.insert(id);
            if self.table.len() * ENTRY_BYTES > MEMORY_BYTES_MAX {
                return Err(Error::new(
                    ErrorCode::EXCEEDED_MEMORY_LIMIT,
                    "an index intersection (AND_HASH) needs more than 32 MB; hint one index",
                ));
            }
        } else if self.table.contains(&id) {
            self.kept.insert(id);
        }
        Ok(StageState::NeedTime)
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        let mut exec = DocBuilder::new();
        exec.append("memUsage", (self.table.len() * ENTRY_BYTES) as i64);
        exec.append("memLimit", MEMORY_BYTES_MAX as i64);
        for (child, entries) in self.map_after.iter().enumerate() {
            exec.append(format!("mapAfterChild_{child}"), *entries as i64);
        }
        StageDescription {
            stage: "AND_HASH",
            exec_fields: exec.finish(),
            is_intersection: true,
            children: self.children.iter().map(Node::stats).collect(),
            many: true,
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        for child in &self.children {
            child.add_counts(counts);
        }
    }

    fn suspend(&mut self) {
        self.children.iter_mut().for_each(Node::suspend);
    }
}
