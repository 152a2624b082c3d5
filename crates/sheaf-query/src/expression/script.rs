//! Expressions that run a user's function: `$function`, `$where`, and the map of mapReduce.
//!
//! ```text
//!   {$function: {body, args, lang}}   body(...args)
//!   {$where: body}                    body with the document as `this`: true or false
//!   {$_internalJsEmit: {eval, this}}  what eval emits with `this`: an array of {k, v}
//! ```

use sheaf_bson::error_code::Result;
use sheaf_bson::{RawDoc, RawValue, Value};

use super::eval::{EvalContext, EvalValue};
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

/// How the function is called.
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

    /// Calls the function. Errors: 31266 if the arguments are not an array; those of
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

    /// A call of `{$function: {body: source, args: operand, ..}}`.
    pub(super) fn of_function(source: &str, operand: Expression) -> Expression {
        ScriptExpression::of_operand(source, ScriptCall::Function, operand)
    }

    /// A call of `{$_internalJsEmit: {eval: source, this: operand}}`.
    pub(super) fn of_emit(source: &str, operand: Expression) -> Expression {
        ScriptExpression::of_operand(source, ScriptCall::Emit, operand)
    }

    fn of_operand(source: &str, call: ScriptCall, operand: Expression) -> Expression {
        Expression::Script(ScriptExpression {
            script: Script::new(source, SourceKind::Function),
            call,
            operand: Box::new(operand),
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
