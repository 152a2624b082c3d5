//! The express path: finds one document by a unique key, without planner or stages.
//!
//! One seek in the index, one read of the record.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::{self, KeyStringBuilder};
use sheaf_bson::{DocBuilder, RawValue, RecordId, doc, json};
use sheaf_query::planner::ExpressKey;
use sheaf_query::planner::index_entry::IndexEntry;
use sheaf_storage::{Snapshot, TableId};

use super::key_document::directions_of;
use super::{CommonStats, StageDescription, StageStats};
use crate::catalog::clustered::record_id_of_id;
use crate::collection::Collection;
use crate::damage::missing_record;
use crate::records;
use crate::storage_error::IntoClientError;

/// The result of a lookup.
#[derive(Debug, Clone)]
pub struct Found {
    /// The index used.
    pub index: Arc<IndexEntry>,
    /// The record and its document.
    pub record: Option<(RecordId, Bytes)>,
    /// 1 if the key exists; 0 for a clustered index, which has no separate keys.
    pub keys_examined: u64,
    /// 1 if the document exists.
    pub docs_examined: u64,
}

/// `EXPRESS_IXSCAN { _id: 1 }`, or `EXPRESS_CLUSTERED_IXSCAN`.
pub fn summary(index: &IndexEntry) -> String {
    if index.clustered {
        return stage(index).to_owned();
    }
    let key_pattern = json::shell_doc(index.key_pattern.as_raw());
    format!("EXPRESS_IXSCAN {key_pattern}")
}

fn stage(index: &IndexEntry) -> &'static str {
    match index.clustered {
        true => "EXPRESS_CLUSTERED_IXSCAN",
        false => "EXPRESS_IXSCAN",
    }
}

/// Finds the document with this `_id`, text compared by the collection's collation.
pub fn find_by_id(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    id: RawValue<'_>,
) -> Result<Found, Error> {
    by_index(collection, snapshot, collection.id_index(), id)
}

/// Finds the document with this key.
pub fn find(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    key: ExpressKey<'_>,
) -> Result<Found, Error> {
    by_index(collection, snapshot, key.index, key.value.as_raw())
}

fn by_index(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    index: &Arc<IndexEntry>,
    value: RawValue<'_>,
) -> Result<Found, Error> {
    let mut found = Found {
        index: index.clone(),
        record: None,
        keys_examined: 0,
        docs_examined: 0,
    };
    let record_id = record_of(index, snapshot, value).map_err(|e| collection.report_damage(e))?;
    let Some(record_id) = record_id else {
        return Ok(found);
    };
    let record = records::read(&**snapshot, collection, &record_id)?;
    (found.keys_examined, found.docs_examined) = match (index.clustered, &record) {
        (true, record) => (0, u64::from(record.is_some())),
        (false, Some(_)) => (1, 1),
        (false, None) => {
            let damage = missing_record(&summary(index), &record_id);
            return Err(collection.report_damage(damage));
        }
    };
    debug_assert!(found.keys_examined <= 1 && found.docs_examined <= 1);
    found.record = record.map(|bytes| (record_id, bytes));
    Ok(found)
}

/// The id of the record with this `_id`, from the index alone; in a clustered collection, whether
/// or not the record exists.
pub fn record_of_id(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    id: RawValue<'_>,
) -> Result<Option<RecordId>, Error> {
    record_of(collection.id_index(), snapshot, id)
}

fn record_of(
    index: &IndexEntry,
    snapshot: &Arc<dyn Snapshot>,
    value: RawValue<'_>,
) -> Result<Option<RecordId>, Error> {
    if index.clustered {
        return Ok(Some(record_id_of_id(value, index.collator.as_deref())));
    }
    let mut key = KeyStringBuilder::new(directions_of(index));
    key.append_with(value, index.collator.as_deref());
    // The planner identifies an index by its table.
    let mut cursor = snapshot.cursor(TableId(index.ident)).into_client_error()?;
    if !cursor.seek(key.as_bytes()).into_client_error()? {
        return Ok(None);
    }
    let (record_id, key_len) =
        keystring::decode_record_id(cursor.key()).ok_or_else(|| not_a_key(index))?;
    Ok((&cursor.key()[..key_len] == key.as_bytes()).then_some(record_id))
}

/// The error of a malformed index entry.
pub(super) fn not_a_key(index: &IndexEntry) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!(
            "an entry of index '{}' is not a key; run validate on the collection",
            index.name
        ),
    )
}

/// The explain stage of a lookup.
pub fn describe(found: &Found) -> StageStats {
    let mut plan_fields = DocBuilder::new();
    plan_fields.append_bson("keyPattern", &found.index.key_pattern);
    plan_fields.append("indexName", found.index.name.as_str());
    StageStats {
        description: StageDescription {
            stage: stage(&found.index),
            plan_fields: plan_fields.finish(),
            exec_fields: doc! {
                "keysExamined": found.keys_examined as i64,
                "docsExamined": found.docs_examined as i64,
            },
            keys_examined: found.keys_examined,
            docs_examined: found.docs_examined,
            summary: Some(summary(&found.index)),
            ..Default::default()
        },
        common: CommonStats {
            works: 1 + u64::from(found.record.is_some()),
            advanced: u64::from(found.record.is_some()),
            is_eof: true,
            ..Default::default()
        },
    }
}
