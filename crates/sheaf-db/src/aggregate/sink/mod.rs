//! `$out` and `$merge`: write the results of a pipeline to a collection.
//!
//! ```text
//!   $out     results ─> tmp.agg_out.<uuid> with the target's indexes ─> renamed over the target
//!            with `timeseries`: time-series collections, both new and old
//!   $merge   results ─> one update or insert each, found by a unique index
//! ```
//!
//! The pipeline reads a snapshot, so it never reads its own writes.

use sheaf_bson::RawDoc;
use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_query::pipeline::PipelineSink;
use sheaf_query::pipeline::environment::ForeignName;

use super::AggregateContext;
use crate::catalog::Namespace;
use crate::exec::Doc;
use crate::result_source::ResultSource;
use crate::statement::StatementContext;
use crate::system_names::is_internal_database;

mod merge;
mod out;

/// Maximum number of results written together.
const BATCH_DOCUMENTS_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Writes all results.
/// Errors: those of the pipeline and of the writes; a target that is a view or a system collection;
/// `OperationNotSupportedInTransaction`.
pub fn run(
    cx: &AggregateContext,
    op: &StatementContext,
    source: &mut dyn ResultSource,
    sink: &PipelineSink,
) -> Result<()> {
    if op.transaction().is_some() {
        return Err(Error::new(
            ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
            format!("{} cannot be used in a transaction", sink.name()),
        ));
    }
    match sink {
        PipelineSink::Out(out) => out::run(cx, op, source, out),
        PipelineSink::Merge(merge) => merge::run(cx, op, source, merge),
    }
}

/// The namespace that the stage writes to, if pipelines may.
/// Errors: `system` for a collection of the server, `internal` for a database of it.
fn writable(
    cx: &AggregateContext,
    name: &ForeignName,
    stage: &str,
    [system, internal]: [i32; 2],
) -> Result<Namespace> {
    let ns = Namespace::new(
        name.db.as_deref().unwrap_or(cx.database()),
        &name.collection,
    )?;
    if ns.is_system() {
        return Err(Error::new(
            ErrorCode(system),
            format!("Can't {stage} to special collection: {ns}"),
        ));
    }
    if is_internal_database(ns.db()) {
        return Err(Error::new(
            ErrorCode(internal),
            format!("Can't {stage} to internal database: {}", ns.db()),
        ));
    }
    Ok(ns)
}

/// Results collected for one write.
#[derive(Default)]
struct Batch {
    docs: Vec<Doc>,
    bytes: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.docs.len() >= BATCH_DOCUMENTS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    fn write(
        &mut self,
        cx: &AggregateContext,
        op: &StatementContext,
        ns: &Namespace,
    ) -> Result<()> {
        if self.docs.is_empty() {
            return Ok(());
        }
        let docs: Vec<RawDoc<'_>> = self.docs.iter().map(Doc::as_raw).collect();
        let mut result = cx.db().insert(op, ns, &docs, true)?;
        if let Some(refused) = result.errors.pop() {
            return Err(refused.error);
        }
        self.docs.clear();
        self.bytes = 0;
        Ok(())
    }
}
