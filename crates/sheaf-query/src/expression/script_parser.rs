//! Parses the operators that run a user's function; see `script.rs`.

use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;

use super::parser::{Arguments, Parser};
use super::script::ScriptExpression;
use super::{Expression, location};
use crate::javascript::Script;

/// The text of a function. Errors (`code`): another type.
pub(crate) fn function_source<'a>(name: &str, value: RawValue<'a>, code: i32) -> Result<&'a str> {
    Script::source_of(value).ok_or_else(|| {
        location(
            code,
            format!("{name} must be a string or code, not {}", shell(value)),
        )
    })
}

/// Checks the `lang` of a function. Errors: 31418 if it is missing, 31419 if it is not "js".
pub(crate) fn check_language(lang: Option<RawValue<'_>>) -> Result<()> {
    match lang {
        Some(RawValue::String("js")) => Ok(()),
        None => Err(location(31418, "The lang field must be specified.")),
        Some(_) => Err(location(
            31419,
            "Currently the only supported language specifier is 'js'.",
        )),
    }
}

/// Parses `$function`.
pub(super) fn parse_function(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let known = ["body", "args", "lang"];
    let arguments = Arguments::new("$function", operand, &known, 31260, 31267)?;
    let Some(body) = arguments.get("body") else {
        return Err(location(31261, "The body function must be specified."));
    };
    let Some(args) = arguments.get("args") else {
        return Err(location(31263, "The args field must be specified."));
    };
    check_language(arguments.get("lang"))?;
    let source = function_source("The body function", body, 31262)?;
    Ok(ScriptExpression::of_function(source, parser.operand(args)?))
}

/// Parses `$_internalJsEmit`.
pub(super) fn parse_emit(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let name = "$_internalJsEmit";
    let arguments = Arguments::new(name, operand, &["eval", "this"], 31221, 31222)?;
    let eval = arguments.required("eval", 31223)?;
    let this = arguments.required("this", 31223)?;
    let source = function_source("The map function", eval, 31224)?;
    Ok(ScriptExpression::of_emit(source, parser.operand(this)?))
}
