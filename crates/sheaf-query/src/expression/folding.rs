//! Constant folding: computes at parse time what does not depend on the document.
//!
//! A call that fails is left unchanged: it may be in a branch that no document reaches.

use std::sync::Arc;

use sheaf_bson::{Collator, RawDoc, RawValue, Value, compare_values_with};

use super::{EvalContext, Expression, meta, random};

/// The expression, or its value as a constant. Text compares by `collator`.
pub(super) fn fold(expression: Expression, collator: Option<&Collator>) -> Expression {
    if matches!(expression, Expression::Constant(_)) || !operands_are_constant(&expression) {
        return expression;
    }
    let context = EvalContext::new(RawDoc::EMPTY).with_collator(collator);
    let value = match expression.evaluate(context) {
        Ok(value) => value.into_value().map(Arc::new),
        Err(_) => return expression,
    };
    Expression::Constant(value)
}

/// An array with fewer elements is compared one by one.
const SET_ELEMENTS_MIN: usize = 16;

/// `$in` over a long constant array as a search in a sorted list; any other expression as it is.
pub(super) fn sorted_set(expression: Expression, collator: Option<&Collator>) -> Expression {
    let Expression::Call { operator, args } = &expression else {
        return expression;
    };
    let ("$in", [value, Expression::Constant(Some(list))]) = (operator.name, &args[..]) else {
        return expression;
    };
    let RawValue::Array(array) = list.as_raw() else {
        return expression;
    };
    if array.iter().nth(SET_ELEMENTS_MIN - 1).is_none() {
        return expression;
    }
    let mut set: Vec<Value> = array.iter().map(RawValue::to_value).collect();
    set.sort_by(|a, b| compare_values_with(a.as_raw(), b.as_raw(), collator));
    Expression::InSet {
        value: Box::new(value.clone()),
        set: set.into(),
    }
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
        Expression::Call { operator, args } => {
            !random::is_random(operator.name)
                && operator.name != meta::META.name
                && args.iter().all(is_constant)
        }
        Expression::Let { values, body } => values.iter().all(is_constant) && is_constant(body),
        // The result of a loop over a constant array may be far larger than its text.
        Expression::InSet { value, .. } => is_constant(value),
        Expression::Loop { .. } => false,
        Expression::Collated { body, .. } => is_constant(body),
        Expression::Switch { branches, default } => {
            branches
                .iter()
                .all(|(case, then)| is_constant(case) && is_constant(then))
                && default.as_deref().is_none_or(is_constant)
        }
    }
}
