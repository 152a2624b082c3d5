//! What a user may ask of an index, checked and in one form.
//!
//! ```text
//!   {key: {a: 1.0, "b.c": -1}, name: "x", unique: true, background: true}
//!        │ parse: refuses by name what is unknown or not yet there
//!        ▼
//!   IndexSpec ──to_doc──> {v: 2, key: {a: 1.0, "b.c": -1}, name: "x", background: true, unique: true}
//! ```
//!
//! `parse.rs` reads it, `key_pattern.rs` and `kind.rs` say what there can be, `relation.rs` whether two are the same.

mod key_pattern;
mod kind;
mod parse;
mod relation;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, doc,
};

use crate::index::vector::VectorSpec;

pub use key_pattern::{KEY_FIELDS_MAX, default_index_name};
pub(crate) use parse::expire_after_seconds;
pub use relation::SpecRelation;

/// Indexes a collection can have, the one on `_id` included.
pub const INDEXES_MAX: usize = 64;
/// What an index of vectors has in its spec, where others have none.
const VECTOR: &str = "vectorSearch";
/// The name of the index that every collection has.
pub const ID_INDEX_NAME: &str = "_id_";

/// An index as asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexSpec {
    /// The key pattern as the user gave it.
    pub key: DocBuf,
    /// Unique within the collection.
    pub name: String,
    /// 1 or 2.
    pub version: i32,
    /// At most one document a key.
    pub unique: bool,
    /// No new duplicates, though there may be some: on the way to a unique index.
    pub prepare_unique: bool,
    /// Leave out documents without any of the fields.
    pub sparse: bool,
    /// Keep up to date, use in no plan.
    pub hidden: bool,
    /// Leave out documents that do not match.
    pub partial_filter: Option<DocBuf>,
    /// Seconds after the date in the field when a document is deleted (see [`crate::ttl`]).
    pub expire_after_seconds: Option<i64>,
    /// Which paths an index on `$**` has keys for; not empty.
    pub wildcard_projection: Option<DocBuf>,
    /// How its keys compare text. [`CollationChoice::Unsaid`] only until the collection is known.
    pub collation: CollationChoice,
    /// Accepted and shown, without effect: every build runs beside reads and writes.
    pub background: Option<bool>,
    /// The collection is to be clustered by it, or is.
    pub clustered: bool,
    /// It is an index of vectors, which createSearchIndexes makes and no plan uses.
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
            expire_after_seconds: None,
            wildcard_projection: None,
            collation: CollationChoice::Unsaid,
            background: None,
            clustered: false,
            vector: None,
        }
    }

    /// An index of vectors.
    pub fn of_vectors(name: &str, vector: VectorSpec) -> IndexSpec {
        IndexSpec {
            key: vector.key_pattern(),
            name: name.to_owned(),
            vector: Some(vector),
            ..IndexSpec::id_index()
        }
    }

    /// What [`IndexSpec::to_doc`] gave for the catalog. Beside [`IndexSpec::parse`] it knows indexes that
    /// createIndexes cannot make.
    /// Errors: those of [`IndexSpec::parse`], `DataCorruptionDetected`.
    pub(crate) fn from_row(row: RawDoc<'_>) -> Result<IndexSpec> {
        match (row.get(VECTOR), row.get("name")) {
            (Some(RawValue::Document(vector)), Some(RawValue::String(name))) => {
                Ok(IndexSpec::of_vectors(name, VectorSpec::from_row(vector)?))
            }
            _ => IndexSpec::parse(row),
        }
    }

    /// Whether this is the index on `_id`. It is unique without saying so.
    pub fn is_id_index(&self) -> bool {
        self.clustered || self.name == ID_INDEX_NAME && self.vector.is_none()
    }

    /// Whether a second document with the same key is refused.
    pub fn enforces_unique(&self) -> bool {
        self.unique || self.is_id_index()
    }

    /// Whether writers must not add a key that another document has.
    pub fn refuses_duplicates(&self) -> bool {
        self.enforces_unique() || self.prepare_unique
    }

    /// Whether an index of this kind could be unique.
    /// Errors: `CannotCreateIndex`, 16764.
    pub(crate) fn check_can_be_unique(&self) -> Result<()> {
        let mut unique = self.clone();
        unique.unique = true;
        IndexSpec::parse(unique.to_doc().as_raw()).map(|_| ())
    }

    /// How its keys compare text; `None`: by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collation.collator()
    }

    /// Where nothing is said of a collation, the collection's own applies.
    pub(crate) fn resolve_collation(&mut self, of_collection: Option<&Arc<Collator>>) {
        self.collation = self.collation.resolve(of_collection).into();
    }

    /// Errors: BadValue if this, the index on `_id`, has another collation than its collection.
    pub(crate) fn check_id_collation(&self, of_collection: Option<&Arc<Collator>>) -> Result<()> {
        if self.collation.resolve(of_collection).as_ref() == of_collection {
            return Ok(());
        }
        Err(Error::bad_value(format!(
            "The _id index must have the same collation as the collection; leave it out of {}",
            self.to_doc()
        )))
    }

    /// The spec in its one form, as `listIndexes` shows it and the catalog keeps it.
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
        if let Some(vector) = &self.vector {
            out.append_bson(VECTOR, &vector.to_row());
        }
        out.finish()
    }
}

pub(crate) fn cannot_create(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::CANNOT_CREATE_INDEX, message)
}
