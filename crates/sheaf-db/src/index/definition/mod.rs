//! Index specs as clients request them, validated and normalised.
//!
//! ```text
//!   {key: {a: 1.0, "b.c": -1}, name: "x", unique: true, background: true}
//!        │ parse: rejects unknown and unsupported options by name
//!        ▼
//!   IndexSpec ──to_doc──> {v: 2, key: {a: 1.0, "b.c": -1}, name: "x", background: true, unique: true}
//! ```
//!
//! `parse.rs` reads specs, `key_pattern.rs` and `kind.rs` define which are valid, `relation.rs`
//! compares them with existing indexes.

mod key_pattern;
mod kind;
mod parse;
mod relation;
pub(crate) mod storage_engine;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, doc,
};

use crate::index::vector::VectorSpec;

pub use key_pattern::{KEY_FIELDS_MAX, default_index_name};
pub use relation::SpecRelation;

/// Maximum number of indexes of a collection, including the one on `_id`.
pub const INDEXES_MAX: usize = 64;
/// The field of a spec that marks a vector index.
const VECTOR: &str = "vectorSearch";
/// The field of a spec on buckets that holds what users see and buckets do not.
const ORIGINAL_SPEC: &str = "originalSpec";
/// Name of the index on `_id`.
pub const ID_INDEX_NAME: &str = "_id_";

/// A requested index definition.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexSpec {
    /// The key pattern as the client wrote it.
    pub key: DocBuf,
    /// Name, unique within the collection.
    pub name: String,
    /// Index version, 1 or 2.
    pub version: i32,
    /// At most one document per key.
    pub unique: bool,
    /// Rejects new duplicates while existing ones remain: a step towards a unique index.
    pub prepare_unique: bool,
    /// Omits documents that have none of the fields.
    pub sparse: bool,
    /// Maintained, but not used by any plan.
    pub hidden: bool,
    /// Omits documents that do not match.
    pub partial_filter: Option<DocBuf>,
    /// For a translated index on buckets: the partial filter on measurements, as the user gave it.
    pub original_filter: Option<DocBuf>,
    /// Seconds after the date in the field at which a document expires (see [`crate::ttl`]).
    pub expire_after_seconds: Option<i64>,
    /// Paths that an index on `$**` has keys for; not empty.
    pub wildcard_projection: Option<DocBuf>,
    /// How keys compare text. [`CollationChoice::Unsaid`] only until the collection is known.
    pub collation: CollationChoice,
    /// Accepted and shown, without effect: every build runs concurrently with reads and writes.
    pub background: Option<bool>,
    /// Settings of MongoDB's engine, kept for tools.
    pub storage_engine: Option<DocBuf>,
    /// The collection is clustered by this index, or must be once created.
    pub clustered: bool,
    /// Set for a vector index, which only createSearchIndexes creates and the planner does not use.
    pub vector: Option<VectorSpec>,
}

impl IndexSpec {
    /// The index on `_id` that every collection has.
    pub fn id_index() -> IndexSpec {
        IndexSpec {
            key: doc! {"_id": 1},
            name: ID_INDEX_NAME.to_owned(),
            version: 2,
            unique: false,
            prepare_unique: false,
            sparse: false,
            hidden: false,
            partial_filter: None,
            original_filter: None,
            expire_after_seconds: None,
            wildcard_projection: None,
            collation: CollationChoice::Unsaid,
            background: None,
            storage_engine: None,
            clustered: false,
            vector: None,
        }
    }

    /// A vector index.
    pub fn of_vectors(name: &str, vector: VectorSpec) -> IndexSpec {
        IndexSpec {
            key: vector.key_pattern(),
            name: name.to_owned(),
            vector: Some(vector),
            ..IndexSpec::id_index()
        }
    }

    /// Parses what [`IndexSpec::to_doc`] wrote to the catalog. Unlike [`IndexSpec::parse`] it
    /// accepts vector indexes, which createIndexes cannot create.
    /// Errors: those of [`IndexSpec::parse`], `DataCorruptionDetected`.
    pub(crate) fn from_row(row: RawDoc<'_>) -> Result<IndexSpec> {
        match (row.get(VECTOR), row.get("name")) {
            (Some(RawValue::Document(vector)), Some(RawValue::String(name))) => {
                Ok(IndexSpec::of_vectors(name, VectorSpec::from_row(vector)?))
            }
            _ => IndexSpec::parse(row),
        }
    }

    /// Whether this is the index on `_id`, which is unique implicitly.
    pub fn is_id_index(&self) -> bool {
        self.clustered || self.name == ID_INDEX_NAME && self.vector.is_none()
    }

    /// Whether a second document with the same key is rejected.
    pub fn enforces_unique(&self) -> bool {
        self.unique || self.is_id_index()
    }

    /// Whether writers must reject a key that another document has.
    pub fn refuses_duplicates(&self) -> bool {
        self.enforces_unique() || self.prepare_unique
    }

    /// Checks that an index of this kind can be unique.
    /// Errors: `CannotCreateIndex`, 16764.
    pub(crate) fn check_can_be_unique(&self) -> Result<()> {
        let mut unique = self.clone();
        unique.unique = true;
        IndexSpec::parse(unique.to_doc().as_raw()).map(|_| ())
    }

    /// How keys compare text; `None` for byte order.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collation.collator()
    }

    /// Applies the collection's collation where the spec has none.
    pub(crate) fn resolve_collation(&mut self, of_collection: Option<&Arc<Collator>>) {
        self.collation = self.collation.resolve(of_collection).into();
    }

    /// Errors: `BadValue` if this index on `_id` has a different collation than its collection.
    pub(crate) fn check_id_collation(&self, of_collection: Option<&Arc<Collator>>) -> Result<()> {
        if self.collation.resolve(of_collection).as_ref() == of_collection {
            return Ok(());
        }
        Err(Error::bad_value(format!(
            "The _id index must have the same collation as the collection; leave it out of {}",
            self.to_doc()
        )))
    }

    /// The normalised spec, as `listIndexes` shows it and the catalog stores it.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("v", self.version);
        out.append("key", RawValue::Document(self.key.as_raw()));
        out.append("name", self.name.as_str());
        if let Some(background) = self.background {
            out.append("background", background);
        }
        for (option, set) in [
            ("unique", self.unique),
            ("prepareUnique", self.prepare_unique),
            ("sparse", self.sparse),
            ("hidden", self.hidden),
            ("clustered", self.clustered),
        ] {
            if set {
                out.append(option, true);
            }
        }
        if let Some(filter) = &self.partial_filter {
            out.append(
                "partialFilterExpression",
                RawValue::Document(filter.as_raw()),
            );
        }
        if let Some(filter) = &self.original_filter {
            out.begin_document(ORIGINAL_SPEC);
            out.append_bson("partialFilterExpression", filter);
            out.end();
        }
        match self.expire_after_seconds {
            Some(seconds) => match i32::try_from(seconds) {
                Ok(seconds) => out.append("expireAfterSeconds", seconds),
                Err(_) => out.append("expireAfterSeconds", seconds),
            },
            None => &mut out,
        };
        if let Some(projection) = &self.wildcard_projection {
            out.append_bson("wildcardProjection", projection);
        }
        if let Some(collator) = self.collator() {
            out.append_bson("collation", &collator.collation().to_doc());
        }
        if let Some(settings) = &self.storage_engine {
            out.append_bson("storageEngine", settings);
        }
        if let Some(vector) = &self.vector {
            out.append_bson(VECTOR, &vector.to_row());
        }
        out.finish()
    }
}

pub(crate) fn cannot_create(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::CANNOT_CREATE_INDEX, message)
}
