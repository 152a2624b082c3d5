//! Aggregation expressions: a tree parsed once, evaluated on raw documents.
//!
//! ```text
//! {$add: ["$a", {$max: ["$b.c", 1]}]}
//!
//!   Call $add
//!   ├─ FieldPath a
//!   └─ Call $max
//!      ├─ FieldPath b.c
//!      └─ Constant 1
//! ```
//!
//! What an evaluation gives is a borrowed piece of the document wherever the
//! expression only selects ([`EvalValue::Raw`]), and an owned value where it
//! computes. A *missing* value is neither null nor an error.
//!
//! Everything that does not depend on the document is settled while parsing:
//! `$$NOW`, the user's `let` constants and calls whose operands are constants
//! all become [`Expression::Constant`], and an operation's collation is put around
//! the whole ([`Expression::Collated`], from where [`EvalContext`] has it). An evaluation therefore needs the
//! document and nothing else.
//!
//! Operators live in one table ([`operators`]): name, number of operands,
//! function. One file a family holds the functions.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{Collator, RawDoc, RawValue, Value};

use crate::matcher::Dependencies;

mod arithmetic;
mod array;
mod base64;
mod bitwise;
mod boolean;
mod budget;
mod comparison;
mod conditional;
mod convert;
mod date;
mod dependencies;
mod elementary;
mod eval;
pub mod field_path;
mod folding;
mod hash;
mod json_text;
mod meta;
mod object;
pub mod operators;
mod ordered_value;
mod parser;
pub mod projection_exec;
mod random;
mod regular;
mod select;
mod set;
mod statistics;
mod string;
mod type_ops;
mod variables;
mod vector;

pub(crate) use comparison::compare;
pub(crate) use date::arithmetic::Unit;
pub use eval::{EvalContext, EvalValue, Frame};
pub use field_path::FieldPathExpr;
pub(crate) use object::Merged;
pub(crate) use ordered_value::OrderedValue;
pub use parser::{parse, parse_operand};
pub use random::random_number;
pub use variables::VariableScope;

/// One node of an expression.
///
/// Slots number the variables that `$let`, `$map`, `$filter`... bind: the
/// outermost binding is slot 0, each binding within has the next numbers.
#[derive(Debug, Clone)]
pub enum Expression {
    /// A value known at parse time. Missing is `None` (`$$REMOVE`).
    Constant(Option<Arc<Value>>),
    /// `"$a.b"`, `"$$ROOT.a"`, `"$$this.x"`.
    FieldPath(FieldPathExpr),
    /// `{a: ..., b: ...}`; fields whose value is missing are left out.
    Object(Vec<(Box<str>, Expression)>),
    /// `[..., ...]`; missing becomes null.
    Array(Vec<Expression>),
    /// An operator that evaluates operands in order, each at most once.
    Call {
        /// What it does.
        operator: &'static operators::Operator,
        /// As many as the operator's arity allows.
        args: Vec<Expression>,
    },
    /// `{$let: {vars: ..., in: ...}}`: evaluates `values`, binds them to the next slots, evaluates `body`.
    Let {
        /// The bound values; they see the outer variables only.
        values: Vec<Expression>,
        /// Sees `values` as the innermost slots.
        body: Box<Expression>,
    },
    /// An operator that evaluates its body once per array element.
    Loop {
        /// Which operator.
        kind: LoopKind,
        /// The array.
        input: Box<Expression>,
        /// `$reduce`'s initialValue, `$filter`'s limit.
        extra: Option<Box<Expression>>,
        /// Sees the element (and for `$reduce` `$$value` before it) as the innermost slots.
        body: Box<Expression>,
        /// Whether the element's place follows it in the next slot.
        indexed: bool,
    },
    /// `{$switch: ...}` and `$cond`: the first branch whose case holds.
    Switch {
        /// (case, then), in order.
        branches: Vec<(Expression, Expression)>,
        /// `None`: an error when no branch holds.
        default: Option<Box<Expression>>,
    },
    /// A whole expression whose comparisons of text follow a collation.
    Collated {
        /// Which.
        collator: Arc<Collator>,
        /// Holds no other of these.
        body: Box<Expression>,
    },
}

/// Operators that walk an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    /// `$map`.
    Map,
    /// `$filter`.
    Filter,
    /// `$reduce`.
    Reduce,
}

impl Expression {
    /// The constant, when this is one; `Some(None)` is the constant *missing*.
    pub fn as_constant(&self) -> Option<Option<RawValue<'_>>> {
        match self {
            Expression::Constant(value) => Some(value.as_ref().map(|v| v.as_raw())),
            _ => None,
        }
    }

    /// Evaluates on one document, without outer variables.
    pub fn evaluate_on<'e>(&'e self, root: RawDoc<'e>) -> Result<EvalValue<'e>> {
        self.evaluate(EvalContext::new(root))
    }

    /// A constant expression.
    pub fn constant(value: impl Into<Value>) -> Expression {
        Expression::Constant(Some(Arc::new(value.into())))
    }

    /// Paths of the root document that an evaluation may read.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.add_dependencies(&mut found);
        found
    }
}

/// An expression used as a predicate: `{$expr: ...}`.
///
/// Everything it needs besides the document (`let` constants, `$$NOW`) was
/// bound when it was parsed.
#[derive(Debug, Clone)]
pub struct BoundExpression {
    expression: Expression,
    spec: Value,
}

impl BoundExpression {
    /// Parses the operand of `$expr`. `scope` gives `let` constants and the clock's reading.
    /// Errors: as [`parse`].
    pub fn parse(spec: RawValue<'_>, scope: &VariableScope) -> Result<BoundExpression> {
        Ok(BoundExpression {
            expression: parse(spec, scope)?,
            spec: spec.to_value(),
        })
    }

    /// Whether the expression is true for this document.
    /// Errors: what the evaluation finds wrong (types, division by zero, ...).
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool> {
        Ok(self.expression.evaluate_on(doc)?.is_truthy())
    }

    /// The answer, when it is the same for every document.
    pub fn constant_answer(&self) -> Option<bool> {
        let constant = self.expression.as_constant()?;
        Some(constant.is_some_and(|value| value.is_truthy()))
    }

    /// As the user wrote it.
    pub fn spec(&self) -> RawValue<'_> {
        self.spec.as_raw()
    }

    /// The tree.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// By which collation it compares text.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        match &self.expression {
            Expression::Collated { collator, .. } => Some(collator),
            _ => None,
        }
    }

    /// Dotted paths that the answer depends on; `None` when it is the whole document.
    pub fn fields(&self) -> Option<BTreeSet<String>> {
        let found = self.expression.dependencies();
        (!found.whole_document).then_some(found.paths)
    }
}

/// An instant moved by calendar units, in UTC; `None`: beyond the range of dates.
pub(crate) fn shift_utc(millis: i64, unit: Unit, amount: i64) -> Option<i64> {
    date::arithmetic::shift(millis, unit, amount, &date::zone::Zone::UTC)
}

/// An expression whose `$$CURRENT` is a document within the root: `$redact`'s.
#[derive(Debug, Clone)]
pub(crate) struct LevelExpression(Expression);

impl LevelExpression {
    /// Errors: as [`parse`].
    pub(crate) fn parse(spec: RawValue<'_>, scope: &VariableScope) -> Result<LevelExpression> {
        parser::parse_with_current(spec, scope).map(LevelExpression)
    }

    /// The value for a level of a document.
    /// Errors: those of the evaluation.
    pub(crate) fn evaluate(
        &self,
        root: RawDoc<'_>,
        level: RawDoc<'_>,
    ) -> Result<EvalValue<'static>> {
        let current = [EvalValue::Raw(RawValue::Document(level))];
        EvalContext::new(root)
            .with_slots(&current, |ctx| self.0.evaluate(ctx).map(EvalValue::detach))
    }
}

/// An error of a place that MongoDB numbers and does not name.
pub(crate) fn location(code: i32, message: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), message)
}

#[cfg(test)]
mod tests;
