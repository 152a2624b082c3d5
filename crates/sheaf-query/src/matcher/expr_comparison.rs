//! What a `$expr` says of single fields, in a form that indexes can serve.
//!
//! ```text
//!   {$expr: {$eq: ["$a", 5]}}              a $_internalExprEq 5
//!   {$expr: {$gt: [7, "$b.c"]}}            b.c $_internalExprLt 7
//!   {$expr: {$and: [..., {$isArray: ..}]}} those of its parts that say something
//!   {$expr: {$or: [..., ...]}}             one of the alternatives, if each says something
//! ```
//!
//! The comparison stands beside the `$expr`, which stays and decides. It differs from a comparison
//! of the match language: no types are bracketed, a missing field is below all but MinKey, and an array
//! is one value. As the keys of an index are an array's elements, only an index without arrays on the path
//! serves it; a document with one passes, for the `$expr` to look at.
//!
//! Source: the manual's page on `$expr`, "Behavior": which operators use an index, and that operands
//! that are arrays or undefined do not.

use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, RawValue, Value};

use super::{ComparisonOp, MatchExpression};
use crate::expression::field_path::{Base, FieldPathExpr};
use crate::expression::{BoundExpression, Expression, compare};

/// An order among values of all types, on a path without arrays.
#[derive(Debug, Clone)]
pub struct ExprComparison {
    /// Without numbers: what is a position to an index is a name to an expression.
    pub path: Arc<FieldPath>,
    /// Which comparison.
    pub op: ComparisonOp,
    /// Neither an array nor undefined.
    pub value: Arc<Value>,
    /// How text compares; `None` by bytes, and where the value holds no text.
    pub collator: Option<Arc<Collator>>,
}

const NAMES: [(&str, ComparisonOp); 5] = [
    ("$_internalExprEq", ComparisonOp::Eq),
    ("$_internalExprGt", ComparisonOp::Gt),
    ("$_internalExprGte", ComparisonOp::Gte),
    ("$_internalExprLt", ComparisonOp::Lt),
    ("$_internalExprLte", ComparisonOp::Lte),
];

impl ExprComparison {
    /// `None` where no index could serve it.
    pub fn new(
        path: &Arc<FieldPath>,
        op: ComparisonOp,
        value: RawValue<'_>,
        collator: Option<&Arc<Collator>>,
    ) -> Option<ExprComparison> {
        let has_position = (0..path.len()).any(|part| path.part_index(part).is_some());
        if has_position || matches!(value, RawValue::Array(_) | RawValue::Undefined) {
            return None;
        }
        Some(ExprComparison {
            path: path.clone(),
            op,
            value: Arc::new(value.to_value()),
            collator: collator
                .filter(|_| is_collatable(value.element_type()))
                .cloned(),
        })
    }

    /// As it is written in a filter.
    pub fn name(&self) -> &'static str {
        let named = NAMES.iter().find(|(_, op)| *op == self.op);
        named.map_or("", |(name, _)| name)
    }

    /// What such a name means.
    pub(super) fn op_of(name: &str) -> Option<ComparisonOp> {
        let named = NAMES.iter().find(|(known, _)| *known == name);
        named.map(|(_, op)| *op)
    }

    /// Whether this one value passes (`None`: the field is missing).
    pub fn test(&self, stored: Option<RawValue<'_>>) -> bool {
        let value = Some(self.value.as_raw());
        let collator = self.collator.as_deref();
        self.op.accepts(compare(stored, value, collator))
    }
}

/// What holds of every document for which the expression is true; `None` if that is nothing that an
/// index could serve.
pub(super) fn implied_by(bound: &BoundExpression) -> Option<MatchExpression> {
    match bound.expression() {
        Expression::Collated { collator, body } => implied(body, Some(collator)),
        other => implied(other, None),
    }
}

fn implied(expression: &Expression, collator: Option<&Arc<Collator>>) -> Option<MatchExpression> {
    let Expression::Call { operator, args } = expression else {
        return None;
    };
    match (operator.name, args.as_slice()) {
        ("$and", args) => {
            let mut parts: Vec<_> = args.iter().filter_map(|a| implied(a, collator)).collect();
            match parts.len() {
                0 | 1 => parts.pop(),
                _ => Some(MatchExpression::And(parts)),
            }
        }
        ("$or", [_, ..]) => {
            let parts = args.iter().map(|arg| implied(arg, collator));
            Some(MatchExpression::Or(parts.collect::<Option<_>>()?))
        }
        (name, [a, b]) => {
            let op = match name {
                "$eq" => ComparisonOp::Eq,
                "$gt" => ComparisonOp::Gt,
                "$gte" => ComparisonOp::Gte,
                "$lt" => ComparisonOp::Lt,
                "$lte" => ComparisonOp::Lte,
                _ => return None,
            };
            let (path, op, value) = match (a, b) {
                (Expression::FieldPath(path), Expression::Constant(Some(value))) => {
                    (path, op, value)
                }
                (Expression::Constant(Some(value)), Expression::FieldPath(path)) => {
                    (path, mirrored(op), value)
                }
                _ => return None,
            };
            let path = Arc::new(FieldPath::parse(&dotted(path)?).ok()?);
            ExprComparison::new(&path, op, value.as_raw(), collator)
                .map(MatchExpression::ExprComparison)
        }
        _ => None,
    }
}

/// `5 > a` as `a < 5`.
fn mirrored(op: ComparisonOp) -> ComparisonOp {
    match op {
        ComparisonOp::Eq => ComparisonOp::Eq,
        ComparisonOp::Lt => ComparisonOp::Gt,
        ComparisonOp::Lte => ComparisonOp::Gte,
        ComparisonOp::Gt => ComparisonOp::Lt,
        ComparisonOp::Gte => ComparisonOp::Lte,
    }
}

fn dotted(path: &FieldPathExpr) -> Option<String> {
    (path.base == Base::Root && !path.components.is_empty()).then(|| path.components.join("."))
}
