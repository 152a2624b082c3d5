//! `apiStrict`: refuses what does not belong to version 1 of the Stable API.
//!
//! Which commands and options belong to it is a column of the command table, which stages a column
//! of the table of stages. Only strict clients pay for the checks of stages and indexes. See the
//! manual, "Stable API".

use sheaf_bson::{Error, ErrorCode, RawArray, RawDoc, RawValue};

use super::stage_facts;
use crate::command_facts::{ApiV1, Command};

/// How deep pipelines within pipelines are searched; deeper ones are refused when they are parsed.
const DEPTH_MAX: usize = 32;

/// Refuses a command that does not belong to version 1, or that is given what does not.
///
/// `name` is as the client spells it: other spellings of a command do not belong to it.
/// Errors: `APIStrictError`.
pub fn check_strict(command: &Command, name: &str, body: RawDoc<'_>) -> Result<(), Error> {
    let options = match command.api_v1 {
        ApiV1::Inside { except } if name == command.name => except,
        _ => {
            return Err(refused(format!(
                "Provided apiStrict:true, but the command {name} is not in API Version 1. \
                 Information on supported commands and migrations in API Version 1 can be found \
                 in the manual, \"Stable API\""
            )));
        }
    };
    for element in body.iter().skip(1) {
        if options.contains(&element.key()) {
            return Err(refused(format!(
                "BSON field '{name}.{}' is not allowed with apiStrict:true.",
                element.key()
            )));
        }
        match (element.key(), element.value()) {
            ("pipeline", RawValue::Array(stages)) => check_stages(stages, 0)?,
            ("indexes", RawValue::Array(indexes)) => check_indexes(indexes)?,
            _ => {}
        }
    }
    Ok(())
}

fn refused(message: String) -> Error {
    Error::new(ErrorCode::API_STRICT_ERROR, message)
}

/// Errors: a stage outside version 1, at any depth.
fn check_stages(stages: RawArray<'_>, depth: usize) -> Result<(), Error> {
    for stage in stages.iter() {
        let RawValue::Document(stage) = stage else {
            continue;
        };
        for element in stage.iter() {
            check_stage(element.key(), element.value(), depth)?;
        }
    }
    Ok(())
}

fn check_stage(name: &str, operand: RawValue<'_>, depth: usize) -> Result<(), Error> {
    if !stage_facts::of(name).api_v1 {
        return Err(refused(format!(
            "stage {name} is not allowed with 'apiStrict: true' in API Version 1"
        )));
    }
    let RawValue::Document(operand) = operand else {
        return Ok(());
    };
    if let Some(allowed) = stage_facts::of(name).options_in_v1
        && let Some(outside) = operand.iter().find(|field| !allowed.contains(&field.key()))
    {
        return Err(refused(format!(
            "the option {} of {name} is not allowed with 'apiStrict: true' in API Version 1",
            outside.key()
        )));
    }
    if depth == DEPTH_MAX {
        return Ok(());
    }
    for field in operand.iter() {
        if let RawValue::Array(stages) = field.value()
            && (field.key() == "pipeline" || stage_facts::of(name).holds_pipelines)
        {
            check_stages(stages, depth + 1)?;
        }
    }
    Ok(())
}

/// Options of indexes that do not belong to version 1.
const INDEX_OPTIONS_OUTSIDE: &[&str] = &["background", "bucketSize", "sparse", "storageEngine"];
/// Types of indexes that do not belong to version 1.
const INDEX_TYPES_OUTSIDE: &[&str] = &["geoHaystack", "text"];

fn check_indexes(indexes: RawArray<'_>) -> Result<(), Error> {
    for index in indexes.iter() {
        let RawValue::Document(index) = index else {
            continue;
        };
        for option in index.iter() {
            if INDEX_OPTIONS_OUTSIDE.contains(&option.key()) {
                return Err(refused(format!(
                    "BSON field 'createIndexes.indexes.{}' is not allowed with apiStrict:true.",
                    option.key()
                )));
            }
        }
        if let Some(RawValue::Document(key)) = index.get("key")
            && let Some(field) = key.iter().find(|field| {
                matches!(field.value(), RawValue::String(kind) if INDEX_TYPES_OUTSIDE.contains(&kind))
            })
        {
            return Err(refused(format!(
                "indexes of type {} are not allowed with apiStrict:true in API Version 1",
                field.value().as_str().unwrap_or_default()
            )));
        }
    }
    Ok(())
}
