//! Errors of scripts, and of conversions between BSON and JavaScript.

use rquickjs::{Ctx, Value as JsValue};
use sheaf_bson::error_code::{Error, ErrorCode};

/// Maximum length of an exception's text in an error message, in bytes.
const TEXT_BYTES_MAX: usize = 2048;

/// Why a step failed: in the engine, or in a conversion.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An exception is pending, or the engine failed.
    Script(rquickjs::Error),
    /// A client error.
    Client(Error),
}

impl From<rquickjs::Error> for Failure {
    fn from(error: rquickjs::Error) -> Failure {
        Failure::Script(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Client(error)
    }
}

/// JSInterpreterFailure with this message.
pub(crate) fn interpreter(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::JS_INTERPRETER_FAILURE, message)
}

/// The error of a failed engine call. Takes the pending exception.
pub(crate) fn describe(ctx: &Ctx<'_>, error: &rquickjs::Error) -> Error {
    if !error.is_exception() {
        let pending = ctx.catch();
        drop(pending);
        return interpreter(format!("the JavaScript engine failed: {error}"));
    }
    let exception = ctx.catch();
    let mut text = message_of(&exception).unwrap_or_else(|| "unknown exception".to_owned());
    // The script computes the text, which may throw another exception.
    drop(ctx.catch());
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    interpreter(text)
}

/// `TypeError: x is not a function` for an error, the text of other primitives.
fn message_of(exception: &JsValue<'_>) -> Option<String> {
    if let Some(text) = exception.as_string() {
        return Some(format!("uncaught exception: {}", text.to_string().ok()?));
    }
    if exception.is_null() {
        // The engine had no memory left for an error object.
        return Some("InternalError: out of memory".to_owned());
    }
    if let Some(object) = exception.as_object() {
        let part = |name| -> Option<String> {
            let value: JsValue<'_> = object.get(name).ok()?;
            value.as_string()?.to_string().ok()
        };
        return Some(match (part("name"), part("message")) {
            (Some(name), Some(message)) => format!("{name}: {message}"),
            (_, Some(message)) => message,
            _ => "uncaught exception: an object".to_owned(),
        });
    }
    let text = match (exception.as_number(), exception.as_bool()) {
        (Some(number), _) => number.to_string(),
        (_, Some(truth)) => truth.to_string(),
        _ => exception.type_name().to_owned(),
    };
    Some(format!("uncaught exception: {text}"))
}
