//! A sample of a collection's keys, and where a collection keeps it.
//!
//! `statistics.rs` takes samples and answers from them.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

/// The keys of some documents.
#[derive(Debug)]
pub struct Sample {
    /// Records of the collection when it was taken.
    pub(super) records: u64,
    pub(super) taken: Instant,
    /// By [`IndexEntry::ident`].
    pub(super) indexes: HashMap<u64, IndexSample>,
}

#[derive(Debug, Default)]
pub(super) struct IndexSample {
    /// In the index's order, each with how many keys it stands for.
    pub(super) keys: Vec<(Box<[u8]>, f64)>,
    /// Documents that they are of.
    pub(super) docs: u64,
    /// Those are all there are.
    pub(super) whole: bool,
    /// For so many leading fields, less one: prefixes that the sample has several
    /// times, and once. Counted at the first question.
    pub(super) prefixes: OnceLock<Vec<(u64, u64)>>,
}

/// A sample, kept until it is out of date.
#[derive(Debug, Default)]
pub struct SampleSlot(Mutex<Option<Arc<Sample>>>);

impl SampleSlot {
    /// Forgets the sample.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    /// The sample, if there is one.
    pub(super) fn kept(&self) -> Option<Arc<Sample>> {
        self.0.lock().clone()
    }

    /// Keeps a sample in place of the one that is there.
    pub(super) fn keep(&self, sample: &Arc<Sample>) {
        *self.0.lock() = Some(sample.clone());
    }
}
