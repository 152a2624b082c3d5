//! Sorted runs on disk, for blocking stages that exceed their memory limit.
//!
//! A run is an unnamed file, unlinked on creation, so nothing remains after a crash or an error.
//!
//! ```text
//! run := record*     record := key_len:u32 payload_len:u32 key payload
//! ```

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

const BUFFER_BYTES: usize = 64 * 1024;

/// A sorted run being written; it is written once, then read once from its start.
pub struct RunWriter {
    file: BufWriter<File>,
    records: u64,
    bytes: u64,
}

impl RunWriter {
    /// Creates a run in `dir`, which is created if missing.
    pub fn create(dir: Option<&Path>) -> io::Result<Self> {
        let file = match dir {
            Some(dir) => {
                std::fs::create_dir_all(dir)?;
                tempfile::tempfile_in(dir)?
            }
            None => tempfile::tempfile()?,
        };
        Ok(RunWriter {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            records: 0,
            bytes: 0,
        })
    }

    /// Appends a record; keys must be ascending, with duplicates allowed.
    pub fn push(&mut self, key: &[u8], payload: &[u8]) -> io::Result<()> {
        self.file.write_all(&(key.len() as u32).to_le_bytes())?;
        self.file.write_all(&(payload.len() as u32).to_le_bytes())?;
        self.file.write_all(key)?;
        self.file.write_all(payload)?;
        self.records += 1;
        self.bytes += (8 + key.len() + payload.len()) as u64;
        Ok(())
    }

    /// Ends writing; the reader starts at the first record.
    pub fn finish(self) -> io::Result<RunReader> {
        let mut file = self.file.into_inner().map_err(|e| e.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(RunReader {
            file: BufReader::with_capacity(BUFFER_BYTES, file),
            left: self.records,
            bytes: self.bytes,
        })
    }
}

/// Reads a run back, in order.
pub struct RunReader {
    file: BufReader<File>,
    left: u64,
    bytes: u64,
}

impl RunReader {
    /// The run's size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn next(&mut self) -> io::Result<Option<Record>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut head = [0; 8];
        self.file.read_exact(&mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let mut key = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        let mut payload = vec![0; u32::from_le_bytes([e, f, g, h]) as usize];
        self.file.read_exact(&mut key)?;
        self.file.read_exact(&mut payload)?;
        Ok(Some(Record { key, payload }))
    }
}

/// A record of a run.
#[derive(Debug)]
pub struct Record {
    /// The sort key of the run.
    pub key: Vec<u8>,
    /// Opaque data.
    pub payload: Vec<u8>,
}

/// Merges runs; among equal keys the earlier run comes first.
pub struct RunMerger {
    runs: Vec<RunReader>,
    heads: BinaryHeap<Head>,
}

struct Head {
    record: Record,
    run: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    // Reversed: the heap is a max-heap, and the least is needed first.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.record.key, other.run).cmp(&(&self.record.key, self.run))
    }
}

impl RunMerger {
    /// Reads the first record of every run.
    pub fn new(mut runs: Vec<RunReader>) -> io::Result<Self> {
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, reader) in runs.iter_mut().enumerate() {
            if let Some(record) = reader.next()? {
                heads.push(Head { record, run });
            }
        }
        Ok(RunMerger { runs, heads })
    }

    /// The next record in order.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let run = head.run;
        match self.runs[run].next()? {
            Some(record) => {
                debug_assert!(record.key >= head.record.key, "run {run} is not sorted");
                Ok(Some(std::mem::replace(&mut head.record, record)))
            }
            None => {
                let last = std::collections::binary_heap::PeekMut::pop(head);
                Ok(Some(last.record))
            }
        }
    }

    /// Whether no records are left.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(dir: &Path, keys: &[u8]) -> RunReader {
        let mut writer = RunWriter::create(Some(dir)).unwrap();
        for &key in keys {
            writer.push(&[key], &[key, keys[0]]).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn merge_keeps_order_and_prefers_earlier_runs() {
        let dir = tempfile::tempdir().unwrap();
        let runs = vec![
            run(dir.path(), &[1, 4, 4, 9]),
            run(dir.path(), &[2, 4]),
            run(dir.path(), &[7]),
        ];
        let mut merger = RunMerger::new(runs).unwrap();
        let mut got = Vec::new();
        while let Some(record) = merger.next_record().unwrap() {
            got.push((record.key[0], record.payload[1]));
        }
        assert_eq!(
            got,
            [(1, 1), (2, 2), (4, 1), (4, 1), (4, 2), (7, 7), (9, 1)]
        );
        assert!(merger.is_empty());
    }

    #[test]
    fn no_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let reader = run(dir.path(), &[1, 2]);
        assert_eq!(reader.len_bytes(), 2 * (8 + 1 + 2));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
