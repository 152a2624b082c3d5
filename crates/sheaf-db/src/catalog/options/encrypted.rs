//! `encryptedFields`: which fields clients encrypt (Queryable Encryption).
//!
//! Clients read the option from `listCollections`, encrypt these fields and decrypt them. The
//! server keeps the option as it was given, and does not search by encrypted values.

use std::sync::Arc;

use sheaf_bson::fields::{missing_field, unknown_field, wrong_type};
use sheaf_bson::{DocBuf, Error, RawDoc, RawElement, RawValue, Result};

/// Name of the option.
pub(super) const NAME: &str = "encryptedFields";

/// Checks the option.
/// Errors: `TypeMismatch`, `IDLUnknownField`, `IDLFailedToParse`, `BadValue`.
pub(super) fn parse(value: RawValue<'_>) -> Result<Option<Arc<DocBuf>>> {
    let spec = match value {
        RawValue::Document(spec) => spec,
        RawValue::Null | RawValue::Undefined => return Ok(None),
        value => return Err(wrong_type(format_args!("create.{NAME}"), value, "object")),
    };
    let mut fields = None;
    for element in spec {
        match (element.key(), element.value()) {
            ("fields", RawValue::Array(list)) => fields = Some(list),
            ("fields", value) => return Err(not_a("fields", value, "array")),
            ("escCollection" | "ecocCollection" | "eccCollection", RawValue::String(_)) => {}
            (name @ ("escCollection" | "ecocCollection" | "eccCollection"), value) => {
                return Err(not_a(name, value, "string"));
            }
            ("strEncodeVersion", value) if value.is_number() => {}
            (other, _) => return Err(unknown_field(format_args!("create.{NAME}.{other}"))),
        }
    }
    let fields = fields.ok_or_else(|| missing_field(format_args!("create.{NAME}.fields")))?;
    let mut paths: Vec<&str> = Vec::new();
    for field in fields {
        match field {
            RawValue::Null => {}
            RawValue::Document(field) => paths.push(check_field(field)?),
            value => return Err(not_a("fields", value, "object")),
        }
    }
    paths.sort_unstable();
    let within = |pair: &[&str]| match pair[1].strip_prefix(pair[0]) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    if let Some(pair) = paths.windows(2).find(|pair| within(pair)) {
        return Err(Error::bad_value(format!(
            "encrypted fields cannot be the same or within each other: '{}' and '{}'",
            pair[0], pair[1]
        )));
    }
    Ok(Some(Arc::new(spec.to_buf())))
}

/// Checks one field and returns its path.
fn check_field(field: RawDoc<'_>) -> Result<&str> {
    let (mut path, mut has_key) = (None, false);
    for element in field {
        match (element.key(), element.value()) {
            ("path", RawValue::String(name)) => path = Some(name),
            ("path" | "bsonType", value) if !matches!(value, RawValue::String(_)) => {
                return Err(not_a(&format!("fields.{}", element.key()), value, "string"));
            }
            ("bsonType", _) => {}
            ("keyId", RawValue::Binary { subtype: 4, .. }) => has_key = true,
            ("keyId", value) => return Err(not_a("fields.keyId", value, "binData (UUID)")),
            ("queries", value) => check_queries(value)?,
            (other, _) => return Err(unknown_field(format_args!("create.{NAME}.fields.{other}"))),
        }
    }
    let path = path.ok_or_else(|| missing_field(format_args!("create.{NAME}.fields.path")))?;
    if !has_key {
        return Err(missing_field(format_args!("create.{NAME}.fields.keyId")));
    }
    match path.split('.').next() {
        Some("_id") => Err(Error::bad_value("the field '_id' cannot be encrypted")),
        _ if path
            .split('.')
            .any(|part| part.is_empty() || part.starts_with('$')) =>
        {
            Err(Error::bad_value(format!(
                "'{path}' is not a path of a field that can be encrypted"
            )))
        }
        _ => Ok(path),
    }
}

fn check_queries(value: RawValue<'_>) -> Result<()> {
    let check = |query: RawValue<'_>| match query {
        RawValue::Document(query) => query.iter().try_for_each(|e| check_query(&e)),
        value => Err(not_a("fields.queries", value, "object")),
    };
    match value {
        RawValue::Array(queries) => queries.iter().try_for_each(check),
        value => check(value),
    }
}

fn check_query(element: &RawElement<'_>) -> Result<()> {
    const TYPES: &[&str] = &[
        "equality",
        "range",
        "prefixPreview",
        "suffixPreview",
        "substringPreview",
    ];
    match (element.key(), element.value()) {
        ("queryType", RawValue::String(kind)) if TYPES.contains(&kind) => Ok(()),
        ("queryType", RawValue::String(kind)) => Err(Error::bad_value(format!(
            "Enumeration value '{kind}' for field 'queryType' is not a valid value; known are {}",
            TYPES.join(", ")
        ))),
        ("queryType", value) => Err(not_a("fields.queries.queryType", value, "string")),
        (
            "contention" | "min" | "max" | "sparsity" | "precision" | "trimFactor" | "strMaxLength"
            | "strMinQueryLength" | "strMaxQueryLength" | "caseSensitive" | "diacriticSensitive",
            _,
        ) => Ok(()),
        (other, _) => Err(unknown_field(format_args!(
            "create.{NAME}.fields.queries.{other}"
        ))),
    }
}

fn not_a(field: &str, value: RawValue<'_>, expected: &str) -> Error {
    wrong_type(format_args!("create.{NAME}.{field}"), value, expected)
}

#[cfg(test)]
mod tests {
    use sheaf_bson::doc;

    use super::*;

    fn code(spec: DocBuf) -> i32 {
        match parse(RawValue::Document(spec.as_raw())) {
            Ok(_) => 0,
            Err(error) => error.code().0,
        }
    }

    #[test]
    fn checked() {
        let key = RawValue::Binary {
            subtype: 4,
            bytes: &[3; 16],
        };
        let field = |path: &str| doc! {"path": path, "keyId": key};
        for accepted in [
            doc! {"fields": []},
            doc! {"fields": [null, field("a.b"), null]},
            doc! {"fields": [{"path": "a", "keyId": key, "bsonType": "int", "queries": {"queryType": "range", "min": 1}}]},
            doc! {"fields": [{"path": "a", "keyId": key, "queries": [{"queryType": "equality", "contention": 4}]}]},
            doc! {"fields": [field("a"), field("ab")], "escCollection": "enxcol_.c.esc", "eccCollection": "x"},
        ] {
            assert_eq!(code(accepted.clone()), 0, "{accepted}");
        }
        for (refused, expected) in [
            (doc! {}, 40414),
            (doc! {"fields": 1}, 14),
            (doc! {"fields": [1]}, 14),
            (doc! {"fields": [{"path": "a"}]}, 40414),
            (doc! {"fields": [{"keyId": key}]}, 40414),
            (doc! {"fields": [{"path": "a", "keyId": "x"}]}, 14),
            (doc! {"fields": [field("_id")]}, 2),
            (doc! {"fields": [field("a"), field("a.b")]}, 2),
            (doc! {"fields": [field("a"), field("a")]}, 2),
            (doc! {"fields": [field("a.")]}, 2),
            (doc! {"fields": [], "other": 1}, 40415),
            (
                doc! {"fields": [{"path": "a", "keyId": key, "queries": {"queryType": "x"}}]},
                2,
            ),
        ] {
            assert_eq!(code(refused.clone()), expected, "{refused}");
        }
        assert_eq!(parse(RawValue::Null).unwrap(), None);
    }
}
