//! SORT_MERGE: merges children that are already in order.
//!
//! It peeks one result of each child. A step pulls only from the child whose result was taken last,
//! so a page of n results over k children reads n + k - 1 keys.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sheaf_bson::DocBuilder;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_query::planner::solution::PrefixProbe;
use sheaf_query::planner::statistics::SEEK_COST;
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
    /// The peeked results: (sort key, child), least first.
    heads: BinaryHeap<Reverse<(Box<[u8]>, usize)>>,
    members: Vec<Option<Member>>,
    seen: RecordIdSet,
    dups_tested: u64,
    dups_dropped: u64,
    key_buffer: Vec<u8>,
    /// How the children were determined, if by probing an index.
    prefixes: Option<PrefixProbe>,
    /// Whether the probe has been counted as cost.
    counted: bool,
}

impl SortMerge {
    /// Every child must return its results in the order of `pattern`.
    pub fn new(
        pattern: Arc<SortPattern>,
        dedup: bool,
        children: Vec<Node>,
        prefixes: Option<PrefixProbe>,
    ) -> Self {
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
            counted: prefixes.is_none(),
            prefixes,
        }
    }
}

impl PlanStage for SortMerge {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if !std::mem::replace(&mut self.counted, true)
            && let Some(prefixes) = &self.prefixes
        {
            cx.cost += prefixes.seeks * SEEK_COST;
        }
        if let Some(&child) = self.waiting.last() {
            match self.children[child].work(cx)? {
                StageState::Eof => {
                    self.waiting.pop();
                }
                StageState::NeedTime => {}
                StageState::Advanced(member) => {
                    if self.dedup
                        && let Some(id) = &member.record_id
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
                    debug_assert!(self.members[child].is_none(), "a member is lost");
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
            None => {
                debug_assert!(false, "a child at the head has no member");
                Ok(StageState::NeedTime)
            }
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
        let mut plan = DocBuilder::new();
        plan.append("sortPattern", self.pattern.serialize().as_raw());
        let mut exec = DocBuilder::new();
        exec.append("dupsTested", self.dups_tested as i64);
        exec.append("dupsDropped", self.dups_dropped as i64);
        if let Some(prefixes) = &self.prefixes {
            plan.begin_document("explodedPrefixes");
            plan.append("indexName", prefixes.index_name.as_str());
            plan.begin_array("fields");
            prefixes.fields.iter().for_each(|field| {
                plan.push(field.as_str());
            });
            plan.end();
            plan.end();
            exec.append("prefixKeysExamined", prefixes.keys_examined as i64);
            exec.append("prefixSeeks", prefixes.seeks as i64);
        }
        StageDescription {
            stage: "SORT_MERGE",
            plan_fields: plan.finish(),
            exec_fields: exec.finish(),
            keys_examined: self.prefixes.as_ref().map_or(0, |p| p.keys_examined),
            seeks: self.prefixes.as_ref().map_or(0, |p| p.seeks),
            children: self.children.iter().map(Node::stats).collect(),
            many: true,
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.keys_examined += self.prefixes.as_ref().map_or(0, |p| p.keys_examined);
        for child in &self.children {
            child.add_counts(counts);
        }
    }

    fn suspend(&mut self) {
        self.children.iter_mut().for_each(Node::suspend);
    }
}
