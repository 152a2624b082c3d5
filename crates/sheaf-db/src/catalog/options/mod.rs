//! What a collection can be created with, one file an option that has more to it than a value.
//!
//! ```text
//!   create {..} ─ parse ─┐
//!                        ├─> CollectionOptions ─ to_doc ─> listCollections, the oplog, the catalog's row
//!   row {..} ── from_row ┘         └─ typed parts, compiled once: collator, images, ..
//! ```
//!
//! Invariant: reading what `to_doc` gives with `from_row` gives the same options. Options that ask for what
//! every collection is are taken and forgotten; what is not known is refused by name.

pub(crate) mod images;
mod timeseries;

use std::sync::Arc;

use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue,
    Result, compare_docs,
};

use sheaf_query::timeseries::TimeseriesOptions;

use crate::catalog::clustered::{ClusteredIndex, check_together, collection_expiry};
use crate::index::spec::IndexSpec;

/// The options of a collection.
#[derive(Debug, Clone, Default)]
pub struct CollectionOptions {
    /// Bytes that a collection of the server's own keeps.
    server_bytes: Option<u64>,
    keeps_images: bool,
    /// How text compares where a query or an index says nothing; `None`: by bytes.
    collator: Option<Arc<Collator>>,
    /// Its records stand in the order of `_id`.
    clustered: Option<ClusteredIndex>,
    /// Its documents are buckets of measurements.
    timeseries: Option<Arc<TimeseriesOptions>>,
    /// Seconds after the date in `_id` when a document of a clustered collection is deleted, or after that
    /// of a measurement.
    expire_after_seconds: Option<i64>,
}

impl PartialEq for CollectionOptions {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl CollectionOptions {
    /// Reads the fields of a `create` command other than its name and those that all commands have.
    /// Errors: `InvalidOptions` (known and not supported yet), `IDLUnknownField`, `TypeMismatch`.
    pub fn parse(fields: RawDoc<'_>) -> Result<CollectionOptions> {
        let mut options = CollectionOptions::default();
        for element in fields {
            if !options.parse_kept(element)? && element.key() != "idIndex" {
                check_option(element)?;
            }
        }
        check_together(fields)?;
        match fields.get("idIndex") {
            Some(RawValue::Document(spec)) => check_id_index(spec, &options)?,
            Some(value) => {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!(
                        "BSON field 'create.idIndex' is the wrong type '{}', expected type 'object'",
                        value.type_name()
                    ),
                ));
            }
            None => {}
        }
        if options.timeseries.is_some() {
            timeseries::check_others(fields)?;
        }
        Ok(options)
    }

    /// As the catalog's row has them.
    /// Errors: those of a collation that this program does not know.
    pub(crate) fn from_row(kept: RawDoc<'_>) -> Result<CollectionOptions> {
        let mut options = CollectionOptions::default();
        for element in kept {
            options.parse_kept(element)?;
        }
        if kept.get("capped").is_some() {
            let bytes = kept.get("size").and_then(|size| size.as_i64_exact());
            options.server_bytes = bytes.map(|bytes| bytes as u64);
        }
        Ok(options)
    }

    /// Takes an option that is kept; false for one that is not.
    fn parse_kept(&mut self, element: RawElement<'_>) -> Result<bool> {
        match (element.key(), element.value()) {
            (images::NAME, value) => self.keeps_images = images::parse(value)?,
            ("collation", RawValue::Document(spec)) => {
                self.collator = CollationChoice::parse(spec)?.collator().cloned();
            }
            (timeseries::NAME, value) => self.timeseries = Some(timeseries::parse(value)?),
            ("clusteredIndex", value) => self.clustered = Some(ClusteredIndex::parse(value)?),
            ("expireAfterSeconds", value) => {
                self.expire_after_seconds = Some(collection_expiry(value)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// For `listCollections`, the oplog and the catalog's row.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        if let Some(bytes) = self.server_bytes {
            out.append("capped", true);
            out.append("size", bytes as i64);
        }
        if self.keeps_images {
            images::append(&mut out);
        }
        if let Some(collator) = &self.collator {
            out.append_bson("collation", &collator.collation().to_doc());
        }
        if let Some(clustered) = &self.clustered {
            out.append_bson("clusteredIndex", &clustered.to_doc());
        }
        if let Some(timeseries) = &self.timeseries {
            timeseries::append(timeseries, &mut out);
        }
        if let Some(seconds) = self.expire_after_seconds {
            out.append("expireAfterSeconds", RawValue::int_or_long(seconds));
        }
        out.finish()
    }

    /// Whether a collection created with these is one created with `other`.
    pub fn same(&self, other: &CollectionOptions) -> bool {
        compare_docs(self.to_doc().as_raw(), other.to_doc().as_raw()).is_eq()
    }

    /// How text compares where a query or an index says nothing; `None`: by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// Whether the oplog keeps what documents were before a change, for change streams.
    pub fn keeps_images(&self) -> bool {
        self.keeps_images
    }

    /// What the records are clustered by; `None`: they stand in the order of insertion.
    pub fn clustered(&self) -> Option<&ClusteredIndex> {
        self.clustered.as_ref()
    }

    /// Seconds after the date in `_id` when a document of a clustered collection is deleted, or after that
    /// of a measurement.
    pub fn expire_after_seconds(&self) -> Option<i64> {
        self.expire_after_seconds
    }

    /// Those of a clustered collection.
    pub fn with_clustered(self, clustered: Option<ClusteredIndex>) -> CollectionOptions {
        CollectionOptions { clustered, ..self }
    }

    /// The same options, but for when documents expire.
    pub(crate) fn with_expiry(&self, seconds: Option<i64>) -> CollectionOptions {
        CollectionOptions {
            expire_after_seconds: seconds,
            ..self.clone()
        }
    }

    /// Those of a collection of the server's own that keeps so many bytes.
    pub(crate) fn capped_of_server(bytes: u64) -> CollectionOptions {
        CollectionOptions {
            server_bytes: Some(bytes),
            ..Default::default()
        }
    }
}

fn check_option(element: RawElement<'_>) -> Result<()> {
    let (option, value) = (element.key(), element.value());
    let asks_for_nothing = match (option, value) {
        ("capped" | "temp", value) => !value.is_truthy(),
        ("autoIndexId", value) => value.is_truthy(),
        // Without `capped` these two say nothing.
        ("size" | "max", value) if value.is_number() => true,
        ("storageEngine" | "indexOptionDefaults" | "validator", RawValue::Document(d)) => {
            d.is_empty()
        }
        (
            "size"
            | "max"
            | "storageEngine"
            | "indexOptionDefaults"
            | "validator"
            | "validationLevel"
            | "validationAction"
            | "collation"
            | "viewOn"
            | "pipeline"
            | "encryptedFields"
            | "changeStreamPreAndPostImages"
            | "idIndex"
            | "flags"
            | "recordIdsReplicated",
            _,
        ) => false,
        _ => {
            return Err(Error::new(
                ErrorCode::IDL_UNKNOWN_FIELD,
                format!("BSON field 'create.{option}' is an unknown field."),
            ));
        }
    };
    if asks_for_nothing {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::INVALID_OPTIONS,
        format!("the option '{option}: {value}' of create is not supported yet; leave it out"),
    ))
}

fn check_id_index(spec: RawDoc<'_>, options: &CollectionOptions) -> Result<()> {
    let parsed = IndexSpec::parse(spec)?;
    if parsed.is_id_index() {
        return parsed.check_id_collation(options.collator());
    }
    Err(Error::bad_value(format!(
        "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
        shell_doc(parsed.key.as_raw())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn taken_and_refused() {
        for taken in [
            doc! {},
            doc! {"capped": false, "size": 4096},
            doc! {"validator": {}, "storageEngine": {}},
            doc! {"collation": {"locale": "simple"}},
            doc! {"idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 2}},
            doc! {"changeStreamPreAndPostImages": {"enabled": false}},
        ] {
            let options = CollectionOptions::parse(taken.as_raw()).unwrap();
            assert!(options.same(&CollectionOptions::default()), "{taken}");
        }
        for (refused, code) in [
            (doc! {"capped": true, "size": 4096}, 72),
            (doc! {"validator": {"a": 1}}, 72),
            (doc! {"viewOn": "x"}, 72),
            (doc! {"timeseries": {"timeField": "t"}, "validator": {}}, 72),
            (doc! {"timeseries": "t"}, 14),
            (doc! {"collation": {"locale": "xx"}}, 2),
            (doc! {"collation": "de"}, 72),
            (
                doc! {"collation": {"locale": "de"},
                "idIndex": {"key": {"_id": 1}, "name": "_id_", "collation": {"locale": "en"}}},
                2,
            ),
            (doc! {"expireAfterSeconds": 5}, 72),
            (doc! {"idIndex": {"key": {"a": 1}, "name": "a"}}, 2),
            (doc! {"nonsense": 1}, 40415),
        ] {
            let error = CollectionOptions::parse(refused.as_raw()).unwrap_err();
            assert_eq!(error.code().0, code, "{refused}");
        }
    }
}
