//! Options of a collection; each option that is more than a simple value has a separate file.
//!
//! ```text
//!   create {..} ─ parse ─┐
//!                        ├─> CollectionOptions ─ to_doc ─> listCollections, the oplog, the catalog's row
//!   row {..} ── from_row ┘         └─ typed parts, compiled once: collator, images, ..
//! ```
//!
//! Invariant: `from_row` of the result of `to_doc` yields the same options. Options that request
//! what every collection does anyway are accepted and dropped; unknown options are rejected by
//! name.

pub(crate) mod capped;
mod encrypted;
pub(crate) mod images;
mod timeseries;
pub(crate) mod validation;

use std::sync::Arc;

use sheaf_bson::fields::{missing_field, unknown_field, wrong_type};
use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue,
    Result, compare_docs,
};

pub use capped::Capped;
use sheaf_query::timeseries::TimeseriesOptions;
pub use validation::{Validation, ValidationAction, ValidationLevel};

use crate::catalog::clustered::{ClusteredIndex, check_together, collection_expiry};
use crate::catalog::namespace::Namespace;
use crate::index::definition::{IndexSpec, storage_engine};
use crate::system_names::is_internal_database;

/// The options of a collection.
#[derive(Debug, Clone, Default)]
pub struct CollectionOptions {
    capped: Option<Capped>,
    keeps_images: bool,
    validation: Validation,
    /// Default collation of queries and indexes; `None` for byte order.
    collator: Option<Arc<Collator>>,
    /// Set if records are stored in the order of `_id`.
    clustered: Option<ClusteredIndex>,
    /// Set if the documents are buckets of measurements.
    timeseries: Option<Arc<TimeseriesOptions>>,
    /// Seconds until a document expires, after the date in the `_id` of a clustered collection or
    /// after the time of a measurement.
    expire_after_seconds: Option<i64>,
    /// Settings of MongoDB's engine, kept for tools.
    storage_engine: Option<DocBuf>,
    /// The same for the collection's indexes.
    index_defaults: Option<DocBuf>,
    /// The fields that clients encrypt, as given.
    encrypted_fields: Option<Arc<DocBuf>>,
    /// The next start drops the collection.
    temporary: bool,
}

impl PartialEq for CollectionOptions {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

impl CollectionOptions {
    /// Parses the fields of a `create` command, other than its name and the fields common to all
    /// commands.
    /// Errors: `InvalidOptions` (known but not supported), `IDLUnknownField`, `TypeMismatch`, those
    /// of a collation and of a validator.
    pub fn parse(fields: RawDoc<'_>) -> Result<CollectionOptions> {
        check_together(fields)?;
        let options = CollectionOptions::read(fields, &check_option)?;
        match fields.get("idIndex") {
            Some(RawValue::Document(spec)) => check_id_index(spec, &options)?,
            Some(value) => return Err(wrong_type("create.idIndex", value, "object")),
            None => {}
        }
        if options.timeseries.is_some() {
            timeseries::check_others(fields)?;
        }
        Ok(options)
    }

    /// Parses a catalog row.
    /// Errors: those of a collation that this program does not know.
    pub(crate) fn from_row(kept: RawDoc<'_>) -> Result<CollectionOptions> {
        CollectionOptions::read(kept, &|_| Ok(()))
    }

    /// Reads the options that are stored; passes all others to `other`.
    fn read(
        fields: RawDoc<'_>,
        other: &dyn Fn(RawElement<'_>) -> Result<()>,
    ) -> Result<CollectionOptions> {
        let mut options = CollectionOptions::default();
        // First, since a validator compares text by it.
        match fields.get("collation") {
            Some(RawValue::Document(spec)) if spec.is_empty() => {
                return Err(missing_field("create.collation.locale"));
            }
            Some(RawValue::Document(spec)) => {
                options.collator = CollationChoice::parse(spec)?.collator().cloned();
            }
            Some(value) => return Err(wrong_type("create.collation", value, "object")),
            None => {}
        }
        let mut capped = capped::Fields::default();
        for element in fields {
            if !capped.take(element)? && !options.take(element)? {
                other(element)?;
            }
        }
        options.capped = capped.finish()?;
        Ok(options)
    }

    fn take(&mut self, element: RawElement<'_>) -> Result<bool> {
        const CREATE: &str = "create";
        let value = element.value();
        match element.key() {
            "collation" | "idIndex" => {}
            images::NAME => self.keeps_images = images::parse(value)?,
            "validator" => {
                let RawValue::Document(spec) = value else {
                    return Err(wrong_type(
                        format_args!("{CREATE}.validator"),
                        value,
                        "object",
                    ));
                };
                let own = std::mem::take(&mut self.validation);
                self.validation = own.with_validator(spec, self.collator.as_ref())?;
            }
            "validationLevel" => {
                let level = ValidationLevel::parse(CREATE, value)?;
                self.validation = std::mem::take(&mut self.validation).with_level(level);
            }
            "validationAction" => {
                let action = ValidationAction::parse(CREATE, value)?;
                self.validation = std::mem::take(&mut self.validation).with_action(action);
            }
            "temp" => self.temporary = capped::truthy(element)?,
            encrypted::NAME => self.encrypted_fields = encrypted::parse(value)?,
            timeseries::NAME => self.timeseries = Some(timeseries::parse(value)?),
            "clusteredIndex" => self.clustered = ClusteredIndex::parse(value)?,
            "expireAfterSeconds" => {
                self.expire_after_seconds = Some(collection_expiry(value)?);
            }
            "storageEngine" => {
                storage_engine::check("storageEngine", value)?;
                self.storage_engine = value
                    .as_document()
                    .filter(|d| !d.is_empty())
                    .map(|d| d.to_buf());
            }
            "indexOptionDefaults" => {
                self.index_defaults = index_defaults(value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The options for `listCollections`, the oplog and the catalog row.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        if let Some(capped) = &self.capped {
            capped.append(&mut out);
        }
        if self.keeps_images {
            images::append(&mut out);
        }
        if let Some(settings) = &self.storage_engine {
            out.append_bson("storageEngine", settings);
        }
        if let Some(settings) = &self.index_defaults {
            out.append_bson("indexOptionDefaults", settings);
        }
        self.validation.append(&mut out);
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
            out.append("expireAfterSeconds", seconds);
        }
        if let Some(fields) = &self.encrypted_fields {
            out.append_bson(encrypted::NAME, &**fields);
        }
        if self.temporary {
            out.append("temp", true);
        }
        out.finish()
    }

    /// Checks that a collection with this name may have these options.
    /// Errors: `InvalidOptions`.
    pub(crate) fn check_namespace(&self, ns: &Namespace) -> Result<()> {
        self.validation.check_namespace(ns)?;
        if self.keeps_images && is_internal_database(ns.db()) {
            return Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "{} is not supported on collections in the {} database",
                    images::NAME,
                    ns.db()
                ),
            ));
        }
        Ok(())
    }

    /// Whether the options are equal, as `listCollections` shows them.
    pub fn same(&self, other: &CollectionOptions) -> bool {
        compare_docs(self.to_doc().as_raw(), other.to_doc().as_raw()).is_eq()
    }

    /// Default collation of queries and indexes; `None` for byte order.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// Whether the next start drops the collection.
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// The same options of a collection that stays.
    pub(crate) fn permanent(self) -> CollectionOptions {
        CollectionOptions {
            temporary: false,
            ..self
        }
    }

    /// Whether clients encrypt fields of the documents.
    pub fn has_encrypted_fields(&self) -> bool {
        self.encrypted_fields.is_some()
    }

    /// Whether the oplog stores the document before each change, for change streams.
    pub fn keeps_images(&self) -> bool {
        self.keeps_images
    }

    /// The clustered index; `None` if records are stored in insertion order.
    pub fn clustered(&self) -> Option<&ClusteredIndex> {
        self.clustered.as_ref()
    }

    /// Seconds until a document expires, after the date in the `_id` of a clustered collection or
    /// after the time of a measurement.
    pub fn expire_after_seconds(&self) -> Option<i64> {
        self.expire_after_seconds
    }

    /// The same options with this clustered index.
    pub fn with_clustered(self, clustered: Option<ClusteredIndex>) -> CollectionOptions {
        CollectionOptions { clustered, ..self }
    }

    /// The same options with this expiry.
    pub(crate) fn with_expiry(&self, seconds: Option<i64>) -> CollectionOptions {
        CollectionOptions {
            expire_after_seconds: seconds,
            ..self.clone()
        }
    }

    /// Options of a collection capped at this many bytes.
    pub fn capped_at(bytes: u64) -> CollectionOptions {
        CollectionOptions {
            capped: Some(Capped::of_bytes(bytes)),
            ..Default::default()
        }
    }

    /// The limits of a capped collection.
    pub fn capped(&self) -> Option<Capped> {
        self.capped
    }

    /// Document validation.
    pub fn validation(&self) -> &Validation {
        &self.validation
    }

    /// The same options with these limits.
    pub(crate) fn with_capped(mut self, capped: Option<Capped>) -> CollectionOptions {
        self.capped = capped;
        self
    }

    /// The same options with pre-images on or off.
    pub(crate) fn with_images(mut self, keeps: bool) -> CollectionOptions {
        self.keeps_images = keeps;
        self
    }

    /// The same options with this validation.
    pub(crate) fn with_validation(mut self, validation: Validation) -> CollectionOptions {
        self.validation = validation;
        self
    }
}

/// Accepts options that request the default, and rejects all others.
fn check_option(element: RawElement<'_>) -> Result<()> {
    let (option, value) = (element.key(), element.value());
    match (option, value) {
        ("autoIndexId", value) if value.is_truthy() => Ok(()),
        ("autoIndexId" | "viewOn" | "pipeline" | "flags" | "recordIdsReplicated", _) => {
            Err(Error::new(
                ErrorCode::INVALID_OPTIONS,
                format!(
                    "the option '{option}: {value}' of create is not supported yet; leave it out"
                ),
            ))
        }
        _ => Err(unknown_field(format_args!("create.{option}"))),
    }
}

/// Parses `indexOptionDefaults`: `{storageEngine: ...}`.
/// Errors: `TypeMismatch`, `IDLUnknownField`, those of the settings.
fn index_defaults(value: RawValue<'_>) -> Result<Option<DocBuf>> {
    const NAME: &str = "create.indexOptionDefaults";
    let RawValue::Document(defaults) = value else {
        return Err(wrong_type(NAME, value, "object"));
    };
    for element in defaults {
        match (element.key(), element.value()) {
            ("storageEngine", RawValue::Null | RawValue::Undefined) => {}
            ("storageEngine", settings) => {
                storage_engine::check("indexOptionDefaults.storageEngine", settings)?;
            }
            (other, _) => return Err(unknown_field(format_args!("{NAME}.{other}"))),
        }
    }
    Ok((!defaults.is_empty()).then(|| defaults.to_buf()))
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
    fn sizes_are_rounded() {
        for (given, kept) in [(1, 4096), (4096, 4096), (4097, 4352), (100_000, 100_096)] {
            let spec = doc! {"capped": true, "size": given};
            let options = CollectionOptions::parse(spec.as_raw()).unwrap();
            assert_eq!(options.capped(), Some(Capped::of_bytes(kept)), "{given}");
        }
        let spec = doc! {"capped": true, "size": 4096, "max": 0};
        let options = CollectionOptions::parse(spec.as_raw()).unwrap();
        assert_eq!(options.capped().unwrap().documents, None);
    }

    #[test]
    fn kept_as_they_are_shown() {
        for spec in [
            doc! {"capped": true, "size": 8192, "max": 10},
            doc! {"changeStreamPreAndPostImages": {"enabled": true}},
            doc! {"validator": {"a": {"$gt": 3}}, "validationLevel": "moderate", "validationAction": "warn"},
            doc! {"validator": {"$jsonSchema": {"required": ["a"]}}},
        ] {
            let options = CollectionOptions::parse(spec.as_raw()).unwrap();
            assert_eq!(options.to_doc(), spec);
            let read = CollectionOptions::from_row(options.to_doc().as_raw()).unwrap();
            assert!(read.same(&options), "{spec}");
        }
    }

    #[test]
    fn taken_and_refused() {
        for taken in [
            doc! {},
            doc! {"capped": false},
            doc! {"validator": {}, "storageEngine": {}},
            doc! {"collation": {"locale": "simple"}},
            doc! {"idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 2}},
            doc! {"changeStreamPreAndPostImages": {"enabled": false}},
        ] {
            let options = CollectionOptions::parse(taken.as_raw()).unwrap();
            assert!(options.same(&CollectionOptions::default()), "{taken}");
        }
        for (refused, code) in [
            (doc! {"capped": true}, 72),
            (doc! {"capped": true, "max": 5}, 72),
            (doc! {"size": 4096}, 72),
            (doc! {"capped": false, "max": 5}, 72),
            (doc! {"capped": true, "size": 0}, 2),
            (doc! {"capped": true, "size": (1i64 << 50) + 1}, 2),
            (doc! {"capped": true, "size": "4096"}, 14),
            (doc! {"capped": true, "size": 4096, "max": 1i64 << 31}, 2),
            (doc! {"capped": "yes", "size": 4096}, 14),
            (doc! {"validator": 1}, 14),
            (doc! {"validator": {"$foo": 1}}, 2),
            (doc! {"validator": {"$where": "1"}}, 2),
            (doc! {"validator": {"a": {"$near": [1, 2]}}}, 2),
            (doc! {"validator": {"$text": {"$search": "x"}}}, 2),
            (
                doc! {"validator": {"$expr": {"$function": {"body": "x", "args": [], "lang": "js"}}}},
                224,
            ),
            (doc! {"validator": {"$jsonSchema": {"foo": 1}}}, 9),
            (doc! {"validationLevel": "x"}, 2),
            (doc! {"validationLevel": 1}, 14),
            (doc! {"validationAction": "log"}, 2),
            (doc! {"validationAction": true}, 14),
            (doc! {"changeStreamPreAndPostImages": {}}, 40414),
            (doc! {"changeStreamPreAndPostImages": true}, 14),
            (doc! {"indexOptionDefaults": 1}, 14),
            (doc! {"storageEngine": {"x": {}}}, 72),
            (doc! {"viewOn": "x"}, 72),
            (doc! {"timeseries": {"timeField": "t"}, "validator": {}}, 72),
            (doc! {"timeseries": "t"}, 14),
            (doc! {"collation": {"locale": "xx"}}, 2),
            (doc! {"collation": {}}, 40414),
            (doc! {"collation": "de"}, 14),
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
