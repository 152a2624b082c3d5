//! What fail points do to the commands that they are meant for.

use sheaf_bson::error_code::label;
use sheaf_bson::{DocBuilder, Error, ErrorCode};

use super::context::CommandContext;
use super::fields;
use super::generic_arguments::GenericArguments;
use crate::command_facts::Command;
use crate::connection::ConnectionState;
use crate::fail_points::{Asking, FailPoint, Failure, Mode};
use crate::parameters::Parameter;
use crate::server::Server;

/// Codes after which a driver may send a retryable write again.
const RETRYABLE_CODES: [i32; 13] = [
    6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436,
];

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

/// Applies `failCommand` and `maxTimeAlwaysTimeOut` before a command runs: waits, fails it, or marks
/// the connection to be closed. `None` if it shall run as always.
///
/// Errors: the one that was configured.
pub fn before(
    server: &Server,
    connection: &mut ConnectionState,
    command: &Command,
    spelling: &str,
    generic: &GenericArguments<'_>,
) -> Result<Option<Failure>, Error> {
    let app_name = connection.operations.app_name();
    let asking = Asking {
        spelling,
        name: command.name,
        app_name: &app_name,
        namespace: None,
    };
    let points = &server.fail_points;
    if generic.max_time.is_some() && points.enter(FailPoint::MaxTime, &asking).is_some() {
        return Err(Error::new(
            ErrorCode::MAX_TIME_MS_EXPIRED,
            "operation exceeded time limit",
        ));
    }
    let Some(data) = points.enter(FailPoint::Command, &asking) else {
        return Ok(None);
    };
    let mut failure = Failure::of(data.as_raw());
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
    let in_transaction = numbers.autocommit == Some(false);
    let is_end = command.transaction == crate::command_facts::InTransaction::End;
    let retryable = RETRYABLE_CODES.contains(&error.code().0);
    let transient = retryable || matches!(error.code().0, 24 | 112 | 246 | 251);
    match (in_transaction, is_end) {
        (true, false) if transient => error.with_label(label::TRANSIENT_TRANSACTION),
        (true, true) | (false, false) if retryable => error.with_label(label::RETRYABLE_WRITE),
        _ => error,
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
        None if retryable => vec![label::RETRYABLE_WRITE.to_owned()],
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

/// Applies `onPrimaryTransactionalWrite` to a retryable write: fails it before it writes, or runs
/// it and closes the connection.
///
/// Errors: the one that was configured.
pub fn transactional_write(cx: &mut CommandContext<'_>) -> Result<(), Error> {
    let asking = Asking {
        spelling: "",
        name: cx.command.name,
        app_name: "",
        namespace: None,
    };
    let point = FailPoint::TransactionalWrite;
    let Some(data) = cx.server.fail_points.enter(point, &asking) else {
        return Ok(());
    };
    let code = data.get("failBeforeCommitExceptionCode");
    if let Some(code) = code.and_then(|code| code.as_i64_exact()) {
        let error = Error::new(
            ErrorCode(i32::try_from(code).unwrap_or(1)),
            "Failing write for onPrimaryTransactionalWrite fail point",
        );
        let retryable = RETRYABLE_CODES.iter().any(|own| i64::from(*own) == code);
        return Err(match retryable {
            true => error.with_label(label::RETRYABLE_WRITE),
            false => error,
        });
    }
    // Without `closeConnection: false` the connection is closed after the write.
    cx.connection.drops = data
        .get("closeConnection")
        .is_none_or(|value| value.is_truthy());
    Ok(())
}
