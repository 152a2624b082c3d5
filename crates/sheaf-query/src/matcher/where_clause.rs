//! `$where`: a user's function as a predicate on the document.

use std::sync::Arc;

use sheaf_bson::{Error, RawValue};

use super::MatchExpression;
use super::parse::Level;
use crate::expression::BoundExpression;
use crate::javascript::{self, Script};

/// Parses the operand of `$where`.
///
/// Errors: BadValue if the operand is neither a string nor Code, if `$where` is not allowed here,
/// or if JavaScript is switched off.
pub(super) fn parse(value: RawValue<'_>, level: Level<'_>) -> Result<MatchExpression, Error> {
    if level.in_element {
        return Err(Error::bad_value(
            "$where can only be applied to the top-level document",
        ));
    }
    if !level.context.variables.allows_where() {
        return Err(Error::bad_value("$where is not allowed in this context"));
    }
    let Some(source) = Script::source_of(value) else {
        return Err(Error::bad_value(format!(
            "$where must be a string or code, not {}",
            value.type_name()
        )));
    };
    if javascript::current().is_none() {
        return Err(Error::bad_value(
            "no globalScriptEngine in $where parsing: server-side JavaScript is disabled",
        ));
    }
    let bound = BoundExpression::of_where(source);
    Ok(MatchExpression::Expr(Arc::new(bound)))
}

#[cfg(test)]
mod tests {
    use sheaf_bson::doc;

    use crate::expression::VariableScope;
    use crate::matcher::{ParseContext, parse};

    #[test]
    fn refused_where_it_is_not_allowed_and_without_an_engine() {
        let message = |variables| {
            let context = ParseContext { variables };
            let refused = parse(doc! {"$where": "true"}.as_raw(), &context).unwrap_err();
            refused.message().to_owned()
        };
        assert_eq!(
            message(VariableScope::default()),
            "$where is not allowed in this context"
        );
        let without_engine = message(VariableScope::default().allowing_where());
        assert!(without_engine.contains("JavaScript is disabled"));
    }
}
