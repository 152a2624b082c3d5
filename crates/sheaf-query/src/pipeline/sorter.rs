//! `$sort` within a pipeline: all documents, or the first few of them, by sort key.
//!
//! ```text
//!   few wanted     a heap whose top is the last of the best so far
//!   many           chunks of some thousands, each sorted when it is full; at the end merged
//!   memory full    the chunks, merged, are one run on disk; at the end the runs are merged
//! ```
//!
//! A chunk is sorted within a millisecond or two, so that an operation can be
//! interrupted, and the first result does not wait for one large sort. Of
//! documents with equal keys the one that came earlier stays first.

use std::collections::BinaryHeap;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};

use crate::sort::chunks::{Chunks, Merge};
use crate::sort::{SortKey, SortKeyGenerator, SortPattern};

use super::environment::{Environment, SpillStats, SpillStore};

/// Up to so many documents are kept in a heap.
const HEAP_MAX: u64 = 4096;

/// Documents before they are sorted, and then in their order.
pub(super) struct Sorter {
    keys: SortKeyGenerator,
    limit: u64,
    best: BinaryHeap<Entry>,
    chunks: Chunks<Entry>,
    /// What is being written to disk.
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
    /// Documents still come.
    None,
    Heap(std::vec::IntoIter<Entry>),
    Chunks(Merge<Entry>),
    Store,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    key: SortKey,
    /// Of documents with equal keys the earlier comes first.
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
    pub(super) fn new(pattern: &SortPattern, limit: Option<u64>) -> Sorter {
        Sorter {
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

    /// Takes one document.
    /// Errors: parallel arrays in the sort; more than the memory a stage may hold, when it must not spill.
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
            doc: doc.to_buf(),
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

    /// Writes what is in memory to disk, as one run.
    fn spill(&mut self, env: &dyn Environment) -> Result<()> {
        for entry in std::mem::take(&mut self.best) {
            self.chunks.push(entry);
        }
        let store = match &mut self.store {
            Some(store) => store,
            None => self.store.insert(env.spill("$sort")?),
        };
        store.begin_run()?;
        // What an interruption leaves stays here, to be freed with the stage.
        let entries = self.spilling.insert(self.chunks.take());
        // What is behind the limit in a run is behind the limit in all.
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

    /// The next document in order, once all were taken.
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
