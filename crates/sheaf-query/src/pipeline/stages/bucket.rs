//! `$bucket`: groups documents by ranges between boundaries.
//!
//! It is parsed to two stages, which explain shows as well:
//!
//! ```text
//!   {$bucket: {groupBy: e, boundaries: [0, 10, 20], default: "x", output: {n: {$sum: 1}}}}
//!
//!   {$group: {_id: {$switch: {branches: [{case: 0 <= e < 10, then: 0},
//!                                        {case: 10 <= e < 20, then: 10}], default: "x"}},
//!             n: {$sum: 1}}},
//!   {$sort: {_id: 1}}
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::json::shell;
use sheaf_bson::{
    ArrayBuilder, DocBuilder, ElementType, RawDoc, RawValue, Value, compare_values_with, doc,
};

use crate::expression::{location, parse as parse_expression};
use crate::pipeline::Stage;
use crate::pipeline::group::Group;
use crate::pipeline::stage::{ParsedStage, StageContext};
use crate::sort::SortSpec;

/// Whether a `groupBy` is a `$`-path or an expression, rather than a constant.
pub(super) fn is_expression(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => text.starts_with('$'),
        RawValue::Document(doc) => doc.first().is_some_and(|e| e.key().starts_with('$')),
        _ => false,
    }
}

/// Whether it is a variable by name.
fn is_variable(value: RawValue<'_>) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("$$"))
}

/// The `$sort` stage with this specification.
pub(super) fn sort_by(spec: RawDoc<'_>, context: &StageContext<'_>) -> Result<Stage> {
    match SortSpec::parse(spec)? {
        SortSpec::Pattern(pattern) => Ok(Stage::sort(
            pattern.with_collator(context.parse.collator().cloned()),
        )),
        SortSpec::None | SortSpec::Natural(_) => Err(location(
            15976,
            "$sort stage must have at least one sort key",
        )),
    }
}

/// The type of a boundary; all numeric types are the same.
fn kind(value: RawValue<'_>) -> ElementType {
    match value.is_number() {
        true => ElementType::Double,
        false => value.element_type(),
    }
}

/// Parses the operand. Errors: 40191 to 40202, one for each kind of invalid operand.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            40201,
            format!(
                "Argument to $bucket stage must be an object, but found type: {}",
                value.type_name()
            ),
        ));
    };
    let scope = &context.parse.variables;
    let constant = |value: RawValue<'_>, code: i32, what: &str| -> Result<Value> {
        match parse_expression(value, scope)?.as_constant() {
            // The value of a variable such as $$NOW is not one that the stage is written with.
            Some(Some(constant)) if !is_variable(value) => Ok(constant.to_value()),
            _ => Err(location(
                code,
                format!(
                    "{what} must be a constant value, but found: {}",
                    shell(value)
                ),
            )),
        }
    };
    let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for element in spec {
        let value = element.value();
        match element.key() {
            "groupBy" if is_expression(value) => group_by = Some(value),
            "groupBy" => {
                return Err(location(
                    40202,
                    format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but found: {}",
                        shell(value)
                    ),
                ));
            }
            "boundaries" => {
                let RawValue::Array(array) = value else {
                    return Err(location(
                        40200,
                        format!(
                            "The $bucket 'boundaries' field must be an array, but found type: {}",
                            value.type_name()
                        ),
                    ));
                };
                let values = array
                    .iter()
                    .map(|v| constant(v, 40191, "each value of the $bucket 'boundaries'"));
                boundaries = Some(values.collect::<Result<Vec<Value>>>()?);
            }
            "default" => default = Some(constant(value, 40195, "the $bucket 'default'")?),
            "output" => match value {
                RawValue::Document(doc) => output = Some(doc),
                other => {
                    return Err(location(
                        40196,
                        format!(
                            "The $bucket 'output' field must be an object, but found type: {}",
                            other.type_name()
                        ),
                    ));
                }
            },
            other => {
                return Err(location(
                    40197,
                    format!("Unrecognized option to $bucket: {other}."),
                ));
            }
        }
    }
    let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
        return Err(location(
            40198,
            "$bucket requires 'groupBy' and 'boundaries' to be specified.",
        ));
    };
    let [first, .., last] = &boundaries[..] else {
        return Err(location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    };
    let collator = context.parse.collator().map(Arc::as_ref);
    let compare = |a: &Value, b: &Value| compare_values_with(a.as_raw(), b.as_raw(), collator);
    for pair in boundaries.windows(2) {
        if kind(pair[0].as_raw()) != kind(pair[1].as_raw()) {
            return Err(location(
                40193,
                format!(
                    "All values in the 'boundaries' of $bucket must have the same type; found {} and {}",
                    pair[0].type_name(),
                    pair[1].type_name()
                ),
            ));
        }
        if compare(&pair[0], &pair[1]).is_ge() {
            return Err(location(
                40194,
                format!(
                    "The 'boundaries' of $bucket must be sorted in ascending order, each once; found {} before {}",
                    shell(pair[0].as_raw()),
                    shell(pair[1].as_raw())
                ),
            ));
        }
    }
    if let Some(default) = &default
        && compare(default, first).is_ge()
        && compare(default, last).is_lt()
    {
        return Err(location(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.",
        ));
    }
    let mut branches = ArrayBuilder::new();
    for pair in boundaries.windows(2) {
        let literal = |value: &Value| Value::Document(doc! {"$literal": value});
        let test = |operator: &str, bound: &Value| {
            Value::Document(doc! {operator: vec![group_by.to_value(), literal(bound)]})
        };
        let case = doc! {"$and": vec![test("$gte", &pair[0]), test("$lt", &pair[1])]};
        let branch = doc! {"case": case, "then": literal(&pair[0])};
        branches.push(RawValue::Document(branch.as_raw()));
    }
    let mut switch = DocBuilder::new();
    switch.append("branches", &Value::Array(branches.finish()));
    if let Some(default) = &default {
        switch.append("default", &Value::Document(doc! {"$literal": default}));
    }
    let mut group = DocBuilder::new();
    group.append("_id", &Value::Document(doc! {"$switch": switch.finish()}));
    match output {
        Some(output) => {
            group.extend(output);
        }
        None => {
            group.append("count", &Value::Document(doc! {"$sum": 1}));
        }
    }
    let group = group.finish();
    let group = Group::parse(RawValue::Document(group.as_raw()), scope)?;
    Ok(ParsedStage::Stages(vec![
        Stage::Group(Arc::new(group)),
        sort_by(doc! {"_id": 1}.as_raw(), context)?,
    ]))
}
