//! collMod: changes the options of an existing collection or of one of its indexes.
//!
//! ```text
//!   {collMod: c, validator: {..}, index: {name: "a_1", hidden: true}}
//!      └ parse ─> CollMod ─ exclusive intent ─┬─ options with what is changed ─┐
//!                                             └─ index with what is changed ───┴─ one row, oplog, publish
//! ```
//!
//! Writers wait while the shape changes and then see the new shape; open cursors continue with the
//! old one. Cached plans are dropped. A change without effect writes nothing.

mod index;

use sheaf_bson::fields::{unknown_field, wrong_type};
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, Result};

use crate::catalog::namespace::Namespace;
use crate::catalog::options::capped::{parse_max, parse_size};
use crate::catalog::options::{
    Capped, CollectionOptions, ValidationAction, ValidationLevel, images,
};
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::clustered::changed_expiry;
use crate::ddl::drop::BuildsMeet;
use crate::ddl::indexes::ns_not_found;
use crate::index::IndexConstraints;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;
use index::IndexChange;

const NAME: &str = "collMod";

/// A parsed collMod request.
#[derive(Debug, Clone, Default)]
pub struct CollMod<'a> {
    index: Option<IndexChange<'a>>,
    /// The new expiry of a clustered collection; the inner `None` means never.
    expiry: Option<Option<i64>>,
    validator: Option<RawDoc<'a>>,
    level: Option<ValidationLevel>,
    action: Option<ValidationAction>,
    keeps_images: Option<bool>,
    capped_bytes: Option<i64>,
    capped_documents: Option<i64>,
    /// Only checks whether an index could become unique.
    dry_run: bool,
    constraints: IndexConstraints,
    /// The requested collection options, for the oplog.
    asked: Vec<RawElement<'a>>,
}

/// The result of a collMod: old and new values of what changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollModResult {
    /// `hidden_old`, `hidden_new`.
    pub hidden: Option<(bool, bool)>,
    /// `expireAfterSeconds_old` (if there was one), `expireAfterSeconds_new`.
    pub expire_after_seconds: Option<(Option<i64>, i64)>,
    /// `prepareUnique_old`, `prepareUnique_new`.
    pub prepare_unique: Option<(bool, bool)>,
    /// `unique_new`.
    pub became_unique: bool,
}

impl<'a> CollMod<'a> {
    /// Parses the fields of the command, other than its name and the fields common to all commands.
    pub fn parse(fields: RawDoc<'a>) -> Result<CollMod<'a>> {
        let mut parsed = CollMod::default();
        for element in fields {
            parsed.parse_field(element)?;
        }
        let unique = parsed.index.as_ref().is_some_and(IndexChange::makes_unique);
        if parsed.dry_run && !unique {
            return Err(invalid(
                "'dryRun' only checks whether an index can become unique; add index.unique",
            ));
        }
        if parsed.dry_run && !parsed.asked.is_empty() {
            return Err(invalid(
                "'dryRun' cannot be combined with options other than index.unique",
            ));
        }
        Ok(parsed)
    }

    /// Makes an index unique without checking for duplicates, and ignores inapplicable changes of
    /// an index: for an oplog entry that may have been applied before.
    pub(crate) fn relax_index_constraints(&mut self) {
        self.constraints = IndexConstraints::Relaxed;
    }

    fn parse_field(&mut self, element: RawElement<'a>) -> Result<()> {
        let value = element.value();
        match (element.key(), value) {
            ("index", RawValue::Document(index)) => {
                self.index = Some(IndexChange::parse(index)?);
                return Ok(());
            }
            ("index", value) => {
                return Err(wrong_type(format_args!("{NAME}.index"), value, "object"));
            }
            ("dryRun", RawValue::Boolean(dry_run)) => {
                self.dry_run = dry_run;
                return Ok(());
            }
            ("dryRun", value) if value.is_number() => {
                self.dry_run = value.is_truthy();
                return Ok(());
            }
            ("dryRun", value) => {
                return Err(wrong_type(format_args!("{NAME}.dryRun"), value, "bool"));
            }
            ("expireAfterSeconds", value) => {
                // It has a separate entry in the oplog.
                self.expiry = Some(changed_expiry(value)?);
                return Ok(());
            }
            ("validator", RawValue::Document(spec)) => self.validator = Some(spec),
            ("validator", value) => {
                return Err(wrong_type(
                    format_args!("{NAME}.validator"),
                    value,
                    "object",
                ));
            }
            ("validationLevel", value) => self.level = Some(ValidationLevel::parse(NAME, value)?),
            ("validationAction", value) => {
                self.action = Some(ValidationAction::parse(NAME, value)?);
            }
            (images::NAME, value) => self.keeps_images = Some(images::parse(value)?),
            ("cappedSize", value) => {
                self.capped_bytes = Some(parse_size(NAME, "cappedSize", value)?)
            }
            ("cappedMax", value) => {
                self.capped_documents = Some(parse_max(NAME, "cappedMax", value)?);
            }
            (option @ ("viewOn" | "pipeline"), _) => {
                return Err(invalid(&format!(
                    "option not supported on a collection: {option}"
                )));
            }
            ("timeseries", _) => {
                return Err(invalid(
                    "option only supported on a time-series collection: timeseries",
                ));
            }
            (option, _) => {
                return Err(unknown_field(format_args!("collMod.{option}")));
            }
        }
        self.asked.push(element);
        Ok(())
    }

    /// The collection's options after the change.
    /// Errors: those of the validator; `InvalidOptions` for limits of a collection that is not
    /// capped.
    fn apply(&self, collection: &Collection) -> Result<CollectionOptions> {
        let mut options = collection.options().clone();
        let mut validation = options.validation().clone();
        if let Some(spec) = self.validator {
            validation = validation.with_validator(spec, options.collator())?;
        }
        if let Some(level) = self.level {
            validation = validation.with_level(level);
        }
        if let Some(action) = self.action {
            validation = validation.with_action(action);
        }
        options = options.with_validation(validation);
        if let Some(keeps) = self.keeps_images {
            options = options.with_images(keeps);
        }
        if self.capped_bytes.is_some() || self.capped_documents.is_some() {
            if collection.ns().is_oplog() {
                return Err(invalid(
                    "the oplog's size is not changed by collMod; use replSetResizeOplog",
                ));
            }
            let Some(limit) = options.capped() else {
                let option = match self.capped_bytes {
                    Some(_) => "cappedSize",
                    None => "cappedMax",
                };
                return Err(invalid(&format!(
                    "option only supported on a capped collection: {option}"
                )));
            };
            options = options.with_capped(Some(Capped {
                bytes: self.capped_bytes.map_or(limit.bytes, |bytes| bytes as u64),
                documents: match self.capped_documents {
                    Some(documents) => u64::try_from(documents).ok().filter(|max| *max > 0),
                    None => limit.documents,
                },
            }));
        }
        options.check_namespace(collection.ns())?;
        Ok(options)
    }
}

impl Db {
    /// Executes a collMod.
    ///
    /// Errors: `NamespaceNotFound`, `IndexNotFound`, `InvalidOptions`, `AmbiguousIndexKeyPattern`,
    /// `CannotConvertIndexToUnique`, those of a validator,
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
        let options = request.apply(&collection)?;
        let mut result = CollModResult::default();
        let changed_index = match &request.index {
            Some(change) => self.changed_index(op, &collection, change, request, &mut result)?,
            None => None,
        };
        let collection = match request.expiry {
            Some(seconds) => self.set_expiry(&collection, seconds)?,
            None => collection,
        };
        let options = options.with_expiry(collection.options().expire_after_seconds());
        let same_options = options.same(collection.options());
        // A collMod that names no option changes nothing, and is an entry of the oplog all the same.
        let is_empty =
            request.asked.is_empty() && request.index.is_none() && request.expiry.is_none();
        if request.dry_run || (same_options && changed_index.is_none() && !is_empty) {
            return Ok(result);
        }
        let list = collection
            .index_list()
            .iter()
            .map(|own| match &changed_index {
                Some(changed) if own.table() == changed.table() => changed.clone(),
                _ => own.clone(),
            });
        let mut changed = collection.with_indexes(list.collect())?;
        changed.options = options;
        let mut unit = self.storage().begin().into_client_error()?;
        rows::put_collection(&mut unit, &changed);
        let of_index = |o: &mut DocBuilder| result.append_changes(o);
        let of_options = |o: &mut DocBuilder| {
            for element in &request.asked {
                o.append_raw_element(*element);
            }
        };
        let before = |o: &mut DocBuilder| result.append_before(o);
        let index = changed_index
            .as_ref()
            .map(|index| DdlChange::IndexModified {
                collection: &changed,
                index,
                changes: &of_index,
                before: &before,
            });
        let options = DdlChange::OptionsModified {
            collection: &changed,
            changes: &of_options,
            before: &collection,
        };
        let options = (!same_options || is_empty).then_some(options);
        let ticket = self.observe_ddl(&mut unit, index.into_iter().chain(options))?;
        let change = CatalogChange {
            added: vec![changed],
            ..Default::default()
        };
        ticket.committed(catalog.commit_then_publish(unit, &change)?);
        Ok(result)
    }
}

impl CollModResult {
    /// Appends the new values of what changed, under the names that collMod uses for an index.
    fn append_changes(&self, o: &mut DocBuilder) {
        if let Some((_, hidden)) = self.hidden {
            o.append("hidden", hidden);
        }
        if let Some((_, seconds)) = self.expire_after_seconds {
            o.append("expireAfterSeconds", RawValue::int_or_long(seconds));
        }
        if let Some((_, prepare)) = self.prepare_unique {
            o.append("prepareUnique", prepare);
        }
        if self.became_unique {
            o.append("unique", true);
        }
    }
}

impl CollModResult {
    /// Appends the previous values of what changed, under the same names.
    fn append_before(&self, o: &mut DocBuilder) {
        if let Some((hidden, _)) = self.hidden {
            o.append("hidden", hidden);
        }
        if let Some((Some(seconds), _)) = self.expire_after_seconds {
            o.append("expireAfterSeconds", RawValue::int_or_long(seconds));
        }
        if let Some((prepare, _)) = self.prepare_unique {
            o.append("prepareUnique", prepare);
        }
    }
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message)
}
