//! The block of user writes outlives a restart: `config.user_writes_critical_sections`.

use std::sync::Arc;

use sheaf_bson::{DocBuilder, Error, RawValue};
use sheaf_db::{Db, Namespace, StatementContext};

use crate::repl::store_document;
use crate::stored::read_document;
use crate::write_gate::{BlockReason, WriteGate};

const NAMESPACE: &str = "config.user_writes_critical_sections";
/// The only document is about all databases: its `_id` is the empty name.
const ALL_DATABASES: &str = "";

/// Restores the block that was in force when the server ended.
pub fn restore(db: &Db, gate: &WriteGate) -> Result<(), Error> {
    let Some(doc) = read_document(db, NAMESPACE, ALL_DATABASES)? else {
        return Ok(());
    };
    if doc.get("blockUserWrites") != Some(RawValue::Boolean(true)) {
        return Ok(());
    }
    let stored = doc.get("userWriteBlockReason");
    let mut all = BlockReason::ALL.into_iter();
    let reason = all.find(|reason| stored == Some(RawValue::String(reason.name())));
    gate.set_user_block(true, reason.unwrap_or(BlockReason::Unspecified))
}

/// Stores the block and waits until it is durable.
pub fn store(db: &Arc<Db>, op: &StatementContext, block: Option<BlockReason>) -> Result<(), Error> {
    let mut doc = DocBuilder::new();
    doc.append("_id", ALL_DATABASES);
    doc.append("blockUserWrites", block.is_some());
    if let Some(reason) = block {
        doc.append("userWriteBlockReason", reason.name());
    }
    store_document(db, op, &Namespace::parse(NAMESPACE)?, &doc.finish())?;
    db.sync()
}
