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
//! An evaluation returns a borrowed part of the document if the expression only selects
//! ([`EvalValue::Raw`]), and an owned value if it computes. A *missing* value is neither null nor
//! an error.
//!
//! Everything that does not depend on the document is resolved at parse time: `$$NOW`, the user's
//! `let` constants and calls with constant operands become [`Expression::Constant`], and an
//! operation's collation wraps the whole expression ([`Expression::Collated`], which sets it in
//! [`EvalContext`]). Evaluation therefore needs only the document.
//!
//! Operators are in one table ([`operators`]): name, number of operands, function. Each family of
//! operators has a file for its functions.

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
/// Slots number the variables that `$let`, `$map`, `$filter`, ... bind: the outermost binding is
/// slot 0, and each inner binding has the next numbers.
#[derive(Debug, Clone)]
pub enum Expression {
    /// A value known at parse time; `None` is missing (`$$REMOVE`).
    Constant(Option<Arc<Value>>),
    /// `"$a.b"`, `"$$ROOT.a"`, `"$$this.x"`.
    FieldPath(FieldPathExpr),
    /// `{a: ..., b: ...}`; fields with a missing value are omitted.
    Object(Vec<(Box<str>, Expression)>),
    /// `[..., ...]`; missing becomes null.
    Array(Vec<Expression>),
    /// An operator that evaluates operands in order, each at most once.
    Call {
        /// The operator's entry in the table.
        operator: &'static operators::Operator,
        /// The operands; their number satisfies the operator's arity.
        args: Vec<Expression>,
    },
    /// `{$let: {vars: ..., in: ...}}`: evaluates `values`, binds them to the next slots, evaluates
    /// `body`.
    Let {
        /// The bound values, which see only the outer variables.
        values: Vec<Expression>,
        /// Sees `values` as the innermost slots.
        body: Box<Expression>,
    },
    /// An operator that evaluates its body once per array element.
    Loop {
        /// The operator.
        kind: LoopKind,
        /// Evaluates to the array.
        input: Box<Expression>,
        /// `initialValue` of `$reduce`, `limit` of `$filter`.
        extra: Option<Box<Expression>>,
        /// Sees the element (for `$reduce`, `$$value` and then the element) in the innermost slots.
        body: Box<Expression>,
        /// Whether the next slot holds the element's index.
        indexed: bool,
    },
    /// `{$switch: ...}` and `$cond`: the first branch whose case is true.
    Switch {
        /// (case, then), in order.
        branches: Vec<(Expression, Expression)>,
        /// `None`: an error if no case is true.
        default: Option<Box<Expression>>,
    },
    /// An expression whose text comparisons use a collation.
    Collated {
        /// The collation.
        collator: Arc<Collator>,
        /// Contains no other `Collated`.
        body: Box<Expression>,
    },
}

/// Operators that evaluate their body for each element of an array.
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
    /// The value of a constant, `None` for other expressions; `Some(None)` is the constant
    /// *missing*.
    pub fn as_constant(&self) -> Option<Option<RawValue<'_>>> {
        match self {
            Expression::Constant(value) => Some(value.as_ref().map(|v| v.as_raw())),
            _ => None,
        }
    }

    /// Evaluates the expression on a document, without outer variables.
    pub fn evaluate_on<'e>(&'e self, root: RawDoc<'e>) -> Result<EvalValue<'e>> {
        self.evaluate(EvalContext::new(root))
    }

    /// A constant expression.
    pub fn constant(value: impl Into<Value>) -> Expression {
        Expression::Constant(Some(Arc::new(value.into())))
    }

    /// The paths of the root document that an evaluation may read.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.add_dependencies(&mut found);
        found
    }
}

/// An expression used as a predicate: `{$expr: ...}`.
///
/// Everything it needs except the document (`let` constants, `$$NOW`) is bound at parse time.
#[derive(Debug, Clone)]
pub struct BoundExpression {
    expression: Expression,
    spec: Value,
}

impl BoundExpression {
    /// Parses the operand of `$expr`. `scope` provides the `let` constants and the current time.
    /// Errors: as [`parse`].
    pub fn parse(spec: RawValue<'_>, scope: &VariableScope) -> Result<BoundExpression> {
        Ok(BoundExpression {
            expression: parse(spec, scope)?,
            spec: spec.to_value(),
        })
    }

    /// Whether the expression is true for this document. Errors: those of the evaluation (types,
    /// division by zero, ...).
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool> {
        Ok(self.expression.evaluate_on(doc)?.is_truthy())
    }

    /// The result, if it is the same for every document.
    pub fn constant_answer(&self) -> Option<bool> {
        let constant = self.expression.as_constant()?;
        Some(constant.is_some_and(|value| value.is_truthy()))
    }

    /// The specification as the user wrote it.
    pub fn spec(&self) -> RawValue<'_> {
        self.spec.as_raw()
    }

    /// The parsed expression.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// The collation for text; `None`: comparison by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        match &self.expression {
            Expression::Collated { collator, .. } => Some(collator),
            _ => None,
        }
    }

    /// The dotted paths that the result depends on; `None` if it depends on the whole document.
    pub fn fields(&self) -> Option<BTreeSet<String>> {
        let found = self.expression.dependencies();
        (!found.whole_document).then_some(found.paths)
    }
}

/// An instant shifted by calendar units in UTC; `None` if out of range.
pub(crate) fn shift_utc(millis: i64, unit: Unit, amount: i64) -> Option<i64> {
    date::arithmetic::shift(millis, unit, amount, &date::zone::Zone::UTC)
}

/// An expression whose `$$CURRENT` is a document nested in the root, for `$redact`.
#[derive(Debug, Clone)]
pub(crate) struct LevelExpression(Expression);

impl LevelExpression {
    /// Parses an expression. Errors: as [`parse`].
    pub(crate) fn parse(spec: RawValue<'_>, scope: &VariableScope) -> Result<LevelExpression> {
        parser::parse_with_current(spec, scope).map(LevelExpression)
    }

    /// Evaluates the expression for a level of a document. Errors: those of the evaluation.
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

/// An error with a numbered code that has no name in MongoDB.
pub(crate) fn location(code: i32, message: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), message)
}

#[cfg(test)]
mod tests;
