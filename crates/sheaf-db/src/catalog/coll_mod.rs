//! collMod, as far as it applies: hiding indexes and changing when their documents expire.

use sheaf_bson::{Error, ErrorCode, RawDoc, RawElement, RawValue, Result};

use crate::catalog::clustered::{changed_expiry, means_clustered};
use crate::catalog::collection::Collection;
use crate::catalog::drop::BuildsMeet;
use crate::catalog::indexes::{index_by_key, index_by_name, ns_not_found};
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::database::Db;
use crate::index::Index;
use crate::index::spec::{IndexSpec, expire_after_seconds};
use crate::op_context::OpContext;
use crate::storage_error::Coded;

/// What a collMod asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct CollMod<'a> {
    index: Option<IndexChange<'a>>,
    /// When documents of a clustered collection expire; inside, `None` for never.
    expiry: Option<Option<i64>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct IndexChange<'a> {
    name: Option<&'a str>,
    key: Option<RawDoc<'a>>,
    hidden: Option<bool>,
    expire_after_seconds: Option<i64>,
}

/// What a collMod answers: old and new values of what was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollModResult {
    /// `hidden_old`, `hidden_new`.
    pub hidden: Option<(bool, bool)>,
    /// `expireAfterSeconds_old` (if there was one), `expireAfterSeconds_new`.
    pub expire_after_seconds: Option<(Option<i64>, i64)>,
}

impl<'a> CollMod<'a> {
    /// Reads the fields of the command other than its name and those that all commands have.
    /// Errors: `InvalidOptions` (known and not supported yet), `IDLUnknownField`, `TypeMismatch`.
    pub fn parse(fields: RawDoc<'a>) -> Result<CollMod<'a>> {
        let mut parsed = CollMod::default();
        for element in fields {
            match (element.key(), element.value()) {
                ("index", RawValue::Document(index)) => {
                    parsed.index = Some(IndexChange::parse(index)?);
                }
                ("index", value) => return Err(wrong_type("index", "an object", value)),
                ("expireAfterSeconds", value) => parsed.expiry = Some(changed_expiry(value)?),
                (
                    option @ ("validator"
                    | "validationLevel"
                    | "validationAction"
                    | "viewOn"
                    | "pipeline"
                    | "cappedSize"
                    | "cappedMax"
                    | "changeStreamPreAndPostImages"
                    | "timeseries"
                    | "dryRun"),
                    _,
                ) => return Err(not_supported(option)),
                (option, _) => {
                    return Err(Error::new(
                        ErrorCode::IDL_UNKNOWN_FIELD,
                        format!("BSON field 'collMod.{option}' is an unknown field."),
                    ));
                }
            }
        }
        Ok(parsed)
    }
}

impl<'a> IndexChange<'a> {
    fn parse(fields: RawDoc<'a>) -> Result<IndexChange<'a>> {
        let mut parsed = IndexChange::default();
        for element in fields {
            parsed.parse_field(element)?;
        }
        match (parsed.name, parsed.key) {
            (Some(_), None) | (None, Some(_)) => {}
            (Some(_), Some(_)) => {
                return Err(invalid("Cannot specify both key pattern and name."));
            }
            (None, None) => return Err(invalid("Must specify either index name or key pattern.")),
        }
        if parsed.hidden.is_none() && parsed.expire_after_seconds.is_none() {
            return Err(invalid(
                "no expireAfterSeconds, hidden, unique, or prepareUnique field",
            ));
        }
        Ok(parsed)
    }

    fn parse_field(&mut self, element: RawElement<'a>) -> Result<()> {
        match (element.key(), element.value()) {
            ("name", RawValue::String(name)) => self.name = Some(name),
            ("name", value) => return Err(wrong_type("index.name", "a string", value)),
            ("keyPattern", RawValue::Document(key)) => self.key = Some(key),
            ("keyPattern", value) => {
                return Err(wrong_type("index.keyPattern", "an object", value));
            }
            ("hidden", RawValue::Boolean(hidden)) => self.hidden = Some(hidden),
            ("hidden", value) if value.is_number() => self.hidden = Some(value.is_truthy()),
            ("hidden", value) => return Err(wrong_type("index.hidden", "a bool", value)),
            ("expireAfterSeconds", value) => {
                self.expire_after_seconds = Some(
                    expire_after_seconds(value)
                        .map_err(|e| Error::new(ErrorCode::INVALID_OPTIONS, e.message()))?,
                );
            }
            (option @ ("unique" | "prepareUnique"), _) => {
                return Err(not_supported(&format!("index.{option}")));
            }
            (option, _) => {
                return Err(Error::new(
                    ErrorCode::IDL_UNKNOWN_FIELD,
                    format!("BSON field 'collMod.index.{option}' is an unknown field."),
                ));
            }
        }
        Ok(())
    }

    /// The index's spec after the change.
    fn apply(&self, index: &Index, result: &mut CollModResult) -> Result<IndexSpec> {
        let mut spec = index.spec().clone();
        if spec.is_id_index() {
            return Err(match self.hidden {
                Some(_) => Error::bad_value("can't hide _id index"),
                None => invalid("the _id index cannot let documents expire"),
            });
        }
        if let Some(hidden) = self.hidden
            && hidden != spec.hidden
        {
            result.hidden = Some((spec.hidden, hidden));
            spec.hidden = hidden;
        }
        if let Some(seconds) = self.expire_after_seconds {
            if index.encoder().field_count() > 1 {
                return Err(invalid(
                    "TTL indexes are single-field indexes, compound indexes do not support TTL",
                ));
            }
            if index
                .spec()
                .key
                .iter()
                .any(|field| !field.value().is_number())
            {
                return Err(invalid(
                    "only an ordered index can let documents expire: its key must be 1 or -1",
                ));
            }
            result.expire_after_seconds = Some((spec.expire_after_seconds, seconds));
            spec.expire_after_seconds = Some(seconds);
        }
        Ok(spec)
    }
}

impl Db {
    /// Carries out a collMod.
    ///
    /// Errors: `NamespaceNotFound`, `IndexNotFound`, `InvalidOptions`, `AmbiguousIndexKeyPattern`,
    /// `BackgroundOperationInProgressForNamespace`.
    pub fn coll_mod(
        &self,
        op: &OpContext,
        ns: &Namespace,
        request: &CollMod<'_>,
    ) -> Result<CollModResult> {
        let catalog = self.catalog_writer();
        let _database = catalog.lock_database(op, ns.db())?;
        let current = catalog.current();
        let Some(collection) = current.collection(ns) else {
            return Err(ns_not_found(ns));
        };
        let (_intent, collection) = self.exclusive_on(op, collection, BuildsMeet::Refuse)?;
        let mut result = CollModResult::default();
        let collection = match request.expiry {
            Some(seconds) => self.set_expiry(&collection, seconds)?,
            None => collection,
        };
        let Some(change) = &request.index else {
            return Ok(result);
        };
        check_not_clustered(&collection, change)?;
        let index = match (change.name, change.key) {
            (Some(name), _) => index_by_name(&collection, name)?,
            (None, Some(key)) => index_by_key(&collection, key)?,
            (None, None) => return Ok(result),
        };
        let spec = change.apply(index, &mut result)?;
        if result == CollModResult::default() {
            return Ok(result);
        }
        let changed = index.with_spec(spec)?;
        let table = index.table();
        let list = collection.index_list().iter().map(|own| match own {
            own if own.table() == table => changed.clone(),
            own => own.clone(),
        });
        let collection = collection.with_indexes(list.collect())?;
        let mut unit = self.storage().begin().coded()?;
        rows::put_collection(&mut unit, &collection);
        let _entries = self.log_indexes(&mut unit, "collMod", &collection, [&changed])?;
        let change = CatalogChange {
            removed: Vec::new(),
            added: vec![collection],
            ..Default::default()
        };
        catalog.commit_then_publish(unit, &change)?;
        Ok(result)
    }
}

/// Errors: `InvalidOptions` for the clustered index, which options of the collection change.
fn check_not_clustered(collection: &Collection, change: &IndexChange<'_>) -> Result<()> {
    if !means_clustered(collection, change.name, change.key) {
        return Ok(());
    }
    Err(invalid(match change.hidden {
        Some(_) => "the clustered index cannot be hidden",
        None => {
            "the clustered index is not changed by 'index'; use collMod's own 'expireAfterSeconds'"
        }
    }))
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message)
}

fn not_supported(option: &str) -> Error {
    invalid(&format!(
        "the option '{option}' of collMod is not supported yet; leave it out"
    ))
}

fn wrong_type(option: &str, expected: &str, value: RawValue<'_>) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!(
            "BSON field 'collMod.{option}' must be {expected}, but got {}",
            value.type_name()
        ),
    )
}
