//! Applies transactions of an oplog: one entry, or a chain of entries.
//!
//! ```text
//!   {applyOps: [..], partialTxn: true}  <─prevOpTime─  {applyOps: [..], partialTxn: true}  <─  {applyOps: [..], count}
//!   {applyOps: [..], prepare: true}     ...            {commitTransaction: 1} or {abortTransaction: 1}
//! ```
//!
//! All documents change in one unit of work, when the entry that ends the transaction is applied.
//! Collections and indexes that the transaction creates are applied first, separately: readers may
//! briefly see them empty.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RawValue, Result};

use super::{Applier, ApplyRules, Operation, OperationKind, crud, ddl, is_missing};
use crate::database::Db;
use crate::oplog::op_time::OpTime;
use crate::statement::StatementContext;
use crate::storage_error::is_write_conflict;
use crate::txn::Isolation;
use crate::write::retry::Backoff;

/// Maximum wait for a collection whose shape is being changed.
const OPEN_WAIT: Duration = Duration::from_millis(100);

/// The transaction that an entry belongs to: `lsid` and `txnNumber`.
type TransactionKey = (DocBuf, i64);

/// Operations of unfinished transactions.
#[derive(Default)]
pub(super) struct Pending(HashMap<Vec<u8>, Vec<DocBuf>>);

impl Pending {
    fn key(of: &TransactionKey) -> Vec<u8> {
        let mut key = of.0.as_bytes().to_vec();
        key.extend_from_slice(&of.1.to_be_bytes());
        key
    }
}

impl Applier<'_> {
    pub(super) fn apply_transaction_entry(
        &mut self,
        op: &StatementContext,
        operation: &Operation<'_>,
        entry: RawDoc<'_>,
    ) -> Result<()> {
        let key = transaction_of(entry).map(|key| Pending::key(&key));
        let flag = |name: &str| operation.o.get(name).is_some_and(|flag| flag.is_truthy());
        let operations = match operation.command()? {
            "applyOps" => {
                let mut operations = self.operations_before(key.as_deref(), entry)?;
                read_operations(operation.o, &mut operations)?;
                operations
            }
            ended => {
                let prepared = key.and_then(|key| self.pending.0.remove(&key));
                return match (ended, prepared) {
                    ("commitTransaction", Some(operations)) => self.apply_all(op, &operations),
                    ("commitTransaction", None) if !self.rules.is_idempotent => Err(Error::new(
                        ErrorCode::NO_SUCH_TRANSACTION,
                        "the oplog commits a transaction that it has not prepared",
                    )),
                    _ => Ok(()),
                };
            }
        };
        match key {
            Some(key) if flag("partialTxn") || flag("prepare") => {
                self.pending.0.insert(key, operations);
                Ok(())
            }
            _ => self.apply_all(op, &operations),
        }
    }

    /// Returns the operations of the transaction's earlier entries, from memory or by following
    /// `prevOpTime`.
    /// Errors: `OplogStartMissing`.
    fn operations_before(&mut self, key: Option<&[u8]>, entry: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        let kept = key.and_then(|key| self.pending.0.remove(key));
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let Some(mut at) = previous(entry) else {
            return Ok(Vec::new());
        };
        // From the newest entry to the first.
        let mut chain = Vec::new();
        loop {
            let found = match &self.lookup {
                Some(lookup) => lookup(at)?,
                None => None,
            };
            let Some(earlier) = found else {
                return Err(Error::new(
                    ErrorCode::OPLOG_START_MISSING,
                    format!("the oplog lacks the entry at {at:?}, the beginning of a transaction"),
                ));
            };
            let before = previous(earlier.as_raw());
            chain.push(earlier);
            match before {
                Some(before) if before < at => at = before,
                Some(_) => return Err(Error::bad_value("prevOpTime of an entry is not before it")),
                None => break,
            }
        }
        let mut operations = Vec::new();
        for earlier in chain.iter().rev() {
            match earlier.get("o") {
                Some(RawValue::Document(o)) => read_operations(o, &mut operations)?,
                _ => return Err(super::missing("o")),
            }
        }
        Ok(operations)
    }

    fn apply_all(&self, op: &StatementContext, operations: &[DocBuf]) -> Result<()> {
        let mut documents = Vec::new();
        for doc in operations {
            let operation = Operation::parse(doc.as_raw())?;
            match operation.kind {
                OperationKind::Noop => {}
                OperationKind::Command => {
                    self.tolerate(ddl::apply(self.db, op, self.rules, &operation))?;
                }
                _ => documents.push(operation),
            }
        }
        let mut backoff = Backoff::default();
        loop {
            match apply_together(self.db, op, self.rules, &documents) {
                Err(error) if is_write_conflict(&error) => backoff.wait(op)?,
                done => return done,
            }
        }
    }
}

fn apply_together(
    db: &Arc<Db>,
    op: &StatementContext,
    rules: ApplyRules,
    operations: &[Operation<'_>],
) -> Result<()> {
    let mut unit = db.begin_unit(Isolation::Snapshot)?;
    for operation in operations {
        op.check_interrupt()?;
        let collection = match operation.collection(db, &operation.namespace()?) {
            Err(error) if rules.is_idempotent && is_missing(&error) => continue,
            found => found?,
        };
        let Some(slot) = unit.open(op, collection.ns(), Some(OPEN_WAIT))? else {
            return Err(conflict(collection.ns()));
        };
        if unit.collection(slot).uuid() != collection.uuid() {
            return Err(conflict(collection.ns()));
        }
        crud::apply_in(&mut unit, op, slot, rules, operation)?;
    }
    unit.commit_transaction(op)
}

fn conflict(ns: &crate::catalog::namespace::Namespace) -> Error {
    Error::new(
        ErrorCode::WRITE_CONFLICT,
        format!("{ns} was dropped or renamed by another operation"),
    )
}

fn transaction_of(entry: RawDoc<'_>) -> Option<TransactionKey> {
    match (entry.get("lsid"), entry.get("txnNumber")) {
        (Some(RawValue::Document(lsid)), Some(number)) => {
            Some((lsid.to_buf(), number.as_i64_exact()?))
        }
        _ => None,
    }
}

/// Position of the transaction's previous entry.
fn previous(entry: RawDoc<'_>) -> Option<OpTime> {
    match entry.get("prevOpTime") {
        Some(RawValue::Document(at)) => OpTime::of(at).filter(|at| at.ts != OpTime::NULL.ts),
        _ => None,
    }
}

fn read_operations(o: RawDoc<'_>, operations: &mut Vec<DocBuf>) -> Result<()> {
    let Some(RawValue::Array(ops)) = o.get("applyOps") else {
        return Err(Error::bad_value("applyOps of an entry must be an array"));
    };
    for op in ops.iter() {
        match op {
            RawValue::Document(op) => operations.push(op.to_buf()),
            _ => return Err(Error::bad_value("applyOps must contain only documents")),
        }
    }
    Ok(())
}
