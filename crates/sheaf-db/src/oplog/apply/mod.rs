//! Applies entries of an oplog to a database.
//!
//! ```text
//!   entry ──> Applier ─┬─ i, u, d ────────────> documents (crud.rs), views of system.views (ddl.rs)
//!                      ├─ c: create, drop... ─> the catalog (ddl.rs)
//!                      ├─ c: applyOps ────────> all its operations in one unit of work
//!                      │     partialTxn, prepare: kept until the entry that ends the transaction
//!                      └─ n ──────────────────> nothing
//! ```
//!
//! Collections are identified by UUID, since the name in an entry is the one at the time of
//! writing. A collection that an entry creates gets the entry's UUID.
//!
//! Invariant, under [`ApplyRules::RECOVERY`]: applying all entries from some position to the end of
//! the oplog, to a database that holds the effects of any number of them, produces the same
//! documents, options and indexes as applying each once. In between, the data may violate the
//! guarantees of indexes, so duplicate keys and parallel arrays are not rejected. An object whose
//! name or place conflicts with one that an entry creates is moved aside: a later entry restores
//! it.

mod crud;
mod ddl;
mod transaction;

use std::sync::Arc;

use sheaf_bson::fields::{missing_field, wrong_type};
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RawValue, Result};

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;
use crate::collection::Collection;
use crate::database::Db;
use crate::oplog::op_time::OpTime;
use crate::statement::StatementContext;
use transaction::Pending;

/// Expectations about the database that entries are applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyRules {
    /// The database may hold effects of this entry and of later ones: references to missing objects
    /// are ignored.
    pub is_idempotent: bool,
    /// Enforces uniqueness, index keys and document rules, as for a client's write.
    pub is_checked: bool,
    /// A replacement of a missing document inserts it.
    pub upserts: bool,
}

impl ApplyRules {
    /// Each entry is applied once, in order, to the state for which it was written. A missing
    /// object is an error.
    pub const ONCE: ApplyRules = ApplyRules {
        is_idempotent: false,
        is_checked: false,
        upserts: false,
    };
    /// Entries may have been applied before.
    pub const RECOVERY: ApplyRules = ApplyRules {
        is_idempotent: true,
        is_checked: false,
        upserts: true,
    };
    /// Operations that a client passes to the command `applyOps`.
    pub const COMMAND: ApplyRules = ApplyRules {
        is_idempotent: false,
        is_checked: true,
        upserts: false,
    };
}

/// Looks up earlier entries of the oplog by position. `None` if the oplog does not reach back that
/// far.
pub type EntryLookup<'a> = dyn Fn(OpTime) -> Result<Option<DocBuf>> + 'a;

/// Applies entries in order. Keeps the operations of transactions whose last entry has not arrived.
pub struct Applier<'a> {
    db: &'a Arc<Db>,
    rules: ApplyRules,
    lookup: Option<Box<EntryLookup<'a>>>,
    pending: Pending,
}

impl<'a> Applier<'a> {
    /// Creates an applier for a sequence of entries.
    pub fn new(db: &'a Arc<Db>, rules: ApplyRules) -> Applier<'a> {
        Applier {
            db,
            rules,
            lookup: None,
            pending: Pending::default(),
        }
    }

    /// Sets the lookup of a transaction's first entries, if the sequence starts with its later
    /// ones.
    pub fn with_lookup(mut self, lookup: Box<EntryLookup<'a>>) -> Applier<'a> {
        self.lookup = Some(lookup);
        self
    }

    /// Applies one entry, or one operation of the command `applyOps`.
    ///
    /// Errors: `BadValue`, `NoSuchKey`, `FailedToParse` for a malformed entry; unless idempotent,
    /// `NamespaceNotFound`, `UpdateOperationFailed` for missing objects; `OplogStartMissing` if the
    /// first entries of a transaction cannot be found; those of the write or command itself.
    pub fn apply(&mut self, op: &StatementContext, entry: RawDoc<'_>) -> Result<()> {
        let operation = Operation::parse(entry)?;
        match operation.kind {
            OperationKind::Noop => Ok(()),
            OperationKind::Command => self.apply_command(op, &operation, entry),
            _ => self.apply_document(op, &operation),
        }
    }

    fn apply_document(&self, op: &StatementContext, operation: &Operation<'_>) -> Result<()> {
        if operation.is_view() {
            return ddl::apply_view(self.db, op, self.rules, operation);
        }
        self.tolerate(crud::apply(self.db, op, self.rules, operation))
    }

    fn apply_command(
        &mut self,
        op: &StatementContext,
        operation: &Operation<'_>,
        entry: RawDoc<'_>,
    ) -> Result<()> {
        match operation.command()? {
            "applyOps" | "commitTransaction" | "abortTransaction" => {
                self.apply_transaction_entry(op, operation, entry)
            }
            _ => self.tolerate(ddl::apply(self.db, op, self.rules, operation)),
        }
    }

    /// Ignores errors for objects that may be missing under idempotent rules.
    fn tolerate(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if self.rules.is_idempotent && is_missing(&error) => Ok(()),
            done => done,
        }
    }
}

/// Whether an error reports that the target of an entry does not exist.
fn is_missing(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::NAMESPACE_NOT_FOUND | ErrorCode::INDEX_NOT_FOUND
    )
}

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperationKind {
    Insert,
    Update,
    Delete,
    Command,
    Noop,
}

/// An operation of an entry: `{op, ns, ui, o, o2}`.
#[derive(Debug, Clone, Copy)]
struct Operation<'e> {
    kind: OperationKind,
    ns: &'e str,
    uuid: Option<Uuid>,
    o: RawDoc<'e>,
    o2: Option<RawDoc<'e>>,
}

impl<'e> Operation<'e> {
    fn parse(doc: RawDoc<'e>) -> Result<Operation<'e>> {
        let kind = match doc.get("op") {
            Some(RawValue::String("i")) => OperationKind::Insert,
            Some(RawValue::String("u")) => OperationKind::Update,
            Some(RawValue::String("d")) => OperationKind::Delete,
            Some(RawValue::String("c")) => OperationKind::Command,
            Some(RawValue::String("n")) => OperationKind::Noop,
            Some(RawValue::String("")) => {
                return Err(Error::new(
                    ErrorCode::ILLEGAL_OPERATION,
                    "the field 'op' of an operation of the oplog is empty",
                ));
            }
            Some(RawValue::String(other)) => {
                return Err(Error::bad_value(format!(
                    "Enumeration value '{other}' for field 'op' is not a valid value."
                )));
            }
            Some(value) => return Err(wrong_type("OplogEntryBase.op", value, "string")),
            None => {
                return Err(Error::new(
                    ErrorCode::NO_SUCH_KEY,
                    format!("an operation of the oplog needs the field 'op', got {doc}"),
                ));
            }
        };
        let ns = match doc.get("ns") {
            // Only an operation that does nothing has no namespace.
            Some(RawValue::String(ns)) if !ns.is_empty() || kind == OperationKind::Noop => ns,
            other => {
                let got = other.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                return Err(Error::new(
                    ErrorCode::ILLEGAL_OPERATION,
                    format!("an operation of the oplog needs a string in 'ns', got {got}"),
                ));
            }
        };
        let uuid = match doc.get("ui") {
            Some(value) => Some(
                Uuid::from_raw(value)
                    .ok_or_else(|| wrong_type("OplogEntryBase.ui", value, "UUID"))?,
            ),
            None => None,
        };
        let document = |name: &str| match doc.get(name) {
            Some(RawValue::Document(doc)) => Ok(Some(doc)),
            Some(value) => Err(wrong_type(
                format_args!("OplogEntryBase.{name}"),
                value,
                "object",
            )),
            None => Ok(None),
        };
        let o = document("o")?.ok_or_else(|| missing("o"))?;
        Ok(Operation {
            kind,
            ns,
            uuid,
            o,
            o2: document("o2")?,
        })
    }

    fn namespace(&self) -> Result<Namespace> {
        Namespace::parse(self.ns)
    }

    /// Database of a command.
    fn db(&self) -> &'e str {
        self.ns.split_once('.').map_or(self.ns, |(db, _)| db)
    }

    /// Whether it writes the definition of a view.
    fn is_view(&self) -> bool {
        self.ns
            .split_once('.')
            .is_some_and(|(_, collection)| collection == crate::system_names::VIEWS)
    }

    /// Name of the command.
    fn command(&self) -> Result<&'e str> {
        let first = self.o.first();
        first
            .map(|first| first.key())
            .ok_or_else(|| Error::bad_value("a command of the oplog is empty"))
    }

    /// The target collection, by UUID if the operation has one, else by name.
    /// Errors: `NamespaceNotFound`.
    fn collection(&self, db: &Db, ns: &Namespace) -> Result<Arc<Collection>> {
        let catalog = db.catalog();
        let found = match self.uuid {
            Some(uuid) => match catalog.collection(ns) {
                Some(named) if named.uuid() == uuid => Some(named),
                _ => catalog.collection_by_uuid(uuid),
            },
            None => catalog.collection(ns),
        };
        found.cloned().ok_or_else(|| {
            let uuid = self.uuid.map(|uuid| format!(" ({uuid})"));
            Error::new(
                ErrorCode::NAMESPACE_NOT_FOUND,
                format!(
                    "Failed to apply operation: ns not found {ns}{}",
                    uuid.unwrap_or_default()
                ),
            )
        })
    }
}

fn missing(field: &str) -> Error {
    missing_field(format_args!("OplogEntryBase.{field}"))
}
