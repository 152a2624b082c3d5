//! The match language: a filter as a tree of predicates over raw documents.
//!
//! ```text
//! {a: {$gt: 3, $lt: 9}, "b.c": /^x/}
//!
//!   And
//!   ├─ Comparison a  $gt 3
//!   ├─ Comparison a  $lt 9
//!   └─ Regex      b.c /^x/
//! ```
//!
//! `parse` builds the tree and rejects unknown operators by name. `normalize` converts it to the
//! canonical form for the planner, the plan cache and `explain` (children in a fixed order,
//! single-child `And`/`Or` dropped, `$in` of one value an equality, ...). `matches` evaluates it on
//! raw bytes.
//!
//! Inside `$elemMatch` over values, operators apply to the element itself, and their `path` is "".

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, DocBuf, DocBuilder, Value};

use crate::schema::JsonSchema;

mod bits;
mod compare;
mod dependencies;
mod evaluate;
mod expr_comparison;
mod normalize;
mod operators;
mod parse;
mod serialize;
mod type_set;
mod where_clause;

pub use crate::dependencies::Dependencies;
pub use crate::regex;
pub use bits::{BitsOp, BitsTest};
pub use evaluate::MatchDetails;
pub use expr_comparison::ExprComparison;
pub use parse::{ParseContext, parse, parse_predicate};
pub use type_set::TypeSet;

/// One node of a filter. Cloning is cheap: paths and values are shared.
#[derive(Debug, Clone)]
pub enum MatchExpression {
    /// All children are true; the empty conjunction is true.
    And(Vec<MatchExpression>),
    /// At least one child is true.
    Or(Vec<MatchExpression>),
    /// No child is true.
    Nor(Vec<MatchExpression>),
    /// The child is false.
    Not(Box<MatchExpression>),
    /// `{path: {$eq|$lt|$lte|$gt|$gte: value}}`.
    Comparison(Comparison),
    /// `{path: {$in: [...]}}`.
    In(In),
    /// `{path: /pattern/options}`.
    Regex(RegexMatch),
    /// `{path: {$mod: [divisor, remainder]}}`.
    Mod {
        /// The field tested.
        path: Arc<FieldPath>,
        /// Never 0.
        divisor: i64,
        /// Compared with the remainder of truncated division, which has the sign of the dividend.
        remainder: i64,
    },
    /// `{path: {$exists: true}}`; `false` is `Not(Exists)`.
    Exists {
        /// The field tested.
        path: Arc<FieldPath>,
    },
    /// `{path: {$type: [...]}}`.
    Type {
        /// The field tested.
        path: Arc<FieldPath>,
        /// Never empty.
        types: TypeSet,
    },
    /// `{path: {$size: n}}`.
    Size {
        /// The field tested.
        path: Arc<FieldPath>,
        /// Number of elements; never negative.
        size: i64,
    },
    /// `{path: {$elemMatch: {b: 1, ...}}}`: one element, a document or array, matches.
    ElemMatchObject {
        /// The array field.
        path: Arc<FieldPath>,
        /// The filter on the element; its paths are relative to the element.
        child: Box<MatchExpression>,
    },
    /// `{path: {$elemMatch: {$gt: 1, $lt: 5}}}`: one element satisfies every child; the path of the
    /// children is empty.
    ElemMatchValue {
        /// The array field.
        path: Arc<FieldPath>,
        /// All must be true for the same element.
        children: Vec<MatchExpression>,
    },
    /// `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
    Bits(BitsTest),
    /// `{$expr: expression}`.
    Expr(Arc<crate::expression::BoundExpression>),
    /// A predicate on one field that a sibling `$expr` implies, for use by an index: `{path:
    /// {$_internalExprEq: value}}`.
    ExprComparison(ExprComparison),
    /// `{$jsonSchema: {...}}`.
    JsonSchema(JsonSchema),
    /// Always true (`{$alwaysTrue: 1}`).
    AlwaysTrue,
    /// Always false (`{$alwaysFalse: 1}`, `{$in: []}`).
    AlwaysFalse,
}

/// An ordering predicate. Compares within the type bracket of the operand; MinKey and MaxKey
/// compare with values of all types.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Empty inside `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// The operator.
    pub op: ComparisonOp,
    /// The operand.
    pub value: Arc<Value>,
    /// The collation for text; `None` to compare by bytes, or if the value cannot contain text.
    pub collator: Option<Arc<Collator>>,
}

/// The five comparison operators, which translate directly to index bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ComparisonOp {
    Eq,
    Lte,
    Lt,
    Gt,
    Gte,
}

impl ComparisonOp {
    /// `$eq`, `$lte`, ...
    pub fn name(self) -> &'static str {
        match self {
            ComparisonOp::Eq => "$eq",
            ComparisonOp::Lte => "$lte",
            ComparisonOp::Lt => "$lt",
            ComparisonOp::Gt => "$gt",
            ComparisonOp::Gte => "$gte",
        }
    }
}

/// `$in`: a list of equalities and regexes. Equalities are sorted in BSON order (text by the
/// collation), without duplicates.
#[derive(Debug, Clone)]
pub struct In {
    /// Empty inside `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// Sorted, without duplicates. A `null` also matches a missing field.
    pub equalities: Arc<Vec<Value>>,
    /// In the order of the operand. Never collated.
    pub regexes: Vec<RegexMatch>,
    /// The collation for text; `None` to compare by bytes, or if no value can contain text.
    pub collator: Option<Arc<Collator>>,
}

/// A regular expression predicate; also matches a stored regex with the same pattern and options.
#[derive(Debug, Clone)]
pub struct RegexMatch {
    /// Empty inside `$in` and `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// The pattern as written by the user.
    pub pattern: Arc<str>,
    /// Sorted option letters from `imsxu`.
    pub options: Arc<str>,
    /// Compiled once, at parse time.
    pub compiled: Arc<regex::CompiledRegex>,
}

impl MatchExpression {
    /// The filter that matches every document, `{}`.
    pub fn all() -> MatchExpression {
        MatchExpression::And(Vec::new())
    }

    /// The path that this node tests; `None` for logical nodes, `$expr`, `$jsonSchema`, and
    /// constants.
    pub fn path(&self) -> Option<&Arc<FieldPath>> {
        match self {
            MatchExpression::Comparison(c) => Some(&c.path),
            MatchExpression::In(i) => Some(&i.path),
            MatchExpression::Regex(r) => Some(&r.path),
            MatchExpression::Bits(b) => Some(&b.path),
            MatchExpression::ExprComparison(c) => Some(&c.path),
            MatchExpression::Mod { path, .. }
            | MatchExpression::Exists { path }
            | MatchExpression::Type { path, .. }
            | MatchExpression::Size { path, .. }
            | MatchExpression::ElemMatchObject { path, .. }
            | MatchExpression::ElemMatchValue { path, .. } => Some(path),
            MatchExpression::And(_)
            | MatchExpression::Or(_)
            | MatchExpression::Nor(_)
            | MatchExpression::Not(_)
            | MatchExpression::Expr(_)
            | MatchExpression::JsonSchema(_)
            | MatchExpression::AlwaysTrue
            | MatchExpression::AlwaysFalse => None,
        }
    }

    /// Whether every document passes: `{}` or `{$alwaysTrue: 1}`.
    pub fn is_trivially_true(&self) -> bool {
        match self {
            MatchExpression::AlwaysTrue => true,
            MatchExpression::And(children) => children.is_empty(),
            _ => false,
        }
    }

    /// Whether no document passes.
    pub fn is_trivially_false(&self) -> bool {
        matches!(self, MatchExpression::AlwaysFalse)
    }
}

/// The conjunction of two filters; an empty filter is omitted.
pub fn conjunction(a: &DocBuf, b: &DocBuf) -> DocBuf {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b.clone() } else { a.clone() };
    }
    let mut out = DocBuilder::new();
    out.begin_array("$and");
    out.push_document_bytes(a.as_bytes());
    out.push_document_bytes(b.as_bytes());
    out.end();
    out.finish()
}

#[cfg(test)]
mod tests;
