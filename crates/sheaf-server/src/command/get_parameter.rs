//! `getParameter`: server parameters, one, some or all.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawValue};

use super::context::CommandContext;
use super::fields;
use super::set_parameter::LOG_COMPONENT_VERBOSITY;

/// A read-only value that is requested like a parameter.
const FEATURE_COMPATIBILITY_VERSION: &str = "featureCompatibilityVersion";

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let mut all = false;
    match cx.first()?.value() {
        RawValue::String("*") => all = true,
        RawValue::Document(options) => {
            for element in options.iter() {
                match element.key() {
                    "allParameters" => all = fields::boolean("getParameter", &element)?,
                    "showDetails" => {
                        if fields::boolean("getParameter", &element)? {
                            return Err(Error::new(
                                ErrorCode::NOT_IMPLEMENTED,
                                "getParameter.showDetails is not supported",
                            ));
                        }
                    }
                    other => return Err(super::fields::unknown_field("getParameter", other)),
                }
            }
        }
        _ => {}
    }
    if all {
        cx.server.parameters.append_all(out);
        append_special(cx, FEATURE_COMPATIBILITY_VERSION, out);
        append_special(cx, "logLevel", out);
        append_special(cx, LOG_COMPONENT_VERBOSITY, out);
        return Ok(());
    }
    let mut found = false;
    for element in cx.arguments_as_sent() {
        let name = element.key();
        found |= cx.server.parameters.append(name, out) || append_special(cx, name, out);
    }
    if found {
        Ok(())
    } else {
        Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "no option found to get",
        ))
    }
}

fn append_special(cx: &CommandContext<'_>, name: &str, out: &mut DocBuilder) -> bool {
    match name {
        FEATURE_COMPATIBILITY_VERSION => {
            out.begin_document(name);
            out.append("version", "8.2");
            out.end();
        }
        "logLevel" => {
            out.append(name, i32::from(cx.server.log.default_verbosity()));
        }
        LOG_COMPONENT_VERBOSITY => {
            out.append_bson(name, &cx.server.log.component_verbosity());
        }
        _ => return false,
    }
    true
}
