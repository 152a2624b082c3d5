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

use std::sync::Arc;

use sheaf_bson::path::FieldPath;
use sheaf_bson::Value;

pub mod regex;

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
    Mod { path: Arc<FieldPath>, divisor: i64, remainder: i64 },
    /// `{path: {$exists: true}}`; `false` is `Not(Exists)`.
    Exists { path: Arc<FieldPath> },
    /// `{path: {$type: [...]}}`.
    Type { path: Arc<FieldPath>, types: TypeSet },
    /// `{path: {$size: n}}`.
    Size { path: Arc<FieldPath>, size: i64 },
    /// `{path: {$elemMatch: {b: 1, ...}}}`: one element, a document, matches.
    ElemMatchObject { path: Arc<FieldPath>, child: Box<MatchExpression> },
    /// `{path: {$elemMatch: {$gt: 1, $lt: 5}}}`: one element satisfies every
    /// child; the children's own path is empty.
    ElemMatchValue { path: Arc<FieldPath>, children: Vec<MatchExpression> },
    /// `$bitsAllSet` and its three relatives.
    Bits(BitsTest),
    /// `{$expr: expression}`.
    Expr(Arc<crate::expression::BoundExpression>),
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

/// `$in`: equalities sorted in BSON order without duplicates, and regexes.
#[derive(Debug, Clone)]
pub struct In {
    /// Empty inside `$elemMatch` over values.
    pub path: Arc<FieldPath>,
    /// Sorted, no two equal. A `null` here also matches missing.
    pub equalities: Arc<Vec<Value>>,
    /// In the order given.
    pub regexes: Vec<RegexMatch>,
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

/// `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.
#[derive(Debug, Clone)]
pub struct BitsTest {
    /// The field tested.
    pub path: Arc<FieldPath>,
    /// Which of the four.
    pub op: BitsOp,
    /// Positions, sorted, no duplicates.
    pub positions: Arc<Vec<u32>>,
}

/// Which bit test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BitsOp {
    AllSet,
    AllClear,
    AnySet,
    AnyClear,
}
