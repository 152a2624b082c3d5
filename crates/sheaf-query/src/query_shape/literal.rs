//! Constants in a shape: each is replaced by its type.
//!
//! ```text
//!   5, 2.5             "?number"          []           "[]"
//!   "x"                "?string"          [1, 2]       "?array<?number>"
//!   {a: 1}             "?object"          [1, "x"]     "?array<>"
//! ```

use sheaf_bson::{DocBuilder, RawArray, RawValue};

/// Appends the type of a constant.
pub(super) fn append(key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
    match value {
        RawValue::Array(array) => out.append(key, of_array(array).as_str()),
        scalar => out.append(key, name(scalar)),
    };
}

fn of_array(array: RawArray<'_>) -> String {
    let mut elements = array.iter();
    let Some(first) = elements.next() else {
        return "[]".to_owned();
    };
    let found = name(first);
    if elements.all(|element| name(element) == found) {
        format!("?array<{found}>")
    } else {
        "?array<>".to_owned()
    }
}

fn name(value: RawValue<'_>) -> &'static str {
    match value {
        RawValue::Double(_) | RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Decimal128(_) => {
            "?number"
        }
        RawValue::String(_) => "?string",
        RawValue::Document(_) => "?object",
        RawValue::Array(_) => "?array",
        RawValue::Binary { .. } => "?binData",
        RawValue::Undefined => "?undefined",
        RawValue::ObjectId(_) => "?objectId",
        RawValue::Boolean(_) => "?bool",
        RawValue::DateTime(_) => "?date",
        RawValue::Null => "?null",
        RawValue::Regex { .. } => "?regex",
        RawValue::DbPointer { .. } => "?dbPointer",
        RawValue::JavaScript(_) => "?javascript",
        RawValue::Symbol(_) => "?symbol",
        RawValue::JavaScriptWithScope { .. } => "?javascriptWithScope",
        RawValue::Timestamp(_) => "?timestamp",
        RawValue::MinKey => "?minKey",
        RawValue::MaxKey => "?maxKey",
    }
}
