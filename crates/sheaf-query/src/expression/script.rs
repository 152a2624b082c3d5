//! Expressions that run a function of the user: `$function`, `$where`, and the map of mapReduce.
//!
//! ```text
//!   {$function: {body, args, lang}}   body(...args)
//!   {$where: body}                    body with the document as `this`: true or false
//!   {$_internalJsEmit: {eval, this}}  what eval emits with `this`: an array of {k, v}
//! ```

use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;
use sheaf_bson::{RawDoc, RawValue, Value};

use super::eval::{EvalContext, EvalValue};
use super::parser::{Arguments, Parser};
use super::{Expression, FieldPathExpr, field_path::Base, location};
use crate::javascript::{Script, SourceKind};

/// A call of a user's function.
#[derive(Debug, Clone)]
pub struct ScriptExpression {
    script: Script,
    call: ScriptCall,
    /// The arguments as an array, or the document.
    operand: Box<Expression>,
}

/// What is done with the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptCall {
    Function,
    Where,
    Emit,
}

impl ScriptExpression {
    /// The expression that the function receives.
    pub(super) fn operand(&self) -> &Expression {
        &self.operand
    }

    /// The expression that the function receives.
    pub(super) fn operand_mut(&mut self) -> &mut Expression {
        &mut self.operand
    }

    /// Calls the function. Errors: 31266 for arguments that are no array, those of
    /// [`crate::javascript::JavaScript`].
    pub(super) fn evaluate<'e>(&'e self, ctx: EvalContext<'e>) -> Result<EvalValue<'e>> {
        let operand = self.operand.evaluate(ctx)?;
        let operand = operand.as_raw().unwrap_or(RawValue::Undefined);
        Ok(match (self.call, operand) {
            (ScriptCall::Function, RawValue::Array(args)) => self.script.call(None, args)?.into(),
            (ScriptCall::Function, other) => {
                return Err(location(
                    31266,
                    format!(
                        "The args field must be of type array, not {}",
                        other.type_name()
                    ),
                ));
            }
            (ScriptCall::Where, doc) => {
                let doc = doc.as_document().unwrap_or(RawDoc::EMPTY);
                Value::Boolean(self.script.test(doc)?).into()
            }
            (ScriptCall::Emit, doc) => self.script.emit(doc)?.into(),
        })
    }

    /// The predicate `{$where: source}`.
    pub(crate) fn of_where(source: &str) -> Expression {
        Expression::Script(ScriptExpression {
            script: Script::new(source, SourceKind::Where),
            call: ScriptCall::Where,
            operand: Box::new(Expression::FieldPath(FieldPathExpr {
                base: Base::Root,
                components: Box::default(),
            })),
        })
    }
}

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
    Ok(Expression::Script(ScriptExpression {
        script: Script::new(source, SourceKind::Function),
        call: ScriptCall::Function,
        operand: Box::new(parser.operand(args)?),
    }))
}

/// Parses `$_internalJsEmit`.
pub(super) fn parse_emit(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let name = "$_internalJsEmit";
    let arguments = Arguments::new(name, operand, &["eval", "this"], 31221, 31222)?;
    let eval = arguments.required("eval", 31223)?;
    let this = arguments.required("this", 31223)?;
    let source = function_source("The map function", eval, 31224)?;
    Ok(Expression::Script(ScriptExpression {
        script: Script::new(source, SourceKind::Function),
        call: ScriptCall::Emit,
        operand: Box::new(parser.operand(this)?),
    }))
}
