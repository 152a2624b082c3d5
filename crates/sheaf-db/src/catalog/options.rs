//! What a collection can be created with.
//!
//! Most of MongoDB's options ask for kinds of collections that are not there yet: those are refused by
//! name. Options that ask for what every collection is are taken and forgotten.

use std::sync::Arc;

use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue,
    Result, compare_docs,
};

use crate::index::spec::IndexSpec;

/// The options that are kept, as `listCollections` shows them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CollectionOptions {
    kept: DocBuf,
    /// How text compares where a query or an index says nothing; `None`: by bytes.
    collator: Option<Arc<Collator>>,
    keeps_images: bool,
}

impl CollectionOptions {
    /// Reads the fields of a `create` command other than its name and those that all commands have.
    /// Errors: `InvalidOptions` (known and not supported yet), `IDLUnknownField`, `TypeMismatch`.
    pub fn parse(fields: RawDoc<'_>) -> Result<CollectionOptions> {
        let mut collation = CollationChoice::Unsaid;
        let mut images = false;
        for element in fields {
            match (element.key(), element.value()) {
                ("changeStreamPreAndPostImages", RawValue::Document(spec)) => {
                    images = images_enabled(spec)?;
                }
                ("collation", RawValue::Document(spec)) => {
                    collation = CollationChoice::parse(spec)?;
                }
                ("idIndex", RawValue::Document(_)) => {}
                _ => check_option(element)?,
            }
        }
        let mut options = CollectionOptions::with_collator(collation.collator().cloned());
        if images {
            options = options.with_images(true);
        }
        if let Some(spec) = fields.get("idIndex").and_then(|v| v.as_document()) {
            check_id_index(spec, &options)?;
        }
        Ok(options)
    }

    fn with_collator(collator: Option<Arc<Collator>>) -> CollectionOptions {
        let mut kept = DocBuilder::new();
        if let Some(collator) = &collator {
            kept.append_bson("collation", &collator.collation().to_doc());
        }
        CollectionOptions {
            kept: kept.finish(),
            collator,
            keeps_images: false,
        }
    }

    /// Whether the oplog keeps what documents were before a change, for change streams.
    pub fn keeps_images(&self) -> bool {
        self.keeps_images
    }

    /// The same options, but for that.
    pub(crate) fn with_images(&self, keeps: bool) -> CollectionOptions {
        const NAME: &str = "changeStreamPreAndPostImages";
        let mut kept = DocBuilder::new();
        for element in self.kept.iter().filter(|element| element.key() != NAME) {
            kept.append(element.key(), element.value());
        }
        if keeps {
            kept.begin_document(NAME);
            kept.append("enabled", true);
            kept.end();
        }
        CollectionOptions {
            kept: kept.finish(),
            keeps_images: keeps,
            ..self.clone()
        }
    }

    /// How text compares where a query or an index says nothing; `None`: by bytes.
    pub fn collator(&self) -> Option<&Arc<Collator>> {
        self.collator.as_ref()
    }

    /// Those of a collection of the server's own that keeps so many bytes.
    pub(crate) fn capped_of_server(bytes: u64) -> CollectionOptions {
        let mut kept = DocBuilder::new();
        kept.append("capped", true);
        kept.append("size", bytes as i64);
        CollectionOptions {
            kept: kept.finish(),
            collator: None,
            keeps_images: false,
        }
    }

    /// As the catalog's row has them.
    /// Errors: those of a collation that this program does not know.
    pub(crate) fn from_row(kept: RawDoc<'_>) -> Result<CollectionOptions> {
        let collation = match kept.get("collation").and_then(|v| v.as_document()) {
            Some(spec) => CollationChoice::parse(spec)?,
            None => CollationChoice::Unsaid,
        };
        Ok(CollectionOptions {
            kept: kept.to_buf(),
            collator: collation.collator().cloned(),
            keeps_images: matches!(kept.get("changeStreamPreAndPostImages"),
                Some(RawValue::Document(spec)) if images_enabled(spec)?),
        })
    }

    /// For `listCollections` and the catalog's row.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.extend(self.kept.as_raw());
        out.finish()
    }

    /// Whether a collection created with these is one created with `other`.
    pub fn same(&self, other: &CollectionOptions) -> bool {
        compare_docs(self.kept.as_raw(), other.kept.as_raw()).is_eq()
    }
}

/// `{enabled}` of `changeStreamPreAndPostImages`.
/// Errors: `TypeMismatch`, `IDLUnknownField`.
pub(crate) fn images_enabled(spec: RawDoc<'_>) -> Result<bool> {
    let mut enabled = None;
    for element in spec {
        match (element.key(), element.value()) {
            ("enabled", RawValue::Boolean(value)) => enabled = Some(value),
            ("enabled", _) => {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    "BSON field 'changeStreamPreAndPostImages.enabled' is the wrong type, expected type 'bool'",
                ));
            }
            (other, _) => {
                return Err(Error::new(
                    ErrorCode::IDL_UNKNOWN_FIELD,
                    format!(
                        "BSON field 'changeStreamPreAndPostImages.{other}' is an unknown field."
                    ),
                ));
            }
        }
    }
    enabled.ok_or_else(|| {
        Error::new(
            ErrorCode::IDL_FAILED_TO_PARSE,
            "BSON field 'changeStreamPreAndPostImages.enabled' is missing but a required field",
        )
    })
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
            | "timeseries"
            | "expireAfterSeconds"
            | "clusteredIndex"
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
            (doc! {"timeseries": {"timeField": "t"}}, 72),
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
