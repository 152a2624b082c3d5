//! The express path: one document by its `_id`, without planner or stages.
//!
//! One seek in the `_id` index, one read of the record.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::keystring::{self, Directions, KeyStringBuilder};
use sheaf_bson::{RawValue, RecordId, doc};
use sheaf_storage::Snapshot;

use super::{CommonStats, StageDescription, StageStats};
use crate::catalog::collection::Collection;
use crate::index::spec::ID_INDEX_NAME;
use crate::records::RecordReader;
use crate::storage_error::Coded;

/// The planSummary of a read by `_id`.
pub const PLAN_SUMMARY: &str = "EXPRESS_IXSCAN { _id: 1 }";

/// What a lookup found and read.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The record and its document.
    pub record: Option<(RecordId, Bytes)>,
    /// 1 if the key is there.
    pub keys_examined: u64,
    /// 1 if the key is there.
    pub docs_examined: u64,
}

/// Finds the document with this `_id`.
pub fn find_by_id(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    id: RawValue<'_>,
) -> Result<Found, Error> {
    let Some(record_id) = record_of_id(collection, snapshot, id)? else {
        return Ok(Found::default());
    };
    let records = RecordReader::new(snapshot.clone(), collection.table());
    Ok(Found {
        record: records.get(record_id)?.map(|bytes| (record_id, bytes)),
        keys_examined: 1,
        docs_examined: 1,
    })
}

/// The record with this `_id`, from the index alone.
pub fn record_of_id(
    collection: &Collection,
    snapshot: &Arc<dyn Snapshot>,
    id: RawValue<'_>,
) -> Result<Option<RecordId>, Error> {
    let mut key = KeyStringBuilder::new(Directions::ascending());
    key.append(id);
    let mut cursor = snapshot.cursor(collection.id_index_table()).coded()?;
    if !cursor.seek(key.as_bytes()).coded()? {
        return Ok(None);
    }
    let (record_id, key_len) = keystring::decode_record_id(cursor.key()).ok_or_else(|| {
        Error::new(
            ErrorCode::DATA_CORRUPTION_DETECTED,
            "an entry of the _id index is not a key; run validate on the collection",
        )
    })?;
    Ok((&cursor.key()[..key_len] == key.as_bytes()).then_some(record_id))
}

/// The stage that explain shows for it.
pub fn describe(found: &Found) -> StageStats {
    StageStats {
        description: StageDescription {
            stage: "EXPRESS_IXSCAN",
            plan_fields: doc! {
                "keyPattern": {"_id": 1},
                "indexName": ID_INDEX_NAME,
            },
            exec_fields: doc! {
                "keysExamined": found.keys_examined as i64,
                "docsExamined": found.docs_examined as i64,
            },
            keys_examined: found.keys_examined,
            docs_examined: found.docs_examined,
            summary: Some(PLAN_SUMMARY.into()),
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
