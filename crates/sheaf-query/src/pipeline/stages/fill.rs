//! `$fill`: sets fields that are null or missing.
//!
//! It is parsed to other stages:
//!
//! ```text
//!   {a: {method: "linear"}}   $setWindowFields  {a: {$linearFill: "$a"}}
//!   {a: {method: "locf"}}     $setWindowFields  {a: {$locf: "$a"}}
//!   {a: {value: e}}           $addFields        {a: {$ifNull: ["$a", e]}}
//! ```

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::json::shell;
use sheaf_bson::{DocBuilder, RawValue, Value, doc};

use crate::expression::location;
use crate::expression::projection_exec::ProjectionExec;
use crate::pipeline::Stage;
use crate::pipeline::stage::{ParsedStage, StageContext};

use super::window;

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

/// Parses `{partitionBy, partitionByFields, sortBy, output}`.
///
/// Errors: 40414 and 40415 for missing and unknown fields, 6050200 to 6050204 and 9 for invalid
/// ones.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(location(
            6050200,
            format!(
                "$fill only takes an object as its argument, found {}",
                value.type_name()
            ),
        ));
    };
    let (mut by, mut by_fields, mut sort_by, mut output) = (None, None, None, None);
    for element in spec {
        match (element.key(), element.value()) {
            ("partitionBy", value @ (RawValue::String(_) | RawValue::Document(_))) => {
                by = Some(value);
            }
            ("partitionByFields", RawValue::Array(names)) => by_fields = Some(names),
            ("sortBy", RawValue::Document(doc)) => sort_by = Some(doc),
            ("output", RawValue::Document(doc)) => output = Some(doc),
            (name @ ("partitionBy" | "partitionByFields" | "sortBy" | "output"), other) => {
                let expected = match name {
                    "partitionBy" => "[string, object]",
                    "partitionByFields" => "array",
                    _ => "object",
                };
                let field = format_args!("$fill.{name}");
                return Err(fields::wrong_type(field, other, expected));
            }
            (other, _) => {
                return Err(fields::unknown_field(format_args!("$fill.{other}")));
            }
        }
    }
    let Some(output) = output else {
        return Err(fields::missing_field("$fill.output"));
    };
    let by: Option<Value> = match (by, by_fields) {
        (Some(_), Some(_)) => {
            return Err(location(
                6050204,
                "Maximum one of 'partitionBy' and 'partitionByFields' can be specified in '$fill'",
            ));
        }
        (Some(by), None) => Some(by.to_value()),
        (None, None) => None,
        (None, Some(fields)) => {
            let mut key = DocBuilder::new();
            for (at, field) in fields.iter().enumerate() {
                let RawValue::String(path) = field else {
                    return Err(failed("'partitionByFields' of $fill must contain strings"));
                };
                if path.starts_with('$') {
                    return Err(location(
                        6050202,
                        format!(
                            "the field '{path}' of 'partitionByFields' must not begin with '$'"
                        ),
                    ));
                }
                let path = Value::String(format!("${path}"));
                let present = doc! {"$ifNull": vec![path, Value::Null]};
                key.append(format!("f{at}"), &present);
            }
            Some(Value::Document(key.finish()))
        }
    };
    let (mut windows, mut values) = (DocBuilder::new(), DocBuilder::new());
    let (mut windowed, mut valued) = (false, false);
    for element in output {
        let name = element.key();
        let RawValue::Document(how) = element.value() else {
            return Err(failed(format!(
                "the output field '{name}' of $fill must be an object"
            )));
        };
        let mut parts = how.iter();
        let (Some(part), None) = (parts.next(), parts.next()) else {
            return Err(location(
                40415,
                format!("the output field '{name}' of $fill takes one of 'value' and 'method'"),
            ));
        };
        let path = Value::String(format!("${name}"));
        match (part.key(), part.value()) {
            ("value", value) => {
                values.append(name, &doc! {"$ifNull": vec![path, value.to_value()]});
                valued = true;
            }
            ("method", RawValue::String(method @ ("linear" | "locf"))) => {
                // `locf` needs no sort: without one, values carry forward in input order.
                if method == "linear" && sort_by.is_none() {
                    return Err(location(
                        6050203,
                        "$fill with the method 'linear' requires a 'sortBy'",
                    ));
                }
                let function = match method {
                    "linear" => "$linearFill",
                    _ => "$locf",
                };
                windows.append(name, &doc! {function: path});
                windowed = true;
            }
            ("method", other) => {
                return Err(location(
                    6050202,
                    format!(
                        "Method must be either 'locf' or 'linear', not {}",
                        shell(other)
                    ),
                ));
            }
            (other, _) => {
                return Err(Error::new(
                    ErrorCode::IDL_UNKNOWN_FIELD,
                    format!("the output field '{name}' of $fill has an unknown field '{other}'"),
                ));
            }
        }
    }
    if !windowed && !valued {
        return Err(location(
            6050203,
            "The output field of '$fill' must have at least one field",
        ));
    }
    let mut stages = Vec::new();
    if windowed {
        let output = windows.finish();
        let mut shown = DocBuilder::new();
        if let Some(by) = &by {
            shown.append("partitionBy", by);
        }
        if let Some(sort_by) = sort_by {
            shown.append("sortBy", sort_by);
        }
        shown.append("output", &output);
        let by = by.as_ref().map(|by| by.as_raw());
        stages = window::stages(shown.finish(), by, sort_by, output.as_raw(), context)?;
    }
    if valued {
        let spec = values.finish();
        let projection = ProjectionExec::parse_add_fields(spec.as_raw(), &context.parse.variables)
            .map_err(|e| e.with_context("Invalid $fill"))?;
        stages.push(Stage::Project {
            name: "$addFields",
            spec: Value::Document(spec),
            projection: Arc::new(projection),
        });
    }
    Ok(ParsedStage::Stages(stages))
}
