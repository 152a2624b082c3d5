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

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Collator, RawDoc, RawValue, Value};

use crate::matcher::Dependencies;

mod arithmetic;
mod array;
mod base64;
mod bitwise;
mod boolean;
mod bound;
mod budget;
mod coerce;
mod comparison;
mod conditional;
mod convert;
mod date;
mod dependencies;
mod elementary;
mod entry;
mod eval;
pub mod field_path;
mod float_text;
mod folding;
mod hash;
mod json_text;
mod meta;
mod object;
pub(crate) mod operand;
mod operator;
pub mod operators;
mod ordered_value;
mod parse;
mod parser;
pub mod projection_exec;
mod random;
mod regular;
pub(crate) mod script;
pub(crate) mod script_parser;
mod select;
mod set;
pub(crate) mod statistics;
mod string;
mod type_ops;
pub mod user_roles;
mod variables;
mod vector;

pub(crate) use crate::location::location;
pub use bound::BoundExpression;
pub(crate) use bound::LevelExpression;
pub(crate) use comparison::compare;
pub(crate) use date::arithmetic::{Unit, shift_utc};
pub use eval::{EvalContext, EvalValue, Frame};
pub use field_path::FieldPathExpr;
pub(crate) use object::Merged;
pub(crate) use ordered_value::OrderedValue;
pub use parse::{parse, parse_operand};
pub use random::{random_bits, random_number, seed_random};
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
        operator: &'static operator::Operator,
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
    /// `{$in: [value, [...]]}` with a long constant array, which is sorted once and searched.
    InSet {
        /// The value to look for.
        value: Box<Expression>,
        /// The array's values in BSON order, text by the collation of the whole expression.
        set: Arc<[Value]>,
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
    /// A call of a user's function.
    Script(script::ScriptExpression),
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

#[cfg(test)]
mod tests;
