//! A sample of a collection's keys, and the slot that holds it.
//!
//! `statistics.rs` takes samples and computes estimates from them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

/// Index keys of a sample of documents.
#[derive(Debug)]
pub struct Sample {
    /// Number of records in the collection when the sample was taken.
    pub(super) records: u64,
    pub(super) taken: Instant,
    /// By [`IndexEntry::ident`].
    pub(super) indexes: HashMap<u64, IndexSample>,
}

#[derive(Debug, Default)]
pub(super) struct IndexSample {
    /// In index order, each with the number of keys it represents.
    pub(super) keys: Vec<(Box<[u8]>, f64)>,
    /// Number of documents sampled.
    pub(super) docs: u64,
    /// Whether the sample covers all documents.
    pub(super) whole: bool,
    /// For each number of leading fields, from 1: how many prefixes occur several times in the
    /// sample, and how many once. Computed on first use.
    pub(super) prefixes: OnceLock<Vec<(u64, u64)>>,
}

/// The current sample of a collection, if any.
#[derive(Debug, Default)]
pub struct SampleSlot(Mutex<Option<Arc<Sample>>>);

impl SampleSlot {
    /// Drops the sample.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// The current sample.
    pub(super) fn kept(&self) -> Option<Arc<Sample>> {
        self.0.lock().clone()
    }

    /// Replaces the sample.
    pub(super) fn keep(&self, sample: &Arc<Sample>) {
        *self.0.lock() = Some(sample.clone());
    }
}
