//! `{$meta: name}` as an expression.
//!
//! Only the find layer has metadata of a document. A `$project` or `$addFields` that uses it
//! becomes the find's projection where possible ([`is_meta`]). Anywhere else the metadata is not
//! available, and evaluation fails instead of omitting it. The score of `$vectorSearch` is a field
//! that the documents carry ([`crate::pipeline::score`]).

use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;

use super::Expression;
use super::eval::{EvalContext, EvalValue};
use super::field_path::{Base, FieldPathExpr};
use super::operator::{Arity, Operator};
use super::parser::Parser;
use crate::metadata::MetaField;
use crate::metadata::{META_NAME, SCORE_FIELD};

/// The operator. It must not be evaluated at parse time.
pub(super) static META: Operator = Operator {
    name: "$meta",
    arity: Arity::Exactly(1),
    eval: meta,
};

/// Parses the operand of `$meta`. Errors: those of [`MetaField::parse`].
pub(super) fn parse_meta(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    if operand == RawValue::String(META_NAME) && parser.scope().knows_vector_score() {
        return Ok(Expression::FieldPath(FieldPathExpr {
            base: Base::Root,
            components: Box::new([SCORE_FIELD.into()]),
        }));
    }
    // sheaf never provides this metadata. In MongoDB it is missing rather than an error.
    if let RawValue::String("searchScore" | "searchHighlights" | "searchScoreDetails") = operand {
        return Ok(Expression::Constant(None));
    }
    Ok(match MetaField::parse(operand)? {
        MetaField::RandVal => Expression::Constant(None),
        _ => Expression::Call {
            operator: &META,
            args: vec![Expression::constant(operand.to_value())],
        },
    })
}

/// Whether the expression is a `$meta` and nothing else.
pub(super) fn is_meta(expression: &Expression) -> bool {
    matches!(expression, Expression::Call { operator, .. } if operator.name == META.name)
}

fn meta<'e>(
    _: &'static Operator,
    args: &'e [Expression],
    _: EvalContext<'e>,
) -> Result<EvalValue<'e>> {
    let name = args.first().and_then(Expression::as_constant).flatten();
    Err(match MetaField::parse(name.unwrap_or(RawValue::Null)) {
        Ok(field) => field.unavailable(),
        Err(error) => error,
    })
}
