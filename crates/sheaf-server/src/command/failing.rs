//! Applies fail points to commands.

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc};

use super::context::CommandContext;
use super::fields;
use super::generic_arguments::GenericArguments;
use super::hello;
use crate::command_facts::{Command, InTransaction};
use crate::connection::ConnectionState;
use crate::fail_points::{Asking, FailPoint, Failure, Mode};
use crate::parameters::Parameter;
use crate::server::Server;

/// Codes after which a driver may send a retryable write again.
const RETRYABLE_CODES: [i32; 13] = [
    6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436,
];

/// Codes of a transaction that has no effect: it may be run again, even if its commit fails so.
const TRANSIENT_CODES: [i32; 5] = [24, 112, 246, 251, 267];

/// Runs `configureFailPoint`.
///
/// Errors: `CommandNotFound` unless the server was started with `enableTestCommands`; those of the
/// arguments.
pub fn configure(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "configureFailPoint";
    if !cx.server.parameters.bool(Parameter::EnableTestCommands) {
        return Err(Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("no such command: '{NAME}'"),
        ));
    }
    let name = fields::string(NAME, &cx.first_given()?)?;
    let (mut mode, mut data) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "mode" => mode = Some(Mode::parse(element.value())?),
            "data" => data = Some(fields::document(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let mode = fields::required(NAME, "mode", mode)?;
    let data = data.map(|data| data.to_buf()).unwrap_or_default();
    let entered = cx.server.fail_points.set(name, mode, data)?;
    out.append("count", i32::try_from(entered).unwrap_or(i32::MAX));
    Ok(())
}

/// Applies `failCommand` and `maxTimeAlwaysTimeOut` before a command runs: waits, fails it, or
/// marks the connection to be closed. `None` if the command is to run normally.
///
/// Errors: the one that was configured.
pub fn before(
    server: &Server,
    connection: &mut ConnectionState,
    command: &Command,
    spelling: &str,
    body: RawDoc<'_>,
    generic: &GenericArguments<'_>,
) -> Result<Option<Failure>, Error> {
    // The handshake itself is matched by the name that it introduces.
    let app_name = match hello::application_name(body) {
        Some(name) if connection.client_metadata.is_none() => name.to_owned(),
        _ => connection.operations.app_name(),
    };
    let asking = Asking {
        spelling,
        name: command.name,
        app_name: &app_name,
        namespace: None,
    };
    let points = &server.fail_points;
    if generic.max_time.is_some() && points.enter(FailPoint::MaxTime, &asking).is_some() {
        return Err(out_of_time());
    }
    let Some(data) = points.enter(FailPoint::Command, &asking) else {
        return Ok(None);
    };
    let mut failure = Failure::of(data.as_raw());
    failure.is_retryable_write = is_retryable_write(command, generic);
    if let Some(block) = failure.block {
        std::thread::sleep(block);
    }
    if failure.closes {
        connection.drops = true;
        return Err(Error::new(ErrorCode(6), "the connection is closed"));
    }
    match failure.error.take() {
        Some(error) => Err(labelled(error, &failure, command, generic)),
        None => Ok(Some(failure)),
    }
}

fn out_of_time() -> Error {
    let message = "operation exceeded time limit";
    Error::new(ErrorCode::MAX_TIME_MS_EXPIRED, message)
}

/// Whether a driver may send the command again: a write with a number outside a transaction, or
/// the end of a transaction.
fn is_retryable_write(command: &Command, generic: &GenericArguments<'_>) -> bool {
    let numbers = &generic.transaction;
    let ends = command.transaction == InTransaction::End;
    numbers.number.is_some() && (ends || numbers.autocommit != Some(false))
}

/// The error with the labels that the server gives it, unless the test gave its own.
fn labelled(
    error: Error,
    failure: &Failure,
    command: &Command,
    generic: &GenericArguments<'_>,
) -> Error {
    let numbers = &generic.transaction;
    if failure.labels.is_some() || numbers.number.is_none() {
        return error;
    }
    let retryable = RETRYABLE_CODES.contains(&error.code().0);
    let transient = TRANSIENT_CODES.contains(&error.code().0);
    let may_send_again = is_retryable_write(command, generic);
    if retryable && may_send_again {
        error.with_label(label::RETRYABLE_WRITE)
    } else if numbers.autocommit == Some(false) && (transient || retryable) {
        error.with_label(label::TRANSIENT_TRANSACTION)
    } else {
        error
    }
}

/// Appends the write concern error that `failCommand` configures to the reply of a command.
pub fn after(failure: &Failure, out: &mut DocBuilder) {
    let Some(error) = &failure.write_concern_error else {
        return;
    };
    out.append_bson("writeConcernError", error);
    let code = error.get("code").and_then(|code| code.as_i64_exact());
    let retryable =
        code.is_some_and(|code| RETRYABLE_CODES.iter().any(|own| i64::from(*own) == code));
    let labels = match &failure.labels {
        Some(labels) => labels.clone(),
        None if retryable && failure.is_retryable_write => vec![label::RETRYABLE_WRITE.to_owned()],
        None => Vec::new(),
    };
    if !labels.is_empty() {
        out.begin_array("errorLabels");
        for label in &labels {
            out.push(label.as_str());
        }
        out.end();
    }
}

/// Applies `onPrimaryTransactionalWrite` to `statements` statements that no earlier try executed:
/// fails them before they write, or closes the connection after the command.
///
/// Errors: the one that was configured.
pub fn transactional_write(cx: &mut CommandContext<'_>, statements: usize) -> Result<(), Error> {
    for _ in 0..statements {
        let asking = asking(cx);
        let point = FailPoint::TransactionalWrite;
        let Some(data) = cx.server.fail_points.enter(point, &asking) else {
            continue;
        };
        let closes = data.get("closeConnection");
        cx.connection.drops |= closes.is_none_or(|value| value.is_truthy());
        let code = data.get("failBeforeCommitExceptionCode");
        let Some(code) = code.and_then(|code| code.as_i64_exact()) else {
            continue;
        };
        let code = i32::try_from(code).unwrap_or(1);
        let message = "Failing write for onPrimaryTransactionalWrite fail point";
        let error = Error::new(ErrorCode(code), message);
        return Err(match RETRYABLE_CODES.contains(&code) {
            true => error.with_label(label::RETRYABLE_WRITE),
            false => error,
        });
    }
    Ok(())
}

/// Applies `maxTimeAlwaysTimeOut`, if the cursor has a time limit, and
/// `failGetMoreAfterCursorCheckout` to a getMore that has checked out its cursor.
///
/// Errors: the one that was configured.
pub fn get_more(cx: &mut CommandContext<'_>, is_limited: bool) -> Result<(), Error> {
    let points = &cx.server.fail_points;
    if !points.is_any_on() {
        return Ok(());
    }
    let asking = asking(cx);
    if is_limited && points.enter(FailPoint::MaxTime, &asking).is_some() {
        return Err(out_of_time());
    }
    let Some(data) = points.enter(FailPoint::GetMore, &asking) else {
        return Ok(());
    };
    let failure = Failure::of(data.as_raw());
    cx.connection.drops |= failure.closes;
    match failure.error {
        Some(error) => Err(Error::new(
            error.code(),
            "Hit the 'failGetMoreAfterCursorCheckout' failpoint",
        )),
        None => Ok(()),
    }
}

/// What a fail point for commands of any name compares.
fn asking<'a>(cx: &CommandContext<'a>) -> Asking<'a> {
    Asking {
        spelling: "",
        name: cx.command.name,
        app_name: "",
        namespace: None,
    }
}
