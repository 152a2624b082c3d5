//! What a handler has in hand: the request, the connection, the server.

use std::cell::Cell;
use std::sync::Arc;

use sheaf_bson::error_code::label;
use sheaf_bson::{Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::{Namespace, ReadView, StatementContext};
use sheaf_wire::DocumentSequence;

use super::fields::unknown_field;
use super::generic_arguments::{GenericArguments, is_generic};
use crate::command_facts::{Command, Target};
use crate::connection::ConnectionState;
use crate::op_report::OpReport;
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
