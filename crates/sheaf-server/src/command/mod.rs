//! Every command the server speaks, and how one is carried out.
//!
//! ```text
//!   Message ──> COMMANDS[name] ──> generic arguments ──> run ──> {.., ok: 1}
//!                    │                                    │
//!                    └─ no such command (59)              └─ Err ──> {ok: 0, errmsg, code, codeName}
//! ```
//!
//! One table is all there is: dispatch, `listCommands` and COMPAT.md read it.
//! A handler is thin: it parses a typed request, calls `sheaf-db`, shapes the
//! reply. A handler's file is the command's name.

mod aggregate;
mod batch;
mod build_info;
mod bulk_write;
mod clone_collection_as_capped;
pub mod cluster_time;
mod coll_mod;
mod coll_stats;
mod compact;
mod conn_pool_stats;
mod connection_status;
pub mod context;
mod convert_to_capped;
mod count;
mod create;
mod create_backup;
mod create_indexes;
mod current_op;
mod db_hash;
mod db_stats;
mod delete;
mod distinct;
mod drop;
mod drop_database;
mod drop_indexes;
mod explain;
pub mod fields;
mod find;
mod find_and_modify;
mod fsync;
mod get_cmd_line_opts;
mod get_log;
mod get_more;
mod get_parameter;
pub mod hello;
mod host_info;
mod insert;
mod kill_cursors;
mod kill_op;
mod list_collections;
mod list_commands;
mod list_databases;
mod list_indexes;
mod log_rotate;
mod logout;
mod ping;
mod plan_cache_clear;
mod plan_cache_filters;
mod profile;
mod rename_collection;
mod repl_set;
mod retry;
pub mod rw_concern;
mod search_indexes;
mod server_status;
mod sessions;
mod set_parameter;
mod shutdown;
mod table;
mod top;
mod transaction;
mod update;
mod validate;
mod views;
mod whatsmyuri;
mod write_reply;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawValue};
use sheaf_db::OpContext;
use sheaf_wire::Message;

use self::context::{CommandContext, GenericArguments, OpReport};
use self::transaction::Numbered;
use crate::observe;
use crate::server::{ConnectionState, Server};
use crate::session::logical::TransactionArguments;

/// What a command is for; groups `listCommands`, COMPAT.md and the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads documents.
    Read,
    /// Changes documents.
    Write,
    /// Changes collections, indexes, databases or the server.
    Admin,
    /// Tells about the server.
    Diagnostic,
    /// Part of connecting.
    Handshake,
    /// Logical sessions.
    Session,
}

/// How close to MongoDB a command is, for COMPAT.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// As the manual says.
    Same,
    /// What differs, in one sentence.
    Differs(&'static str),
}

/// One row of the table.
pub struct Command {
    /// As MongoDB spells it.
    pub name: &'static str,
    /// Other spellings that are accepted.
    pub aliases: &'static [&'static str],
    /// What it is for.
    pub kind: Kind,
    /// Only against the `admin` database.
    pub admin_only: bool,
    /// One line for `listCommands`.
    pub help: &'static str,
    /// For COMPAT.md.
    pub compat: Compat,
    /// Carries it out, appending to the reply; `ok: 1` comes after it.
    pub run: fn(&mut CommandContext<'_>, &mut DocBuilder) -> Result<(), Error>,
}

impl Command {
    /// Whether what it changes is in the catalog, and waits for a write concern as documents do.
    fn changes_catalog(&self) -> bool {
        matches!(
            self.name,
            "create"
                | "convertToCapped"
                | "cloneCollectionAsCapped"
                | "drop"
                | "dropDatabase"
                | "renameCollection"
                | "collMod"
                | "createIndexes"
                | "dropIndexes"
                | "createSearchIndexes"
                | "updateSearchIndex"
                | "dropSearchIndex"
        )
    }
}

pub use table::COMMANDS;

static BY_NAME: LazyLock<HashMap<&'static str, &'static Command>> = LazyLock::new(|| {
    COMMANDS
        .iter()
        .flat_map(|command| {
            std::iter::once(command.name)
                .chain(command.aliases.iter().copied())
                .map(move |name| (name, command))
        })
        .collect()
});

/// The row of a name or alias.
pub fn find(name: &str) -> Option<&'static Command> {
    BY_NAME.get(name).copied()
}

/// Carries out one request and writes the whole reply body, errors included.
pub fn dispatch(
    server: &Arc<Server>,
    connection: &mut ConnectionState,
    message: &Message<'_>,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let begun = Instant::now();
    let body = message.body();
    let name = message.command_name();
    let Some(command) = find(name) else {
        server.metrics.unknown_command();
        return Err(Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("no such command: '{name}'"),
        ));
    };
    let db = match (message.database(), body.get("$db")) {
        // The old handshake names its database in the header.
        (Some(db), _) => db,
        (None, Some(RawValue::String(db))) => db,
        (None, _) => {
            return Err(Error::new(
                ErrorCode(40571),
                "OP_MSG requests require a $db argument",
            ));
        }
    };
    if command.admin_only && db != "admin" {
        return Err(Error::new(
            ErrorCode::UNAUTHORIZED,
            format!("{name} may only be run against the admin database."),
        ));
    }
    check_sequences(command, message)?;
    let mut generic = GenericArguments::parse(command.name, body)?;
    connection.has_session = generic.lsid.is_some() || generic.cluster_time.is_some();
    if let Some(set) = &server.repl
        && set.config().is_none()
    {
        refuse_uninitiated(command, db)?;
    }
    if server.repl.is_none() {
        generic.write_concern.check_standalone()?;
    }
    if !generic.has_write_concern && (command.kind == Kind::Write || command.changes_catalog()) {
        generic.write_concern = server
            .rw_concern
            .read()
            .write_concern(server.repl.is_some());
    }
    let mut op = OpContext::new();
    // To getMore it may be something else.
    if let Some(limit) = generic.max_time.filter(|_| command.name != "getMore") {
        op = op.with_max_time(limit);
    }
    if let Some(comment) = generic.comment {
        op = op.with_comment(comment.to_value());
    }
    // Which commands may say so, and that it is a boolean, the handlers check.
    let bypass = body.get("bypassDocumentValidation");
    if bypass.is_some_and(|value| value.is_truthy()) {
        op.bypass_validation();
    }
    let op = Arc::new(op);
    let numbered = generic.transaction.check(command, db, body, &generic)?;
    let transaction = match numbered {
        Numbered::Statement(arguments) => Some(arguments),
        Numbered::Not | Numbered::Retryable(_) => None,
    };
    if transaction.is_none() {
        context::check_read_concern(command, generic.read_concern_level)?;
    }
    cluster_time::hear(server, &generic)?;
    let session = generic
        .lsid
        .and_then(|lsid| server.sessions.get(lsid, connection.session.as_ref()));
    if let Some(session) = &session
        && !connection
            .session
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, session))
    {
        connection.session = Some(session.clone());
    }
    let registered = connection
        .operations
        .register(&op, command, db, (body, &generic));
    let _worked_for = sheaf_query::interrupt::enter(op.clone());
    let mut cx = CommandContext {
        server,
        connection: &mut *connection,
        command,
        db,
        body,
        sequences: message.sequences().to_vec(),
        exhaust_allowed: message.exhaust_allowed(),
        op: op.clone(),
        generic,
        session,
        transaction,
        snapshot_time: Cell::new(None),
        report: OpReport::default(),
    };
    let waited = match cx.generic.after_cluster_time {
        Some(time) => server.db.wait_for_time(&op, time),
        None => Ok(()),
    };
    let result = waited.and_then(|()| match numbered {
        Numbered::Not => run_durable(&mut cx, reply),
        Numbered::Statement(arguments) => run_statement(&mut cx, arguments, reply),
        Numbered::Retryable(number) => run_retryable(&mut cx, number, reply),
    });
    let report = std::mem::take(&mut cx.report);
    drop(registered);
    observe::finished(observe::Finished {
        server,
        connection,
        command,
        db,
        body,
        op: &op,
        report: &report,
        error: result.as_ref().err(),
        elapsed: begun.elapsed(),
        reply_len: reply.current_len(),
    });
    result?;
    reply.append("ok", 1.0);
    Ok(())
}

/// Refuses a document sequence that stands for no field of the command.
fn check_sequences(command: &Command, message: &Message<'_>) -> Result<(), Error> {
    let fields: &[&str] = match command.name {
        "insert" => &["documents"],
        "update" => &["updates"],
        "delete" => &["deletes"],
        "bulkWrite" => &["ops", "nsInfo"],
        _ => &[],
    };
    let mut sequences = message.sequences().iter();
    match sequences.find(|sequence| !fields.contains(&sequence.identifier())) {
        Some(sequence) => Err(context::unknown_field(command.name, sequence.identifier())),
        None => Ok(()),
    }
}

/// Until a replica set is initiated its member serves nothing but what leads to that.
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

/// Carries the command out; what it has read with a concern beyond `local`, and what it has changed in the catalog with
/// one that asks for it, is durable when it answers.
fn run_durable(cx: &mut CommandContext<'_>, reply: &mut DocBuilder) -> Result<(), Error> {
    (cx.command.run)(cx, reply)?;
    if cx.command.changes_catalog() {
        write_reply::append_write_concern(cx, reply);
    }
    match cx.generic.read_concern_level {
        Some("majority" | "linearizable" | "snapshot") => cx.server.db.sync(),
        _ => Ok(()),
    }
}

/// Carries the command out; inside a transaction as a statement of it, whose failure ends the transaction.
fn run_statement(
    cx: &mut CommandContext<'_>,
    arguments: TransactionArguments,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let Some(session) = cx.session.clone() else {
        return (cx.command.run)(cx, reply);
    };
    if matches!(cx.command.name, "commitTransaction" | "abortTransaction") {
        return (cx.command.run)(cx, reply);
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
    cx.op.enter_transaction(transaction.clone());
    session.set_running(Some(cx.op.clone()));
    let result = (cx.command.run)(cx, reply);
    session.set_running(None);
    if result.is_err() || !transaction.is_open() {
        server.sessions.abort(&session, &mut record);
    }
    result.map_err(transaction::statement_error)
}

/// Carries the command out as a write that may be asked for again.
fn run_retryable(
    cx: &mut CommandContext<'_>,
    number: i64,
    reply: &mut DocBuilder,
) -> Result<(), Error> {
    let Some(session) = cx.session.clone() else {
        return (cx.command.run)(cx, reply);
    };
    let server = cx.server;
    let mut record = session.lock(&cx.op)?;
    let row = server
        .sessions
        .begin_retryable(&server.db, &session, &mut record, &cx.op, number)?;
    cx.op.set_write_origin(session.origin(number));
    cx.op.set_session_row(row);
    session.set_running(Some(cx.op.clone()));
    let result = (cx.command.run)(cx, reply);
    session.set_running(None);
    result
}

/// The document of `listCommands` for one row.
pub fn describe(command: &Command) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("help", command.help);
    out.append("requiresAuth", false);
    out.append("secondaryOk", command.kind != Kind::Write);
    out.append("adminOnly", command.admin_only);
    out.append("apiVersions", sheaf_bson::ArrayBuf::new().as_raw());
    out.append(
        "deprecatedApiVersions",
        sheaf_bson::ArrayBuf::new().as_raw(),
    );
    out.finish()
}
