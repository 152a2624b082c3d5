//! `{$meta: name}`: what is known of a document besides its fields.
//!
//! ```text
//!   recordId    where it is stored
//!   indexKey    the index key that it was found by
//!   sortKey     the values that it is sorted by, an array
//!   randVal     a random number
//!   textScore, geoNearDistance, searchScore ...    of indexes that do not exist yet
//! ```
//!
//! It is known where the find layer makes the document: in a find's projection, and in a pipeline's
//! `$project` and `$addFields` that stand behind nothing but `$match`, `$sort`, `$skip` and `$limit`.
//!
//! Source: the manual's page on `$meta`.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{RawArray, RawDoc, RawValue, RecordId};

use crate::expression::location;

/// What `$meta` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MetaField {
    RecordId,
    IndexKey,
    SortKey,
    RandVal,
}

/// What is known of one document.
#[derive(Debug, Clone, Copy, Default)]
pub struct Metadata<'a> {
    /// Where it is stored.
    pub record_id: Option<&'a RecordId>,
    /// By which key it was found; `None`: by none.
    pub index_key: Option<RawDoc<'a>>,
    /// By what it is sorted.
    pub sort_key: Option<RawArray<'a>>,
}

/// Of what no plan gives, the words of the error.
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
    /// Errors: 17307 for no string, 17308 for a name that there is not, 40218 for what no plan gives.
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

    /// The error where this is not known of a document.
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
