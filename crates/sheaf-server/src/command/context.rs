//! What a handler has in hand: the request, the connection, the server.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::{Namespace, PlanDigest, ReadView, StatementContext};
use sheaf_wire::DocumentSequence;

use super::transaction::RawTransactionArguments;
use super::{Command, cluster_time, fields};
use crate::command_facts::Target;
use crate::connection::ConnectionState;
use crate::server::Server;
use crate::session::logical::{LogicalSession, TransactionArguments};

/// One command, being carried out.
pub struct CommandContext<'a> {
    /// The whole server.
    pub server: &'a Arc<Server>,
    /// This connection.
    pub connection: &'a mut ConnectionState,
    /// The row of the command table.
    pub command: &'static Command,
    /// `$db`.
    pub db: &'a str,
    /// The command document.
    pub body: RawDoc<'a>,
    /// Document sequences that came beside it.
    pub sequences: Vec<DocumentSequence<'a>>,
    /// The client takes further replies without asking again.
    pub exhaust_allowed: bool,
    /// Deadline, kill flag, counters; the transaction and the session's write.
    pub op: StatementContext,
    /// Arguments that every command takes.
    pub generic: GenericArguments<'a>,
    /// The session of `lsid`.
    pub session: Option<Arc<LogicalSession>>,
    /// The command is a statement of this transaction of the session.
    pub transaction: Option<TransactionArguments>,
    /// The time of the snapshot that a read with `level: "snapshot"` was of.
    pub snapshot_time: Cell<Option<Timestamp>>,
    /// What the slow-operation log and the profiler will say.
    pub report: OpReport,
}

/// Arguments that every command takes; see the manual, "Database Commands".
#[derive(Default, Clone)]
pub struct GenericArguments<'a> {
    /// `maxTimeMS`.
    pub max_time: Option<Duration>,
    /// `comment`, any type.
    pub comment: Option<RawValue<'a>>,
    /// `lsid`.
    pub lsid: Option<RawDoc<'a>>,
    /// `readConcern.level`.
    pub read_concern_level: Option<&'a str>,
    /// `readConcern.atClusterTime`.
    pub at_cluster_time: Option<Timestamp>,
    /// `readConcern.afterClusterTime`.
    pub after_cluster_time: Option<Timestamp>,
    /// `$clusterTime`.
    pub cluster_time: Option<Timestamp>,
    /// A `readConcern` with a level was given.
    pub has_read_concern: bool,
    /// `writeConcern`.
    pub write_concern: WriteConcern,
    /// A `writeConcern` was given.
    pub has_write_concern: bool,
    /// `txnNumber`, `autocommit`, `startTransaction`.
    pub transaction: RawTransactionArguments,
}

/// How durable a write must be before it is acknowledged.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WriteConcern {
    /// `j: true`, or what implies it (`w: "majority"`, `fsync: true`).
    pub journaled: bool,
    /// `w: 0`: the client does not want to know.
    pub unacknowledged: bool,
    /// `w` greater than one: more members than a set of this version has.
    pub nodes: u8,
    /// `w` is a name that no configuration has.
    pub unknown_mode: bool,
}

/// Facts of an operation that its handler alone knows, for the slow-operation
/// line, the profiler and the metrics. Counters live in the [`sheaf_db::OpContext`].
#[derive(Debug, Default, Clone)]
pub struct OpReport {
    /// The collection concerned.
    pub namespace: Option<Namespace>,
    /// The plan; made into text only when a line is written.
    pub plan: PlanDigest,
    /// Documents returned.
    pub n_returned: Option<u64>,
    /// The cursor opened or continued.
    pub cursor_id: Option<i64>,
    /// Nothing is left of the cursor.
    pub cursor_exhausted: bool,
    /// A stage wrote temporary files.
    pub used_disk: bool,
    /// What the stages of the plan did; only where the profiler is on.
    pub exec_stats: Option<DocBuf>,
    /// The command that opened the cursor (getMore).
    pub originating_command: Option<DocBuf>,
    /// One for each statement of a write command; logged on lines of their own.
    pub writes: Vec<WriteReport>,
}

/// What one write statement did.
#[derive(Debug, Default, Clone)]
pub struct WriteReport {
    /// The collection written to.
    pub namespace: Option<Namespace>,
    /// `update`, `remove`, `insert`.
    pub kind: &'static str,
    /// The statement (`{q, u, multi, upsert}` or `{q, limit}`).
    pub statement: DocBuf,
    /// Which plan found the documents.
    pub plan: PlanDigest,
    /// Index keys examined.
    pub keys_examined: u64,
    /// Documents examined.
    pub docs_examined: u64,
    /// Matched by the filter.
    pub n_matched: u64,
    /// Really changed.
    pub n_modified: u64,
    /// Inserted by an upsert.
    pub n_upserted: u64,
    /// Deleted.
    pub n_deleted: u64,
    /// Inserted.
    pub n_inserted: u64,
    /// `None` when no document was changed at all.
    pub keys_inserted: Option<u64>,
    /// As `keys_inserted`.
    pub keys_deleted: Option<u64>,
    /// Bytes that the storage engine logged; `None` as for `keys_inserted`, and in a transaction.
    pub bytes_logged: Option<u64>,
    /// Retries after conflicts.
    pub write_conflicts: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl<'a> CommandContext<'a> {
    /// The command's name as its table row spells it.
    pub fn name(&self) -> &'static str {
        self.command.name
    }

    /// The port clients connect to: this client's, or the configured one on a unix socket.
    pub fn port(&self) -> i32 {
        let configured = self.server.settings.port;
        let own = self.connection.client.local_port();
        i32::from(own.unwrap_or(configured))
    }

    /// The namespace of commands whose first field names a collection.
    pub fn collection(&mut self) -> Result<Namespace, Error> {
        let first = self.first()?;
        let RawValue::String(collection) = first.value() else {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                format!(
                    "collection name has invalid type {}",
                    first.value().type_name()
                ),
            ));
        };
        let ns = Namespace::new(self.db, collection)?;
        self.report.namespace = Some(ns.clone());
        if self.command.target != Target::View {
            let catalog = self.server.db.catalog();
            let is_view = catalog.view(&ns).is_some();
            let measured = self.command.target == Target::TimeSeries;
            if is_view && !(measured && catalog.timeseries(&ns).is_some()) {
                return Err(not_on_view(&ns));
            }
        }
        Ok(ns)
    }

    /// The first field: the command's name and its argument.
    pub fn first(&self) -> Result<RawElement<'a>, Error> {
        self.body
            .first()
            .ok_or_else(|| Error::new(ErrorCode::FAILED_TO_PARSE, "the command is empty"))
    }

    /// The command's own arguments: every field after the first that is not a
    /// generic argument.
    pub fn arguments(&self) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
        self.body
            .iter()
            .skip(1)
            .filter(|element| !is_generic(element.key()))
    }

    /// Documents of `identifier`, from the array in the body or from a sequence.
    pub fn sequence(&self, identifier: &str) -> Option<DocumentSequence<'a>> {
        self.sequences
            .iter()
            .find(|sequence| sequence.identifier() == identifier)
            .copied()
    }

    /// What the command reads: the newest of a collection, or what its transaction sees.
    pub fn view(&self, namespace: &Namespace) -> Result<ReadView, Error> {
        if self.generic.read_concern_level == Some("snapshot") && self.transaction.is_none() {
            let at = self.generic.at_cluster_time;
            let db = &self.server.db;
            let (view, time) = db.view_at(&self.op, namespace, at)?;
            self.snapshot_time.set(Some(time));
            return Ok(view);
        }
        self.server.db.view(&self.op, namespace)
    }

    /// Whether the error is that of the transaction, which can be tried again or has become too large: then it is
    /// the command's own error, and none of one statement.
    pub fn is_of_transaction(&self, error: &Error) -> bool {
        self.op.transaction().is_some()
            && (sheaf_db::is_write_conflict(error)
                || error.has_label(label::TRANSIENT_TRANSACTION)
                || error.code() == ErrorCode::TRANSACTION_TOO_LARGE_FOR_CACHE)
    }

    /// A write of the command was refused: that ends the transaction that it is a statement of.
    pub fn write_refused(&self) {
        if let Some(transaction) = self.op.transaction() {
            transaction.abort();
        }
    }

    /// The error for a field that the command does not have.
    pub fn unknown_field(&self, element: &RawElement<'_>) -> Error {
        unknown_field(self.command.name, element.key())
    }

    /// Refuses every argument beyond the generic ones: for commands without any.
    pub fn no_arguments(&self) -> Result<(), Error> {
        match self.arguments().next() {
            Some(element) => Err(self.unknown_field(&element)),
            None => Ok(()),
        }
    }
}

/// The error for a field that a command or statement does not have.
pub fn unknown_field(command: &str, field: &str) -> Error {
    Error::new(
        ErrorCode(40415),
        format!("BSON field '{command}.{field}' is an unknown field."),
    )
}

/// Whether `name` is an argument of every command.
pub fn is_generic(name: &str) -> bool {
    matches!(
        name,
        "$db"
            | "lsid"
            | "comment"
            | "maxTimeMS"
            | "maxTimeMSOpOnly"
            | "writeConcern"
            | "readConcern"
            | "$readPreference"
            | "$clusterTime"
            | "$audit"
            | "$client"
            | "$configServerState"
            | "$oplogQueryData"
            | "$queryOptions"
            | "$replData"
            | "$configTime"
            | "$topologyTime"
            | "apiVersion"
            | "apiStrict"
            | "apiDeprecationErrors"
            | "txnNumber"
            | "autocommit"
            | "startTransaction"
            | "stmtId"
            | "stmtIds"
            | "mayBypassWriteBlocking"
            | "rawData"
    )
}

impl<'a> GenericArguments<'a> {
    /// Reads them from a command document.
    pub fn parse(command: &str, body: RawDoc<'a>) -> Result<Self, Error> {
        let mut generic = GenericArguments::default();
        for element in body.iter().skip(1) {
            match element.key() {
                "maxTimeMS" => {
                    let ms = fields::max_time_ms(&element)?;
                    generic.max_time = (ms > 0).then(|| Duration::from_millis(ms));
                }
                "comment" => generic.comment = Some(element.value()),
                "lsid" => {
                    let lsid = fields::document(command, &element)?;
                    check_lsid(lsid)?;
                    generic.lsid = Some(lsid);
                }
                "readConcern" => {
                    let concern = fields::document(command, &element)?;
                    generic.read_concern_level = read_concern(concern)?;
                    generic.at_cluster_time = at_cluster_time(concern)?;
                    generic.after_cluster_time = cluster_time::after_cluster_time(concern)?;
                    generic.has_read_concern = !concern.is_empty();
                }
                "$clusterTime" => generic.cluster_time = Some(cluster_time::parse(&element)?),
                "writeConcern" => {
                    generic.write_concern =
                        WriteConcern::parse(fields::document(command, &element)?)?;
                    generic.has_write_concern = true;
                }
                "txnNumber" => match element.value() {
                    RawValue::Int64(number) => generic.transaction.number = Some(number),
                    _ => return Err(fields::wrong_type(command, &element, "long")),
                },
                "autocommit" => {
                    generic.transaction.autocommit = Some(fields::boolean(command, &element)?);
                }
                "startTransaction" => {
                    generic.transaction.start = Some(fields::boolean(command, &element)?);
                }
                "apiVersion" => {
                    if fields::string(command, &element)? != "1" {
                        return Err(Error::new(
                            ErrorCode::API_VERSION_ERROR,
                            "apiVersion must be \"1\"",
                        ));
                    }
                }
                "apiStrict" | "apiDeprecationErrors" => {
                    fields::boolean(command, &element)?;
                }
                _ => {}
            }
        }
        Ok(generic)
    }
}

/// `atClusterTime`, which goes with `level: "snapshot"` alone.
fn at_cluster_time(concern: RawDoc<'_>) -> Result<Option<Timestamp>, Error> {
    match concern.get("atClusterTime") {
        None => Ok(None),
        Some(_) if concern.get("level") != Some(RawValue::String("snapshot")) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "readConcern.atClusterTime needs the level 'snapshot'",
        )),
        Some(RawValue::Timestamp(time)) => Ok(Some(time)),
        Some(_) => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            "BSON field 'readConcern.atClusterTime' is the wrong type, expected type 'timestamp'",
        )),
    }
}

/// Levels that only commands which find documents have.
pub fn check_read_concern(command: &Command, level: Option<&str>) -> Result<(), Error> {
    let refused = match level {
        Some("snapshot") => !command.read_concern.snapshot,
        Some("linearizable") => !command.read_concern.linearizable,
        // Of transactions alone.
        Some("serializable") => true,
        _ => false,
    };
    match (refused, level) {
        (true, Some(level)) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!(
                "{} does not support read concern level '{level}'",
                command.name
            ),
        )),
        _ => Ok(()),
    }
}

impl WriteConcern {
    /// What a server without a replica set refuses before anything is written.
    pub fn check_standalone(self) -> Result<(), Error> {
        if self.nodes > 1 {
            return Err(Error::bad_value(
                "cannot use 'w' > 1 when a host is not replicated",
            ));
        }
        if self.unknown_mode {
            return Err(Error::bad_value(
                "cannot use a non-majority 'w' mode when a host is not a member of a replica set",
            ));
        }
        Ok(())
    }

    /// What can never be acknowledged as asked: told beside the write, which stands.
    pub fn never_satisfied(self) -> Option<Error> {
        if self.unknown_mode {
            return Some(Error::new(
                ErrorCode::UNKNOWN_REPL_WRITE_CONCERN,
                "No write concern mode of this name found in replica set configuration",
            ));
        }
        (self.nodes > 1).then(|| {
            Error::new(
                ErrorCode::UNSATISFIABLE_WRITE_CONCERN,
                "Not enough data-bearing nodes",
            )
        })
    }

    /// From `{w, j, wtimeout, fsync}`.
    pub fn parse(doc: RawDoc<'_>) -> Result<Self, Error> {
        let mut concern = WriteConcern::default();
        for element in doc.iter() {
            match element.key() {
                "w" => match element.value() {
                    RawValue::String("majority") => concern.journaled = true,
                    RawValue::String(_) => concern.unknown_mode = true,
                    value => match value.as_i64_exact() {
                        Some(0) => concern.unacknowledged = true,
                        Some(1) => {}
                        Some(n) if (2..=50).contains(&n) => concern.nodes = n as u8,
                        _ => {
                            return Err(Error::new(
                                ErrorCode::FAILED_TO_PARSE,
                                "w has to be a number between 0 and 50, or 'majority'",
                            ));
                        }
                    },
                },
                "j" | "fsync" => concern.journaled |= fields::boolean("writeConcern", &element)?,
                "wtimeout" => {
                    fields::integer("writeConcern", &element)?;
                }
                "provenance" => {}
                other => return Err(unknown_field("writeConcern", other)),
            }
        }
        Ok(concern)
    }
}

fn check_lsid(lsid: RawDoc<'_>) -> Result<(), Error> {
    for element in lsid.iter() {
        match element.key() {
            "id" | "uid" => {}
            other => return Err(unknown_field("lsid", other)),
        }
    }
    match lsid.get("uid") {
        None => {}
        Some(RawValue::Binary { subtype: 0, bytes }) if bytes.len() == 32 => {}
        Some(_) => {
            return Err(Error::new(
                ErrorCode::TYPE_MISMATCH,
                "BSON field 'lsid.uid' must be a SHA-256 digest (binary of 32 bytes)",
            ));
        }
    }
    match lsid.get("id") {
        Some(RawValue::Binary { subtype: 4, bytes }) if bytes.len() == 16 => Ok(()),
        Some(_) => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            "BSON field 'lsid.id' must be a UUID (binary of subtype 4)",
        )),
        None => Err(fields::missing("lsid", "id")),
    }
}

fn read_concern<'a>(doc: RawDoc<'a>) -> Result<Option<&'a str>, Error> {
    let mut level = None;
    for element in doc.iter() {
        match element.key() {
            "level" => {
                let name = fields::string("readConcern", &element)?;
                match name {
                    "local" | "available" | "majority" | "linearizable" | "snapshot"
                    | "serializable" => {
                        level = Some(name);
                    }
                    _ => {
                        return Err(Error::bad_value(format!(
                            "Enumeration value '{name}' for field 'readConcern.level' is not a \
                             valid value."
                        )));
                    }
                }
            }
            "afterClusterTime" | "atClusterTime" | "provenance" => {}
            other => return Err(unknown_field("readConcern", other)),
        }
    }
    Ok(level)
}
