//! `setParameter`: changes parameters of the running server.

use sheaf_bson::{DocBuilder, Error, ErrorCode, RawElement, RawValue};

use super::context::CommandContext;
use super::fields;
use crate::log::Component;
use crate::parameters::{self, Parameters};

/// Log verbosity by component; unlike other parameters its value is a document.
pub const LOG_COMPONENT_VERBOSITY: &str = "logComponentVerbosity";

/// Shown like a parameter; another command sets it.
pub const FEATURE_COMPATIBILITY_VERSION: &str = "featureCompatibilityVersion";

/// Runs the command. An unknown name fails it before anything is set. The parameters are then set
/// in order: an invalid value leaves the preceding ones set.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let elements: Vec<RawElement<'_>> = cx.arguments_as_sent().collect();
    if elements.is_empty() {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "no option found to set, use help:true to see options",
        ));
    }
    if elements
        .iter()
        .any(|element| element.key() == FEATURE_COMPATIBILITY_VERSION)
    {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "featureCompatibilityVersion is set by setFeatureCompatibilityVersion",
        ));
    }
    let known =
        |name| Parameters::knows(name) || name == "logLevel" || name == LOG_COMPONENT_VERBOSITY;
    if let Some(element) = elements.iter().find(|element| !known(element.key())) {
        return Err(parameters::unknown(element.key()));
    }
    for element in elements {
        match element.key() {
            "logLevel" => {
                let level = match element.value() {
                    RawValue::Boolean(given) => i64::from(given),
                    _ => fields::integer("setParameter", &element)?,
                };
                if !(0..=5).contains(&level) {
                    return Err(Error::bad_value("logLevel must be within [0, 5]"));
                }
                out.append("was", i32::from(cx.server.log.default_verbosity()));
                cx.server.log.set_verbosity(Component::Default, level as i8);
            }
            LOG_COMPONENT_VERBOSITY => {
                out.append_bson("was", &cx.server.log.component_verbosity());
                let wanted = fields::document("setParameter", &element)?;
                cx.server.log.set_component_verbosity(wanted)?;
            }
            name => {
                let value = element.value();
                cx.server.parameters.set(name, value, false, Some(out))?;
                cx.server.parameters_changed()?;
            }
        }
    }
    Ok(())
}
