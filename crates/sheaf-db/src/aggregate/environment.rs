//! The environment of a running pipeline: interruption, memory, temporary files, other collections.

use std::any::Any;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, RawDoc, RawValue};
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignRequest, JoinRequest, PreparedRequest,
    SpillStore, SpilledRecord, no_disk_use,
};

use super::AggregateContext;
use super::foreign::{self, Foreign};
use super::prepared::Prepared;

use crate::exec::spill::{RunMerger, RunReader, RunWriter};
use crate::op_context::OpContext;
use crate::storage_error::temporary_file_failed;

/// The environment of one call; every batch of a cursor runs under its own operation.
pub(crate) struct DbEnvironment<'a> {
    pub(crate) op: &'a OpContext,
    pub(crate) cx: &'a AggregateContext,
}

impl DbEnvironment<'_> {
    fn foreign<'c>(&self, cursor: &'c mut ForeignCursor) -> Result<&'c mut Foreign> {
        let cursor: &mut dyn Any = &mut *cursor.0;
        cursor
            .downcast_mut()
            .ok_or_else(|| Error::new(ErrorCode::INTERNAL_ERROR, "a cursor of another environment"))
    }
}

impl Environment for DbEnvironment<'_> {
    fn check_interrupt(&self) -> Result<()> {
        self.op.check_interrupt()
    }

    fn memory_bytes_max(&self) -> usize {
        self.cx.options().sort_memory_bytes_max
    }

    fn spill(&self, stage: &'static str) -> Result<Box<dyn SpillStore>> {
        if !self.cx.options().allow_disk_use {
            return Err(no_disk_use(stage, self.memory_bytes_max()));
        }
        Ok(Box::new(Spill {
            stage,
            dir: self.cx.options().temp_dir.clone(),
            writing: None,
            runs: Vec::new(),
            merger: None,
            bytes_written: 0,
        }))
    }

    fn open(&self, request: &ForeignRequest<'_>) -> Result<ForeignCursor> {
        let cursor = foreign::open(self.cx, self.op, request)?;
        Ok(ForeignCursor(Box::new(cursor)))
    }

    fn open_join(&self, request: &JoinRequest<'_>) -> Result<ForeignCursor> {
        let cursor = foreign::open_join(self.cx, self.op, request)?;
        Ok(ForeignCursor(Box::new(cursor)))
    }

    fn probe(&self, cursor: &mut ForeignCursor, values: &[RawValue<'_>]) -> Result<()> {
        match self.foreign(cursor)? {
            Foreign::Join(join) => join.probe(self.op, values),
            Foreign::Once(..) | Foreign::Prepared(_) => Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a cursor of a pipeline cannot be probed",
            )),
        }
    }

    fn open_prepared(&self, request: &PreparedRequest<'_>) -> Result<Option<ForeignCursor>> {
        let cursor = Prepared::open(self.cx, self.op, request)?;
        Ok(cursor.map(|cursor| ForeignCursor(Box::new(Foreign::Prepared(Box::new(cursor))))))
    }

    fn rerun(
        &self,
        cursor: &mut ForeignCursor,
        also: Option<&DocBuf>,
        context: ParseContext,
    ) -> Result<()> {
        match self.foreign(cursor)? {
            Foreign::Prepared(prepared) => prepared.run(self.op, also, context),
            Foreign::Once(..) | Foreign::Join(_) => Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                "a cursor of another kind cannot be restarted",
            )),
        }
    }

    fn advance<'c>(&self, cursor: &'c mut ForeignCursor) -> Result<Option<RawDoc<'c>>> {
        self.foreign(cursor)?.advance(self.op)
    }

    fn foreign_counts(&self, cursor: &ForeignCursor) -> ForeignCounts {
        let cursor: &dyn Any = &*cursor.0;
        let cursor = cursor.downcast_ref::<Foreign>();
        cursor.map(Foreign::counts).unwrap_or_default()
    }
}

/// Spills sorted runs to unnamed temporary files.
struct Spill {
    stage: &'static str,
    dir: Option<std::sync::Arc<std::path::Path>>,
    writing: Option<RunWriter>,
    runs: Vec<RunReader>,
    merger: Option<RunMerger>,
    bytes_written: u64,
}

impl Spill {
    fn failed(&self, error: std::io::Error) -> Error {
        temporary_file_failed(self.stage, &error)
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
        let run = RunWriter::create(self.dir.as_deref()).map_err(|e| self.failed(e))?;
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
