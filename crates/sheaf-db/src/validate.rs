//! Validates a collection: every document is well formed, and every index holds exactly the keys
//! that a rebuild would create.
//!
//! ```text
//!   record ── keys of every index ──> each must exist, with its type bits         ┐ one snapshot
//!   index  ── more entries than keys? every entry must be the key of some record  ┘
//! ```
//!
//! In a clustered collection, every record must be stored under its `_id`.

use std::collections::{BTreeMap, BTreeSet};

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, RecordId, Result};
use sheaf_storage::Snapshot;

use crate::catalog::ReadView;
use crate::catalog::clustered::record_id_of_id;
use crate::collection::Collection;
use crate::index::Index;
use crate::index::key_set::{EntryKey, KeySet};
use crate::index::wildcard_keys::{array_entry, is_array_entry};
use crate::op_context::OpContext;
use crate::record_key::{record_id_of, record_key};
use crate::storage_error::IntoClientError;

/// Maximum number of faults described; further ones are only counted.
const FAULTS_SHOWN_MAX: usize = 100;

/// The result of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidateReport {
    /// Number of documents.
    pub records: u64,
    /// Documents that are not well-formed BSON.
    pub invalid_documents: u64,
    /// Number of entries per index name.
    pub keys_per_index: BTreeMap<String, u64>,
    /// Keys of documents that indexes lack.
    pub missing_entries: u64,
    /// Entries of indexes that no document has.
    pub extra_entries: u64,
    /// The first missing keys: `{indexName, recordId, idKey, indexKey}`.
    pub missing: Vec<DocBuf>,
    /// The first extra entries: `{indexName, recordId, indexKey}`.
    pub extra: Vec<DocBuf>,
    /// The first records that are not well-formed documents.
    pub corrupt_records: Vec<RecordId>,
    /// Documents that the collection's validator would reject.
    pub non_compliant: u64,
    /// Descriptions of the first hundred faults.
    pub faults: Vec<String>,
    /// Total number of faults.
    pub faults_total: u64,
    /// Names of the indexes with faults.
    pub faulty_indexes: BTreeSet<String>,
    /// Arrays on paths that an index does not record as multikey.
    pub unknown_arrays: u64,
}

impl ValidateReport {
    /// Whether no faults were found.
    pub fn is_valid(&self) -> bool {
        self.faults_total == 0
    }

    /// Conditions that are not faults, but may be unintended.
    pub fn warnings(&self) -> impl Iterator<Item = &'static str> {
        let warning = "Detected one or more documents in this collection not conformant to collection's schema.";
        (self.non_compliant > 0).then_some(warning).into_iter()
    }

    fn index_fault(&mut self, index: &Index, what: impl FnOnce() -> String) {
        if !self.faulty_indexes.contains(index.name()) {
            self.faulty_indexes.insert(index.name().to_owned());
        }
        self.fault(what);
    }

    fn fault(&mut self, what: impl FnOnce() -> String) {
        self.faults_total += 1;
        if self.faults.len() < FAULTS_SHOWN_MAX {
            self.faults.push(what());
        }
    }
}

/// Validates the collection of a view by reading all of it.
/// Errors: `Interrupted`, those of the storage engine. Faults in the data are in the report.
pub fn validate(op: &OpContext, view: &ReadView) -> Result<ValidateReport> {
    let mut report = ValidateReport::default();
    let Some(collection) = &view.collection else {
        return Ok(report);
    };
    let snapshot = &*view.snapshot;
    let keys = check_records(op, collection, snapshot, &mut report)?;
    for (index, expected) in collection.kept_indexes().iter().zip(keys) {
        check_index(op, collection, index, expected, snapshot, &mut report)?;
    }
    Ok(report)
}

/// Checks documents and the presence of their keys. Returns the number of keys expected per index.
fn check_records(
    op: &OpContext,
    collection: &Collection,
    snapshot: &dyn Snapshot,
    report: &mut ValidateReport,
) -> Result<Vec<u64>> {
    let indexes = collection.kept_indexes();
    let validation = collection.options().validation();
    let mut expected = vec![0; indexes.len()];
    let mut keys = KeySet::new();
    let mut entry = EntryKey::default();
    let mut cursor = snapshot.cursor(collection.table()).into_client_error()?;
    let mut on = cursor.seek_first().into_client_error()?;
    while on {
        op.check_interrupt()?;
        report.records += 1;
        let id = record_id_of(cursor.key());
        let options = sheaf_bson::ValidateOptions::STORED;
        let well_formed = sheaf_bson::validate(cursor.value(), &options);
        match (id, well_formed, RawDoc::parse(cursor.value())) {
            (Some(id), Ok(()), Ok(doc)) => {
                // A validator that fails to evaluate is not a fault of the document.
                if !validation.passes(doc).unwrap_or(true) {
                    report.non_compliant += 1;
                }
                check_place(collection, &id, doc, report);
                for (index, expected) in indexes.iter().zip(&mut expected) {
                    if let Err(error) = index.keys_of(doc, &mut keys) {
                        report.index_fault(index, || {
                            format!("record {id}: {}: {error}", index.name())
                        });
                        continue;
                    }
                    *expected += keys.len() as u64;
                    check_keys(index, (&id, doc), &keys, &mut entry, snapshot, report)?;
                }
            }
            (Some(id), Err(error), _) => {
                report.invalid_documents += 1;
                if report.corrupt_records.len() < FAULTS_SHOWN_MAX {
                    report.corrupt_records.push(id.clone());
                }
                report.fault(|| format!("record {id}: not a document: {error}"));
            }
            _ => report.fault(|| format!("a record's key is {:?}", cursor.key())),
        }
        on = cursor.next().into_client_error()?;
    }
    Ok(expected)
}

/// Checks that a record of a clustered collection is stored under its `_id`.
fn check_place(
    collection: &Collection,
    id: &RecordId,
    doc: RawDoc<'_>,
    report: &mut ValidateReport,
) {
    if collection.clustered().is_none() {
        return;
    }
    let collator = collection.collator().map(|collator| &**collator);
    let value = doc.get("_id");
    if value.is_none_or(|value| record_id_of_id(value, collator) != *id) {
        report.fault(|| match value {
            Some(value) => format!(
                "record {id}: its _id is {value}, which belongs under another \
                 record id"
            ),
            None => format!("record {id}: the document has no _id"),
        });
    }
}

fn check_keys(
    index: &Index,
    (id, doc): (&RecordId, RawDoc<'_>),
    keys: &KeySet,
    entry: &mut EntryKey,
    snapshot: &dyn Snapshot,
    report: &mut ValidateReport,
) -> Result<()> {
    if !index.has_multikey_paths(keys.multikey_paths()) {
        report.unknown_arrays += 1;
        report.index_fault(index, || {
            format!(
                "record {id}: {} is multikey at {:?}, but recorded as multikey at {:?} only",
                index.name(),
                keys.multikey_paths(),
                index.entry().multikey_paths
            )
        });
    }
    for path in keys.array_paths() {
        let entry = array_entry(path);
        if snapshot
            .get(index.table(), &entry)
            .into_client_error()?
            .is_none()
        {
            report.unknown_arrays += 1;
            report.index_fault(index, || {
                format!(
                    "record {id}: {path} is an array, which {} does not record",
                    index.name()
                )
            });
        }
    }
    for key in keys.iter() {
        let found = snapshot
            .get(index.table(), entry.of(key.key, id))
            .into_client_error()?;
        if found.as_deref() == Some(key.type_bits) {
            continue;
        }
        report.missing_entries += 1;
        if report.missing.len() < FAULTS_SHOWN_MAX {
            let values = index.encoder().decode_shown(key.key, key.type_bits);
            report
                .missing
                .push(entry_doc(index, id, doc.get("_id"), values));
        }
        let what = if found.is_some() {
            "has another type"
        } else {
            "is missing"
        };
        report.index_fault(index, || {
            let values = index.encoder().decode_shown(key.key, key.type_bits);
            format!("record {id}: {} in {} {what}", shown(values), index.name())
        });
    }
    Ok(())
}

fn check_index(
    op: &OpContext,
    collection: &Collection,
    index: &Index,
    expected: u64,
    snapshot: &dyn Snapshot,
    report: &mut ValidateReport,
) -> Result<()> {
    let name = index.name();
    let mut entries = 0;
    let mut cursor = snapshot.cursor(index.table()).into_client_error()?;
    let mut on = cursor.seek_first().into_client_error()?;
    let unique = index.spec().enforces_unique();
    let mut last_key: Vec<u8> = Vec::new();
    while on {
        op.check_interrupt()?;
        if is_array_entry(cursor.key()) {
            on = cursor.next().into_client_error()?;
            continue;
        }
        entries += 1;
        match decode_record_id(cursor.key()) {
            None => report.index_fault(index, || {
                format!("{name}: an entry does not end with a record id")
            }),
            Some((id, key_len)) => {
                let key = &cursor.key()[..key_len];
                if let Err(error) = index.encoder().decode_shown(key, cursor.value()) {
                    report.index_fault(index, || {
                        format!("{name}: an entry of record {id}: {error}")
                    });
                }
                if unique && key == last_key && entries > 1 {
                    report.index_fault(index, || {
                        format!("{name}: record {id} has the key of another record")
                    });
                }
                last_key.clear();
                last_key.extend_from_slice(key);
            }
        }
        on = cursor.next().into_client_error()?;
    }
    report.keys_per_index.insert(name.to_owned(), entries);
    if entries != expected {
        find_extra(op, collection, index, snapshot, report)?;
    }
    Ok(())
}

/// Finds entries that are not the key of any record.
fn find_extra(
    op: &OpContext,
    collection: &Collection,
    index: &Index,
    snapshot: &dyn Snapshot,
    report: &mut ValidateReport,
) -> Result<()> {
    let mut keys = KeySet::new();
    let mut cursor = snapshot.cursor(index.table()).into_client_error()?;
    let mut on = cursor.seek_first().into_client_error()?;
    while on {
        op.check_interrupt()?;
        if let Some((id, key_len)) = decode_record_id(cursor.key()) {
            let key = &cursor.key()[..key_len];
            let record = snapshot
                .get(collection.table(), &record_key(&id))
                .into_client_error()?;
            let belongs = record.is_some_and(|bytes| {
                RawDoc::parse(&bytes).is_ok_and(|doc| {
                    index.keys_of(doc, &mut keys).is_ok() && keys.iter().any(|own| own.key == key)
                })
            });
            if !belongs {
                report.extra_entries += 1;
                let values = index.encoder().decode_shown(key, cursor.value());
                if report.extra.len() < FAULTS_SHOWN_MAX {
                    report
                        .extra
                        .push(entry_doc(index, &id, None, values.clone()));
                }
                report.index_fault(index, || {
                    format!(
                        "{}: {} is not a key of record {id}",
                        index.name(),
                        shown(values)
                    )
                });
            }
        }
        on = cursor.next().into_client_error()?;
    }
    Ok(())
}

/// An index entry as the reply shows it.
fn entry_doc(
    index: &Index,
    id: &RecordId,
    document: Option<RawValue<'_>>,
    values: Result<DocBuf>,
) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("indexName", index.name());
    out.append("recordId", id.as_raw());
    if let Some(document) = document {
        out.append("idKey", document);
    }
    if let Ok(values) = values {
        out.append_bson("indexKey", &values);
    }
    out.finish()
}

fn shown(values: Result<sheaf_bson::DocBuf>) -> String {
    match values {
        Ok(values) => values.to_string(),
        Err(error) => error.to_string(),
    }
}
