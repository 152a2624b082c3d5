//! The context of a handler: the request, the connection, the server.

use std::cell::Cell;
use std::sync::Arc;

use sheaf_bson::error_code::label;
use sheaf_bson::json::shell_doc;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, Timestamp};
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::{Namespace, QueryOptions, ReadView, StatementContext, Uuid};
use sheaf_wire::DocumentSequence;

use super::fields::{self, unknown_field};
use super::generic_arguments::{GenericArguments, arguments, arguments_as_sent};
use crate::command_facts::{Action, Command, On, Target, UnknownArguments};
use crate::connection::ConnectionState;
use crate::observe;
use crate::op_report::OpReport;
use crate::parameters::Parameter;
use crate::query_settings;
use crate::query_stats::{Key, KeyParts, Recording};
use crate::server::Server;
use crate::session::logical::{LogicalSession, TransactionArguments};

/// One command in progress.
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
    /// The document sequences of the message.
    pub sequences: Vec<DocumentSequence<'a>>,
    /// The client accepts further replies to the same request (exhaust).
    pub exhaust_allowed: bool,
    /// Deadline, kill flag and counters; the transaction; the session's retryable write.
    pub op: StatementContext,
    /// The generic arguments.
    pub generic: GenericArguments<'a>,
    /// The session of `lsid`.
    pub session: Option<Arc<LogicalSession>>,
    /// The session's transaction that the command is a statement of.
    pub transaction: Option<TransactionArguments>,
    /// The timestamp of the snapshot read with `level: "snapshot"`.
    pub snapshot_time: Cell<Option<Timestamp>>,
    /// `ok` of the reply. MongoDB's is an int where it rewrites the reply of another command.
    pub ok: RawValue<'static>,
    /// Facts for the slow-operation log and the profiler.
    pub report: OpReport,
}

impl<'a> CommandContext<'a> {
    /// The command's name as its table row spells it.
    pub fn name(&self) -> &'static str {
        self.command.name
    }

    /// Whether the user of the connection may do this. Without access control, everyone may.
    pub fn may(&self, action: Action, on: On<'_>) -> bool {
        let user = self.connection.authentication.user.as_ref();
        !self.server.settings.authorization || user.is_some_and(|u| u.allowed.allows(action, on))
    }

    /// Whether the user may do anything with this collection of the command's database.
    pub fn may_use(&self, collection: Option<&str>) -> bool {
        let on = On::Collection(self.db, collection.unwrap_or_default());
        let user = self.connection.authentication.user.as_ref();
        !self.server.settings.authorization || user.is_some_and(|u| u.allowed.allows_something(on))
    }

    /// Whether the user may do anything with this database or one of its collections.
    pub fn may_use_something_of(&self, db: &str) -> bool {
        let user = self.connection.authentication.user.as_ref();
        !self.server.settings.authorization
            || user.is_some_and(|user| user.allowed.allows_something_within(db))
    }

    /// The error for a command that the user may not run with these arguments.
    pub fn unauthorized(&self) -> Error {
        unauthorized(self.command, self.body, self.db)
    }

    /// The port that clients connect to: this client's, or the configured one if the client uses
    /// a Unix domain socket.
    pub fn port(&self) -> i32 {
        let configured = self.server.settings.port;
        let own = self.connection.client.local_port();
        i32::from(own.unwrap_or(configured))
    }

    /// The namespace of a command whose first field names a collection; recorded in the report.
    ///
    /// Errors: `InvalidNamespace`; `CommandNotSupportedOnView` for a view that the command does not
    /// accept.
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
        // Each statement of a write reports it.
        if !self.command.counts_as.has_statements()
            && let Some(mismatch) = self.uuid_mismatch(&ns)
        {
            return Err(mismatch);
        }
        if self.command.target != Target::View {
            match self.server.db.catalog().kind(&ns) {
                NamespaceKind::Missing | NamespaceKind::Collection(_) => {}
                NamespaceKind::TimeSeries(..) if self.command.target == Target::TimeSeries => {}
                NamespaceKind::View(_) | NamespaceKind::TimeSeries(..) => {
                    return Err(not_on_view(&ns));
                }
            }
        }
        Ok(ns)
    }

    /// The error if `ns` is not the collection of the command's `collectionUUID`.
    pub fn uuid_mismatch(&self, ns: &Namespace) -> Option<Error> {
        uuid_mismatch(self.server, ns, self.generic.collection_uuid?)
    }

    /// The first field: the command's name and its argument.
    pub fn first(&self) -> Result<RawElement<'a>, Error> {
        self.body
            .first()
            .ok_or_else(|| Error::new(ErrorCode::FAILED_TO_PARSE, "the command is empty"))
    }

    /// The first field of a command whose argument is required.
    /// Errors: 40414 if it is null or undefined.
    pub fn first_given(&self) -> Result<RawElement<'a>, Error> {
        let first = self.first()?;
        match fields::is_null(&first) {
            true => Err(fields::missing(self.name(), self.name())),
            false => Ok(first),
        }
    }

    /// The command's own arguments: every field after the first that is not a generic argument.
    /// Null and undefined count as absent.
    pub fn arguments(&self) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
        arguments(self.body)
    }

    /// As [`CommandContext::arguments`], with those that are null or undefined.
    pub fn arguments_as_sent(&self) -> impl Iterator<Item = RawElement<'a>> + use<'a> {
        arguments_as_sent(self.body)
    }

    /// The document sequence named `identifier`. Does not look in the body.
    pub fn sequence(&self, identifier: &str) -> Option<DocumentSequence<'a>> {
        self.sequences
            .iter()
            .find(|sequence| sequence.identifier() == identifier)
            .copied()
    }

    /// The view that the command reads: the newest state of a collection, the snapshot of its
    /// transaction, or the snapshot that `readConcern.level: "snapshot"` requests.
    pub fn view(&self, namespace: &Namespace) -> Result<ReadView, Error> {
        if self.generic.read_concern.level == Some("snapshot") && self.transaction.is_none() {
            let at = self.generic.read_concern.at_cluster_time;
            let db = &self.server.db;
            let (view, time) = db.view_at(&self.op, namespace, at)?;
            self.snapshot_time.set(Some(time));
            return Ok(view);
        }
        self.server.db.view(&self.op, namespace)
    }

    /// Looks up the query settings of the command's shape, for [`CommandContext::query_options`]
    /// and the log, and decides whether `$queryStats` counts the command.
    ///
    /// Hot path: costs two atomic loads if there are no settings and no statistics.
    /// Errors: `QueryRejectedBySettings`.
    pub fn begin_query(&mut self) -> Result<(), Error> {
        let server = self.server;
        let rate = server.parameters.int(Parameter::QueryStatsRateLimit);
        if rate != 0 && server.query_stats.admits(rate) {
            self.report.query_stats = self.recording();
        }
        let settings = server.query_settings.of(&server.db, self.body, self.db);
        if settings.is_some() {
            self.report.query_settings = settings;
            query_settings::admit(self.report.query_settings.as_deref())?;
        }
        Ok(())
    }

    /// Begins to record the command for `$queryStats`.
    fn recording(&self) -> Option<Arc<Recording>> {
        let name = self.body.first().and_then(|first| first.value().as_str());
        let namespace = name.and_then(|name| Namespace::new(self.db, name).ok());
        let catalog = self.server.db.catalog();
        let collection_type = match namespace.map(|ns| catalog.kind(&ns)) {
            None => "virtual",
            Some(NamespaceKind::Missing) => "nonExistent",
            Some(NamespaceKind::Collection(_)) => "collection",
            Some(NamespaceKind::View(_)) => "view",
            Some(NamespaceKind::TimeSeries(..)) => "timeseries",
        };
        let key = Key::new(&KeyParts {
            command: self.body,
            db: self.db,
            client: self.connection.client_metadata.as_ref(),
            collection_type,
        })?;
        let parameters = &self.server.parameters;
        let bytes_max = parameters.memory_bytes(Parameter::QueryStatsCacheSize);
        Some(self.server.query_stats.recording(key, bytes_max))
    }

    /// Options for the command's queries: the server's parameters, `allowDiskUse`, and the query
    /// settings that were looked up.
    pub fn query_options(&self, allow_disk_use: Option<bool>) -> QueryOptions {
        QueryOptions {
            settings: self.report.query_settings.clone(),
            ..self.server.query_options(allow_disk_use)
        }
    }

    /// Whether the error concerns the whole transaction, because it can be retried or has become
    /// too large. Such an error fails the command instead of a single statement.
    pub fn is_of_transaction(&self, error: &Error) -> bool {
        self.op.transaction().is_some()
            && (sheaf_db::is_write_conflict(error)
                || error.has_label(label::TRANSIENT_TRANSACTION)
                || error.code() == ErrorCode::TRANSACTION_TOO_LARGE_FOR_CACHE)
    }

    /// Aborts the command's transaction, if any, because one of its writes was refused.
    pub fn write_refused(&self) {
        if let Some(transaction) = self.op.transaction() {
            transaction.abort();
        }
    }

    /// Rejects a field unknown to the command, unless the command ignores such fields.
    pub fn unknown_field(&self, element: &RawElement<'_>) -> Result<(), Error> {
        match self.command.unknown_arguments {
            UnknownArguments::Ignored => Ok(()),
            UnknownArguments::Refused => Err(unknown_field(self.command.name, element.key())),
        }
    }

    /// Rejects every argument except the generic ones, for commands without arguments.
    pub fn no_arguments(&self) -> Result<(), Error> {
        match self.arguments().next() {
            Some(element) => self.unknown_field(&element),
            None => Ok(()),
        }
    }
}

/// The error if the collection `ns` does not have this UUID; it names the one that has.
pub fn uuid_mismatch(server: &Server, ns: &Namespace, uuid: Uuid) -> Option<Error> {
    let catalog = server.db.catalog();
    if catalog
        .collection(ns)
        .is_some_and(|found| found.uuid() == uuid)
    {
        return None;
    }
    let actual = catalog
        .collection_by_uuid(uuid)
        .filter(|found| found.ns().db() == ns.db());
    let mut extra = DocBuilder::new();
    extra.append("db", ns.db());
    extra.append("collectionUUID", uuid.as_raw());
    extra.append("expectedCollection", ns.collection());
    match actual {
        Some(actual) => extra.append("actualCollection", actual.ns().collection()),
        None => extra.append("actualCollection", RawValue::Null),
    };
    let error = Error::new(
        ErrorCode::COLLECTION_UUID_MISMATCH,
        "Collection UUID does not match that specified",
    );
    Some(error.with_extra(extra.finish()))
}

/// Bytes of a command that an error shows.
const UNAUTHORIZED_BYTES_MAX: usize = 16 * 1024;

/// The error for a command that a user may not run.
pub fn unauthorized(command: &Command, body: RawDoc<'_>, db: &str) -> Error {
    let shown = observe::shown(body, command.sensitive, None, UNAUTHORIZED_BYTES_MAX);
    Error::new(
        ErrorCode::UNAUTHORIZED,
        format!(
            "not authorized on {db} to execute command {}",
            shell_doc(shown.as_raw())
        ),
    )
}
