//! Sorts index entries that exceed the memory limit.
//!
//! ```text
//!   push, push, ... ──> buffer ──full──> sorted run in a temporary file
//!                         │                          │
//!                         └──────────── finish ──────┴──> merge, in order
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use sheaf_bson::{Error, Result};

use crate::exec::spill::{RunMerger, RunReader, RunWriter};
use crate::storage_error::temporary_file_failed;

/// Memory per entry in addition to its bytes.
const ENTRY_OVERHEAD: usize = std::mem::size_of::<Place>();

/// Sorts key-value pairs by key. All keys must be different.
pub struct ExternalSort {
    dir: Arc<Path>,
    memory_bytes_max: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    runs: Vec<RunReader>,
    pushed: u64,
}

#[derive(Clone, Copy)]
struct Place {
    start: usize,
    key_len: u32,
    value_len: u32,
}

impl ExternalSort {
    /// Creates a sort that keeps about `memory_bytes_max` bytes in memory and the rest in files
    /// under `dir`.
    pub fn new(dir: Arc<Path>, memory_bytes_max: usize) -> ExternalSort {
        ExternalSort {
            dir,
            memory_bytes_max,
            bytes: Vec::new(),
            places: Vec::new(),
            runs: Vec::new(),
            pushed: 0,
        }
    }

    /// Adds a pair. Errors: `FileStreamFailed` or `OutOfDiskSpace` if spilling fails.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let held = self.bytes.len() + self.places.len() * ENTRY_OVERHEAD;
        if held + key.len() + value.len() + ENTRY_OVERHEAD > self.memory_bytes_max
            && !self.places.is_empty()
        {
            self.spill()?;
        }
        self.places.push(Place {
            start: self.bytes.len(),
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.pushed += 1;
        Ok(())
    }

    /// Number of pairs added.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// Number of times memory was full.
    #[cfg(test)]
    fn runs_spilled(&self) -> usize {
        self.runs.len()
    }

    /// Ends the input; returns the pairs in key order.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            self.sort();
            return Ok(Sorted(Pairs::Memory {
                bytes: self.bytes,
                places: self.places.into_iter(),
            }));
        }
        self.spill()?;
        // Frees the buffer while the files are read.
        self.bytes = Vec::new();
        self.places = Vec::new();
        let runs = std::mem::take(&mut self.runs);
        let merger = RunMerger::new(runs).map_err(failed)?;
        Ok(Sorted(Pairs::Files(merger)))
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places
            .sort_unstable_by(|a, b| a.key(bytes).cmp(b.key(bytes)));
        debug_assert!(
            (self.places.iter())
                .all(|p| p.start + (p.key_len + p.value_len) as usize <= bytes.len())
        );
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut run = RunWriter::create(Some(&self.dir)).map_err(failed)?;
        for place in self.places.drain(..) {
            run.push(place.key(&self.bytes), place.value(&self.bytes))
                .map_err(failed)?;
        }
        self.runs.push(run.finish().map_err(failed)?);
        debug_assert!(self.places.is_empty());
        self.bytes.clear();
        Ok(())
    }
}

impl Place {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..][..self.key_len as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start + self.key_len as usize..][..self.value_len as usize]
    }
}

/// Sorted pairs; see [`ExternalSort`].
pub struct Sorted(Pairs);

enum Pairs {
    /// All pairs fit in memory.
    Memory {
        bytes: Vec<u8>,
        places: std::vec::IntoIter<Place>,
    },
    /// Runs in files, merged on the fly.
    Files(RunMerger),
}

impl Sorted {
    /// Returns the next pair. Errors: `FileStreamFailed`.
    pub fn next_pair(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        match &mut self.0 {
            Pairs::Memory { bytes, places } => Ok(places
                .next()
                .map(|place| (place.key(bytes).to_vec(), place.value(bytes).to_vec()))),
            Pairs::Files(merger) => Ok(merger
                .next_record()
                .map_err(failed)?
                .map(|record| (record.key, record.payload))),
        }
    }
}

fn failed(error: io::Error) -> Error {
    temporary_file_failed("an index build", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(memory: usize, n: u32) -> (usize, Vec<u32>) {
        let dir = tempfile::tempdir().unwrap();
        let mut sort = ExternalSort::new(dir.path().join("_tmp").into(), memory);
        for i in 0..n {
            let scattered = i.wrapping_mul(2_654_435_761) % n;
            sort.push(&scattered.to_be_bytes(), &(!scattered).to_le_bytes())
                .unwrap();
        }
        assert_eq!(sort.len(), u64::from(n));
        let spilled = sort.runs_spilled();
        let mut out = Vec::new();
        let mut sorted = sort.finish().unwrap();
        while let Some((key, value)) = sorted.next_pair().unwrap() {
            let key = u32::from_be_bytes(key.try_into().unwrap());
            assert_eq!(value, (!key).to_le_bytes());
            out.push(key);
        }
        (spilled, out)
    }

    #[test]
    fn in_memory_and_in_files_alike() {
        // The scattered keys may repeat; both results have the same keys equally often.
        let n = 9973;
        let (none, in_memory) = sorted(usize::MAX, n);
        let (some, in_files) = sorted(20_000, n);
        assert_eq!(none, 0);
        assert!(some > 5, "{some}");
        assert!(in_memory.is_sorted());
        assert_eq!(in_memory, in_files);
        assert_eq!(sorted(0, 3).1, sorted(usize::MAX, 3).1);
        assert!(sorted(100, 0).1.is_empty());
    }
}
