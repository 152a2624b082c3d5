//! Entry points of the parser: an expression, and the variables of `let`.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{RawDoc, RawValue, Value};

use super::parser::Parser;
use super::variables::{SYSTEM_CONSTANTS, VariableScope, check_user_name};
use super::{Expression, operators};

/// Parses an expression. Errors: an unknown or malformed operator, variable or path, which the
/// message names.
pub fn parse(value: RawValue<'_>, scope: &VariableScope) -> Result<Expression> {
    parse_within(value, scope, Vec::new())
}

/// Parses an expression in which `$$CURRENT` is the variable in slot 0.
/// Errors: as [`parse`].
pub(super) fn parse_with_current(value: RawValue<'_>, scope: &VariableScope) -> Result<Expression> {
    parse_within(value, scope, vec!["CURRENT".into()])
}

fn parse_within(
    value: RawValue<'_>,
    scope: &VariableScope,
    locals: Vec<Box<str>>,
) -> Result<Expression> {
    let body = Parser::new(scope, operators::find, locals).whole(value)?;
    Ok(match scope.collator() {
        Some(collator) if may_compare(&body) => Expression::Collated {
            collator: collator.clone(),
            body: Box::new(body),
        },
        _ => body,
    })
}

/// Whether an expression contains an operator, which may compare text.
fn may_compare(expression: &Expression) -> bool {
    match expression {
        Expression::Constant(_) | Expression::FieldPath(_) => false,
        Expression::Object(fields) => fields.iter().any(|(_, e)| may_compare(e)),
        Expression::Array(values) => values.iter().any(may_compare),
        _ => true,
    }
}

/// Parses a document `{$op: ...}` or `{a: ..., b: ...}` as an expression.
/// Errors: as [`parse`].
pub fn parse_operand(doc: RawDoc<'_>, scope: &VariableScope) -> Result<Expression> {
    parse(RawValue::Document(doc), scope)
}

impl VariableScope {
    /// Adds the variables of a command's `let`. Values are expressions without field paths; each
    /// sees the variables before it. Errors: FailedToParse for an invalid name, 4890500 for a value
    /// that reads the document.
    pub fn with_let(mut self, vars: RawDoc<'_>) -> Result<VariableScope> {
        for element in vars {
            let name = element.key();
            if SYSTEM_CONSTANTS.contains(&name) {
                return Err(Error::new(
                    ErrorCode(4738901),
                    format!("'{name}' is a system variable, which 'let' cannot set"),
                ));
            }
            check_user_name(name)?;
            self.set_in_let(true);
            let expression = parse(element.value(), &self);
            self.set_in_let(false);
            let expression = expression?;
            let reads = expression.dependencies();
            if reads.whole_document || !reads.paths.is_empty() {
                return Err(Error::new(
                    ErrorCode(4890500),
                    format!(
                        "the value of the variable '{name}' in 'let' must not refer to fields of a document"
                    ),
                ));
            }
            let value = expression.evaluate_on(RawDoc::EMPTY)?.into_value();
            // A missing value ($$REMOVE) makes the variable null.
            self.bind(name, value.unwrap_or(Value::Null));
        }
        Ok(self)
    }
}
