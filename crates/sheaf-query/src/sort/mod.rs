//! Sort patterns, and the sort key of a document.
//!
//! ```text
//!   {a: 1, "b.c": -1}  ──parse──>  SortPattern [a up, b.c down]
//!   document           ──SortKeyGenerator──>  bytes, smaller = earlier
//! ```
//!
//! An array sorts by its lowest element ascending and by its highest descending; an empty array
//! sorts as undefined (below null), a missing field as null. Sort fields must not traverse two
//! different arrays (BadValue, "cannot sort with keys that are parallel arrays").

use std::sync::Arc;

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::json::shell;
use sheaf_bson::path::{FieldPath, PARTS_MAX};
use sheaf_bson::{Collator, DocBuf, DocBuilder, Error, RawDoc, RawValue};

use crate::arithmetic::Number;
use crate::metadata::MetaField;

pub mod chunks;
mod key;

pub use key::{KeyFields, SortKey, SortKeyGenerator};

/// Maximum number of sort fields, as in a compound index.
pub const FIELDS_MAX: usize = 32;

/// A parsed sort document: `{a: 1, "b.c": -1}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPattern {
    /// The fields in order of precedence; never empty.
    pub parts: Vec<SortPart>,
    /// The collation for text; `None` to compare by bytes.
    pub collator: Option<Arc<Collator>>,
}

/// One field of a sort pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortPart {
    /// The dotted path.
    pub path: Arc<FieldPath>,
    /// Whether the direction is 1; false for -1.
    pub ascending: bool,
}

/// The meaning of a sort document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SortSpec {
    /// `{}`: no order.
    None,
    /// `{$natural: 1}` or `-1`: record order, which acts as a hint.
    Natural(i8),
    /// By values.
    Pattern(SortPattern),
}

fn location(code: i32, message: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), message)
}

impl SortSpec {
    /// Parses a sort document.
    ///
    /// Errors: 15975 for a numeric direction other than 1 and -1, 15974 for a value that is not a
    /// direction, 40352, 40353, 15998 and 16410 for invalid paths, 7472500 for a repeated field,
    /// BadValue for too many fields and for `$natural` with other fields, 31138 and the errors of
    /// [`MetaField::parse`] for `$meta`.
    pub fn parse(spec: RawDoc<'_>) -> Result<SortSpec, Error> {
        let mut parts: Vec<SortPart> = Vec::new();
        for element in spec.iter() {
            let (name, value) = (element.key(), element.value());
            if name == "$natural" {
                return natural(spec, value);
            }
            if parts.len() == FIELDS_MAX {
                return Err(location(
                    13103,
                    format!("too many sort keys: at most {FIELDS_MAX} are allowed"),
                ));
            }
            let path = sort_path(name)?;
            if parts.iter().any(|part| *part.path == path) {
                return Err(location(
                    7472500,
                    format!("a sort must not name a field twice (field: '{name}')"),
                ));
            }
            parts.push(SortPart {
                path: Arc::new(path),
                ascending: direction(name, value)?,
            });
        }
        Ok(if parts.is_empty() {
            SortSpec::None
        } else {
            SortSpec::Pattern(SortPattern {
                parts,
                collator: None,
            })
        })
    }
}

fn natural(spec: RawDoc<'_>, value: RawValue<'_>) -> Result<SortSpec, Error> {
    if spec.iter().nth(1).is_some() {
        return Err(Error::bad_value(
            "Cannot include '$natural' in compound sort; sort by it alone",
        ));
    }
    match value.as_i64_exact() {
        Some(direction @ (1 | -1)) => Ok(SortSpec::Natural(direction as i8)),
        _ => Err(Error::bad_value(
            "$natural sort cannot be set to a value other than -1 or 1.",
        )),
    }
}

/// Parses a direction; true is ascending.
fn direction(name: &str, value: RawValue<'_>) -> Result<bool, Error> {
    match value {
        RawValue::Document(doc) if let Some(meta) = doc.get("$meta") => {
            MetaField::parse(meta)?;
            Err(location(
                31138,
                format!("Illegal $meta sort: {name}: {}", shell(value)),
            ))
        }
        // The fraction of a direction is ignored.
        _ if value.is_number() => match Number::from_raw(value).map(Number::saturating_i64) {
            Some(1) => Ok(true),
            Some(-1) => Ok(false),
            _ => Err(location(
                15975,
                format!(
                    "$sort key ordering must be 1 (for ascending) or -1 (for descending), not {}",
                    shell(value)
                ),
            )),
        },
        _ => Err(location(
            15974,
            format!(
                "Illegal key in $sort specification: {name}: {}",
                shell(value)
            ),
        )),
    }
}

fn sort_path(name: &str) -> Result<FieldPath, Error> {
    if name.is_empty() {
        return Err(location(
            40352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if name.ends_with('.') {
        return Err(location(40353, "FieldPath must not end with a '.'."));
    }
    if name.split('.').any(str::is_empty) {
        return Err(location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    if name
        .split('.')
        .any(|part| part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db"))
    {
        return Err(location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    FieldPath::parse(name).map_err(|why| match name.split('.').count() > PARTS_MAX {
        true => Error::new(ErrorCode::OVERFLOW, why.message()),
        false => Error::bad_value(why.message()),
    })
}

impl SortPattern {
    /// The same pattern with text compared by this collation.
    pub fn with_collator(mut self, collator: Option<Arc<Collator>>) -> SortPattern {
        self.collator = collator;
        self
    }

    /// The pattern as a document: `{a: 1, b: -1}`.
    pub fn serialize(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        for part in &self.parts {
            out.append(part.path.dotted(), if part.ascending { 1 } else { -1 });
        }
        out.finish()
    }

    /// The dotted paths, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path.dotted())
    }
}

#[cfg(test)]
mod tests;
