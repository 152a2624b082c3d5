//! `$sort` within a pipeline: all documents, or the first few of them, by sort key.

use std::collections::BinaryHeap;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc};

use crate::sort::{SortKey, SortKeyGenerator, SortPattern};

use super::environment::{Environment, no_disk_use};

/// Documents before they are sorted. With a limit only that many are kept: a
/// heap whose top is the last of them.
#[derive(Debug)]
pub(super) struct Sorter {
    keys: SortKeyGenerator,
    limit: usize,
    kept: BinaryHeap<Entry>,
    bytes: usize,
    count: u64,
    scratch: SortKey,
    output: Option<std::vec::IntoIter<Entry>>,
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
            limit: limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            kept: BinaryHeap::new(),
            bytes: 0,
            count: 0,
            scratch: SortKey::new(),
            output: None,
        }
    }

    /// Takes one document.
    /// Errors: parallel arrays in the sort; more than the memory a stage may hold.
    pub(super) fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        self.scratch.clear();
        self.keys.key_of_document(doc, &mut self.scratch)?;
        let order = self.count;
        self.count += 1;
        if self.kept.len() >= self.limit {
            match self.kept.peek() {
                Some(last) if self.scratch < last.key => {}
                _ => return Ok(()),
            }
            if let Some(last) = self.kept.pop() {
                self.bytes -= last.bytes();
            }
        }
        let entry = Entry {
            key: self.scratch.clone(),
            order,
            doc: doc.to_buf(),
        };
        self.bytes += entry.bytes();
        self.kept.push(entry);
        if self.bytes > env.memory_bytes_max() {
            return Err(no_disk_use("$sort", env.memory_bytes_max()));
        }
        Ok(())
    }

    /// The next document in order, once all were taken.
    pub(super) fn drain(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        let kept = &mut self.kept;
        let output = self
            .output
            .get_or_insert_with(|| std::mem::take(kept).into_sorted_vec().into_iter());
        Ok(output.next().map(|entry| entry.doc))
    }

    pub(super) fn append_stats(&self, _: &mut DocBuilder) {}
}
