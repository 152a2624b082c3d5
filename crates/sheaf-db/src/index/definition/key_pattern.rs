//! Key patterns: the fields of an index, their directions, and the default name derived from them.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{Error, RawDoc, RawValue, Result};

use super::cannot_create;

/// Maximum number of fields in a key pattern.
pub const KEY_FIELDS_MAX: usize = 32;

/// Default name of an index: `a_1_b.c_-1`.
pub fn default_index_name(key: RawDoc<'_>) -> String {
    let parts: Vec<String> = key
        .iter()
        .map(|e| match e.value() {
            RawValue::String(plugin) => format!("{}_{plugin}", e.key()),
            RawValue::Double(d) if d.fract() == 0.0 => format!("{}_{}", e.key(), d as i64),
            value => format!("{}_{value}", e.key()),
        })
        .collect();
    parts.join("_")
}

/// Checks fields and directions. Returns true for the pattern of the `_id` index.
pub(super) fn check_key_pattern(key: RawDoc<'_>) -> Result<bool> {
    let mut fields: Vec<&str> = Vec::new();
    for element in key {
        let (path, value) = (element.key(), element.value());
        check_direction(path, value)?;
        check_key_path(path)?;
        if fields.contains(&path) {
            return Err(cannot_create(format!(
                "the field '{path}' appears twice in the index key pattern {}",
                shell_doc(key)
            )));
        }
        fields.push(path);
    }
    if fields.is_empty() {
        return Err(cannot_create("Index keys cannot be empty."));
    }
    if fields.len() > KEY_FIELDS_MAX {
        return Err(cannot_create(format!(
            "Index key pattern has {} fields, more than the {KEY_FIELDS_MAX} allowed",
            fields.len()
        )));
    }
    if fields != ["_id"] {
        return Ok(false);
    }
    match key.get("_id").and_then(|v| v.as_i64_exact()) {
        Some(1) => Ok(true),
        Some(-1) => Err(Error::bad_value(format!(
            "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
            shell_doc(key)
        ))),
        _ => Ok(false),
    }
}

fn check_direction(path: &str, value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::String("hashed") if !is_wildcard(path) => Ok(()),
        RawValue::String(
            plugin @ ("text" | "2dsphere" | "2d" | "hashed" | "geoHaystack" | "wildcard"
            | "columnstore"),
        ) => Err(cannot_create(format!(
            "indexes of type '{plugin}' (field '{path}') are not supported yet; use 1 or -1"
        ))),
        RawValue::String(plugin) => Err(cannot_create(format!("Unknown index plugin '{plugin}'"))),
        value if value.is_number() => match value.as_f64() {
            Some(direction) if direction != 0.0 && !direction.is_nan() => Ok(()),
            _ => Err(cannot_create(format!(
                "Values in the index key pattern cannot be {value}; use 1 or -1 for '{path}'"
            ))),
        },
        value => Err(cannot_create(format!(
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, \
             and strings are allowed.",
            value.type_name()
        ))),
    }
}

fn check_key_path(path: &str) -> Result<()> {
    let path = match path {
        "$**" => return Ok(()),
        path => path.strip_suffix(".$**").unwrap_or(path),
    };
    if path.is_empty() {
        return Err(cannot_create("Index keys cannot be an empty field."));
    }
    for part in path.split('.') {
        if part.is_empty() {
            return Err(cannot_create(format!(
                "Index key '{path}' cannot contain an empty field, nor start or end with a dot."
            )));
        }
        // DBRef fields are the one place where names that begin with `$` are data.
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            return Err(cannot_create(format!(
                "Index key contains an illegal field name: field name '{part}' starts with '$'."
            )));
        }
    }
    Ok(())
}

pub(super) fn is_wildcard(path: &str) -> bool {
    path == "$**" || path.ends_with(".$**")
}
