//! The kinds of entries of the table of operators.

use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;

use super::Expression;
use super::operator::Operator;
use super::parser::Parser;

/// Parses a form, given its operand as written.
pub type ParseFn = fn(&mut Parser<'_>, RawValue<'_>) -> Result<Expression>;

/// Checks the operands of a parsed call, so that what is wrong in all documents is an error even if
/// no document is reached.
pub type CheckFn = fn(&'static Operator, &[Expression]) -> Result<()>;

/// Accepts all operands.
pub(super) fn unchecked(_: &'static Operator, _: &[Expression]) -> Result<()> {
    Ok(())
}

/// An entry of the table.
pub enum Entry {
    /// Evaluates operands.
    Call(Operator),
    /// Evaluates operands that have names: `{$op: {name: operand, ...}}`.
    Named(Named),
    /// Has its own syntax.
    Form(&'static str, ParseFn),
}

/// An operator with named operands. Its function receives them in the order of `fields`; an operand
/// that was not given is absent ([`is_absent`](super::operator::is_absent)).
pub struct Named {
    /// The operator.
    pub operator: Operator,
    /// The names of the operands. A code marks the operand as required, and is the error if it is
    /// absent.
    pub fields: &'static [(&'static str, Option<i32>)],
    /// Error code for an operand that is not a document.
    pub not_object: i32,
    /// Error code for a name that is not in `fields`.
    pub unknown: i32,
    /// Whether `{$op: e}` and `{$op: [e]}` are accepted as shorthand for the first field alone.
    pub shorthand: bool,
    /// Checks the operands of a call when it is parsed.
    pub check: CheckFn,
}

impl Entry {
    /// The name, including `$`.
    pub fn name(&self) -> &'static str {
        match self {
            Entry::Call(operator) => operator.name,
            Entry::Named(named) => named.operator.name,
            Entry::Form(name, _) => name,
        }
    }
}
