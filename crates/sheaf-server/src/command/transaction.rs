//! Transactions: checks of their statements, `commitTransaction`, `abortTransaction`.
//!
//! The arguments `txnNumber`, `autocommit` and `startTransaction` make a command a statement of a
//! transaction; see the transactions specification of the drivers and the manual, "Transactions and
//! Operations".

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::system_names::is_internal_database;
use sheaf_db::txn::Isolation;

use super::context::CommandContext;
use super::fields::unknown_field;
use super::generic_arguments::{GenericArguments, RawTransactionArguments, arguments};
use super::write_reply::append_write_concern;
use super::{Command, stage_facts};
use crate::command_facts::{InTransaction, Names};
use crate::parameters::Parameter;
use crate::server::Server;
use crate::session::logical::{LogicalSession, TransactionArguments};

/// How a transaction number affects a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// The command has no transaction number.
    Not,
    /// A statement of a transaction.
    Statement(TransactionArguments),
    /// A retryable write with this number.
    Retryable(i64),
}

impl RawTransactionArguments {
    /// Checks the arguments against each other and the rest of the command.
    ///
    /// Errors: `InvalidOptions`, `OperationNotSupportedInTransaction`.
    pub fn check(
        self,
        command: &Command,
        db: &str,
        body: RawDoc<'_>,
        generic: &GenericArguments<'_>,
    ) -> Result<Numbered, Error> {
        if command.transaction == InTransaction::End {
            check_arguments(command, body)?;
        }
        let Some(number) = self.number else {
            return self.check_without_number(command);
        };
        if generic.lsid.is_none() {
            return invalid("Transaction number requires a session ID to also be specified");
        }
        if number < 0 {
            return invalid("Transaction number cannot be negative");
        }
        match (self.autocommit, self.start) {
            (None, None) if command.retryable => return Ok(Numbered::Retryable(number)),
            (None, None) => return Err(not_retryable(command)),
            (None, Some(_)) => return invalid(START_WITHOUT_AUTOCOMMIT),
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed."),
            (Some(false), Some(false)) => {
                return invalid("Specifying startTransaction=false is not allowed.");
            }
            (Some(false), _) => {}
        }
        let starts = self.start.is_some();
        check_command(command, db, body, starts)?;
        check_concerns(command, generic, starts)?;
        if command.transaction == InTransaction::Pipeline {
            check_stages(body)?;
        }
        Ok(Numbered::Statement(TransactionArguments { number, starts }))
    }

    fn check_without_number(self, command: &Command) -> Result<Numbered, Error> {
        if self.autocommit.is_some() {
            return invalid(
                "'autocommit' field requires a transaction number to also be specified",
            );
        }
        if self.start.is_some() {
            return invalid(START_WITHOUT_AUTOCOMMIT);
        }
        if command.transaction == InTransaction::End {
            return Err(Error::new(
                ErrorCode::COMMAND_FAILED,
                format!("{} must be run within a transaction", command.name),
            ));
        }
        Ok(Numbered::Not)
    }
}

const START_WITHOUT_AUTOCOMMIT: &str =
    "'startTransaction' field requires 'autocommit' field to also be specified";

fn invalid<T>(message: &str) -> Result<T, Error> {
    Err(Error::new(ErrorCode::INVALID_OPTIONS, message))
}

fn not_retryable(command: &Command) -> Error {
    Error::new(
        ErrorCode(50768),
        format!(
            "txnNumber may only be provided for multi-document transactions and retryable write \
             commands. autocommit:false was not provided, and {} is not a retryable write command.",
            command.name
        ),
    )
}

/// Whether a command may be a statement of a transaction, or its first one.
fn check_command(command: &Command, db: &str, body: RawDoc<'_>, starts: bool) -> Result<(), Error> {
    let ends = command.transaction == InTransaction::End;
    if command.transaction == InTransaction::Refused {
        return unsupported(format!(
            "Cannot run '{}' in a multi-document transaction.",
            command.name
        ));
    }
    if starts && ends {
        return invalid(
            "startTransaction is not allowed with commitTransaction or abortTransaction",
        );
    }
    if starts && command.transaction == InTransaction::LaterStatement {
        return unsupported(format!(
            "Cannot run {} as the first operation in a transaction.",
            command.name
        ));
    }
    // A bulkWrite names its databases elsewhere and checks them itself; the same holds for its
    // cursors.
    let of_bulk_write = match command.collection {
        Names::NsInfo => true,
        Names::Field(field) => body.get(field) == Some(RawValue::String("$cmd.bulkWrite")),
        Names::Nothing | Names::First | Names::FullName => false,
    };
    if !ends && !of_bulk_write && is_internal_database(db) {
        return unsupported(format!(
            "Cannot run command against the '{db}' database in a transaction."
        ));
    }
    Ok(())
}

fn check_concerns(
    command: &Command,
    generic: &GenericArguments<'_>,
    starts: bool,
) -> Result<(), Error> {
    if generic.read_concern.given && !starts {
        return invalid("Only the first command in a transaction may specify a readConcern");
    }
    if let Some(level) = generic.read_concern.level
        && !matches!(level, "local" | "majority" | "snapshot" | "serializable")
    {
        return invalid(
            "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order \
             to run in a transaction",
        );
    }
    if generic.has_write_concern && command.transaction != InTransaction::End {
        return invalid("writeConcern is not allowed within a multi-statement transaction");
    }
    Ok(())
}

fn unsupported<T>(message: String) -> Result<T, Error> {
    Err(Error::new(
        ErrorCode::OPERATION_NOT_SUPPORTED_IN_TRANSACTION,
        message,
    ))
}

fn check_stages(body: RawDoc<'_>) -> Result<(), Error> {
    if body.get("explain").is_some() {
        return unsupported("Cannot run 'explain' in a multi-document transaction.".into());
    }
    let Some(RawValue::Array(stages)) = body.get("pipeline") else {
        return Ok(());
    };
    for stage in stages.iter() {
        if let RawValue::Document(stage) = stage
            && let Some(first) = stage.first()
            && !stage_facts::of(first.key()).in_transaction
        {
            return unsupported(format!(
                "Operation not permitted in transaction :: caused by :: Aggregation stage {} cannot run \
                 within a multi-document transaction.",
                first.key()
            ));
        }
    }
    Ok(())
}

/// Adds the label `TransientTransactionError`, on which drivers retry the whole transaction, to the
/// error of a statement if a retry can succeed.
pub fn statement_error(error: Error) -> Error {
    let transient = matches!(
        error.code(),
        ErrorCode::WRITE_CONFLICT
            | ErrorCode::LOCK_TIMEOUT
            | ErrorCode::SNAPSHOT_UNAVAILABLE
            | ErrorCode::SNAPSHOT_TOO_OLD
            | ErrorCode::NO_SUCH_TRANSACTION
            | ErrorCode::TRANSACTION_EXCEEDED_LIFETIME_LIMIT_SECONDS
            | ErrorCode::INTERRUPTED_AT_SHUTDOWN
            | ErrorCode::SHUTDOWN_IN_PROGRESS
    );
    match transient {
        true => error.with_label(label::TRANSIENT_TRANSACTION),
        false => error,
    }
}

/// The isolation that the command requests for its transaction, or the server's default.
pub fn isolation(cx: &CommandContext<'_>) -> Isolation {
    let by_default = Parameter::SerializableTransactionsByDefault;
    match cx.generic.read_concern.level {
        Some("serializable") => Isolation::Serializable,
        Some("snapshot") => Isolation::Snapshot,
        _ if cx.server.parameters.bool(by_default) => Isolation::Serializable,
        _ => Isolation::Snapshot,
    }
}

/// `maxTransactionLockRequestTimeoutMillis`.
pub fn lock_wait(server: &Server) -> Duration {
    let millis = server
        .parameters
        .int(Parameter::MaxTransactionLockRequestTimeoutMillis);
    // Negative: no limit except that of the operation.
    u64::try_from(millis).map_or(Duration::MAX, Duration::from_millis)
}

/// The statement ids of a retryable write: `stmtIds`, or consecutive from `stmtId`, or from 0.
/// Errors: wrong types; `InvalidOptions` if `stmtIds` does not have `count` elements.
pub fn statement_ids(body: RawDoc<'_>, count: usize) -> Result<Vec<i32>, Error> {
    let first = match body.get("stmtId") {
        None => 0,
        Some(RawValue::Int32(first)) => first,
        Some(_) => return Err(wrong_statement_id("stmtId", "int")),
    };
    let Some(ids) = body.get("stmtIds") else {
        return Ok((0..count).map(|n| first.saturating_add(n as i32)).collect());
    };
    let RawValue::Array(ids) = ids else {
        return Err(wrong_statement_id("stmtIds", "array"));
    };
    let ids: Option<Vec<i32>> = ids
        .iter()
        .map(|id| match id {
            RawValue::Int32(id) => Some(id),
            _ => None,
        })
        .collect();
    match ids {
        Some(ids) if ids.len() == count => Ok(ids),
        _ => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("Number of statement ids must match the number of batch entries, {count}"),
        )),
    }
}

fn wrong_statement_id(field: &str, expected: &str) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!("BSON field '{field}' is the wrong type, expected type '{expected}'"),
    )
}

/// Appends `retriedStmtIds`, the ids of the statements that had been executed before.
pub fn append_retried(retried: &[i32], out: &mut DocBuilder) {
    if retried.is_empty() {
        return;
    }
    out.begin_array("retriedStmtIds");
    for id in retried {
        out.push(*id);
    }
    out.end();
}

fn session<'c>(
    cx: &'c CommandContext<'_>,
) -> Result<(&'c Arc<LogicalSession>, TransactionArguments), Error> {
    match (&cx.session, cx.transaction) {
        (Some(session), Some(arguments)) => Ok((session, arguments)),
        _ => Err(Error::new(
            ErrorCode::COMMAND_FAILED,
            format!("{} must be run within a transaction", cx.name()),
        )),
    }
}

/// Runs `commitTransaction`: all writes of the session's transaction become visible atomically.
pub fn commit(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let (session, arguments) = session(cx)?;
    let sessions = &cx.server.sessions;
    sessions
        .commit(&cx.server.db, session, &cx.op, arguments.number)
        .map_err(statement_error)?;
    append_write_concern(cx, out);
    Ok(())
}

/// Runs `abortTransaction`: rolls back the session's transaction.
pub fn abort(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let (session, arguments) = session(cx)?;
    let sessions = &cx.server.sessions;
    sessions
        .abort_by_client(session, &cx.op, arguments.number)
        .map_err(statement_error)
}

/// Errors: an argument that neither commitTransaction nor abortTransaction has; checked before
/// whether there is a transaction to end.
fn check_arguments(command: &Command, body: RawDoc<'_>) -> Result<(), Error> {
    // `recoveryToken` is meaningful on shards, and sent by some drivers after a failover.
    let mut unknown = arguments(body).filter(|element| element.key() != "recoveryToken");
    match unknown.next() {
        None => Ok(()),
        Some(element) => Err(unknown_field(command.name, element.key())),
    }
}
