//! Derives from a `$expr` predicates on single fields that indexes can serve.
//!
//! ```text
//!   {$expr: {$eq: ["$a", 5]}}              a $_internalExprEq 5
//!   {$expr: {$gt: [7, "$b.c"]}}            b.c $_internalExprLt 7
//!   {$expr: {$and: [..., {$isArray: ..}]}} the predicates of the parts that have any
//!   {$expr: {$or: [..., ...]}}             an $or, if each alternative has a predicate
//! ```
//!
//! The comparison is added next to the `$expr`, which remains and decides. It differs from a
//! comparison of the match language: there is no type bracketing, a missing field is below all
//! values except MinKey, and an array is one value. Because the keys of an index are the elements
//! of an array, only an index without arrays on the path serves it. A document with an array on the
//! path passes, so that the `$expr` decides.
//!
//! Source: the manual's page on `$expr`, "Behavior": which operators use an index, and that
//! operands that are arrays or undefined do not.

use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, RawValue, Value};

use super::{ComparisonOp, MatchExpression};
use crate::expression::field_path::{Base, FieldPathExpr};
use crate::expression::{BoundExpression, Expression, compare};

/// A comparison in the order of all values, regardless of type, on a path without arrays.
#[derive(Debug, Clone)]
pub struct ExprComparison {
    /// Has no numeric parts: an index treats them as positions, an expression as field names.
    pub path: Arc<FieldPath>,
    /// The operator.
    pub op: ComparisonOp,
    /// Neither an array nor undefined.
    pub value: Arc<Value>,
    /// The collation for text; `None` to compare by bytes, or if the value cannot contain text.
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
    /// Builds a comparison; `None` if no index could serve it.
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

    /// The operator's name in a filter: `$_internalExprEq`, ...
    pub fn name(&self) -> &'static str {
        let named = NAMES.iter().find(|(_, op)| *op == self.op);
        named.map_or("", |(name, _)| name)
    }

    /// The operator with this name; `None` for other names.
    pub(super) fn op_of(name: &str) -> Option<ComparisonOp> {
        let named = NAMES.iter().find(|(known, _)| *known == name);
        named.map(|(_, op)| *op)
    }

    /// Whether this value passes (`None`: the field is missing).
    pub fn test(&self, stored: Option<RawValue<'_>>) -> bool {
        let value = Some(self.value.as_raw());
        let collator = self.collator.as_deref();
        self.op.accepts(compare(stored, value, collator))
    }
}

/// A filter that matches every document for which the expression is true; `None` if there is no
/// such filter that an index could serve.
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

/// The operator with swapped operands: `5 > a` is `a < 5`.
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
