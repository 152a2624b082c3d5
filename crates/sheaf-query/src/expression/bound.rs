//! Expressions in which everything except the document is bound: those of `$expr` and `$redact`.

use std::collections::BTreeSet;
use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Collator, RawDoc, RawValue, Value};

use super::eval::{EvalContext, EvalValue};
use super::parse::{parse, parse_with_current};
use super::script::ScriptExpression;
use super::{Expression, VariableScope};

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

    /// The predicate `{$where: source}`.
    pub(crate) fn of_where(source: &str) -> BoundExpression {
        BoundExpression {
            expression: ScriptExpression::of_where(source),
            spec: Value::JavaScript(source.into()),
        }
    }

    /// The function of a `$where`; `None` for an `$expr`.
    pub fn where_function(&self) -> Option<RawValue<'_>> {
        matches!(self.expression, Expression::Script(_))
            .then(|| self.spec.as_raw())
            .filter(|spec| matches!(spec, RawValue::JavaScript(_)))
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

/// An expression whose `$$CURRENT` is a document nested in the root, for `$redact`.
#[derive(Debug, Clone)]
pub(crate) struct LevelExpression(Expression);

impl LevelExpression {
    /// Parses an expression. Errors: as [`parse`].
    pub(crate) fn parse(spec: RawValue<'_>, scope: &VariableScope) -> Result<LevelExpression> {
        parse_with_current(spec, scope).map(LevelExpression)
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
