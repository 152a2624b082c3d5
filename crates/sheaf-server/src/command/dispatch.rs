//! Runs one request: the steps common to every command.
//!
//! ```text
//!   look up ─> database ─> generic arguments ─> admit ─> operation ─> session ─> run ─> observe
//! ```

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::statement::SessionWrite;
use sheaf_db::{OpContext, StatementContext};

use super::access::authorize;
use super::context::CommandContext;
use super::fields::unknown_field;
use super::generic_arguments::GenericArguments;
use super::transaction::{self, Numbered};
use super::{
    Command, Kind, Request, Row, Run, api_version, cluster_time, failing, find, sessions,
    write_admission, write_reply,
};
use crate::command_facts::{Database, InTransaction, MaxTime, Names, UnknownArguments, Waits};
use crate::connection::ConnectionState;
use crate::observe;
use crate::op_report::OpReport;
use crate::server::Server;
use crate::session::logical::{LogicalSession, TransactionArguments};
use crate::session::operations::OperationIds;

/// Runs one request and appends the reply's fields, `ok: 1` last.
///
/// Errors: those of the command. Fields appended before the error are not part of the reply.
pub fn dispatch(
    server: &Arc<Server>,
    connection: &mut ConnectionState,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    let body = request.body;
    let Row { command, run } = look_up(server, request.name)?;
    let generic = GenericArguments::parse(command.name, body);
    let db = database(request, &generic)?;
    check_database(command, request.name, db)?;
    if server.settings.authorization {
        authorize::check(server, connection, command, request, db)?;
    }
    check_sequences(command, request)?;
    let mut generic = generic?;
    let own_lsid = match &connection.authentication.user {
        Some(user) => generic.lsid.map(|lsid| sessions::owned(lsid, user)),
        None => None,
    };
    let own_lsid = own_lsid.transpose()?;
    if let Some(lsid) = &own_lsid {
        generic.lsid = Some(lsid.as_raw());
    }
    check_collection_uuid(command, &generic)?;
    if generic.api.is_strict() {
        api_version::check_strict(command, request.name, body)?;
    }
    connection.has_session = generic.lsid.is_some() || generic.cluster_time.is_some();
    admit(server, command, db, &mut generic)?;
    let op = operation(
        command,
        body,
        &generic,
        server.cluster_parameters.default_max_time(),
    );
    let failure = match server.fail_points.is_any_on() {
        true => failing::before(server, connection, command, request.name, body, &generic)?,
        false => None,
    };
    let numbered = generic.transaction.check(command, db, body, &generic)?;
    let transaction = match numbered {
        Numbered::Statement(arguments) => Some(arguments),
        Numbered::Not | Numbered::Retryable(_) => None,
    };
    if transaction.is_none() {
        generic.read_concern.check(command, body)?;
    }
    if let Some(time) = generic.cluster_time {
        cluster_time::advance(server, time)?;
    }
    let session = attach_session(server, connection, &generic);
    let registered =
        connection
            .operations
            .register(op.op(), command, db, body, operation_ids(&generic));
    let _interruptible = sheaf_query::interrupt::enter(op.op().clone());
    let _roles = (connection.authentication.user.as_ref())
        .map(|user| sheaf_query::expression::user_roles::enter(user.roles_value.clone()));
    let _scripts = (server.settings.javascript.is_some())
        .then(|| sheaf_query::javascript::enter(server.clone(), db));
    let mut cx = CommandContext {
        server,
        connection: &mut *connection,
        command,
        db,
        body,
        sequences: request.sequences.to_vec(),
        exhaust_allowed: request.exhaust_allowed,
        op: op.clone(),
        generic,
        session,
        transaction,
        snapshot_time: Cell::new(None),
        ok: RawValue::Double(1.0),
        report: OpReport::default(),
    };
    let result = run_numbered(&mut cx, *run, numbered, reply);
    if command.changes_catalog && db == "admin" {
        server.users.invalidate();
    }
    let report = std::mem::take(&mut cx.report);
    let ok = cx.ok;
    drop(registered);
    let finished = observe::Finished {
        database: &server.db,
        slot: &connection.operations,
        command,
        db,
        body,
        op: &op,
        report: &report,
        error: result.as_ref().err(),
        elapsed: begun.elapsed().saturating_sub(report.waited),
        reply_len: reply.current_len(),
    };
    observe::finished(&finished, &server.metrics, &server.profiler, &server.log);
    result?;
    if let Some(failure) = &failure {
        failing::after(failure, reply);
    }
    reply.append("ok", ok);
    Ok(())
}

/// The row of the command table. Errors: `CommandNotFound`, which is counted.
fn look_up(server: &Server, name: &str) -> Result<&'static Row, Error> {
    find(name).ok_or_else(|| {
        server.metrics.unknown_command();
        Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("no such command: '{name}'"),
        )
    })
}

/// The database: from the header in the legacy handshake, otherwise `$db`, which the parser of the
/// generic arguments has met unless one of them is wrong.
fn database<'a>(
    request: &Request<'a>,
    generic: &Result<GenericArguments<'a>, Error>,
) -> Result<&'a str, Error> {
    let met = generic.as_ref().ok().and_then(|generic| generic.db);
    if let Some(db) = request.db.or(met) {
        return Ok(db);
    }
    match request.body.get("$db") {
        Some(RawValue::String(db)) => Ok(db),
        _ => Err(Error::new(
            ErrorCode(40571),
            "OP_MSG requests require a $db argument",
        )),
    }
}

fn check_database(command: &Command, name: &str, db: &str) -> Result<(), Error> {
    if command.database == Database::Admin && db != "admin" {
        return Err(Error::new(
            ErrorCode::UNAUTHORIZED,
            format!("{name} may only be run against the admin database."),
        ));
    }
    Ok(())
}

/// Rejects `collectionUUID` where the command names no collection in its first field.
fn check_collection_uuid(command: &Command, generic: &GenericArguments<'_>) -> Result<(), Error> {
    let named = matches!(command.collection, Names::First | Names::FullName);
    if generic.collection_uuid.is_none()
        || named
        || command.unknown_arguments == UnknownArguments::Ignored
    {
        return Ok(());
    }
    Err(unknown_field(command.name, "collectionUUID"))
}

/// Rejects a request that the server's configuration does not allow, and applies the default
/// write concern.
fn admit(
    server: &Server,
    command: &Command,
    db: &str,
    generic: &mut GenericArguments<'_>,
) -> Result<(), Error> {
    match &server.repl {
        Some(set) if set.config().is_none() => refuse_uninitiated(command, db)?,
        Some(_) => {}
        None => generic.write_concern.check_standalone()?,
    }
    if generic.has_write_concern && command.write_concern == Waits::Not {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("Command {} does not support writeConcern", command.name),
        ));
    }
    if !generic.has_write_concern && command.write_concern == Waits::OrDefault {
        let defaults = server.rw_concern.read();
        generic.write_concern = defaults.write_concern(server.repl.is_some());
    }
    Ok(())
}

/// The command's operation with its time limit and comment, not yet part of a transaction.
fn operation(
    command: &Command,
    body: RawDoc<'_>,
    generic: &GenericArguments<'_>,
    default_limit: Option<Duration>,
) -> StatementContext {
    let mut op = OpContext::new();
    let is_limit = command.max_time == MaxTime::Limit;
    let limit = match (generic.max_time, default_limit) {
        // maxTimeMS: 0 means no limit.
        (None, Some(default))
            if command.kind == Kind::Read
                && is_limit
                && !body.get("maxTimeMS").is_some_and(|v| v.is_number()) =>
        {
            Some(default)
        }
        (limit, _) => limit,
    };
    if let Some(limit) = limit.filter(|_| is_limit) {
        op = op.with_max_time(limit);
    }
    if let Some(comment) = generic.comment {
        op = op.with_comment(comment.to_value());
    }
    let mut op = StatementContext::from(op);
    if command.bypasses_validation && generic.bypasses_validation {
        op = op.with_validation_bypassed();
    }
    if command.kind == Kind::Write && generic.keeps_empty_timestamps {
        op = op.with_empty_timestamps_kept();
    }
    op
}

/// The session of `lsid`, which becomes the connection's last used session.
fn attach_session(
    server: &Server,
    connection: &mut ConnectionState,
    generic: &GenericArguments<'_>,
) -> Option<Arc<LogicalSession>> {
    let latest = connection.session.as_ref();
    let session = server.sessions.get(generic.lsid?, latest)?;
    if latest.is_none_or(|latest| !Arc::ptr_eq(latest, &session)) {
        connection.session = Some(session.clone());
    }
    Some(session)
}

/// The generic arguments that `currentOp` shows.
fn operation_ids(generic: &GenericArguments<'_>) -> OperationIds {
    let transaction = &generic.transaction;
    OperationIds {
        lsid: generic.lsid.map(|lsid| lsid.to_buf()),
        number: transaction
            .number
            .map(|number| (number, transaction.autocommit.is_some())),
    }
}

/// Waits for `afterClusterTime` and runs the handler: plainly, as a statement of a transaction or
/// as a retryable write.
fn run_numbered(
    cx: &mut CommandContext<'_>,
    handler: Run,
    numbered: Numbered,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    if let Some(time) = cx.generic.read_concern.after_cluster_time {
        cx.server.db.wait_for_time(&cx.op, time)?;
    }
    let slot = cx.connection.operations.clone();
    let _writing = match write_admission::writes(cx) {
        true => {
            let writing = write_admission::enter(cx.server, &slot, cx)?;
            if write_admission::refuse_user_write(cx, reply)? {
                return Ok(());
            }
            Some(writing)
        }
        false => None,
    };
    match numbered {
        Numbered::Not => run_durable(cx, handler, reply),
        Numbered::Statement(arguments) => run_statement(cx, handler, arguments, reply),
        Numbered::Retryable(number) => run_retryable(cx, handler, number, reply),
    }
}

/// Rejects a document sequence that does not correspond to a field of the command.
fn check_sequences(command: &Command, request: &Request<'_>) -> Result<(), Error> {
    let mut sequences = request.sequences.iter();
    match sequences.find(|sequence| !command.sequences.contains(&sequence.identifier())) {
        Some(sequence) => Err(unknown_field(command.name, sequence.identifier())),
        None => Ok(()),
    }
}

/// Rejects reads and writes outside `local`, for a replica set that is not initiated.
fn refuse_uninitiated(command: &Command, db: &str) -> Result<(), Error> {
    match command.kind {
        Kind::Write if db != "local" => Err(Error::new(
            ErrorCode::NOT_WRITABLE_PRIMARY,
            "not primary; run rs.initiate() first",
        )),
        Kind::Read if db != "local" => Err(Error::new(
            ErrorCode::NOT_PRIMARY_OR_SECONDARY,
            "node is not in primary or recovering state; run rs.initiate() first",
        )),
        _ => Ok(()),
    }
}

/// Runs the command. Before the reply, data read with a read concern above `local` is made
/// durable, and so are catalog changes if the write concern requires it.
fn run_durable(
    cx: &mut CommandContext<'_>,
    handler: Run,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let result = handler(cx, reply);
    if cx.command.changes_catalog {
        result.map_err(|error| write_reply::with_write_concern(cx, error))?;
        write_reply::append_write_concern(cx, reply);
    } else {
        result?;
    }
    match cx.generic.read_concern.level {
        Some("majority" | "linearizable" | "snapshot") => cx.server.db.sync(),
        _ => Ok(()),
    }
}

/// Runs the command as a statement of its transaction. A failure aborts the transaction.
fn run_statement(
    cx: &mut CommandContext<'_>,
    handler: Run,
    arguments: TransactionArguments,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let Some(session) = cx.session.clone() else {
        return handler(cx, reply);
    };
    if cx.command.transaction == InTransaction::End {
        return handler(cx, reply);
    }
    let server = cx.server;
    let mut record = session.lock(&cx.op)?;
    let lock_wait = transaction::lock_wait(server);
    let transaction = server.sessions.begin_statement(
        &server.db,
        &session,
        &mut record,
        arguments,
        &cx.op,
        (lock_wait, transaction::isolation(cx)),
    )?;
    cx.op = cx.op.clone().in_transaction(transaction.clone());
    session.set_running(Some(cx.op.clone()));
    let result = handler(cx, reply);
    session.set_running(None);
    if result.is_err() || !transaction.is_open() {
        server.sessions.abort(&session, &mut record);
    }
    result.map_err(transaction::statement_error)
}

/// Runs the command as a retryable write.
fn run_retryable(
    cx: &mut CommandContext<'_>,
    handler: Run,
    number: i64,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let Some(session) = cx.session.clone() else {
        return handler(cx, reply);
    };
    let server = cx.server;
    let mut record = session.lock(&cx.op)?;
    let row = server
        .sessions
        .begin_retryable(&server.db, &session, &mut record, &cx.op, number)?;
    let origin = session.origin(number);
    cx.op = cx.op.clone().as_session_write(SessionWrite { origin, row });
    session.set_running(Some(cx.op.clone()));
    let result = handler(cx, reply);
    session.set_running(None);
    result
}
