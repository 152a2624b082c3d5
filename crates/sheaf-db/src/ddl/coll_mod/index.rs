//! collMod's `index`: hidden, expiry, and conversion to a unique index.
//!
//! ```text
//!   prepareUnique: true   rejects new duplicates, keeps existing ones
//!   unique: true          makes the index unique if no duplicates exist; dryRun only checks
//! ```

use sheaf_bson::fields::{unknown_field, wrong_type};
use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue, Result};

use super::{CollMod, CollModResult, invalid};
use crate::catalog::clustered::whole_seconds;
use crate::collection::Collection;
use crate::database::Db;
use crate::ddl::clustered::means_clustered;
use crate::ddl::indexes::{index_by_key, index_by_name};
use crate::index::definition::IndexSpec;
use crate::index::wildcard_keys::is_array_entry;
use crate::index::{Index, IndexConstraints};
use crate::op_context::OpContext;
use crate::record_key::record_key;
use crate::storage_error::IntoClientError;

const NAME: &str = "collMod.index";
/// Maximum number of groups of duplicates in a reply.
const VIOLATIONS_MAX: usize = 1000;
/// Maximum number of documents listed per group.
const VIOLATION_IDS_MAX: usize = 1000;

/// The requested changes of one index.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IndexChange<'a> {
    name: Option<&'a str>,
    key: Option<RawDoc<'a>>,
    hidden: Option<bool>,
    expire_after_seconds: Option<i64>,
    prepare_unique: Option<bool>,
    unique: bool,
}

impl<'a> IndexChange<'a> {
    pub(super) fn parse(fields: RawDoc<'a>) -> Result<IndexChange<'a>> {
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
        if parsed.hidden.is_none()
            && parsed.expire_after_seconds.is_none()
            && parsed.prepare_unique.is_none()
            && !parsed.unique
        {
            return Err(invalid(
                "no expireAfterSeconds, hidden, unique, or prepareUnique field",
            ));
        }
        Ok(parsed)
    }

    pub(super) fn makes_unique(&self) -> bool {
        self.unique
    }

    fn parse_field(&mut self, element: RawElement<'a>) -> Result<()> {
        match (element.key(), element.value()) {
            ("name", RawValue::String(name)) => self.name = Some(name),
            ("name", value) => {
                return Err(wrong_type(format_args!("{NAME}.name"), value, "string"));
            }
            ("keyPattern", RawValue::Document(key)) => self.key = Some(key),
            ("keyPattern", value) => {
                return Err(wrong_type(
                    format_args!("{NAME}.keyPattern"),
                    value,
                    "object",
                ));
            }
            (
                "hidden" | "prepareUnique" | "unique" | "expireAfterSeconds",
                RawValue::Null | RawValue::Undefined,
            ) => {}
            ("hidden", value) => self.hidden = Some(flag("hidden", value)?),
            ("prepareUnique", value) => self.prepare_unique = Some(flag("prepareUnique", value)?),
            ("unique", value) => {
                if !flag("unique", value)? {
                    return Err(Error::bad_value(
                        "collMod does not support converting an index to non-unique: drop and create it",
                    ));
                }
                self.unique = true;
            }
            ("expireAfterSeconds", value) => {
                let seconds = whole_seconds(value)?;
                self.expire_after_seconds = Some(seconds.min(i64::from(i32::MAX)));
            }
            (option, _) => {
                return Err(unknown_field(format_args!("collMod.index.{option}")));
            }
        }
        Ok(())
    }

    /// The index's spec with the requested changes applied unconditionally.
    fn overwrite(&self, index: &Index, result: &mut CollModResult) -> IndexSpec {
        let mut spec = index.spec().clone();
        if let Some(hidden) = self.hidden {
            result.hidden = Some((spec.hidden, hidden));
            spec.hidden = hidden;
        }
        if let Some(seconds) = self.expire_after_seconds {
            result.expire_after_seconds = Some((spec.expire_after_seconds, seconds));
            spec.expire_after_seconds = Some(seconds);
        }
        if let Some(prepare) = self.prepare_unique.filter(|_| !spec.unique) {
            result.prepare_unique = Some((spec.prepare_unique, prepare));
            spec.prepare_unique = prepare;
        }
        if self.unique {
            result.became_unique = true;
            spec.unique = true;
            spec.prepare_unique = false;
        }
        spec
    }

    /// The index's spec after the change.
    fn apply(&self, index: &Index, result: &mut CollModResult) -> Result<IndexSpec> {
        let mut spec = index.spec().clone();
        if spec.is_id_index() {
            return Err(match self.hidden {
                Some(_) => Error::bad_value("can't hide _id index"),
                None => invalid("the _id index is always unique and cannot be a TTL index"),
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
            // As in MongoDB a hashed index may have an expiry; it finds no old documents.
            if index
                .spec()
                .key
                .iter()
                .any(|field| field.key().contains("$**"))
            {
                return Err(invalid("a wildcard index cannot be a TTL index"));
            }
            result.expire_after_seconds = Some((spec.expire_after_seconds, seconds));
            spec.expire_after_seconds = Some(seconds);
        }
        if let Some(prepare) = self.prepare_unique
            && prepare != spec.prepare_unique
        {
            if spec.unique {
                return Err(invalid(
                    "the index is already unique: prepareUnique does not apply",
                ));
            }
            if prepare {
                spec.check_can_be_unique()?;
            }
            result.prepare_unique = Some((spec.prepare_unique, prepare));
            spec.prepare_unique = prepare;
        }
        if self.unique && !spec.unique {
            if !spec.prepare_unique {
                return Err(invalid(
                    "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
                ));
            }
            result.became_unique = true;
            spec.unique = true;
            spec.prepare_unique = false;
        }
        Ok(spec)
    }
}

fn flag(option: &str, value: RawValue<'_>) -> Result<bool> {
    match value {
        RawValue::Boolean(flag) => Ok(flag),
        value if value.is_number() => Ok(value.is_truthy()),
        value => Err(wrong_type(format_args!("{NAME}.{option}"), value, "bool")),
    }
}

impl Db {
    /// The changed index; `None` if nothing changes. The caller holds the exclusive intent.
    pub(super) fn changed_index(
        &self,
        op: &OpContext,
        collection: &Collection,
        change: &IndexChange<'_>,
        request: &CollMod<'_>,
        result: &mut CollModResult,
    ) -> Result<Option<Index>> {
        let dry_run = request.dry_run;
        let is_relaxed = request.constraints == IndexConstraints::Relaxed;
        check_not_clustered(collection, change)?;
        let index = match (change.name, change.key) {
            (Some(name), _) => index_by_name(collection, name)?,
            (None, Some(key)) => index_by_key(collection, key)?,
            (None, None) => return Ok(None),
        };
        if is_relaxed {
            return index.with_spec(change.overwrite(index, result)).map(Some);
        }
        let spec = match (dry_run, index.spec().prepare_unique) {
            // Checks whether conversion would succeed, even if writers do not yet reject
            // duplicates.
            (true, false) if !index.spec().unique => {
                self.refuse_duplicates(op, collection, index)?;
                return Ok(None);
            }
            _ => change.apply(index, result)?,
        };
        if *result == CollModResult::default() {
            return Ok(None);
        }
        if result.became_unique {
            self.refuse_duplicates(op, collection, index)?;
        }
        if dry_run {
            *result = CollModResult::default();
            return Ok(None);
        }
        index.with_spec(spec).map(Some)
    }

    /// Errors: `CannotConvertIndexToUnique` with `violations: [{ids: [..]}]`.
    fn refuse_duplicates(
        &self,
        op: &OpContext,
        collection: &Collection,
        index: &Index,
    ) -> Result<()> {
        let snapshot = self.storage().snapshot().into_client_error()?;
        let mut cursor = snapshot.cursor(index.table()).into_client_error()?;
        let mut violations: Vec<Vec<Vec<u8>>> = Vec::new();
        let (mut last_key, mut last_id): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut in_group = false;
        let mut on = cursor.seek_first().into_client_error()?;
        while on {
            op.check_interrupt()?;
            if !is_array_entry(cursor.key())
                && let Some((id, key_len)) = decode_record_id(cursor.key())
            {
                let key = &cursor.key()[..key_len];
                let id = record_key(&id).to_vec();
                if !last_id.is_empty() && key == last_key {
                    if !in_group && violations.len() < VIOLATIONS_MAX {
                        violations.push(vec![last_id]);
                    }
                    in_group = true;
                    if let Some(group) = violations.last_mut()
                        && group.len() < VIOLATION_IDS_MAX
                    {
                        group.push(id.clone());
                    }
                } else {
                    in_group = false;
                    last_key.clear();
                    last_key.extend_from_slice(key);
                }
                last_id = id;
            }
            on = cursor.next().into_client_error()?;
        }
        if violations.is_empty() {
            return Ok(());
        }
        let mut extra = DocBuilder::new();
        extra.begin_array("violations");
        for group in &violations {
            extra.push_begin_document();
            extra.begin_array("ids");
            for record in group {
                let bytes = snapshot
                    .get(collection.table(), record)
                    .into_client_error()?;
                let doc = bytes.as_deref().map(RawDoc::stored).transpose();
                let doc = doc.map_err(|e| collection.report_damage(e))?;
                if let Some(id) = doc.and_then(|doc| doc.get("_id")) {
                    extra.push(id);
                }
            }
            extra.end();
            extra.end();
        }
        extra.end();
        Err(Error::new(
            ErrorCode::CANNOT_CONVERT_INDEX_TO_UNIQUE,
            "Cannot convert the index to unique. Please resolve conflicting documents before running collMod again.",
        )
        .with_extra(extra.finish()))
    }
}

/// Errors: `InvalidOptions` for the clustered index, which the collection's own options change.
fn check_not_clustered(collection: &Collection, change: &IndexChange<'_>) -> Result<()> {
    if !means_clustered(collection, change.name, change.key) {
        return Ok(());
    }
    Err(invalid(match change.hidden {
        Some(_) => "the clustered index cannot be hidden",
        None => {
            "the clustered index cannot be changed with 'index'; use the collMod option \
             'expireAfterSeconds'"
        }
    }))
}
