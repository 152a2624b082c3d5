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
//! `parse` builds the tree and refuses what it does not know, by name;
//! `normalize` gives it the one form that the planner, the plan cache and
//! `explain` see (children in a fixed order, single-child `And`/`Or` dropped,
//! `$in` of one value an equality, ...); `matches` evaluates it on raw bytes.
//!
//! Inside `$elemMatch` over values the operators apply to the element itself,
//! and their `path` is "".

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
pub mod regex;
mod serialize;
mod type_set;

pub use bits::{BitsOp, BitsTest};
pub use dependencies::Dependencies;
pub use evaluate::MatchDetails;
pub use expr_comparison::ExprComparison;
pub use parse::{ParseContext, parse, parse_predicate};
pub use type_set::TypeSet;

/// One node of a filter. Cloning is cheap where it matters: paths and values
/// are shared.
#[derive(Debug, Clone)]
pub enum MatchExpression {
    /// All children hold; the empty conjunction is true.
    And(Vec<MatchExpression>),
    /// One child holds.
    Or(Vec<MatchExpression>),
    /// No child holds.
    Nor(Vec<MatchExpression>),
    /// The child does not hold.
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
        /// Compared with the truncated remainder, sign included.
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
    /// `{path: {$elemMatch: {b: 1, ...}}}`: one element, a document, matches.
    ElemMatchObject {
        /// The array's field.
        path: Arc<FieldPath>,
        /// Its paths begin at the element.
        child: Box<MatchExpression>,
    },
    /// `{path: {$elemMatch: {$gt: 1, $lt: 5}}}`: one element satisfies every
    /// child; the children's own path is empty.
    ElemMatchValue {
        /// The array's field.
        path: Arc<FieldPath>,
        /// All must hold for one element.
        children: Vec<MatchExpression>,
    },
    /// `$bitsAllSet` and its three relatives.
    Bits(BitsTest),
    /// `{$expr: expression}`.
    Expr(Arc<crate::expression::BoundExpression>),
    /// What a `$expr` beside it says of one field, so that an index can serve it:
    /// `{path: {$_internalExprEq: value}}`.
    ExprComparison(ExprComparison),
    /// `{$jsonSchema: {...}}`.
    JsonSchema(JsonSchema),
    /// Always true (`{$alwaysTrue: 1}`).
    AlwaysTrue,
    /// Always false (`{$alwaysFalse: 1}`, `{$in: []}`).
    AlwaysFalse,
}

/// An ordering predicate. Compares within the value's type bracket, except
/// against MinKey and MaxKey, which compare with everything.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Empty inside `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// Which comparison.
    pub op: ComparisonOp,
    /// The right-hand side.
    pub value: Arc<Value>,
    /// How text compares; `None` by bytes, and where the value holds no text.
    pub collator: Option<Arc<Collator>>,
}

/// The five comparisons that have index bounds of their own.
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

/// `$in`: equalities sorted in BSON order (text by the collation) without
/// duplicates, and regexes.
#[derive(Debug, Clone)]
pub struct In {
    /// Empty inside `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// Sorted, no two equal. A `null` here also matches missing.
    pub equalities: Arc<Vec<Value>>,
    /// In the order given. Never collated.
    pub regexes: Vec<RegexMatch>,
    /// How text compares; `None` by bytes, and where no value holds text.
    pub collator: Option<Arc<Collator>>,
}

/// A regular expression predicate; also equal to a stored regex of the same
/// pattern and options.
#[derive(Debug, Clone)]
pub struct RegexMatch {
    /// Empty inside `$in` and `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// As written.
    pub pattern: Arc<str>,
    /// Sorted option letters out of `imsxu`.
    pub options: Arc<str>,
    /// Compiled once, at parse time.
    pub compiled: Arc<regex::CompiledRegex>,
}

impl MatchExpression {
    /// The filter that every document passes, `{}`.
    pub fn all() -> MatchExpression {
        MatchExpression::And(Vec::new())
    }

    /// The path that this node itself tests; `None` for nodes that only hold
    /// others, for `$expr` and `$jsonSchema`, and for the constants.
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

/// The filter that both filters together are; an empty one says nothing.
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
