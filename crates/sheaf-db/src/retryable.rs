//! Session rows in their collection: lookup, and deletion of expired ones.
//!
//! See `session_row.rs` for what a row holds, and `write/session_row.rs` for how units write it.

use std::sync::Arc;

use sheaf_bson::{DateTime, DocBuilder, RawDoc, RawValue, Result};

use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::find;
use crate::modify::{self, DeleteReport, DeleteStatement};
use crate::op_context::OpContext;
use crate::planning::QueryOptions;
use crate::result_source::ResultSource;
use crate::session_row::SessionRow;
use crate::statement::StatementContext;
use crate::system_names::TRANSACTIONS_NAMESPACE;

impl SessionRow {
    /// Loads the stored row of a session; creates the collection if it does not exist.
    /// Errors: `DataCorruptionDetected` for a row that cannot be read (treating it as missing would
    /// run a retried write twice); those of the storage engine.
    pub fn load(db: &Arc<Db>, op: &OpContext, lsid: RawDoc<'_>) -> Result<Arc<SessionRow>> {
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        if db.catalog().collection(&ns).is_none() {
            // Not through `op`: it may be a statement of a transaction.
            db.ensure_collection(&StatementContext::new(), &ns)?;
        }
        let mut filter = DocBuilder::new();
        filter.append("_id", RawValue::Document(lsid));
        let filter = filter.finish();
        let spec = sheaf_query::canonical::FindSpec {
            filter: Some(filter.as_raw()),
            show_record_id: true,
            ..Default::default()
        };
        let query = Arc::new(sheaf_query::canonical::CanonicalQuery::new(
            sheaf_bson::DateTime::now(),
            spec,
        )?);
        let view = db.read_view(&ns)?;
        let mut found = find::find(&view, op, query, &QueryOptions::default())?;
        let stored = found.next(op)?;
        let row = SessionRow::read(lsid, stored.as_ref().map(|doc| doc.as_raw()));
        row.map(Arc::new).map_err(|e| match &view.collection {
            Some(collection) => collection.report_damage(e),
            None => e,
        })
    }
}

impl Db {
    /// Deletes the rows of sessions without a write since `since`. Returns their number. A session
    /// that is still alive rewrites its row with its next write.
    /// Errors: `Interrupted`, the engine's.
    pub fn forget_sessions(
        self: &Arc<Self>,
        op: &StatementContext,
        since: DateTime,
    ) -> Result<u64> {
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        if self.catalog().collection(&ns).is_none() {
            return Ok(0);
        }
        let mut filter = DocBuilder::new();
        filter.begin_document("lastWriteDate");
        filter.append("$lt", since);
        filter.end();
        let filter = filter.finish();
        let statement = DeleteStatement {
            spec: sheaf_query::canonical::FindSpec {
                filter: Some(filter.as_raw()),
                ..Default::default()
            },
            multi: true,
            return_document: Default::default(),
            projection: None,
        };
        let mut report = DeleteReport::default();
        let options = QueryOptions::default();
        modify::delete(self, op, &ns, &statement, &options, &mut report)?;
        Ok(report.result.deleted)
    }
}
