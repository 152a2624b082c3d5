//! `$sort` in a pipeline: sorts all documents, or the first `limit` of them.
//!
//! ```text
//!   small limit    a heap with the worst of the kept documents on top
//!   otherwise      chunks of a few thousand, each sorted when full; merged at the end
//!   memory full    the merged chunks are one run on disk; the runs are merged at the end
//! ```
//!
//! A chunk is sorted within a millisecond or two, so that an operation can be interrupted, and the
//! first result does not wait for one large sort. Documents with equal keys keep their input order.

use std::collections::BinaryHeap;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};

use crate::expression::projection_exec::ProjectionExec;
use crate::sort::chunks::{Chunks, Merge};
use crate::sort::{SortKey, SortKeyGenerator, SortPattern};

use super::environment::{Environment, SpillStats, SpillStore};

/// Maximum limit for which a heap is used.
const HEAP_MAX: u64 = 4096;

/// Sorts documents; returns them in order after the end of the input.
pub(super) struct Sorter {
    keeps: Option<Arc<ProjectionExec>>,
    keys: SortKeyGenerator,
    limit: u64,
    best: BinaryHeap<Entry>,
    chunks: Chunks<Entry>,
    /// The entries that are being written to disk.
    spilling: Option<Merge<Entry>>,
    bytes: usize,
    count: u64,
    scratch: SortKey,
    store: Option<Box<dyn SpillStore>>,
    output: Output,
    given: u64,
    stats: SpillStats,
    bytes_sorted: u64,
}

enum Output {
    /// The input has not ended.
    None,
    Heap(std::vec::IntoIter<Entry>),
    Chunks(Merge<Entry>),
    Store,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: SortKey,
    /// Input position; of documents with equal keys the earlier one is first.
    order: u64,
    doc: DocBuf,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.key.len() + self.doc.len_bytes() + size_of::<Entry>()
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key.cmp(&other.key).then(self.order.cmp(&other.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Sorter {
    /// `keeps`: the fields that are buffered and returned; `None` keeps whole documents.
    pub(super) fn new(
        pattern: &SortPattern,
        limit: Option<u64>,
        keeps: Option<Arc<ProjectionExec>>,
    ) -> Sorter {
        Sorter {
            keeps,
            keys: SortKeyGenerator::new(pattern),
            limit: limit.unwrap_or(u64::MAX),
            best: BinaryHeap::new(),
            chunks: Chunks::default(),
            spilling: None,
            bytes: 0,
            count: 0,
            scratch: SortKey::new(),
            store: None,
            output: Output::None,
            given: 0,
            stats: SpillStats::default(),
            bytes_sorted: 0,
        }
    }

    /// Processes one document.
    ///
    /// Errors: parallel arrays in the sort; the memory limit is exceeded and disk use is not
    /// allowed.
    pub(super) fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        self.scratch.clear();
        self.keys.key_of_document(doc, &mut self.scratch)?;
        let order = self.count;
        self.count += 1;
        let few = self.limit <= HEAP_MAX && self.store.is_none();
        if few && self.best.len() as u64 >= self.limit {
            match self.best.peek() {
                Some(last) if self.scratch < last.key => {}
                _ => return Ok(()),
            }
            if let Some(last) = self.best.pop() {
                self.bytes -= last.bytes();
            }
        }
        let entry = Entry {
            key: self.scratch.clone(),
            order,
            doc: match &self.keeps {
                None => doc.to_buf(),
                Some(keeps) => keeps.apply(doc)?,
            },
        };
        self.bytes += entry.bytes();
        self.bytes_sorted += entry.bytes() as u64;
        if few {
            self.best.push(entry);
        } else {
            self.chunks.push(entry);
        }
        if self.bytes > env.memory_bytes_max() {
            self.spill(env)?;
        }
        Ok(())
    }

    /// Writes the documents in memory to disk, as one run.
    fn spill(&mut self, env: &dyn Environment) -> Result<()> {
        for entry in std::mem::take(&mut self.best) {
            self.chunks.push(entry);
        }
        let store = match &mut self.store {
            Some(store) => store,
            None => self.store.insert(env.spill("$sort")?),
        };
        store.begin_run()?;
        // After an interruption, the remaining entries stay here and are freed with the stage.
        let entries = self.spilling.insert(self.chunks.take());
        // An entry beyond the limit in one run is beyond the limit in the merged result.
        for (at, entry) in entries.enumerate() {
            env.check_interrupt()?;
            if (at as u64) < self.limit {
                store.push(&entry.key, entry.doc.as_bytes())?;
                self.stats.records += 1;
            }
        }
        self.spilling = None;
        self.stats.count(self.bytes, store.bytes_written());
        self.bytes = 0;
        Ok(())
    }

    /// The next document in order, after the end of the input.
    pub(super) fn drain(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        if let Output::None = self.output {
            self.output = if self.store.is_some() {
                self.spill(env)?;
                Output::Store
            } else if self.chunks.is_empty() {
                Output::Heap(std::mem::take(&mut self.best).into_sorted_vec().into_iter())
            } else {
                Output::Chunks(self.chunks.take())
            };
        }
        if self.given >= self.limit {
            return Ok(None);
        }
        self.given += 1;
        match (&mut self.output, &mut self.store) {
            (Output::Heap(entries), _) => Ok(entries.next().map(|entry| entry.doc)),
            (Output::Chunks(merge), _) => Ok(merge.next().map(|entry| entry.doc)),
            (Output::Store, Some(store)) => match store.next()? {
                None => Ok(None),
                Some(record) => match RawDoc::parse(&record.payload) {
                    Ok(doc) => Ok(Some(doc.to_buf())),
                    Err(_) => Err(Error::new(
                        ErrorCode::INTERNAL_ERROR,
                        "a spilled document is damaged; the disk of temporary files may be failing",
                    )),
                },
            },
            _ => Ok(None),
        }
    }

    pub(super) fn append_stats(&self, out: &mut DocBuilder) {
        out.append("totalDataSizeSortedBytesEstimate", self.bytes_sorted as i64);
        self.stats.append(out);
    }
}
