//! Parses one element of `createIndexes`, option by option; rejects unknown options by name.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, ElementType, Error, ErrorCode, RawDoc, RawElement, RawValue, Result,
};

use super::key_pattern::check_key_pattern;
use super::storage_engine;
use super::{ID_INDEX_NAME, IndexSpec, ORIGINAL_SPEC, cannot_create};

/// Maximum `expireAfterSeconds`.
const EXPIRE_AFTER_SECONDS_MAX: i64 = i32::MAX as i64;

/// Every option that some kind of index has, supported or not.
const OPTIONS: &[&str] = &[
    "2dsphereIndexVersion",
    "background",
    "bits",
    "bucketSize",
    "clustered",
    "collation",
    "default_language",
    "dropDups",
    "expireAfterSeconds",
    "hidden",
    "key",
    "language_override",
    "max",
    "min",
    "name",
    "ns",
    ORIGINAL_SPEC,
    "partialFilterExpression",
    "prepareUnique",
    "sparse",
    "storageEngine",
    "textIndexVersion",
    "unique",
    "v",
    "weights",
    "wildcardProjection",
];

impl IndexSpec {
    /// Parses one element of the `indexes` array of `createIndexes`.
    ///
    /// Of the partial filter it only checks that it is a document; the catalog parses and validates
    /// it.
    /// Errors: `CannotCreateIndex`, `InvalidIndexSpecificationOption`, `TypeMismatch`,
    /// `FailedToParse`, `BadValue`.
    pub fn parse(spec: RawDoc<'_>) -> Result<IndexSpec> {
        Self::parse_with(spec, false)
    }

    /// Like [`IndexSpec::parse`], but ignores options that no index has.
    pub fn parse_ignoring_unknown(spec: RawDoc<'_>) -> Result<IndexSpec> {
        Self::parse_with(spec, true)
    }

    fn parse_with(spec: RawDoc<'_>, ignores_unknown: bool) -> Result<IndexSpec> {
        IndexSpec::parse_fields(spec, ignores_unknown)
            .map_err(|e| e.with_context(format_args!("Error in specification {}", shell_doc(spec))))
    }

    fn parse_fields(spec: RawDoc<'_>, ignores_unknown: bool) -> Result<IndexSpec> {
        let Some(key) = spec.get("key") else {
            return Err(failed_to_parse(
                "The 'key' field is a required property of an index specification",
            ));
        };
        let Some(key) = key.as_document() else {
            return Err(wrong_type("key", "an object", key));
        };
        let is_id = check_key_pattern(key)?;
        let mut parsed = IndexSpec {
            key: key.to_buf(),
            ..IndexSpec::id_index()
        };
        let clustered = spec.get("clustered").is_some_and(|v| v.is_truthy());
        parsed.clustered = is_id && clustered;
        let mut name = None;
        for element in spec {
            if !(ignores_unknown && !OPTIONS.contains(&element.key())) {
                parsed.parse_option(element, &mut name, is_id, spec)?;
            }
        }
        let Some(name) = name else {
            return Err(failed_to_parse(
                "The 'name' field is a required property of an index specification",
            ));
        };
        parsed.name = name;
        if parsed.clustered {
            if !parsed.unique {
                return Err(Error::new(
                    ErrorCode::INVALID_INDEX_SPECIFICATION_OPTION,
                    "a clustered index must have unique: true",
                ));
            }
        } else if is_id {
            // The index on _id always has this name; the client's is ignored.
            parsed.name = ID_INDEX_NAME.to_owned();
        } else if parsed.name == ID_INDEX_NAME {
            return Err(Error::bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern \
                 {{_id: 1}}, found {}",
                shell_doc(key)
            )));
        }
        parsed.check_combination()?;
        Ok(parsed)
    }

    fn parse_option(
        &mut self,
        element: RawElement<'_>,
        name: &mut Option<String>,
        is_id: bool,
        spec: RawDoc<'_>,
    ) -> Result<()> {
        let (option, value) = (element.key(), element.value());
        let of_id = match option {
            "key" | "name" | "v" | "ns" | "collation" | "storageEngine" => true,
            "clustered" => is_id,
            "unique" => self.clustered,
            _ => false,
        };
        if is_id && !of_id {
            return Err(invalid_option(option, "an _id index specification", spec));
        }
        match option {
            "key" => {}
            "ns" | "dropDups" => {}
            "name" => {
                let Some(text) = value.as_str() else {
                    return Err(wrong_type("name", "a string", value));
                };
                if text.is_empty() {
                    return Err(cannot_create("index names cannot be empty"));
                }
                if text.contains('\0') {
                    return Err(cannot_create("index names cannot contain NUL bytes"));
                }
                if text == "*" {
                    return Err(Error::bad_value("The index name '*' is not valid."));
                }
                *name = Some(text.to_owned());
            }
            "v" => self.version = version(value)?,
            "unique" => self.unique = flag(option, value)?,
            "sparse" => self.sparse = flag(option, value)?,
            "hidden" => {
                // Strictly a boolean, unlike the others.
                let Some(hidden) = value.as_bool() else {
                    return Err(wrong_type(option, "a boolean", value));
                };
                self.hidden = hidden;
            }
            "background" => self.background = Some(flag(option, value)?),
            "partialFilterExpression" => {
                let Some(filter) = value.as_document() else {
                    return Err(wrong_type(option, "an object", value));
                };
                self.partial_filter = Some(filter.to_buf());
            }
            ORIGINAL_SPEC => {
                let Some(original) = value.as_document() else {
                    return Err(wrong_type(option, "an object", value));
                };
                let filter = original.get("partialFilterExpression");
                let filter = filter.and_then(|filter| filter.as_document());
                self.original_filter = filter.map(RawDoc::to_buf);
            }
            "expireAfterSeconds" => {
                self.expire_after_seconds = Some(expire_after_seconds(value)?);
            }
            "wildcardProjection" => {
                let Some(projection) = value.as_document() else {
                    return Err(wrong_type(option, "a non-empty object", value));
                };
                if projection.is_empty() {
                    return Err(failed_to_parse(
                        "The 'wildcardProjection' field can't be an empty object",
                    ));
                }
                self.wildcard_projection = Some(projection.to_buf());
            }
            "prepareUnique" => self.prepare_unique = flag(option, value)?,
            "clustered" if !flag(option, value)? => {}
            "clustered" if is_id => {}
            "clustered" => {
                return Err(Error::new(
                    ErrorCode::INVALID_INDEX_SPECIFICATION_OPTION,
                    format!(
                        "a collection can be clustered by {{_id: 1}} only. Specification: {}",
                        shell_doc(spec)
                    ),
                ));
            }
            "collation" => {
                let Some(spec) = value.as_document() else {
                    return Err(wrong_type(option, "an object", value));
                };
                if spec.is_empty() {
                    return Err(Error::bad_value(
                        "The 'collation' field can't be an empty object",
                    ));
                }
                self.collation = CollationChoice::parse(spec)?;
            }
            "storageEngine" => {
                storage_engine::check("storageEngine", value)?;
                self.storage_engine = value
                    .as_document()
                    .filter(|d| !d.is_empty())
                    .map(|d| d.to_buf());
            }
            "weights"
            | "default_language"
            | "language_override"
            | "textIndexVersion"
            | "2dsphereIndexVersion"
            | "bits"
            | "min"
            | "max"
            | "bucketSize" => {
                return Err(cannot_create(format!(
                    "the index option '{option}' is not supported yet; leave it out"
                )));
            }
            _ => return Err(invalid_option(option, "an index specification", spec)),
        }
        Ok(())
    }
}

fn version(value: RawValue<'_>) -> Result<i32> {
    if !value.is_number() {
        return Err(wrong_type("v", "a number", value));
    }
    match value.as_i64_exact() {
        Some(version @ (1 | 2)) => Ok(version as i32),
        None if value.as_f64().is_some_and(|v| v.is_finite()) => Err(Error::bad_value(format!(
            "The index version must be a whole number, got v={value}; use v: 2"
        ))),
        _ => Err(cannot_create(format!(
            "Invalid index specification; cannot create an index with v={value}; use v: 2"
        ))),
    }
}

/// Accepts booleans, and numbers as booleans.
fn flag(option: &str, value: RawValue<'_>) -> Result<bool> {
    match value {
        RawValue::Boolean(set) => Ok(set),
        value if value.is_number() => Ok(value.is_truthy()),
        value => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!(
                "The field '{option}' has value {option}: {value}, which is not convertible to bool"
            ),
        )),
    }
}

fn expire_after_seconds(value: RawValue<'_>) -> Result<i64> {
    let Some(seconds) = value.as_f64().filter(|_| value.is_number()) else {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of {}",
            value.type_name()
        )));
    };
    if !(0.0..=EXPIRE_AFTER_SECONDS_MAX as f64).contains(&seconds) {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be between 0 and \
             {EXPIRE_AFTER_SECONDS_MAX}, got {value}"
        )));
    }
    Ok(seconds as i64)
}

fn invalid_option(option: &str, of_what: &str, spec: RawDoc<'_>) -> Error {
    Error::new(
        ErrorCode::INVALID_INDEX_SPECIFICATION_OPTION,
        format!(
            "The field '{option}' is not valid for {of_what}. Specification: {}",
            shell_doc(spec)
        ),
    )
}

fn wrong_type(option: &str, expected: &str, value: RawValue<'_>) -> Error {
    let got: ElementType = value.element_type();
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!("The field '{option}' must be {expected}, but got {got}"),
    )
}

pub(super) fn failed_to_parse(message: &str) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}
