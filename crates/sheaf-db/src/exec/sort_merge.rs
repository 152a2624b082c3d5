//! SORT_MERGE: merges children that are already in order.
//!
//! Each child has one result looked at; a step asks only the child whose
//! result was taken last, so a page of n over k children reads n + k - 1 keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sheaf_bson::doc;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_query::sort::{SortKeyGenerator, SortPattern};

use super::{
    Member, Node, PlanStage, RecordIdSet, StageDescription, StageState, WorkContext, WorkCounts,
};

/// See the module.
pub struct SortMerge {
    pattern: Arc<SortPattern>,
    keys: SortKeyGenerator,
    dedup: bool,
    children: Vec<Node>,
    /// Children whose next result is not known yet.
    waiting: Vec<usize>,
    /// The looked-at results: (sort key, child), least first.
    heads: BinaryHeap<Reverse<(Box<[u8]>, usize)>>,
    members: Vec<Option<Member>>,
    seen: RecordIdSet,
    dups_tested: u64,
    dups_dropped: u64,
    key_buffer: Vec<u8>,
}

impl SortMerge {
    /// Every child gives its results in the order of `pattern`.
    pub fn new(pattern: Arc<SortPattern>, dedup: bool, children: Vec<Node>) -> Self {
        SortMerge {
            keys: SortKeyGenerator::new(&pattern),
            pattern,
            dedup,
            waiting: (0..children.len()).rev().collect(),
            heads: BinaryHeap::with_capacity(children.len()),
            members: children.iter().map(|_| None).collect(),
            children,
            seen: RecordIdSet::default(),
            dups_tested: 0,
            dups_dropped: 0,
            key_buffer: Vec::new(),
        }
    }
}

impl PlanStage for SortMerge {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if let Some(&child) = self.waiting.last() {
            match self.children[child].work(cx)? {
                StageState::Eof => {
                    self.waiting.pop();
                }
                StageState::NeedTime => {}
                StageState::Advanced(member) => {
                    if self.dedup
                        && let Some(id) = member.record_id
                    {
                        self.dups_tested += 1;
                        if !self.seen.insert(id) {
                            self.dups_dropped += 1;
                            return Ok(StageState::NeedTime);
                        }
                    }
                    self.key_buffer.clear();
                    match (&member.doc, &member.key) {
                        (Some(doc), _) => self
                            .keys
                            .key_of_document(doc.as_raw(), &mut self.key_buffer)?,
                        (None, Some(key)) => self.keys.key_of_index_key(
                            &key.index,
                            &key.key,
                            &mut self.key_buffer,
                        )?,
                        (None, None) => {
                            return Err(Error::new(
                                ErrorCode::INTERNAL_ERROR,
                                "SORT_MERGE needs a document or an index key",
                            ));
                        }
                    }
                    self.waiting.pop();
                    self.members[child] = Some(member);
                    self.heads
                        .push(Reverse((self.key_buffer.as_slice().into(), child)));
                }
            }
            return Ok(StageState::NeedTime);
        }
        let Some(Reverse((_, child))) = self.heads.pop() else {
            return Ok(StageState::Eof);
        };
        self.waiting.push(child);
        match self.members[child].take() {
            Some(member) => Ok(StageState::Advanced(member)),
            None => Ok(StageState::NeedTime),
        }
    }

    fn is_eof(&self) -> bool {
        self.heads.is_empty()
            && self
                .waiting
                .iter()
                .all(|&child| self.children[child].is_eof())
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "SORT_MERGE",
            plan_fields: doc! {"sortPattern": self.pattern.serialize()},
            exec_fields: doc! {
                "dupsTested": self.dups_tested as i64,
                "dupsDropped": self.dups_dropped as i64,
            },
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
}
