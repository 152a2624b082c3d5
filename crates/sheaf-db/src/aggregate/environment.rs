//! The world around a running pipeline: interruption, memory, temporary files.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_query::pipeline::environment::{Environment, SpillStore, SpilledRecord, no_disk_use};

use crate::exec::spill::{RunMerger, RunReader, RunWriter};
use crate::find::QueryOptions;
use crate::op_context::OpContext;

/// The environment of one call: an operation comes with every batch of a cursor.
pub(crate) struct DbEnvironment<'a> {
    pub(crate) op: &'a OpContext,
    pub(crate) options: &'a QueryOptions,
}

impl Environment for DbEnvironment<'_> {
    fn check_interrupt(&self) -> Result<()> {
        self.op.check_interrupt()
    }

    fn memory_bytes_max(&self) -> usize {
        self.options.sort_memory_bytes_max
    }

    fn spill(&self, stage: &'static str) -> Result<Box<dyn SpillStore>> {
        if !self.options.allow_disk_use {
            return Err(no_disk_use(stage, self.memory_bytes_max()));
        }
        Ok(Box::new(Spill {
            stage,
            dir: self.options.temp_dir.clone(),
            writing: None,
            runs: Vec::new(),
            merger: None,
            bytes_written: 0,
        }))
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness a sample is still a sample, of the first documents.
        let _ = getrandom::fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Runs in files without names.
struct Spill {
    stage: &'static str,
    dir: std::path::PathBuf,
    writing: Option<RunWriter>,
    runs: Vec<RunReader>,
    merger: Option<RunMerger>,
    bytes_written: u64,
}

impl Spill {
    fn failed(&self, error: std::io::Error) -> Error {
        let code = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                ErrorCode::OUT_OF_DISK_SPACE
            }
            _ => ErrorCode::FILE_STREAM_FAILED,
        };
        Error::new(
            code,
            format!(
                "a temporary file of {} could not be used: {error}",
                self.stage
            ),
        )
    }

    fn end_run(&mut self) -> Result<()> {
        if let Some(run) = self.writing.take() {
            let run = run.finish().map_err(|e| self.failed(e))?;
            self.runs.push(run);
        }
        Ok(())
    }
}

impl SpillStore for Spill {
    fn begin_run(&mut self) -> Result<()> {
        self.end_run()?;
        let run = RunWriter::create(&self.dir).map_err(|e| self.failed(e))?;
        self.writing = Some(run);
        Ok(())
    }

    fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        let Some(run) = &mut self.writing else {
            return Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a spilled record without a run",
            ));
        };
        self.bytes_written += (8 + key.len() + payload.len()) as u64;
        run.push(key, payload).map_err(|e| self.failed(e))
    }

    fn next(&mut self) -> Result<Option<SpilledRecord>> {
        self.end_run()?;
        let merger = match &mut self.merger {
            Some(merger) => merger,
            None => {
                let runs = std::mem::take(&mut self.runs);
                let merger = RunMerger::new(runs).map_err(|e| self.failed(e))?;
                self.merger.insert(merger)
            }
        };
        let next = merger.next_record();
        let next = next.map_err(|e| self.failed(e))?;
        Ok(next.map(|record| SpilledRecord {
            key: record.key,
            payload: record.payload,
        }))
    }

    fn bytes_written(&self) -> u64 {
        self.bytes_written
    }
}
