//! Folding: what does not depend on the document is computed once.
//!
//! A call that fails is left as it is: it may stand in a branch that no
//! document reaches.

use std::sync::Arc;

use sheaf_bson::RawDoc;

use super::Expression;

/// The expression, or the constant that it is.
pub(super) fn fold(expression: Expression) -> Expression {
    if matches!(expression, Expression::Constant(_)) || !operands_are_constant(&expression) {
        return expression;
    }
    let value = match expression.evaluate_on(RawDoc::EMPTY) {
        Ok(value) => value.into_value().map(Arc::new),
        Err(_) => return expression,
    };
    Expression::Constant(value)
}

fn is_constant(expression: &Expression) -> bool {
    matches!(expression, Expression::Constant(_))
}

fn operands_are_constant(expression: &Expression) -> bool {
    match expression {
        Expression::Constant(_) => true,
        Expression::FieldPath(_) => false,
        Expression::Object(fields) => fields.iter().all(|(_, e)| is_constant(e)),
        Expression::Array(values) => values.iter().all(is_constant),
        Expression::Call { args, .. } => args.iter().all(is_constant),
        Expression::Let { values, body } => values.iter().all(is_constant) && is_constant(body),
        // A loop over a constant array may give a result far larger than its text.
        Expression::Loop { .. } => false,
        Expression::Switch { branches, default } => {
            branches
                .iter()
                .all(|(case, then)| is_constant(case) && is_constant(then))
                && default.as_deref().is_none_or(is_constant)
        }
    }
}
