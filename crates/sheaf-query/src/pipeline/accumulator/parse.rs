//! Parses BSON to an [`AccumulatorSpec`].
//!
//! ```text
//!   {$sum: e}                                  one expression
//!   {$firstN: {input: e, n: e}}                also $lastN, $minN, $maxN
//!   {$topN: {output: e, sortBy: {...}, n: e}}  also $top, $bottom (no n), $bottomN
//!   {$percentile: {input: e, p: [..], method: "approximate"}}, {$median: {input, method}}
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{RawDoc, RawValue};

use crate::expression::operand::{document, required};
use crate::expression::statistics::percentile_shares;
use crate::expression::{Expression, VariableScope, location, parse};
use crate::sort::{SortPattern, SortSpec};

use super::{AccumulatorKind, AccumulatorSpec, TABLE, script};

impl AccumulatorSpec {
    /// Parses the accumulator of this name with this operand.
    /// Errors: 15952 for an unknown name, 40237 for an array in place of one expression, and those
    /// of the operand.
    pub fn parse(
        name: &str,
        operand: RawValue<'_>,
        scope: &VariableScope,
    ) -> Result<AccumulatorSpec> {
        let is_unary = TABLE
            .iter()
            .any(|(known, kind)| *known == name && !kind.has_fields());
        if is_unary && matches!(operand, RawValue::Array(_)) {
            return Err(location(
                40237,
                format!(
                    "the {name} accumulator is a unary operator: it takes one expression, not an array"
                ),
            ));
        }
        AccumulatorSpec::parse_over_window(name, operand, scope)
    }

    /// Parses the accumulator as a window function, whose one expression may be an array.
    /// Errors: those of [`AccumulatorSpec::parse`] except 40237.
    pub(crate) fn parse_over_window(
        name: &str,
        operand: RawValue<'_>,
        scope: &VariableScope,
    ) -> Result<AccumulatorSpec> {
        let mut spec = AccumulatorSpec::parse_kind(name, operand, scope)?;
        spec.collator = scope.collator().cloned();
        spec.sort = spec
            .sort
            .map(|sort| sort.with_collator(spec.collator.clone()));
        Ok(spec)
    }

    /// An accumulator that only evaluates an expression on each document.
    /// Errors: those of expressions.
    pub(crate) fn parse_reading(
        operand: RawValue<'_>,
        scope: &VariableScope,
    ) -> Result<AccumulatorSpec> {
        Ok(plain(AccumulatorKind::Push, parse(operand, scope)?))
    }

    fn parse_kind(
        name: &str,
        operand: RawValue<'_>,
        scope: &VariableScope,
    ) -> Result<AccumulatorSpec> {
        if name == "$count" {
            if !matches!(operand, RawValue::Document(doc) if doc.is_empty()) {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    "$count takes no arguments, i.e. $count: {}",
                ));
            }
            return Ok(plain(AccumulatorKind::Sum, Expression::constant(1)));
        }
        if let "$accumulator" | "$_internalJsReduce" = name {
            let (script, argument) = match name {
                "$accumulator" => script::parse_accumulator(operand, scope)?,
                _ => script::parse_reduce(operand, scope)?,
            };
            return Ok(AccumulatorSpec {
                script: Some(Arc::new(script)),
                ..plain(AccumulatorKind::Script, argument)
            });
        }
        let Some((name, kind)) = TABLE.iter().find(|(known, _)| *known == name) else {
            return Err(location(15952, format!("unknown group operator '{name}'")));
        };
        use AccumulatorKind::{
            Bottom, BottomN, FirstN, LastN, MaxN, Median, MinN, Percentile, Top, TopN,
        };
        match kind {
            FirstN | LastN | MinN | MaxN => n_of(name, *kind, operand, scope),
            Top | Bottom | TopN | BottomN => ranked(name, *kind, operand, scope),
            Percentile | Median => quantiles(name, *kind, operand, scope),
            _ => Ok(plain(*kind, parse(operand, scope)?)),
        }
    }
}

fn plain(kind: AccumulatorKind, argument: Expression) -> AccumulatorSpec {
    AccumulatorSpec {
        kind,
        argument,
        n: None,
        sort: None,
        shares: Arc::new([]),
        collator: None,
        script: None,
    }
}

/// Parses `n`, and checks it immediately if it is a constant.
fn parse_n(name: &str, value: RawValue<'_>, scope: &VariableScope) -> Result<Expression> {
    let n = parse(value, scope)?;
    if let Some(constant) = n.as_constant() {
        check_n(constant).map_err(|e| e.with_context(name))?;
    }
    Ok(n)
}

fn check_n(n: Option<RawValue<'_>>) -> Result<usize> {
    let Some(n) = n.filter(|n| n.is_number()) else {
        return Err(location(
            5787902,
            format!(
                "'n' must be a number, not {}",
                n.map_or("missing".to_owned(), shell)
            ),
        ));
    };
    match n.as_i64_exact() {
        None => Err(location(
            5787903,
            format!("'n' must be an integer, not {}", shell(n)),
        )),
        Some(n) => usize::try_from(n)
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| location(5787908, format!("'n' must be greater than 0, not {n}"))),
    }
}

/// `n` for the group with this `_id`: its paths are read from the `_id`.
pub(super) fn evaluate_n(n: &Expression, id: RawValue<'_>) -> Result<usize> {
    if let Some(constant) = n.as_constant() {
        return check_n(constant);
    }
    let id = id.as_document().unwrap_or(RawDoc::EMPTY);
    // MongoDB has one code for every invalid value that is computed.
    check_n(n.evaluate_on(id)?.as_raw()).map_err(|error| location(7548606, error.message()))
}

fn n_of(
    name: &str,
    kind: AccumulatorKind,
    operand: RawValue<'_>,
    scope: &VariableScope,
) -> Result<AccumulatorSpec> {
    let not_object = match kind {
        AccumulatorKind::MinN | AccumulatorKind::MaxN => 5787900,
        _ => 5787801,
    };
    let doc = document(name, operand, &["input", "n"], not_object, 5787901)?;
    let n = parse_n(name, required(name, doc, "n", 5787906)?, scope)?;
    let input = parse(required(name, doc, "input", 5787907)?, scope)?;
    Ok(AccumulatorSpec {
        n: Some(n),
        ..plain(kind, input)
    })
}

fn ranked(
    name: &str,
    kind: AccumulatorKind,
    operand: RawValue<'_>,
    scope: &VariableScope,
) -> Result<AccumulatorSpec> {
    let many = matches!(kind, AccumulatorKind::TopN | AccumulatorKind::BottomN);
    let known: &[&str] = if many {
        &["output", "sortBy", "n"]
    } else {
        &["output", "sortBy"]
    };
    let doc = document(name, operand, known, 5788001, 5788002)?;
    let n = match many {
        true => Some(parse_n(name, required(name, doc, "n", 5788003)?, scope)?),
        false => None,
    };
    let output = parse(required(name, doc, "output", 5788004)?, scope)?;
    let sort = sort_pattern(name, required(name, doc, "sortBy", 5788005)?)?;
    Ok(AccumulatorSpec {
        n,
        sort: Some(sort),
        ..plain(kind, output)
    })
}

/// A `sortBy`: `{a: 1, "b.c": -1}`.
/// Errors: not a document, empty, and those of sorts.
fn sort_pattern(name: &str, value: RawValue<'_>) -> Result<SortPattern> {
    let RawValue::Document(doc) = value else {
        return Err(location(
            ErrorCode::FAILED_TO_PARSE.0,
            format!("{name}: 'sortBy' must be an object, not {}", shell(value)),
        ));
    };
    match SortSpec::parse(doc)? {
        SortSpec::Pattern(pattern) => Ok(pattern),
        SortSpec::None | SortSpec::Natural(_) => Err(location(
            15976,
            format!("{name}: 'sortBy' must have at least one field to sort by"),
        )),
    }
}

fn quantiles(
    name: &str,
    kind: AccumulatorKind,
    operand: RawValue<'_>,
    scope: &VariableScope,
) -> Result<AccumulatorSpec> {
    let (input, shares) = percentile_shares(name, operand, scope)?;
    Ok(AccumulatorSpec {
        shares,
        ..plain(kind, parse(input, scope)?)
    })
}
