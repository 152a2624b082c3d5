//! A FIFO queue of documents, in memory or, beyond a limit, in temporary files.
//!
//! ```text
//!   push_back ─> [ store, read from its front ] [ store, still written ] [ memory ]
//!   pop_front <─┘
//! ```
//!
//! A store is first written, then read. While the first store is read, new documents are queued in
//! memory, and spilled to another store when memory is full again.

use std::collections::VecDeque;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder};

use super::environment::{Environment, SpillStats, SpillStore};

/// A queue of documents.
pub(super) struct DocQueue {
    stage: &'static str,
    memory: VecDeque<DocBuf>,
    bytes: usize,
    stores: VecDeque<Store>,
    stats: SpillStats,
}

struct Store {
    records: Box<dyn SpillStore>,
    left: u64,
    written: u64,
    reading: bool,
}

impl DocQueue {
    /// An empty queue for the stage with this name.
    pub(super) fn new(stage: &'static str) -> DocQueue {
        DocQueue {
            stage,
            memory: VecDeque::new(),
            bytes: 0,
            stores: VecDeque::new(),
            stats: SpillStats::default(),
        }
    }

    /// Size of the documents in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the spill statistics, including those of deleted stores.
    pub(super) fn append_stats(&self, out: &mut DocBuilder) {
        self.stats.append(out);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.stores.iter().all(|store| store.left == 0)
    }

    pub(super) fn push_back(&mut self, doc: DocBuf) {
        self.bytes += doc.len_bytes() + size_of::<DocBuf>();
        self.memory.push_back(doc);
    }

    /// Moves the documents in memory to a store.
    ///
    /// Errors: disk use is not allowed; those of the store.
    pub(super) fn spill(&mut self, env: &dyn Environment) -> Result<()> {
        let open = self.stores.back().is_some_and(|store| !store.reading);
        if !open {
            let mut records = env.spill(self.stage)?;
            records.begin_run()?;
            self.stores.push_back(Store {
                records,
                left: 0,
                written: 0,
                reading: false,
            });
        }
        let Some(store) = self.stores.back_mut() else {
            return Ok(());
        };
        let before = store.records.bytes_written();
        // After an interruption, the remaining documents stay here and are freed with the queue.
        while let Some(doc) = self.memory.front() {
            env.check_interrupt()?;
            let key = store.written.to_be_bytes();
            store.records.push(&key, doc.as_bytes())?;
            store.written += 1;
            store.left += 1;
            self.stats.records += 1;
            self.memory.pop_front();
        }
        let written = store.records.bytes_written().saturating_sub(before);
        let all = self.stats.disk_bytes + written;
        self.stats.count(self.bytes, all);
        self.bytes = 0;
        Ok(())
    }

    /// Removes the oldest document. Errors: those of the store.
    pub(super) fn pop_front(&mut self) -> Result<Option<DocBuf>> {
        while let Some(store) = self.stores.front_mut() {
            if store.left == 0 {
                self.stores.pop_front();
                continue;
            }
            store.reading = true;
            store.left -= 1;
            let Some(record) = store.records.next()? else {
                return Err(Error::new(
                    ErrorCode::INTERNAL_ERROR,
                    "a temporary file ended before its documents did",
                ));
            };
            return Ok(Some(DocBuf::from_vec_unchecked(record.payload)));
        }
        let doc = self.memory.pop_front();
        if let Some(doc) = &doc {
            self.bytes -= doc.len_bytes() + size_of::<DocBuf>();
        }
        Ok(doc)
    }
}
