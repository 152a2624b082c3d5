//! Parses the bytes of a filter to a tree.
//!
//! ```text
//!   {a: 5, $or: [...], b: {$gt: 3, $lt: 9}, c: {$elemMatch: {...}}}
//!    │      │             └── predicate: operators under one path  (operators.rs)
//!    │      └── logical: a list of filters
//!    └── a value: equality; a regex: a match
//! ```
//!
//! A document under a field is a list of operators if its first name begins with `$`, and a value
//! otherwise; a DBRef (`$ref` and `$id`) is a value.
//!
//! Invariant: unknown operators are rejected by name, and nesting deeper than [`DEPTH_MAX`] is
//! rejected, so recursion is bounded for every input.

use std::cell::Cell;
use std::sync::Arc;

use sheaf_bson::collation::is_collatable;
use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{Collator, Error, RawDoc, RawElement, RawValue, Value};

use super::operators::parse_operators;
use super::{Comparison, ComparisonOp, MatchExpression};
use crate::expression::VariableScope;
use crate::schema::JsonSchema;

/// Maximum depth of the tree: 100 nested operators and the predicate of a field.
const DEPTH_MAX: usize = 100;
/// Maximum number of regular expressions in one filter: a compiled pattern takes kilobytes, its
/// source only a few bytes.
const PATTERNS_MAX: usize = 10_000;

/// The context for parsing a filter.
#[derive(Debug, Clone, Default)]
pub struct ParseContext {
    /// The variables that `$expr` may use (`let`), and the collation.
    pub variables: VariableScope,
}

impl ParseContext {
    /// The collation for text; `None` to compare by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.variables.collator()
    }
}

/// The position of the parser within a filter.
#[derive(Clone, Copy)]
pub(super) struct Level<'c> {
    pub context: &'c ParseContext,
    /// Number of patterns compiled so far, in the whole filter.
    patterns: &'c Cell<usize>,
    depth: usize,
    /// Whether this level is below `$elemMatch`, where names are fields of elements, not of the
    /// document.
    pub in_element: bool,
}

impl<'c> Level<'c> {
    /// Counts one more pattern. Errors: BadValue beyond [`PATTERNS_MAX`].
    pub fn count_pattern(self) -> Result<(), Error> {
        if self.patterns.get() >= PATTERNS_MAX {
            return Err(Error::bad_value(format!(
                "a filter has at most {PATTERNS_MAX} regular expressions"
            )));
        }
        self.patterns.set(self.patterns.get() + 1);
        Ok(())
    }

    /// The next deeper level. Errors: BadValue beyond [`DEPTH_MAX`].
    pub fn deeper(self) -> Result<Level<'c>, Error> {
        if self.depth > DEPTH_MAX {
            return Err(Error::bad_value(format!(
                "exceeded the maximum query tree depth of {DEPTH_MAX}; nest the filter less deeply"
            )));
        }
        Ok(Level {
            depth: self.depth + 1,
            ..self
        })
    }

    /// The level of the fields of an array element.
    pub fn element(self) -> Level<'c> {
        Level {
            in_element: true,
            ..self
        }
    }
}

/// Parses a whole filter, as in `find`. The tree has the user's form; call
/// [`MatchExpression::normalize`] before planning.
///
/// Errors: BadValue for a filter that is invalid in the match language; NotImplemented for
/// operators that sheaf does not support yet.
pub fn parse(filter: RawDoc<'_>, context: &ParseContext) -> Result<MatchExpression, Error> {
    let level = Level {
        context,
        patterns: &Cell::new(0),
        depth: 0,
        in_element: false,
    };
    parse_filter(filter, level)
}

/// Parses operators that apply to a value without a name, such as
/// `{$gte: 3, $lt: 9}` under `$pull`; for [`MatchExpression::matches_value`].
pub fn parse_predicate(
    operators: RawDoc<'_>,
    context: &ParseContext,
) -> Result<MatchExpression, Error> {
    let level = Level {
        context,
        patterns: &Cell::new(0),
        depth: 0,
        in_element: true,
    };
    Ok(conjunction(parse_operators(&no_path(), operators, level)?))
}

/// The path of operators that apply to an element or value itself: "".
pub(super) fn no_path() -> Arc<FieldPath> {
    Arc::new(FieldPath::parse_lenient("").expect("the empty name is a path"))
}

/// The conjunction of the children; a single child is returned unchanged.
pub(super) fn conjunction(mut children: Vec<MatchExpression>) -> MatchExpression {
    match (children.len(), children.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            children.extend(last);
            MatchExpression::And(children)
        }
    }
}

/// Parses a document of fields and top-level operators.
pub(super) fn parse_filter(filter: RawDoc<'_>, level: Level<'_>) -> Result<MatchExpression, Error> {
    let level = level.deeper()?;
    let mut children = Vec::new();
    for element in filter.iter() {
        let name = element.key();
        if name.starts_with('$') && !(level.in_element && is_dbref_field(name)) {
            children.extend(parse_top_level(name, element, level)?);
        } else {
            parse_field(name, element.value(), level, &mut children)?;
        }
    }
    Ok(conjunction(children))
}

/// Parses `name: value`, where `name` is a path.
fn parse_field(
    name: &str,
    value: RawValue<'_>,
    level: Level<'_>,
    children: &mut Vec<MatchExpression>,
) -> Result<(), Error> {
    let path = field_path(name)?;
    match value {
        RawValue::Document(doc) if is_operators(doc) => {
            children.extend(parse_operators(&path, doc, level)?);
        }
        RawValue::Regex { pattern, options } => {
            children.push(super::operators::regex(&path, pattern, options, level)?);
        }
        _ => children.push(equality(&path, value, level)?),
    }
    Ok(())
}

/// Parses a top-level operator: `$and`, `$expr`, `$comment`, ... `None` for `$comment`.
fn parse_top_level(
    name: &str,
    element: RawElement<'_>,
    level: Level<'_>,
) -> Result<Option<MatchExpression>, Error> {
    let value = element.value();
    Ok(Some(match name {
        "$and" => MatchExpression::And(parse_list(name, value, level)?),
        "$or" => MatchExpression::Or(parse_list(name, value, level)?),
        "$nor" => MatchExpression::Nor(parse_list(name, value, level)?),
        "$expr" => {
            if level.in_element {
                return Err(Error::bad_value(
                    "$expr can only be applied to the top-level document",
                ));
            }
            let bound = crate::expression::BoundExpression::parse(value, &level.context.variables)?;
            MatchExpression::Expr(Arc::new(bound))
        }
        "$comment" => return Ok(None),
        "$alwaysTrue" | "$alwaysFalse" => {
            if value.as_i64_exact() != Some(1) {
                return Err(Error::new(
                    ErrorCode::FAILED_TO_PARSE,
                    format!("{name} takes 1, not {}", sheaf_bson::json::shell(value)),
                ));
            }
            if name == "$alwaysTrue" {
                MatchExpression::AlwaysTrue
            } else {
                MatchExpression::AlwaysFalse
            }
        }
        "$sampleRate" | "$text" if level.in_element => {
            return Err(Error::bad_value(format!(
                "{name} can only be applied to the top-level document"
            )));
        }
        "$sampleRate" => {
            let rate = value.as_f64().filter(|_| value.is_number());
            let Some(rate) = rate.filter(|rate| (0.0..=1.0).contains(rate)) else {
                return Err(Error::bad_value(format!(
                    "$sampleRate takes a number from 0.0 to 1.0, not {}",
                    sheaf_bson::json::shell(value)
                )));
            };
            let spec = sheaf_bson::doc! {"$lt": vec![
                Value::Document(sheaf_bson::doc! {"$rand": {}}),
                Value::Double(rate),
            ]};
            let spec = RawValue::Document(spec.as_raw());
            let bound = crate::expression::BoundExpression::parse(spec, &level.context.variables)?;
            MatchExpression::Expr(Arc::new(bound))
        }
        "$jsonSchema" => json_schema(value, level)?,
        "$text" => {
            return Err(Error::new(
                ErrorCode::NOT_IMPLEMENTED,
                format!("{name} is not supported"),
            ));
        }
        "$where" => super::where_clause::parse(value, level)?,
        _ => {
            return Err(Error::bad_value(format!(
                "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider using $getField or $setField."
            )));
        }
    }))
}

/// Parses `$jsonSchema`, which applies to the whole document and is invalid below a field.
fn json_schema(value: RawValue<'_>, level: Level<'_>) -> Result<MatchExpression, Error> {
    if level.in_element {
        return Err(Error::bad_value(
            "$jsonSchema can only be applied to the top-level document",
        ));
    }
    let RawValue::Document(spec) = value else {
        return Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!("$jsonSchema must be an object, not {}", value.type_name()),
        ));
    };
    JsonSchema::parse(spec, &|| level.count_pattern()).map(MatchExpression::JsonSchema)
}

/// Parses the filters of `$and`, `$or`, `$nor`.
fn parse_list(
    name: &str,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<Vec<MatchExpression>, Error> {
    let RawValue::Array(array) = value else {
        return Err(Error::bad_value(format!("{name} must be an array")));
    };
    let mut children = Vec::new();
    for entry in array.iter() {
        let RawValue::Document(filter) = entry else {
            return Err(Error::bad_value(format!(
                "{name} entries need to be full objects, not {}",
                entry.type_name()
            )));
        };
        children.push(parse_filter(filter, level)?);
    }
    if children.is_empty() {
        return Err(Error::bad_value(format!("{name} must be a nonempty array")));
    }
    Ok(children)
}

/// Parses a field name as a path. Errors: BadValue for an invalid path.
pub(super) fn field_path(name: &str) -> Result<Arc<FieldPath>, Error> {
    match FieldPath::parse_lenient(name) {
        Ok(path) => Ok(Arc::new(path)),
        Err(why) => Err(Error::bad_value(format!(
            "invalid field path in a filter: {}",
            why.message()
        ))),
    }
}

/// `{path: value}`; the value is a literal, even if it is a document.
pub(super) fn equality(
    path: &Arc<FieldPath>,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    comparison(path, ComparisonOp::Eq, value, level)
}

/// `{path: {$op: value}}`.
pub(super) fn comparison(
    path: &Arc<FieldPath>,
    op: ComparisonOp,
    value: RawValue<'_>,
    level: Level<'_>,
) -> Result<MatchExpression, Error> {
    match value {
        RawValue::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        RawValue::Regex { .. } if op != ComparisonOp::Eq => Err(Error::bad_value(format!(
            "Can't have RegEx as arg to predicate over field '{}' ({} takes a value)",
            path.dotted(),
            op.name()
        ))),
        _ => Ok(MatchExpression::Comparison(Comparison {
            path: Arc::clone(path),
            op,
            value: Arc::new(Value::from(value)),
            collator: collator_for(value, level.context),
        })),
    }
}

/// The collation for comparisons with this value; `None` if the value cannot contain text.
pub(super) fn collator_for(value: RawValue<'_>, context: &ParseContext) -> Option<Arc<Collator>> {
    context
        .collator()
        .filter(|_| is_collatable(value.element_type()))
        .cloned()
}

fn is_dbref_field(name: &str) -> bool {
    matches!(name, "$ref" | "$id" | "$db")
}

/// Whether a document under a field is a list of operators rather than a value.
pub(super) fn is_operators(doc: RawDoc<'_>) -> bool {
    starts_with_dollar(doc) && !(doc.get("$ref").is_some() && doc.get("$id").is_some())
}

fn starts_with_dollar(doc: RawDoc<'_>) -> bool {
    doc.first()
        .is_some_and(|e| e.key_bytes().first() == Some(&b'$'))
}

/// Whether the argument of `$elemMatch` is a list of operators on elements
/// rather than a filter over the elements' fields.
pub(super) fn is_element_operators(doc: RawDoc<'_>) -> bool {
    doc.first().is_some_and(|e| {
        let name = e.key();
        name.starts_with('$') && !is_dbref_field(name) && !is_top_level_operator(name)
    })
}

/// Whether the name is an operator that replaces a field, rather than one under a field.
fn is_top_level_operator(name: &str) -> bool {
    matches!(
        name,
        "$and"
            | "$or"
            | "$nor"
            | "$expr"
            | "$comment"
            | "$where"
            | "$text"
            | "$jsonSchema"
            | "$sampleRate"
            | "$alwaysTrue"
            | "$alwaysFalse"
    )
}
