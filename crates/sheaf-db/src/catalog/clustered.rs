//! Clustered collections: records are stored in the order of their `_id`, under its KeyString.
//!
//! ```text
//!   any collection          index on _id:  _id -> record id      records:  record id -> document
//!   clustered collection                                         records:  _id       -> document
//! ```
//!
//! There is no separate index on `_id`: the tree of records is that index, and plans, hints and
//! `listIndexes` call it the clustered index. `_id` is unique because a record's key is.
//!
//! With `expireAfterSeconds`, documents whose `_id` is a date expire as with a TTL index.

use std::sync::Arc;

use sheaf_bson::collation::{shown_key_value, text_of_sort_key};
use sheaf_bson::fields::{missing_field, unknown_field, wrong_type};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{
    Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, RecordId, Result,
    Value, doc, json,
};
use sheaf_query::planner::index_entry::{IndexEntry, IndexKind, fields_of};
use sheaf_storage::TableId;

use crate::catalog::duplicate_key::DuplicateKey;
use crate::catalog::namespace::Namespace;
use crate::index::definition::{ID_INDEX_NAME, IndexSpec};

/// The clustered index of a collection. Its key is always `{_id: 1}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteredIndex {
    name: String,
}

impl ClusteredIndex {
    /// Creates a clustered index with this name.
    pub fn named(name: impl Into<String>) -> ClusteredIndex {
        ClusteredIndex { name: name.into() }
    }

    /// Parses the option `clusteredIndex` of `create`.
    ///
    /// Errors: `TypeMismatch`, `IDLUnknownField`, `IDLFailedToParse` for a missing field,
    /// `InvalidIndexSpecificationOption` for another key, 5979700 without `unique: true`, 5979704
    /// for another version, 5979703 for `true`. `None` for false.
    pub fn parse(value: RawValue<'_>) -> Result<Option<ClusteredIndex>> {
        let spec = match value {
            RawValue::Document(spec) => spec,
            // The server's own collections once used this form.
            value if value.as_bool().is_some() || value.is_number() => {
                if !value.is_truthy() {
                    return Ok(None);
                }
                return Err(Error::new(
                    ErrorCode(5979703),
                    "'clusteredIndex' must be a document: {key: {_id: 1}, unique: true}",
                ));
            }
            value => return Err(wrong_type("create.clusteredIndex", value, "object")),
        };
        let (mut key, mut unique, mut name) = (None, None, None);
        for element in spec {
            match (element.key(), element.value()) {
                ("key" | "unique" | "name" | "v", RawValue::Null | RawValue::Undefined) => {}
                ("key", RawValue::Document(pattern)) => key = Some(pattern),
                ("key", value) => {
                    return Err(wrong_type("create.clusteredIndex.key", value, "object"));
                }
                ("unique", RawValue::Boolean(value)) => unique = Some(value),
                ("unique", value) if value.is_number() => unique = Some(value.is_truthy()),
                ("unique", value) => {
                    return Err(wrong_type("create.clusteredIndex.unique", value, "bool"));
                }
                ("name", RawValue::String(text)) => name = Some(text),
                ("name", value) => {
                    return Err(wrong_type("create.clusteredIndex.name", value, "string"));
                }
                ("v", value) => check_version(value)?,
                (other, _) => {
                    return Err(unknown_field(format_args!("create.clusteredIndex.{other}")));
                }
            }
        }
        let key = key.ok_or_else(|| missing_field("create.clusteredIndex.key"))?;
        let unique = unique.ok_or_else(|| missing_field("create.clusteredIndex.unique"))?;
        let is_id = |element: RawElement<'_>| {
            element.key() == "_id" && element.value().as_i64_exact() == Some(1)
        };
        if key.iter().count() != 1 || !key.iter().all(is_id) {
            return Err(Error::new(
                ErrorCode::INVALID_INDEX_SPECIFICATION_OPTION,
                format!(
                    "a collection can be clustered by {{_id: 1}} only, got 'clusteredIndex.key' {}",
                    json::shell_doc(key)
                ),
            ));
        }
        if !unique {
            return Err(Error::new(
                ErrorCode(5979700),
                "'clusteredIndex' must have unique: true",
            ));
        }
        let name = name.unwrap_or(ID_INDEX_NAME);
        check_name(name)?;
        Ok(Some(ClusteredIndex::named(name)))
    }

    /// Name in hints and `listIndexes`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The option as `listCollections` shows it and the catalog row stores it.
    pub fn to_doc(&self) -> DocBuf {
        doc! {"v": 2, "key": {"_id": 1}, "name": self.name.as_str(), "unique": true}
    }

    /// The index as `listIndexes` shows it.
    pub fn to_index_doc(&self, collator: Option<&Collator>, expires: Option<i64>) -> DocBuf {
        let mut out = DocBuilder::from_doc(self.to_doc().as_raw());
        out.append("clustered", true);
        if let Some(collator) = collator {
            out.append_bson("collation", &collator.collation().to_doc());
        }
        if let Some(seconds) = expires {
            out.append("expireAfterSeconds", RawValue::int_or_long(seconds));
        }
        out.finish()
    }

    /// The index as a spec, for comparison with specs of other indexes.
    pub(crate) fn to_spec(&self) -> IndexSpec {
        IndexSpec {
            name: self.name.clone(),
            unique: true,
            clustered: true,
            ..IndexSpec::id_index()
        }
    }

    /// The planner's view: the records' table is the index's table.
    pub(crate) fn entry(
        &self,
        table: TableId,
        collator: Option<&Arc<Collator>>,
    ) -> Result<IndexEntry> {
        let key = doc! {"_id": 1};
        let (fields, _) = fields_of(key.as_raw(), None)?;
        Ok(IndexEntry {
            name: self.name.clone(),
            ident: table.0,
            key_pattern: key,
            fields,
            kind: IndexKind::Btree,
            clustered: true,
            multikey: false,
            multikey_paths: vec![Vec::new()],
            unique: true,
            sparse: false,
            partial_filter: None,
            partial_filter_spec: None,
            collator: collator.cloned(),
            hidden: false,
            version: 2,
        })
    }

    /// The error of a second document with the same `_id`.
    pub(crate) fn duplicate_key(
        &self,
        ns: &Namespace,
        collator: Option<&Collator>,
        id: RawValue<'_>,
    ) -> Error {
        let shown = match (collator, id) {
            (Some(collator), RawValue::String(text)) => {
                Value::String(text_of_sort_key(&collator.key_text(text)))
            }
            (Some(collator), id) => shown_key_value(collator.key_value(id).as_raw()),
            (None, id) => id.to_value(),
        };
        DuplicateKey {
            ns,
            index: &self.name,
            key_pattern: &doc! {"_id": 1},
            collator,
            values: Some(doc! {"_id": shown}),
        }
        .error()
    }
}

/// Record id of the document with this `_id`; text is encoded with the collection's collation.
pub fn record_id_of_id(id: RawValue<'_>, collator: Option<&Collator>) -> RecordId {
    let mut key = KeyStringBuilder::new(Directions::ascending());
    key.append_with(id, collator);
    RecordId::of_key_string(key.as_bytes())
}

/// Checks for options that cannot be combined with `clusteredIndex` or `expireAfterSeconds`.
/// Errors: `InvalidOptions`.
pub(crate) fn check_together(fields: RawDoc<'_>) -> Result<()> {
    let given = |name: &str| {
        let value = fields.get(name);
        value.filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
    };
    let says = |name: &str| given(name).is_some_and(|value| value != RawValue::Boolean(false));
    // As in MongoDB, even a false `clusteredIndex` excludes these.
    if given("clusteredIndex").is_some() {
        for (other, code) in [("viewOn", 6026500), ("capped", 6049200), ("max", 6049204)] {
            if says(other) {
                return Err(Error::new(
                    ErrorCode(code),
                    format!(
                        "'clusteredIndex' cannot be combined with '{other}'; leave one of them out"
                    ),
                ));
            }
        }
    }
    if given("clusteredIndex").is_some_and(|value| value.is_truthy()) {
        for other in ["size", "idIndex", "timeseries"] {
            if says(other) {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!(
                        "'clusteredIndex' cannot be combined with '{other}'; leave one of \
                         them out"
                    ),
                ));
            }
        }
        if fields.get("autoIndexId").is_some() {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                "'clusteredIndex' cannot be combined with 'autoIndexId'; leave one of them out",
            ));
        }
    } else if says("expireAfterSeconds") && !says("timeseries") {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "'expireAfterSeconds' is supported only on clustered and time-series collections; on \
             other collections create a TTL index",
        ));
    }
    Ok(())
}

/// Parses a collection's `expireAfterSeconds`: any number, whole as in other arguments.
/// Errors: `TypeMismatch`; `InvalidOptions` for a negative one or one whose milliseconds do not fit
/// 64 bits.
pub(crate) fn collection_expiry(value: RawValue<'_>) -> Result<i64> {
    let seconds = whole_seconds(value)?;
    match seconds.checked_mul(1000) {
        Some(_) => Ok(seconds),
        None => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!(
                "'expireAfterSeconds' is too large: {seconds} seconds in milliseconds do not fit 64 bits"
            ),
        )),
    }
}

/// Parses `expireAfterSeconds` of collMod and create: fractions are cut off, NaN is 0.
/// Errors: `TypeMismatch`; `InvalidOptions` for a negative number.
pub(crate) fn whole_seconds(value: RawValue<'_>) -> Result<i64> {
    let seconds = match value {
        RawValue::Decimal128(decimal) => decimal.to_i64_saturating(),
        value => match (value.as_i64_exact(), value.as_f64()) {
            (Some(seconds), _) => seconds,
            // `as` saturates, and makes 0 of NaN.
            (None, Some(seconds)) => seconds as i64,
            (None, None) => {
                return Err(wrong_type(
                    "expireAfterSeconds",
                    value,
                    "[long, int, decimal, double]",
                ));
            }
        },
    };
    match seconds >= 0 {
        true => Ok(seconds),
        false => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!("'expireAfterSeconds' cannot be less than 0, got {seconds}"),
        )),
    }
}

fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(Error::bad_value(
            "the clustered index's name cannot be empty",
        )),
        "*" => Err(Error::bad_value("The index name '*' is not valid.")),
        name if name.contains('\0') => Err(Error::bad_value(
            "the clustered index's name cannot contain NUL bytes",
        )),
        _ => Ok(()),
    }
}

fn check_version(value: RawValue<'_>) -> Result<()> {
    if !value.is_number() {
        return Err(wrong_type("create.clusteredIndex.v", value, "int"));
    }
    let version = match value {
        RawValue::Decimal128(decimal) => decimal.to_i64_saturating(),
        value => value
            .as_i64_exact()
            .unwrap_or_else(|| value.as_f64().unwrap_or(0.0) as i64),
    };
    match version {
        2 => Ok(()),
        _ => Err(Error::new(
            ErrorCode(5979704),
            format!("the version 'v' of a clustered index must be 2, got {value}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form() {
        for spec in [
            doc! {"key": {"_id": 1}, "unique": true},
            doc! {"key": {"_id": 1.0}, "unique": true, "v": 2, "name": "_id_"},
            doc! {"v": 2i64, "unique": 1, "name": "_id_", "key": {"_id": 1i64}},
        ] {
            let parsed = ClusteredIndex::parse(RawValue::Document(spec.as_raw()))
                .unwrap()
                .unwrap();
            let shown = "{ v: 2, key: { _id: 1 }, name: \"_id_\", unique: true }";
            assert_eq!(parsed.to_doc().to_string(), shown, "{spec}");
            assert_eq!(
                ClusteredIndex::parse(RawValue::Document(parsed.to_doc().as_raw()))
                    .unwrap()
                    .unwrap(),
                parsed
            );
        }
    }

    #[test]
    fn refused() {
        for (spec, code) in [
            (doc! {}, 40414),
            (doc! {"key": {"_id": 1}}, 40414),
            (doc! {"unique": true}, 40414),
            (doc! {"key": {"_id": 1}, "unique": false}, 5979700),
            (doc! {"key": {"_id": -1}, "unique": true}, 197),
            (doc! {"key": {"_id": "hashed"}, "unique": true}, 197),
            (doc! {"key": {"a": 1}, "unique": true}, 197),
            (doc! {"key": {"_id": 1, "a": 1}, "unique": true}, 197),
            (doc! {"key": {}, "unique": true}, 197),
            (doc! {"key": 1, "unique": true}, 14),
            (doc! {"key": {"_id": 1}, "unique": "yes"}, 14),
            (doc! {"key": {"_id": 1}, "unique": true, "v": 1}, 5979704),
            (doc! {"key": {"_id": 1}, "unique": true, "v": "2"}, 14),
            (doc! {"key": {"_id": 1}, "unique": true, "name": 1}, 14),
            (doc! {"key": {"_id": 1}, "unique": true, "name": ""}, 2),
            (doc! {"key": {"_id": 1}, "unique": true, "name": "*"}, 2),
            (
                doc! {"key": {"_id": 1}, "unique": true, "sparse": true},
                40415,
            ),
        ] {
            let error = ClusteredIndex::parse(RawValue::Document(spec.as_raw())).unwrap_err();
            assert_eq!(error.code().0, code, "{spec}");
        }
        assert_eq!(
            ClusteredIndex::parse(RawValue::Boolean(true))
                .unwrap_err()
                .code()
                .0,
            5979703
        );
        assert_eq!(
            ClusteredIndex::parse(RawValue::Int32(1))
                .unwrap_err()
                .code()
                .0,
            5979703
        );
    }

    #[test]
    fn alone() {
        let clustered = doc! {"key": {"_id": 1}, "unique": true};
        for (fields, taken) in [
            (doc! {"clusteredIndex": clustered.as_raw()}, true),
            (
                doc! {"clusteredIndex": clustered.as_raw(), "expireAfterSeconds": 5, "capped": false},
                true,
            ),
            (
                doc! {"clusteredIndex": clustered.as_raw(), "capped": true, "size": 4096},
                false,
            ),
            (doc! {"clusteredIndex": clustered.as_raw(), "max": 5}, false),
            (
                doc! {"clusteredIndex": clustered.as_raw(), "idIndex": {"key": {"_id": 1}, "name": "_id_"}},
                false,
            ),
            (
                doc! {"clusteredIndex": clustered.as_raw(), "timeseries": {"timeField": "t"}},
                false,
            ),
            (doc! {"expireAfterSeconds": 5}, false),
            (
                doc! {"expireAfterSeconds": 5, "timeseries": {"timeField": "t"}},
                true,
            ),
        ] {
            assert_eq!(check_together(fields.as_raw()).is_ok(), taken, "{fields}");
        }
    }
}
