//! `{$meta: name}`: metadata of a document.
//!
//! ```text
//!   recordId    the record id
//!   indexKey    the index key by which the document was found
//!   sortKey     the values by which the results are sorted, an array
//!   randVal     a random number
//!   textScore, geoNearDistance, searchScore ...    of indexes that do not exist yet
//! ```
//!
//! Metadata is available in the find layer: in a find's projection, and in a pipeline's `$project`
//! and `$addFields` that follow only `$match`, `$sort`, `$skip` and `$limit`.
//!
//! Source: the manual's page on `$meta`.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{RawArray, RawDoc, RawValue, RecordId};

use crate::location::location;

/// The field that carries the score of `$vectorSearch` through a pipeline.
pub const SCORE_FIELD: &str = "\u{1}vectorSearchScore";
/// The name of that score in `$meta`.
pub const META_NAME: &str = "vectorSearchScore";

/// The available metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MetaField {
    RecordId,
    IndexKey,
    SortKey,
    RandVal,
}

/// The metadata of one document.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata<'a> {
    /// The record id.
    pub record_id: Option<&'a RecordId>,
    /// The index key by which it was found; `None` without an index.
    pub index_key: Option<RawDoc<'a>>,
    /// The sort key; `None` if the results are not sorted.
    pub sort_key: Option<RawArray<'a>>,
}

/// Metadata that no plan provides, with its name in the error message.
const UNAVAILABLE: [(&str, &str); 9] = [
    ("textScore", "text score"),
    ("geoNearDistance", "$geoNear distance"),
    ("geoNearPoint", "$geoNear point"),
    ("searchScore", "$search score"),
    ("searchHighlights", "$search highlights"),
    ("searchScoreDetails", "$search score details"),
    ("vectorSearchScore", "$vectorSearch score"),
    ("score", "score"),
    ("scoreDetails", "score details"),
];

impl MetaField {
    /// Parses the operand of `$meta`. Errors: 17307 if it is not a string, 17308 for an unknown
    /// name, 40218 for metadata that no plan provides.
    pub fn parse(operand: RawValue<'_>) -> Result<MetaField> {
        let RawValue::String(name) = operand else {
            return Err(location(17307, "The argument to $meta must be a string"));
        };
        match name {
            "recordId" => Ok(MetaField::RecordId),
            "indexKey" => Ok(MetaField::IndexKey),
            "sortKey" => Ok(MetaField::SortKey),
            "randVal" => Ok(MetaField::RandVal),
            _ => match UNAVAILABLE.iter().find(|(known, _)| *known == name) {
                Some((_, what)) => Err(unavailable(what)),
                None => Err(location(
                    17308,
                    format!("Unsupported argument to $meta: {name}"),
                )),
            },
        }
    }

    /// The error for metadata that is not available for a document.
    pub(crate) fn unavailable(self) -> Error {
        unavailable(match self {
            MetaField::RecordId => "record ID",
            MetaField::IndexKey => "index key",
            MetaField::SortKey => "sort key",
            MetaField::RandVal => "rand val",
        })
    }
}

fn unavailable(what: &str) -> Error {
    Error::new(
        ErrorCode(40218),
        format!("query requires {what} metadata, but it is not available"),
    )
}
