//! `saslStart`, `saslContinue`, `authenticate`, and their counterparts in hello.
//!
//! Invariant: every login that fails has the same error, so that a client cannot learn which users
//! exist. The reason is in the log.

use std::sync::Arc;
use std::time::Duration;

use sheaf_auth::mechanism::Mechanisms;
use sheaf_auth::scram::server::{Conversation, Greeting};
use sheaf_auth::{Mechanism, UserName};
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, base64};

use crate::access::{Login, Step};
use crate::command::context::CommandContext;
use crate::command::fields;
use crate::log::Component;
use crate::parameters::Parameter;

/// The only conversation of a connection.
const CONVERSATION: i32 = 1;

/// The reply to one message of a login.
struct Answer {
    done: bool,
    payload: Vec<u8>,
}

impl Answer {
    fn append(&self, out: &mut DocBuilder) {
        out.append("conversationId", CONVERSATION);
        out.append("done", self.done);
        out.append(
            "payload",
            RawValue::Binary {
                subtype: 0,
                bytes: &self.payload,
            },
        );
    }
}

/// The arguments of `saslStart`.
#[derive(Default)]
struct Start<'a> {
    mechanism: Option<&'a str>,
    payload: Option<Vec<u8>>,
    db: Option<&'a str>,
    skips_empty_exchange: bool,
}

impl<'a> Start<'a> {
    /// Takes one argument. Returns whether it is one.
    fn take(&mut self, name: &str, element: &RawElement<'a>) -> Result<bool, Error> {
        match element.key() {
            "mechanism" => self.mechanism = Some(fields::string(name, element)?),
            "payload" => self.payload = Some(payload(name, element)?),
            "db" => self.db = Some(fields::string(name, element)?),
            // An argument of early clients, without effect.
            "autoAuthorize" => {}
            "options" => {
                let options = fields::document(name, element)?;
                for option in fields::given(options) {
                    match option.key() {
                        "skipEmptyExchange" => {
                            self.skips_empty_exchange =
                                fields::boolean("saslStart.options", &option)?;
                        }
                        other => return Err(fields::unknown_field("saslStart.options", other)),
                    }
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Bytes, which early clients send as base64.
fn payload(name: &str, element: &RawElement<'_>) -> Result<Vec<u8>, Error> {
    match element.value() {
        RawValue::Binary { bytes, .. } => Ok(bytes.to_vec()),
        RawValue::String(text) => base64::decode(text).ok_or_else(failed),
        _ => Err(fields::wrong_type(name, element, "binData")),
    }
}

/// Runs `saslStart`.
pub fn start(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "saslStart";
    let mut arguments = Start::default();
    for element in cx.arguments() {
        if element.key() == "db" || !arguments.take(NAME, &element)? {
            cx.unknown_field(&element)?;
        }
    }
    begin(cx, &arguments, cx.db)?.append(out);
    Ok(())
}

/// Runs `saslContinue`.
pub fn proceed(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "saslContinue";
    let (mut conversation, mut message) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "conversationId" => conversation = Some(fields::integer(NAME, &element)?),
            "payload" => message = Some(payload(NAME, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let conversation = fields::required(NAME, "conversationId", conversation)?;
    let message = fields::required(NAME, "payload", message)?;
    let login = cx.connection.authentication.login.take();
    let Some(login) = login else {
        return Err(Error::new(
            ErrorCode::PROTOCOL_ERROR,
            "No SASL session state found",
        ));
    };
    if conversation != i64::from(CONVERSATION) {
        return Err(Error::new(
            ErrorCode::PROTOCOL_ERROR,
            "sasl: Mismatched conversation id",
        ));
    }
    next(cx, login, &message)?.append(out);
    Ok(())
}

/// Runs `authenticate`, whose mechanisms the server does not have.
pub fn authenticate(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    let mechanism = cx.body.get("mechanism").and_then(|name| name.as_str());
    match mechanism {
        Some(name) if Mechanism::named(name).is_ok() => Err(Error::new(
            ErrorCode::MECHANISM_UNAVAILABLE,
            format!("'authenticate' does not run {name}: use saslStart"),
        )),
        name => {
            Err(Mechanism::named(name.unwrap_or("MONGODB-CR")).map_or_else(|e| e, |_| failed()))
        }
    }
}

/// Handles `speculativeAuthenticate` of hello. A login that cannot begin is not reported: the
/// client begins it again by `saslStart`. Errors: wrong types.
pub fn speculate(
    cx: &mut CommandContext<'_>,
    request: RawDoc<'_>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    const NAME: &str = "speculativeAuthenticate";
    let mut arguments = Start::default();
    let mut is_sasl = false;
    for element in fields::given(request) {
        match element.key() {
            "saslStart" => is_sasl = true,
            _ => drop(arguments.take(NAME, &element)?),
        }
    }
    let Some(db) = arguments.db.filter(|_| is_sasl) else {
        return Ok(());
    };
    if let Ok(answer) = begin(cx, &arguments, db) {
        out.begin_document(NAME);
        answer.append(out);
        out.end();
    }
    Ok(())
}

/// Appends `saslSupportedMechs`: the mechanisms of the user `db.user`.
/// Errors: `BadValue` for a name without a database.
pub fn append_mechanisms(
    cx: &CommandContext<'_>,
    user: &str,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let Some((db, user)) = user.split_once('.') else {
        return Err(Error::bad_value(
            "saslSupportedMechs must name a user as '<database>.<user>'",
        ));
    };
    let enabled = enabled(cx);
    let of_user = cx.server.users.mechanisms(&UserName::new(user, db))?;
    out.begin_array("saslSupportedMechs");
    for mechanism in of_user.into_iter().rev() {
        if enabled.contains(mechanism) {
            out.push(mechanism.name());
        }
    }
    out.end();
    Ok(())
}

/// The mechanisms that logins may use.
pub fn enabled(cx: &CommandContext<'_>) -> Mechanisms {
    let bits = cx
        .server
        .parameters
        .int(Parameter::AuthenticationMechanisms);
    Mechanisms::from_bits(bits.unsigned_abs())
}

/// The first message of a login.
/// Errors: `MechanismUnavailable`; [`failed`].
fn begin(cx: &mut CommandContext<'_>, start: &Start<'_>, db: &str) -> Result<Answer, Error> {
    const NAME: &str = "saslStart";
    cx.connection.authentication.login = None;
    let mechanism = Mechanism::named(fields::required(NAME, "mechanism", start.mechanism)?)?;
    if !enabled(cx).contains(mechanism) {
        return Err(Error::new(
            ErrorCode::MECHANISM_UNAVAILABLE,
            format!(
                "authentication mechanism '{}' is disabled by authenticationMechanisms",
                mechanism.name()
            ),
        ));
    }
    let Some(message) = &start.payload else {
        return Err(fields::missing(NAME, "payload"));
    };
    let Some(greeting) = Greeting::read(mechanism, message) else {
        return Err(refuse(cx, mechanism, &UserName::new("", db), "malformed"));
    };
    let name = UserName::new(greeting.user.as_str(), db);
    let count = cx.server.parameters.int(iterations(mechanism));
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let keys = cx.server.users.credentials(mechanism, &name, count)?;
    let (conversation, answer) = Conversation::start(greeting, keys)?;
    cx.connection.authentication.login = Some(Login {
        mechanism,
        name,
        skips_empty_exchange: start.skips_empty_exchange,
        step: Step::Proof(Box::new(conversation)),
    });
    Ok(Answer {
        done: false,
        payload: answer.into_bytes(),
    })
}

/// The parameter with the iterations of new keys.
pub fn iterations(mechanism: Mechanism) -> Parameter {
    match mechanism {
        Mechanism::ScramSha1 => Parameter::ScramIterationCount,
        Mechanism::ScramSha256 => Parameter::ScramSha256IterationCount,
    }
}

/// A later message of a login.
/// Errors: [`failed`].
fn next(cx: &mut CommandContext<'_>, login: Login, message: &[u8]) -> Result<Answer, Error> {
    let conversation = match &login.step {
        Step::Proof(conversation) => conversation,
        Step::Acknowledgement if message.is_empty() => {
            succeed(cx, login)?;
            return Ok(Answer {
                done: true,
                payload: Vec::new(),
            });
        }
        Step::Acknowledgement => {
            return Err(refuse(cx, login.mechanism, &login.name, "malformed"));
        }
    };
    let Ok(signature) = conversation.finish(message) else {
        return Err(refuse(cx, login.mechanism, &login.name, "wrong proof"));
    };
    let done = login.skips_empty_exchange;
    if done {
        succeed(cx, login)?;
    } else {
        cx.connection.authentication.login = Some(Login {
            step: Step::Acknowledgement,
            ..login
        });
    }
    Ok(Answer {
        done,
        payload: signature.into_bytes(),
    })
}

/// The connection belongs to the user from now on.
/// Errors: [`failed`] if the user has been dropped, or may not connect from its address.
fn succeed(cx: &mut CommandContext<'_>, login: Login) -> Result<(), Error> {
    let user = cx.server.users.log_in(&login.name)?;
    let Some(user) = user.filter(|user| user.may_connect(cx.connection.client.ends())) else {
        return Err(refuse(
            cx,
            login.mechanism,
            &login.name,
            "not from this address",
        ));
    };
    cx.server.log.info(
        Component::AccessControl,
        5_286_306,
        "Successfully authenticated",
        |attr| {
            attr.append("client", cx.connection.client.remote().as_str());
            attr.append("isSpeculative", false);
            attr.append("mechanism", login.mechanism.name());
            attr.append("user", login.name.user.as_str());
            attr.append("db", login.name.db.as_str());
        },
    );
    cx.connection.operations.set_user(Some(user.name.clone()));
    cx.connection.authentication.user = Some(Arc::new(user));
    Ok(())
}

/// Logs a failed login, waits for `authFailedDelayMs`, and returns the error.
fn refuse(
    cx: &CommandContext<'_>,
    mechanism: Mechanism,
    name: &UserName,
    reason: &'static str,
) -> Error {
    cx.server.log.info(
        Component::AccessControl,
        5_286_307,
        "Failed to authenticate",
        |attr| {
            attr.append("client", cx.connection.client.remote().as_str());
            attr.append("mechanism", mechanism.name());
            attr.append("user", name.user.as_str());
            attr.append("db", name.db.as_str());
            attr.append("error", reason);
        },
    );
    let delay = cx.server.parameters.int(Parameter::AuthFailedDelayMs);
    if delay > 0 {
        let delay = Duration::from_millis(delay.unsigned_abs());
        cx.connection.client.wait_until_gone(delay);
    }
    failed()
}

/// The error of every login that fails.
fn failed() -> Error {
    Error::new(ErrorCode::AUTHENTICATION_FAILED, "Authentication failed.")
}
