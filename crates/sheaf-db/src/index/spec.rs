//! What a user may ask of an index, checked and in one form.
//!
//! ```text
//!   {key: {a: 1.0, "b.c": -1}, name: "x", unique: true, background: true}
//!        │ parse: refuses by name what is unknown or not yet there
//!        ▼
//!   IndexSpec ──to_doc──> {v: 2, key: {a: 1.0, "b.c": -1}, name: "x", background: true, unique: true}
//! ```
//!
//! Two specs can be the same index, or clash. Their *signature* decides: key
//! pattern (1 equals 1.0), collation, partial filter, sparse, unique. Indexes of different
//! signature live side by side as long as their names differ.
//!
//! | name | signature | other options | answer |
//! |------|-----------|---------------|--------|
//! | same | same      | same          | there already, nothing to do |
//! | same | same      | differ        | IndexOptionsConflict (85) |
//! | same | differs   | -             | IndexKeySpecsConflict (86) |
//! | new  | same      | -             | IndexOptionsConflict (85) |
//! | new  | differs   | -             | a new index |

use std::sync::Arc;

use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, Collator, DocBuf, DocBuilder, ElementType, Error, ErrorCode, RawDoc,
    RawElement, RawValue, Result, compare_docs, doc,
};
use sheaf_query::planner::index_entry::{IndexKind, fields_of};

/// Indexes a collection can have, the one on `_id` included.
pub const INDEXES_MAX: usize = 64;
/// Fields a key pattern can have.
pub const KEY_FIELDS_MAX: usize = 32;
/// The name of the index that every collection has.
pub const ID_INDEX_NAME: &str = "_id_";
/// The largest `expireAfterSeconds`.
const EXPIRE_AFTER_SECONDS_MAX: i64 = i32::MAX as i64;

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
}

/// How a spec relates to an index that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecRelation {
    /// Neither name nor signature in common.
    Unrelated,
    /// The same index.
    Identical,
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
        }
    }

    /// Whether this is the index on `_id`. It is unique without saying so.
    pub fn is_id_index(&self) -> bool {
        self.clustered || self.name == ID_INDEX_NAME
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

    /// Reads one element of `createIndexes`' `indexes`.
    ///
    /// The partial filter is checked to be a document; what it may say is for the catalog to check,
    /// which parses it.
    /// Errors: `CannotCreateIndex`, `InvalidIndexSpecificationOption`, `TypeMismatch`,
    /// `FailedToParse`, `BadValue`.
    pub fn parse(spec: RawDoc<'_>) -> Result<IndexSpec> {
        IndexSpec::parse_fields(spec)
            .map_err(|e| e.with_context(format_args!("Error in specification {}", shell_doc(spec))))
    }

    fn parse_fields(spec: RawDoc<'_>) -> Result<IndexSpec> {
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
            parsed.parse_option(element, &mut name, is_id, spec)?;
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
                    "a clustered index needs unique: true, since every _id is",
                ));
            }
        } else if is_id {
            // Whatever the user calls it, there is one index on _id.
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
            "key" | "name" | "v" | "ns" | "collation" => true,
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
            "hidden" => self.hidden = flag(option, value)?,
            "background" => self.background = Some(flag(option, value)?),
            "partialFilterExpression" => {
                let Some(filter) = value.as_document() else {
                    return Err(wrong_type(option, "an object", value));
                };
                self.partial_filter = Some(filter.to_buf());
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
            "storageEngine"
            | "weights"
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

    fn check_combination(&self) -> Result<()> {
        if self.sparse && self.partial_filter.is_some() {
            return Err(cannot_create(
                "cannot mix \"partialFilterExpression\" and \"sparse\" options",
            ));
        }
        self.check_kind()?;
        if self.expire_after_seconds.is_some() && self.key.iter().count() > 1 {
            return Err(cannot_create(format!(
                "TTL indexes are single-field indexes, compound indexes do not support TTL. \
                 Index spec: {}",
                self.to_doc()
            )));
        }
        Ok(())
    }

    /// What hashed and wildcard indexes cannot be.
    fn check_kind(&self) -> Result<()> {
        let key = shell_doc(self.key.as_raw());
        let hashed = |e: &RawElement<'_>| e.value().as_str() == Some("hashed");
        let wildcard = |e: &RawElement<'_>| is_wildcard(e.key());
        let (hashed, wildcards) = (
            self.key.iter().filter(hashed).count(),
            self.key.iter().filter(wildcard).count(),
        );
        if hashed > 1 {
            return Err(Error::new(
                ErrorCode(31303),
                format!(
                    "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {key}"
                ),
            ));
        }
        if hashed == 1 && (self.unique || self.prepare_unique) {
            return Err(Error::new(
                ErrorCode(16764),
                "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
            ));
        }
        if hashed == 1 && self.expire_after_seconds.is_some() {
            return Err(cannot_create(format!(
                "a hashed index has no order to find old documents by: leave expireAfterSeconds \
                 out, or use a regular index. Index spec: {}",
                self.to_doc()
            )));
        }
        let projection = self.wildcard_projection.as_ref().map(DocBuf::as_raw);
        if wildcards == 0 {
            return match projection {
                Some(_) => Err(Error::bad_value(
                    "The field 'wildcardProjection' is only allowed in an 'wildcard' index",
                )),
                None => Ok(()),
            };
        }
        if wildcards > 1 || hashed > 0 {
            return Err(cannot_create(format!(
                "a wildcard index has one wildcard ('$**') and beside it regular fields only; key: {key}"
            )));
        }
        for (option, set) in [
            ("unique", self.unique || self.prepare_unique),
            ("sparse", self.sparse),
            ("expireAfterSeconds", self.expire_after_seconds.is_some()),
        ] {
            if set {
                return Err(cannot_create(format!(
                    "Index type 'wildcard' does not support the {option} option"
                )));
            }
        }
        let of_all = self.key.get("$**").is_some();
        let compound = self.key.iter().count() > 1;
        if projection.is_some() && !of_all {
            return Err(failed_to_parse(
                "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}",
            ));
        }
        if compound && of_all && projection.is_none() {
            return Err(cannot_create(
                "a compound index on '$**' needs a 'wildcardProjection' that leaves its other fields \
                 out",
            ));
        }
        let (fields, kind) = fields_of(self.key.as_raw(), projection)?;
        if let IndexKind::Wildcard(wildcard) = &kind {
            let beside = fields.iter().enumerate().find(|(field, f)| {
                !(wildcard.path_field..wildcard.path_field + 2).contains(field)
                    && wildcard.paths.touches(&f.path)
            });
            if let Some((_, field)) = beside {
                return Err(cannot_create(format!(
                    "the field '{}' of a compound wildcard index is among the paths of its \
                     wildcard; leave it out by 'wildcardProjection'. key: {key}",
                    field.path.dotted()
                )));
            }
        }
        Ok(())
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
        out.finish()
    }

    /// Whether an index with this key pattern, partial filter, sparseness and uniqueness would hold
    /// the same keys and refuse the same documents.
    pub fn same_signature(&self, other: &IndexSpec) -> bool {
        let same = |a: &Option<DocBuf>, b: &Option<DocBuf>| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => compare_docs(a.as_raw(), b.as_raw()).is_eq(),
            _ => false,
        };
        same(&self.partial_filter, &other.partial_filter)
            && same(&self.wildcard_projection, &other.wildcard_projection)
            && self.same_key(other.key.as_raw())
            && self.collator() == other.collator()
            && self.sparse == other.sparse
            && self.unique == other.unique
    }

    /// Whether the key pattern is this one; 1 equals 1.0.
    pub fn same_key(&self, key: RawDoc<'_>) -> bool {
        compare_docs(self.key.as_raw(), key).is_eq()
    }

    /// Compares a spec that is asked for with an index that exists.
    /// Errors: `IndexOptionsConflict`, `IndexKeySpecsConflict`.
    pub fn relate(&self, existing: &IndexSpec) -> Result<SpecRelation> {
        let same_name = self.name == existing.name;
        let same_signature = self.same_signature(existing);
        let same_options = self.expire_after_seconds == existing.expire_after_seconds
            && self.hidden == existing.hidden;
        let both = || {
            format!(
                "Requested index: {}, existing index: {}",
                self.to_doc(),
                existing.to_doc()
            )
        };
        match (same_name, same_signature, same_options) {
            (true, true, true) => Ok(SpecRelation::Identical),
            (true, true, false) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "An equivalent index already exists with the same name but different options. \
                     {}",
                    both()
                ),
            )),
            (true, false, _) => Err(Error::new(
                ErrorCode::INDEX_KEY_SPECS_CONFLICT,
                format!(
                    "An existing index has the same name as the requested index. When index names \
                     are not specified, they are auto generated and can cause conflicts. Give the \
                     index another name. {}",
                    both()
                ),
            )),
            (false, true, true) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "Index already exists with a different name: {}",
                    existing.name
                ),
            )),
            (false, true, false) => Err(Error::new(
                ErrorCode::INDEX_OPTIONS_CONFLICT,
                format!(
                    "An equivalent index already exists with a different name and options. {}",
                    both()
                ),
            )),
            (false, false, _) => Ok(SpecRelation::Unrelated),
        }
    }
}

/// The name an index gets when the user gives none: `a_1_b.c_-1`.
pub fn default_index_name(key: RawDoc<'_>) -> String {
    let parts: Vec<String> = key
        .iter()
        .map(|e| match e.value() {
            RawValue::String(plugin) => format!("{}_{plugin}", e.key()),
            RawValue::Double(d) if d.fract() == 0.0 => format!("{}_{}", e.key(), d as i64),
            value => format!("{}_{value}", e.key()),
        })
        .collect();
    parts.join("_")
}

/// Checks fields and directions; true when the pattern is that of the `_id` index.
fn check_key_pattern(key: RawDoc<'_>) -> Result<bool> {
    let mut fields: Vec<&str> = Vec::new();
    for element in key {
        let (path, value) = (element.key(), element.value());
        check_direction(path, value)?;
        check_key_path(path)?;
        if fields.contains(&path) {
            return Err(cannot_create(format!(
                "the field '{path}' appears twice in the index key pattern {}",
                shell_doc(key)
            )));
        }
        fields.push(path);
    }
    if fields.is_empty() {
        return Err(cannot_create("Index keys cannot be empty."));
    }
    if fields.len() > KEY_FIELDS_MAX {
        return Err(cannot_create(format!(
            "Index key pattern has {} fields, more than the {KEY_FIELDS_MAX} allowed",
            fields.len()
        )));
    }
    if fields != ["_id"] {
        return Ok(false);
    }
    match key.get("_id").and_then(|v| v.as_i64_exact()) {
        Some(1) => Ok(true),
        Some(-1) => Err(Error::bad_value(format!(
            "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
            shell_doc(key)
        ))),
        _ => Ok(false),
    }
}

fn check_direction(path: &str, value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::String("hashed") if !is_wildcard(path) => Ok(()),
        RawValue::String(
            plugin @ ("text" | "2dsphere" | "2d" | "hashed" | "geoHaystack" | "wildcard"
            | "columnstore"),
        ) => Err(cannot_create(format!(
            "indexes of type '{plugin}' (field '{path}') are not supported yet; use 1 or -1"
        ))),
        RawValue::String(plugin) => Err(cannot_create(format!("Unknown index plugin '{plugin}'"))),
        value if value.is_number() => match value.as_f64() {
            Some(direction) if direction != 0.0 && !direction.is_nan() => Ok(()),
            _ => Err(cannot_create(format!(
                "Values in the index key pattern cannot be {value}; use 1 or -1 for '{path}'"
            ))),
        },
        value => Err(cannot_create(format!(
            "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, \
             and strings are allowed.",
            value.type_name()
        ))),
    }
}

fn check_key_path(path: &str) -> Result<()> {
    let path = match path {
        "$**" => return Ok(()),
        path => path.strip_suffix(".$**").unwrap_or(path),
    };
    if path.is_empty() {
        return Err(cannot_create("Index keys cannot be an empty field."));
    }
    for part in path.split('.') {
        if part.is_empty() {
            return Err(cannot_create(format!(
                "Index key '{path}' cannot contain an empty field, nor start or end with a dot."
            )));
        }
        // References to another collection are the one place where $ names are data.
        if part.starts_with('$') && !matches!(part, "$id" | "$ref" | "$db") {
            return Err(cannot_create(format!(
                "Index key contains an illegal field name: field name '{part}' starts with '$'."
            )));
        }
    }
    Ok(())
}

fn is_wildcard(path: &str) -> bool {
    path == "$**" || path.ends_with(".$**")
}

fn version(value: RawValue<'_>) -> Result<i32> {
    if !value.is_number() {
        return Err(wrong_type("v", "a number", value));
    }
    match value.as_i64_exact() {
        Some(version @ (1 | 2)) => Ok(version as i32),
        _ => Err(cannot_create(format!(
            "Invalid index specification; cannot create an index with v={value}; use v: 2"
        ))),
    }
}

/// Booleans, and numbers as booleans.
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

pub(crate) fn expire_after_seconds(value: RawValue<'_>) -> Result<i64> {
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

fn failed_to_parse(message: &str) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

pub(crate) fn cannot_create(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::CANNOT_CREATE_INDEX, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(spec: &DocBuf) -> Result<IndexSpec> {
        IndexSpec::parse(spec.as_raw())
    }

    fn code(spec: DocBuf) -> i32 {
        match parse(&spec) {
            Ok(parsed) => panic!("{spec} was taken as {}", parsed.to_doc()),
            Err(error) => error.code().0,
        }
    }

    #[test]
    fn one_form() {
        let spec = doc! {
            "key": {"a": 1.0, "b.c": -5}, "name": "x", "unique": 1, "sparse": false,
            "background": true, "expireAfterSeconds": null
        };
        assert_eq!(code(spec), 67);
        let spec = doc! {
            "unique": 1, "key": {"a": 1.0, "b.c": -5}, "sparse": false, "name": "x",
            "background": true, "hidden": true, "partialFilterExpression": {"a": {"$gt": 3}},
        };
        let parsed = parse(&spec).unwrap();
        let shown = "{ v: 2, key: { a: 1.0, b.c: -5 }, name: \"x\", background: true, unique: true, \
             hidden: true, partialFilterExpression: { a: { $gt: 3 } } }";
        assert_eq!(parsed.to_doc().to_string(), shown);
        assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed);
    }

    #[test]
    fn the_id_index_by_any_name() {
        let parsed = parse(&doc! {"key": {"_id": 1.0}, "name": "_id_1"}).unwrap();
        assert!(parsed.is_id_index() && parsed.enforces_unique());
        assert_eq!(
            parsed.relate(&IndexSpec::id_index()).unwrap(),
            SpecRelation::Identical
        );
        for option in [
            "unique",
            "sparse",
            "hidden",
            "background",
            "expireAfterSeconds",
        ] {
            assert_eq!(
                code(doc! {"key": {"_id": 1}, "name": "_id_", option: 1}),
                197,
                "{option}"
            );
        }
        assert_eq!(code(doc! {"key": {"_id": -1}, "name": "_id_-1"}), 2);
        assert_eq!(code(doc! {"key": {"a": 1}, "name": "_id_"}), 2);
        assert!(
            !parse(&doc! {"key": {"_id": 1, "a": 1}, "name": "x"})
                .unwrap()
                .is_id_index()
        );
    }

    #[test]
    fn clustered() {
        let spec = doc! {"key": {"_id": 1}, "name": "x", "unique": true, "clustered": true};
        let parsed = parse(&spec).unwrap();
        assert!(parsed.clustered && parsed.is_id_index() && parsed.name == "x");
        assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed);
        let plain = doc! {"key": {"_id": 1}, "name": "x", "clustered": false};
        assert!(!parse(&plain).unwrap().clustered);
        for refused in [
            doc! {"key": {"_id": 1}, "name": "x", "clustered": true},
            doc! {"key": {"_id": 1}, "name": "x", "clustered": true, "unique": false},
            doc! {"key": {"_id": 1}, "name": "x", "clustered": true, "unique": true, "sparse": true},
            doc! {"key": {"a": 1}, "name": "x", "clustered": true, "unique": true},
        ] {
            assert_eq!(code(refused.clone()), 197, "{refused}");
        }
    }

    #[test]
    fn refused() {
        let key = |key: DocBuf| code(doc! {"key": key, "name": "n"});
        for (got, expected) in [
            (key(doc! {}), 67),
            (key(doc! {"a": 0}), 67),
            (key(doc! {"a": f64::NAN}), 67),
            (key(doc! {"a": true}), 67),
            (key(doc! {"a": "text"}), 67),
            (key(doc! {"a": "2dsphere"}), 67),
            (key(doc! {"a": "nonsense"}), 67),
            (key(doc! {"$**": "hashed"}), 67),
            (key(doc! {"$**": "text"}), 67),
            (key(doc! {"$**": 0}), 67),
            (key(doc! {"a.$**.b": 1}), 67),
            (key(doc! {".$**": 1}), 67),
            (key(doc! {"a.$**": 1, "b.$**": 1}), 67),
            (key(doc! {"a": 1, "$**": 1}), 67),
            (key(doc! {"a.b": 1, "a.$**": 1}), 67),
            (key(doc! {"a": "hashed", "b.$**": 1}), 67),
            (key(doc! {"a": "hashed", "b": "hashed"}), 31303),
            (
                code(doc! {"key": {"a": "hashed"}, "name": "n", "unique": true}),
                16764,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "unique": true}),
                67,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "sparse": true}),
                67,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "expireAfterSeconds": 1}),
                67,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": {}}),
                9,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": 1}),
                14,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "wildcardProjection": {"a": 1}}),
                2,
            ),
            (
                code(doc! {"key": {"a.$**": 1}, "name": "n", "wildcardProjection": {"a": 1}}),
                9,
            ),
            (
                code(doc! {"key": {"$**": 1}, "name": "n", "wildcardProjection": {"a": 1, "b": 0}}),
                31254,
            ),
            (
                code(doc! {"key": {"a": 1, "$**": 1}, "name": "n", "wildcardProjection": {"b": 0}}),
                67,
            ),
            (key(doc! {"": 1}), 67),
            (key(doc! {"a..b": 1}), 67),
            (key(doc! {".a": 1}), 67),
            (key(doc! {"a.": 1}), 67),
            (key(doc! {"$a": 1}), 67),
            (key(doc! {"a.$b": 1}), 67),
            (key(doc! {"a": 1, "b": 1, "a": -1}), 67),
            (code(doc! {"key": {"a": 1}}), 9),
            (code(doc! {"name": "n"}), 9),
            (code(doc! {"key": 1, "name": "n"}), 14),
            (code(doc! {"key": {"a": 1}, "name": 1}), 14),
            (code(doc! {"key": {"a": 1}, "name": ""}), 67),
            (code(doc! {"key": {"a": 1}, "name": "*"}), 2),
            (code(doc! {"key": {"a": 1}, "name": "n", "v": 0}), 67),
            (code(doc! {"key": {"a": 1}, "name": "n", "v": "2"}), 14),
            (code(doc! {"key": {"a": 1}, "name": "n", "safe": true}), 197),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "unique": "yes"}),
                14,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "collation": {"locale": "xx"}}),
                2,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "collation": {}}),
                2,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "collation": "en"}),
                14,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "partialFilterExpression": 1}),
                14,
            ),
            (
                code(
                    doc! {"key": {"a": 1}, "name": "n", "sparse": true, "partialFilterExpression": {}},
                ),
                67,
            ),
            (
                code(doc! {"key": {"a": 1}, "name": "n", "expireAfterSeconds": -1}),
                67,
            ),
            (
                code(doc! {"key": {"a": 1, "b": 1}, "name": "n", "expireAfterSeconds": 1}),
                67,
            ),
        ] {
            assert_eq!(got, expected);
        }
        let mut wide = DocBuilder::new();
        for n in 0..33 {
            wide.append(format!("f{n}"), 1);
        }
        assert_eq!(key(wide.finish()), 67);
    }

    #[test]
    fn kinds() {
        for spec in [
            doc! {"key": {"$**": 1}, "name": "n"},
            doc! {"key": {"$**": -1}, "name": "n", "wildcardProjection": {"a": 1, "_id": 0}},
            doc! {"key": {"a.b.$**": 1}, "name": "n", "partialFilterExpression": {"a": 1}},
            doc! {"key": {"a": 1, "$**": 1}, "name": "n", "wildcardProjection": {"a": 0}},
            doc! {"key": {"a": 1, "b.$**": 1, "c": -1}, "name": "n"},
            doc! {"key": {"a": "hashed"}, "name": "n", "sparse": true},
            doc! {"key": {"a": 1, "b.c": "hashed", "d": 1}, "name": "n"},
        ] {
            let parsed = parse(&spec).unwrap();
            assert_eq!(parse(&parsed.to_doc()).unwrap(), parsed, "{spec}");
        }
    }

    #[test]
    fn relations() {
        let spec = |key: DocBuf, name: &str, options: DocBuf| {
            let mut spec = DocBuilder::from_doc(options.as_raw());
            spec.append("key", RawValue::Document(key.as_raw()));
            spec.append("name", name);
            parse(&spec.finish()).unwrap()
        };
        let existing = spec(doc! {"a": 1}, "a_1", doc! {});
        let relate = |new: IndexSpec| match new.relate(&existing) {
            Ok(relation) => format!("{relation:?}"),
            Err(error) => error.code().0.to_string(),
        };
        for (new, expected) in [
            (spec(doc! {"a": 1.0}, "a_1", doc! {}), "Identical"),
            (spec(doc! {"a": 1}, "a_1", doc! {"v": 1}), "Identical"),
            (
                spec(doc! {"a": 1}, "a_1", doc! {"background": true}),
                "Identical",
            ),
            (
                spec(doc! {"a": 1}, "a_1", doc! {"expireAfterSeconds": 5}),
                "85",
            ),
            (spec(doc! {"a": 1}, "a_1", doc! {"hidden": true}), "85"),
            (spec(doc! {"a": 1}, "a_1", doc! {"unique": true}), "86"),
            (spec(doc! {"a": -1}, "a_1", doc! {}), "86"),
            (spec(doc! {"a": 2}, "a_1", doc! {}), "86"),
            (spec(doc! {"a": 1}, "other", doc! {}), "85"),
            (spec(doc! {"a": 1}, "other", doc! {"hidden": true}), "85"),
            (
                spec(doc! {"a": 1}, "other", doc! {"sparse": true}),
                "Unrelated",
            ),
            (
                spec(doc! {"a": 1}, "other", doc! {"unique": true}),
                "Unrelated",
            ),
            (
                spec(
                    doc! {"a": 1},
                    "other",
                    doc! {"partialFilterExpression": {"b": 1}},
                ),
                "Unrelated",
            ),
            (spec(doc! {"b": 1}, "b_1", doc! {}), "Unrelated"),
            (spec(doc! {"a": "hashed"}, "other", doc! {}), "Unrelated"),
            (spec(doc! {"$**": 1}, "a_1", doc! {}), "86"),
        ] {
            assert_eq!(relate(new.clone()), expected, "{}", new.to_doc());
        }
    }

    #[test]
    fn default_names() {
        for (key, name) in [
            (doc! {"a": 1}, "a_1"),
            (doc! {"a": 1.0, "b.c": -1}, "a_1_b.c_-1"),
            (doc! {"a": "text", "b": 2.5}, "a_text_b_2.5"),
        ] {
            assert_eq!(default_index_name(key.as_raw()), name);
        }
    }
}
