//! SORT: reads all its input, then returns it in order.
//!
//! With a limit it keeps only the best `limit` entries. Beyond its memory limit it writes sorted
//! runs to disk (if the command allows it) and merges them. The sort key is a KeyString, so keys
//! compare as bytes; equal keys keep their input order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::{DocBuilder, RawDoc, RecordId};
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_query::sort::chunks::{Chunks, Merge};
use sheaf_query::sort::{SortKeyGenerator, SortPattern};

use super::spill::{RunMerger, RunReader, RunWriter};
use super::{
    Doc, IndexKey, Member, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts,
};
use crate::op_context::OpContext;
use crate::storage_error::temporary_file_failed;

/// Memory limit of a blocking stage, and where it spills.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// Maximum memory of a blocking stage, in bytes
    /// (`internalQueryMaxBlockingSortMemoryUsageBytes`).
    pub memory_bytes_max: usize,
    /// `allowDiskUse`.
    pub allow_disk_use: bool,
    /// Directory of the temporary files; `None` for the system's.
    pub dir: Option<Arc<Path>>,
}

/// See the module.
pub struct Sort {
    pattern: Arc<SortPattern>,
    keys: SortKeyGenerator,
    limit: Option<usize>,
    options: SpillOptions,
    /// Whether the input holds documents; otherwise it holds index keys.
    over_documents: bool,
    child: Node,
    state: State,
    key_buffer: Vec<u8>,
    memory_bytes: usize,
    data_bytes_sorted: u64,
    spills: u64,
    spilled_bytes: u64,
    spilled_records: u64,
}

enum State {
    Loading(Loading),
    Memory(Box<Merge<Entry>>),
    Merging(RunMerger, Vec<Arc<IndexEntry>>),
    Done,
}

#[derive(Default)]
struct Loading {
    entries: Chunks<Entry>,
    /// The best `limit` entries, worst on top; used instead of `entries`.
    best: BinaryHeap<Entry>,
    next_seq: u64,
    runs: Vec<RunReader>,
    indexes: Vec<Arc<IndexEntry>>,
}

impl Loading {
    /// Moves all entries to one place: the input has ended or memory is full.
    fn end(&mut self, op: &OpContext) -> Result<(), Error> {
        for entry in std::mem::take(&mut self.best) {
            op.check_interrupt()?;
            self.entries.push(entry);
        }
        Ok(())
    }
}

struct Entry {
    key: Box<[u8]>,
    seq: u64,
    member: Member,
}

impl Entry {
    fn bytes(&self) -> usize {
        let doc = self.member.doc.as_ref().map_or(0, Doc::len);
        let index_key = self
            .member
            .key
            .as_ref()
            .map_or(0, |k| k.key.len() + k.type_bits.len());
        std::mem::size_of::<Entry>() + self.key.len() + doc + index_key
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key).then(self.seq.cmp(&other.seq))
    }
}

impl Sort {
    /// Sorts by `pattern`, keeping `limit` entries if given.
    pub fn new(
        pattern: Arc<SortPattern>,
        limit: Option<u64>,
        options: SpillOptions,
        over_documents: bool,
        child: Node,
    ) -> Self {
        Sort {
            keys: SortKeyGenerator::new(&pattern),
            pattern,
            limit: limit.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            options,
            over_documents,
            child,
            state: State::Loading(Loading::default()),
            key_buffer: Vec::new(),
            memory_bytes: 0,
            data_bytes_sorted: 0,
            spills: 0,
            spilled_bytes: 0,
            spilled_records: 0,
        }
    }

    fn add(&mut self, member: Member, op: &OpContext) -> Result<(), Error> {
        self.key_buffer.clear();
        match (&member.doc, &member.key) {
            (Some(doc), _) => self
                .keys
                .key_of_document(doc.as_raw(), &mut self.key_buffer)?,
            (None, Some(key)) => {
                self.keys
                    .key_of_index_key(&key.index, &key.key, &mut self.key_buffer)?
            }
            (None, None) => {
                return Err(Error::new(
                    ErrorCode::INTERNAL_ERROR,
                    "SORT needs a document or an index key",
                ));
            }
        }
        let State::Loading(loading) = &mut self.state else {
            return Ok(());
        };
        if let Some(limit) = self.limit
            && loading.best.len() >= limit
            && loading.runs.is_empty()
        {
            // The worst kept entry came earlier, so an equal key is dropped.
            let Some(mut worst) = loading.best.peek_mut() else {
                return Ok(());
            };
            if self.key_buffer.as_slice() >= &*worst.key {
                return Ok(());
            }
            debug_assert!(
                self.memory_bytes >= worst.bytes(),
                "more is released than was held"
            );
            self.memory_bytes -= worst.bytes();
            *worst = Entry {
                key: self.key_buffer.as_slice().into(),
                seq: loading.next_seq,
                member,
            };
            loading.next_seq += 1;
            self.memory_bytes += worst.bytes();
            self.data_bytes_sorted += worst.bytes() as u64;
        } else {
            let entry = Entry {
                key: self.key_buffer.as_slice().into(),
                seq: loading.next_seq,
                member,
            };
            loading.next_seq += 1;
            self.memory_bytes += entry.bytes();
            self.data_bytes_sorted += entry.bytes() as u64;
            if self.limit.is_some() && loading.runs.is_empty() {
                loading.best.push(entry);
            } else {
                loading.entries.push(entry);
            }
        }
        if self.memory_bytes > self.options.memory_bytes_max {
            self.spill(op)?;
        }
        Ok(())
    }

    fn spill(&mut self, op: &OpContext) -> Result<(), Error> {
        let State::Loading(loading) = &mut self.state else {
            return Ok(());
        };
        if !self.options.allow_disk_use {
            return Err(Error::new(
                ErrorCode::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
                format!(
                    "Sort exceeded memory limit of {} bytes; pass allowDiskUse: true, add an \
                     index that provides the sort order, or sort fewer documents",
                    self.options.memory_bytes_max
                ),
            ));
        }
        loading.end(op)?;
        // In a run of more than `limit` entries the tail cannot be part of the result.
        let entries = loading.entries.take();
        let mut run = RunWriter::create(self.options.dir.as_deref()).map_err(spill_error)?;
        let mut payload = Vec::new();
        for entry in entries.take(self.limit.unwrap_or(usize::MAX)) {
            op.check_interrupt()?;
            self.spilled_records += 1;
            payload.clear();
            encode(&entry.member, &mut loading.indexes, &mut payload);
            run.push(&entry.key, &payload).map_err(spill_error)?;
        }
        let reader = run.finish().map_err(spill_error)?;
        self.spills += 1;
        self.spilled_bytes += reader.len_bytes();
        loading.runs.push(reader);
        self.memory_bytes = 0;
        Ok(())
    }

    fn finish_loading(&mut self, op: &OpContext) -> Result<(), Error> {
        let State::Loading(loading) = &mut self.state else {
            return Ok(());
        };
        if loading.runs.is_empty() {
            loading.end(op)?;
            self.state = State::Memory(Box::new(loading.entries.take()));
            return Ok(());
        }
        self.spill(op)?;
        let State::Loading(loading) = &mut self.state else {
            return Ok(());
        };
        debug_assert!(loading.entries.is_empty() && loading.best.is_empty());
        let runs = std::mem::take(&mut loading.runs);
        let indexes = std::mem::take(&mut loading.indexes);
        self.state = State::Merging(RunMerger::new(runs).map_err(spill_error)?, indexes);
        Ok(())
    }
}

impl PlanStage for Sort {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if matches!(self.state, State::Loading(_)) {
            match self.child.work(cx)? {
                StageState::Advanced(member) => self.add(member, cx.op)?,
                StageState::NeedTime => {}
                StageState::Eof => self.finish_loading(cx.op)?,
            }
            return Ok(StageState::NeedTime);
        }
        let next = match &mut self.state {
            State::Memory(entries) => entries.next().map(|mut entry| {
                entry.member.sort_key = Some(entry.key.into());
                entry.member
            }),
            State::Merging(merger, indexes) => match merger.next_record().map_err(spill_error)? {
                Some(record) => {
                    let mut member = decode(&record.payload, indexes)?;
                    member.sort_key = Some(record.key.into());
                    Some(member)
                }
                None => None,
            },
            State::Loading(_) | State::Done => None,
        };
        match next {
            Some(member) => {
                if let (State::Merging(..), Some(left)) = (&self.state, &mut self.limit) {
                    // Merged runs may hold up to `limit` entries each.
                    debug_assert!(*left > 0, "a sort of no results does not merge");
                    *left -= 1;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                }
                Ok(StageState::Advanced(member))
            }
            None => {
                self.state = State::Done;
                Ok(StageState::Eof)
            }
        }
    }

    fn is_eof(&self) -> bool {
        match &self.state {
            State::Loading(_) => false,
            State::Memory(entries) => entries.is_empty(),
            State::Merging(merger, _) => merger.is_empty(),
            State::Done => true,
        }
    }

    fn describe(&self) -> StageDescription {
        let mut plan = DocBuilder::new();
        plan.append("sortPattern", self.pattern.serialize().as_raw());
        plan.append("memLimit", self.options.memory_bytes_max as i64);
        if let Some(limit) = self.limit {
            plan.append("limitAmount", limit as i64);
        }
        let kind = if self.over_documents {
            "simple"
        } else {
            "default"
        };
        plan.append("type", kind);
        let mut exec = DocBuilder::new();
        exec.append("totalDataSizeSorted", self.data_bytes_sorted as i64);
        exec.append("usedDisk", self.spills > 0);
        exec.append("spills", self.spills as i64);
        exec.append("spilledRecords", self.spilled_records as i64);
        exec.append("spilledBytes", self.spilled_bytes as i64);
        StageDescription {
            stage: "SORT",
            plan_fields: plan.finish(),
            exec_fields: exec.finish(),
            spilled_bytes: self.spilled_bytes,
            is_sort: true,
            children: vec![self.child.stats()],
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        self.child.add_counts(counts);
    }

    fn suspend(&mut self) {
        self.child.suspend();
    }
}

fn spill_error(e: std::io::Error) -> Error {
    temporary_file_failed("a sort", &e)
}

/// `record id length | record id | doc_len | doc | index (u32, MAX for none) | key_len | key | type bits`
fn encode(member: &Member, indexes: &mut Vec<Arc<IndexEntry>>, out: &mut Vec<u8>) {
    let id = member.record_id.as_ref().map(RecordId::to_key);
    let id = id.as_deref().unwrap_or_default();
    out.extend_from_slice(&(id.len() as u32).to_le_bytes());
    out.extend_from_slice(id);
    let doc = member.doc.as_ref().map_or(&[][..], Doc::as_bytes);
    out.extend_from_slice(&(doc.len() as u32).to_le_bytes());
    out.extend_from_slice(doc);
    let Some(key) = &member.key else {
        out.extend_from_slice(&u32::MAX.to_le_bytes());
        return;
    };
    let at = indexes
        .iter()
        .position(|index| Arc::ptr_eq(index, &key.index))
        .unwrap_or_else(|| {
            indexes.push(key.index.clone());
            indexes.len() - 1
        });
    out.extend_from_slice(&(at as u32).to_le_bytes());
    out.extend_from_slice(&(key.key.len() as u32).to_le_bytes());
    out.extend_from_slice(&key.key);
    out.extend_from_slice(&key.type_bits);
}

fn decode(bytes: &[u8], indexes: &[Arc<IndexEntry>]) -> Result<Member, Error> {
    let damaged = || {
        Error::new(
            ErrorCode::OPERATION_FAILED,
            "a spilled sort entry is damaged",
        )
    };
    let mut rest = bytes;
    let mut take = |n: usize| -> Result<&[u8], Error> {
        let (head, tail) = rest.split_at_checked(n).ok_or_else(damaged)?;
        rest = tail;
        Ok(head)
    };
    let id_len = u32::from_le_bytes(take(4)?.try_into().map_err(|_| damaged())?);
    let record_id = RecordId::from_key(take(id_len as usize)?);
    let doc_len = u32::from_le_bytes(take(4)?.try_into().map_err(|_| damaged())?);
    let doc = take(doc_len as usize)?;
    if !doc.is_empty() {
        RawDoc::parse(doc).map_err(|_| damaged())?;
    }
    let mut member = Member {
        record_id,
        doc: (!doc.is_empty()).then(|| Doc::Owned(doc.to_vec())),
        ..Default::default()
    };
    let at = u32::from_le_bytes(take(4)?.try_into().map_err(|_| damaged())?);
    if at != u32::MAX {
        let key_len = u32::from_le_bytes(take(4)?.try_into().map_err(|_| damaged())?);
        member.key = Some(IndexKey {
            index: indexes.get(at as usize).ok_or_else(damaged)?.clone(),
            key: take(key_len as usize)?.into(),
            type_bits: rest.into(),
        });
    }
    Ok(member)
}
