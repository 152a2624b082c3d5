//! What an operator is: its name, its number of operands, and the function that evaluates a call.
//! The table of all of them is [`operators`](super::operators).

use sheaf_bson::error_code::{Error, Result};

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use crate::location::location;

/// Evaluates a call, given the operator itself (for messages), its operands and the context.
pub type EvalFn =
    for<'e> fn(&'static Operator, &'e [Expression], EvalContext<'e>) -> Result<EvalValue<'e>>;

/// The number of operands that a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(usize),
    /// The one operand of a conversion.
    Single,
    /// From the first to the second, inclusive.
    Between(usize, usize),
    /// This many or more.
    AtLeast(usize),
    /// Any number.
    Any,
}

/// An operator that evaluates its operands.
#[derive(Clone, Copy)]
pub struct Operator {
    /// The name, including `$`.
    pub name: &'static str,
    /// The number of operands.
    pub arity: Arity,
    /// Evaluates a call.
    pub eval: EvalFn,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Operator {
    /// Checks the number of operands. Errors: 16020, 17045, 28667 or 50723 if it does not fit the
    /// arity.
    pub(super) fn check_arity(&self, given: usize) -> Result<()> {
        let name = self.name;
        match self.arity {
            Arity::Any => Ok(()),
            Arity::AtLeast(least) if given >= least => Ok(()),
            Arity::AtLeast(least) => Err(location(
                17045,
                format!("{name} needs at least {least} arguments had: {given}"),
            )),
            Arity::Exactly(n) if given == n => Ok(()),
            Arity::Exactly(n) => Err(location(
                16020,
                format!("Expression {name} takes exactly {n} arguments. {given} were passed in."),
            )),
            Arity::Single if given == 1 => Ok(()),
            Arity::Single => Err(location(
                50723,
                format!("{name} requires a single argument, got {given}"),
            )),
            Arity::Between(least, most) if (least..=most).contains(&given) => Ok(()),
            Arity::Between(least, most) => Err(location(
                28667,
                format!(
                    "Expression {name} takes at least {least} arguments, and at most {most}, but {given} were passed in."
                ),
            )),
        }
    }

    /// An error of this operator; the message begins with the operator's name.
    pub(super) fn error(&self, code: i32, message: impl std::fmt::Display) -> Error {
        location(code, format!("{} {message}", self.name))
    }
}

/// Whether the value of every operand is known.
pub(super) fn all_constant(args: &[Expression]) -> bool {
    args.iter()
        .all(|arg| matches!(arg, Expression::Constant(_)))
}

/// Whether an operand of a [`Named`](super::entry::Named) operator is absent.
pub(super) fn is_absent(arg: &Expression) -> bool {
    matches!(arg, Expression::Constant(None))
}
