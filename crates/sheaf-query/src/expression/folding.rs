//! Constant folding: computes at parse time what does not depend on the document.
//!
//! A call of constants that fails is an error of the whole expression, even in a branch that no
//! document reaches. Where errors are deferred, it is left unchanged.

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Collator, RawDoc, RawValue, Value, compare_values_with};

use super::budget::raw_bytes;
use super::field_path::Base;
use super::{EvalContext, EvalValue, Expression, VariableScope, location, meta, random, set};

/// The expression, or its value as a constant, and the error of evaluating it if it is a call of
/// constants that fails. Text compares by the scope's collation. `bound` is the number of variables
/// bound around it.
pub(super) fn fold(
    expression: Expression,
    scope: &VariableScope,
    bound: usize,
) -> (Expression, Result<()>) {
    if matches!(expression, Expression::Constant(_)) {
        return (expression, Ok(()));
    }
    if let Some(decided) = decided_by_constant(&expression) {
        return (Expression::constant(decided), Ok(()));
    }
    let collator = scope.collator().map(|c| &**c);
    let context = EvalContext::new(RawDoc::EMPTY).with_collator(collator);
    if bound > 0 && matches!(expression, Expression::Loop { .. }) && is_closed(&expression, bound) {
        return (closed_loop(expression, context, bound), Ok(()));
    }
    if !operands_are_constant(&expression) {
        return (expression, Ok(()));
    }
    match expression.evaluate(context) {
        Ok(value) => {
            let value = value.into_value().map(Arc::new);
            (Expression::Constant(value), Ok(()))
        }
        Err(e) => (expression, Err(e)),
    }
}

/// Checks constant operands that are invalid for every document. Errors: 40069 for a `$switch` in
/// which no branch can be taken, 5887502 for a constant operand of `$setEquals` that is not an
/// array.
pub(super) fn check(expression: &Expression) -> Result<()> {
    if finds_no_branch(expression) {
        return Err(location(
            40069,
            "One cannot execute a switch statement where all the cases evaluate to false without a default.",
        ));
    }
    match expression {
        Expression::Call { operator, args } if operator.name == "$setEquals" => {
            set::check_equals(args)
        }
        _ => Ok(()),
    }
}

/// Maximum size in bytes of a computed value that replaces a loop.
const LOOP_BYTES_MAX: usize = 1 << 20;

/// Replaces a loop inside another one by its value, so that it is not computed again for each
/// element. `expression` reads neither the document nor the enclosing variables. It is unchanged if
/// its value is too large or its evaluation fails.
fn closed_loop(expression: Expression, context: EvalContext<'_>, bound: usize) -> Expression {
    // The enclosing variables occupy slots; the loop does not read them.
    let around = vec![EvalValue::Missing; bound];
    let value = context.with_slots(&around, |inner| {
        expression.evaluate(inner).map(|value| value.into_value())
    });
    match value {
        Ok(value) if value.as_ref().map_or(0, |v| raw_bytes(v.as_raw())) <= LOOP_BYTES_MAX => {
            Expression::Constant(value.map(Arc::new))
        }
        // The error is reported at evaluation.
        _ => expression,
    }
}

/// Whether an expression reads only variables in slots from `from` on, and is deterministic.
fn is_closed(expression: &Expression, from: usize) -> bool {
    let closed = |e: &Expression| is_closed(e, from);
    match expression {
        Expression::Constant(_) => true,
        Expression::FieldPath(path) => {
            matches!(path.base, Base::Slot(slot) if slot >= from && slot != usize::MAX)
        }
        Expression::Object(fields) => fields.iter().all(|(_, e)| closed(e)),
        Expression::Array(values) => values.iter().all(closed),
        Expression::Call { operator, args } => {
            is_deterministic(operator.name) && args.iter().all(closed)
        }
        Expression::Let { values, body } => values.iter().all(closed) && closed(body),
        Expression::InSet { value, .. } => closed(value),
        Expression::Loop {
            input, extra, body, ..
        } => closed(input) && closed(body) && extra.as_deref().is_none_or(closed),
        Expression::Script(_) => false,
        Expression::Collated { body, .. } => closed(body),
        Expression::Switch { branches, default } => {
            branches
                .iter()
                .all(|(case, then)| closed(case) && closed(then))
                && default.as_deref().is_none_or(closed)
        }
    }
}

/// Whether the operator with this name reads nothing but its operands.
fn is_deterministic(name: &str) -> bool {
    !random::is_random(name) && name != meta::META.name
}

/// The value of an `$and` or `$or` that a constant operand decides, at any position.
fn decided_by_constant(expression: &Expression) -> Option<bool> {
    let Expression::Call { operator, args } = expression else {
        return None;
    };
    let deciding = match operator.name {
        "$and" => false,
        "$or" => true,
        _ => return None,
    };
    args.iter()
        .filter_map(Expression::as_constant)
        .any(|value| value.is_some_and(|v| v.is_truthy()) == deciding)
        .then_some(deciding)
}

/// Whether the expression is a `$switch` without default whose cases are all constant and false.
fn finds_no_branch(expression: &Expression) -> bool {
    let Expression::Switch { branches, default } = expression else {
        return false;
    };
    let is_false = |case: &Expression| {
        case.as_constant()
            .is_some_and(|value| !value.is_some_and(|v| v.is_truthy()))
    };
    default.is_none() && branches.iter().all(|(case, _)| is_false(case))
}

/// Arrays with fewer elements are searched linearly.
const SET_ELEMENTS_MIN: usize = 16;

/// Converts `$in` over a long constant array to a binary search in a sorted list; returns any other
/// expression unchanged.
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
            is_deterministic(operator.name) && args.iter().all(is_constant)
        }
        Expression::Let { values, body } => values.iter().all(is_constant) && is_constant(body),
        // The result of a loop over a constant array may be far larger than its text.
        Expression::InSet { value, .. } => is_constant(value),
        Expression::Loop { .. } => false,
        // User functions run only when a document is evaluated.
        Expression::Script(_) => false,
        Expression::Collated { body, .. } => is_constant(body),
        Expression::Switch { branches, default } => {
            branches
                .iter()
                .all(|(case, then)| is_constant(case) && is_constant(then))
                && default.as_deref().is_none_or(is_constant)
        }
    }
}
