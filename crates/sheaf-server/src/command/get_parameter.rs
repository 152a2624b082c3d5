//! `getParameter`: server parameters, one, some or all.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;
use super::fields;
use super::set_parameter::{FEATURE_COMPATIBILITY_VERSION, LOG_COMPONENT_VERBOSITY};
use crate::access::AUTH_SCHEMA_VERSION;
use crate::parameters::{Parameters, SetAt};

/// Values that are shown like parameters and are kept elsewhere, with when they can be set.
const SPECIAL: [(&str, SetAt); 4] = [
    (AUTH_SCHEMA, SetAt::NEVER),
    (FEATURE_COMPATIBILITY_VERSION, SetAt::NEVER),
    ("logLevel", SetAt::ANY),
    (LOG_COMPONENT_VERBOSITY, SetAt::ANY),
];

/// The version of the shape of stored users.
const AUTH_SCHEMA: &str = "authSchemaVersion";

/// The first field: which parameters are shown, and how.
#[derive(Default)]
struct Request {
    all: bool,
    details: bool,
    /// Only what can be set then.
    settable: Option<SetAt>,
}

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let request = Request::parse(cx.first()?.value())?;
    if request.all {
        let special = SPECIAL.iter().map(|(name, _)| *name);
        let mut names: Vec<&str> = Parameters::names().chain(special).collect();
        names.sort_unstable();
        for name in names {
            append(cx, &request, name, out);
        }
        return Ok(());
    }
    let mut found = false;
    for element in cx.arguments_as_sent() {
        found |= append(cx, &request, element.key(), out);
    }
    match found {
        true => Ok(()),
        false => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "no option found to get",
        )),
    }
}

impl Request {
    fn parse(value: RawValue<'_>) -> Result<Request, Error> {
        const NAME: &str = "getParameter";
        let mut request = Request::default();
        match value {
            RawValue::String("*") => request.all = true,
            RawValue::Document(options) => {
                for element in fields::given(options) {
                    match element.key() {
                        "allParameters" => {
                            request.all = fields::boolean(NAME, &element)?;
                        }
                        "showDetails" => {
                            request.details = fields::boolean(NAME, &element)?;
                        }
                        "setAt" => {
                            request.settable = Some(set_at(fields::string(NAME, &element)?)?);
                        }
                        other => return Err(super::fields::unknown_field(NAME, other)),
                    }
                }
            }
            _ => {}
        }
        Ok(request)
    }

    /// Whether a parameter that can be set at these times is shown.
    fn shows(&self, at: SetAt) -> bool {
        self.settable
            .is_none_or(|wanted| (at.startup && wanted.startup) || (at.runtime && wanted.runtime))
    }
}

/// Parses `setAt`. Errors: `BadValue`.
fn set_at(name: &str) -> Result<SetAt, Error> {
    match name {
        "startup" => Ok(SetAt {
            startup: true,
            runtime: false,
        }),
        "runtime" => Ok(SetAt {
            startup: false,
            runtime: true,
        }),
        _ => Err(Error::bad_value(format!(
            "Enumeration value '{name}' for field 'getParameter.setAt' is not a valid value."
        ))),
    }
}

/// Appends a parameter as the request shows it; false if there is none of this name.
fn append(cx: &CommandContext<'_>, request: &Request, name: &str, out: &mut DocBuilder) -> bool {
    let special = SPECIAL.iter().find(|(known, _)| *known == name);
    let Some(at) = special.map(|(_, at)| *at).or(Parameters::set_at(name)) else {
        return false;
    };
    if !request.shows(at) {
        return false;
    }
    if !request.details {
        append_value(cx, name, name, out);
        return true;
    }
    out.begin_document(name);
    append_value(cx, name, "value", out);
    out.append("settableAtRuntime", at.runtime);
    out.append("settableAtStartup", at.startup);
    out.end();
    true
}

fn append_value(cx: &CommandContext<'_>, name: &str, key: &str, out: &mut DocBuilder) {
    match name {
        FEATURE_COMPATIBILITY_VERSION => {
            out.begin_document(key);
            out.append("version", cx.server.feature_compatibility.version());
            out.end();
        }
        AUTH_SCHEMA => drop(out.append(key, AUTH_SCHEMA_VERSION)),
        "logLevel" => {
            out.append(key, i32::from(cx.server.log.default_verbosity()));
        }
        LOG_COMPONENT_VERBOSITY => {
            out.append_bson(key, &cx.server.log.component_verbosity());
        }
        _ => cx.server.parameters.append_value(name, key, out),
    }
}
