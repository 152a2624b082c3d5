//! The catalog on disk: rows of table 0, each a BSON document.
//!
//! ```text
//!   key            value
//!   "v"            {format: 1}
//!   "n"            {next: 17}                         number of the next table
//!   "t"            {clock: Timestamp(..)}             upper bound of commit times; absent until needed
//!   "w" + ns       {ns, viewOn, pipeline, collation}
//!   "c" + uuid     {ns, ident, table, options,
//!                   sortKeys: "icu4x ..",              clustered, with a collation: format of record keys
//!                   indexes: [
//!                     {spec, ident, table, ready, multikeyPaths: [[], [0, 1]],
//!                      sortKeys: "icu4x .."}, ...],       with a collation: format of its keys
//!                   buildTables: [12]}                 scratch tables of builds in progress
//! ```
//!
//! Invariant: exactly one row names each table of the engine except table 0. A row and its tables
//! change in one unit of work. Tables that no row names are left over from a crash; opening the
//! catalog drops them, along with indexes that are not `ready`.

use std::sync::Arc;

use sheaf_bson::collation::SORT_KEY_DATA;
use sheaf_bson::json::shell_doc;
use sheaf_bson::{
    CollationChoice, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, Timestamp,
};
use sheaf_query::planner::index_entry::MultikeyPaths;
use sheaf_storage::{Snapshot, StorageTransaction, TableId};

use crate::catalog::namespace::Namespace;
use crate::catalog::options::CollectionOptions;
use crate::catalog::uuid::Uuid;
use crate::catalog::views::ViewDefinition;
use crate::collection::{Collection, Indexes};
use crate::index::Index;
use crate::index::definition::IndexSpec;
use crate::index::vector::lists::Lists;
use crate::storage_error::IntoClientError;

/// The newest format that this program reads and writes.
const FORMAT: i64 = 1;
const FORMAT_KEY: &[u8] = b"v";
const NEXT_TABLE_KEY: &[u8] = b"n";
const CLOCK_KEY: &[u8] = b"t";
const COLLECTION_PREFIX: u8 = b'c';
const VIEW_PREFIX: u8 = b'w';

/// A collection's row, with its unfinished indexes kept apart.
pub(crate) struct CollectionRow {
    pub(crate) collection: Collection,
    /// Tables of unfinished indexes, and scratch tables of their builds.
    pub(crate) unfinished: Vec<TableId>,
}

/// The complete contents of the catalog's table.
#[derive(Default)]
pub(crate) struct CatalogRows {
    pub(crate) collections: Vec<CollectionRow>,
    pub(crate) views: Vec<ViewDefinition>,
    /// 0 if the row is missing.
    pub(crate) next_table: u64,
    /// True for an empty engine: not even the format is written.
    pub(crate) is_new: bool,
}

/// Reads all rows.
/// Errors: `MustUpgrade` for a newer format, `DataCorruptionDetected`.
pub(crate) fn read_all(snapshot: &dyn Snapshot) -> Result<CatalogRows> {
    let mut rows = CatalogRows::default();
    match snapshot
        .get(TableId::CATALOG, FORMAT_KEY)
        .into_client_error()?
    {
        None => rows.is_new = true,
        Some(value) => {
            let format = integer(parse(&value)?, "format")?;
            if format > FORMAT {
                return Err(Error::new(
                    ErrorCode::MUST_UPGRADE,
                    format!(
                        "the catalog has format {format}, newer than {FORMAT}, the newest that this \
                         program reads; start the program version that wrote it"
                    ),
                ));
            }
        }
    }
    if let Some(value) = snapshot
        .get(TableId::CATALOG, NEXT_TABLE_KEY)
        .into_client_error()?
    {
        rows.next_table = integer(parse(&value)?, "next")? as u64;
    }
    let mut cursor = snapshot.cursor(TableId::CATALOG).into_client_error()?;
    let mut on = cursor.seek(&[COLLECTION_PREFIX]).into_client_error()?;
    while on && cursor.key().first() == Some(&COLLECTION_PREFIX) {
        let uuid = cursor.key()[1..]
            .try_into()
            .map(Uuid)
            .map_err(|_| corrupt("a collection's key is not a UUID", None))?;
        let row = parse(cursor.value())?;
        rows.collections.push(
            read_collection(uuid, row, snapshot)
                .map_err(|e| e.with_context(format_args!("catalog row {}", shell_doc(row))))?,
        );
        on = cursor.next().into_client_error()?;
    }
    let mut on = cursor.seek(&[VIEW_PREFIX]).into_client_error()?;
    while on && cursor.key().first() == Some(&VIEW_PREFIX) {
        let row = parse(cursor.value())?;
        rows.views.push(ViewDefinition {
            ns: Namespace::parse(text(row, "ns")?)?,
            on: text(row, "viewOn")?.into(),
            pipeline: array(row, "pipeline")?.to_buf(),
            collator: match row.get("collation").and_then(|v| v.as_document()) {
                Some(spec) => CollationChoice::parse(spec)?.collator().cloned(),
                None => None,
            },
            usage: Arc::default(),
        });
        on = cursor.next().into_client_error()?;
    }
    Ok(rows)
}

/// Writes the row that marks the format.
pub(crate) fn put_format(unit: &mut StorageTransaction) {
    let mut row = DocBuilder::new();
    row.append("format", FORMAT);
    unit.put(TableId::CATALOG, FORMAT_KEY, row.finish().into_vec());
}

/// Writes the number of the next table.
pub(crate) fn put_next_table(unit: &mut StorageTransaction, next: u64) {
    let mut row = DocBuilder::new();
    row.append("next", next as i64);
    unit.put(TableId::CATALOG, NEXT_TABLE_KEY, row.finish().into_vec());
}

/// Writes the upper bound of commit times.
pub(crate) fn put_clock(unit: &mut StorageTransaction, ceiling: Timestamp) {
    let mut row = DocBuilder::new();
    row.append("clock", ceiling);
    unit.put(TableId::CATALOG, CLOCK_KEY, row.finish().into_vec());
}

/// Reads the upper bound of commit times; `None` before the first commit.
pub(crate) fn read_clock(snapshot: &dyn Snapshot) -> Result<Option<Timestamp>> {
    let Some(value) = snapshot
        .get(TableId::CATALOG, CLOCK_KEY)
        .into_client_error()?
    else {
        return Ok(None);
    };
    match parse(&value)?.get("clock") {
        Some(RawValue::Timestamp(ceiling)) => Ok(Some(ceiling)),
        _ => Err(corrupt("the clock is not a timestamp", None)),
    }
}

/// Writes a collection's row, with its current multikey paths.
pub(crate) fn put_collection(unit: &mut StorageTransaction, collection: &Collection) {
    let row = write_collection(collection);
    unit.put(TableId::CATALOG, &row_key(collection.uuid), row.into_vec());
}

/// Writes a view's row.
pub(crate) fn put_view(unit: &mut StorageTransaction, view: &ViewDefinition) {
    let mut row = DocBuilder::new();
    row.append("ns", view.ns.as_str());
    row.append("viewOn", &*view.on);
    row.append("pipeline", &view.pipeline);
    if let Some(collator) = &view.collator {
        row.append_bson("collation", &collator.collation().to_doc());
    }
    let row = row.finish().into_vec();
    unit.put(TableId::CATALOG, &view_key(&view.ns), row);
}

/// Removes a view's row.
pub(crate) fn delete_view(unit: &mut StorageTransaction, ns: &Namespace) {
    unit.delete(TableId::CATALOG, &view_key(ns));
}

fn view_key(ns: &Namespace) -> Vec<u8> {
    let mut key = vec![VIEW_PREFIX];
    key.extend_from_slice(ns.as_str().as_bytes());
    key
}

/// Removes a collection's row.
pub(crate) fn delete_collection(unit: &mut StorageTransaction, uuid: Uuid) {
    unit.delete(TableId::CATALOG, &row_key(uuid));
}

fn row_key(uuid: Uuid) -> [u8; 17] {
    let mut key = [COLLECTION_PREFIX; 17];
    key[1..].copy_from_slice(&uuid.0);
    key
}

fn write_collection(collection: &Collection) -> DocBuf {
    let mut row = DocBuilder::new();
    row.append("ns", collection.ns.as_str());
    row.append("ident", &*collection.ident);
    row.append("table", collection.table.0 as i64);
    row.append_bson("options", &collection.options.to_doc());
    if collection.clustered().is_some() && collection.collator().is_some() {
        row.append("sortKeys", SORT_KEY_DATA);
    }
    row.begin_array("indexes");
    for index in collection.index_list() {
        write_index(&mut row, index, true);
    }
    for build in &collection.builds {
        for index in build.indexes() {
            write_index(&mut row, index, false);
        }
    }
    row.end();
    row.begin_array("buildTables");
    for build in &collection.builds {
        row.push(build.side_table().0 as i64);
    }
    row.end();
    row.finish()
}

fn write_index(row: &mut DocBuilder, index: &Index, ready: bool) {
    row.push_begin_document();
    row.append_bson("spec", &index.spec().to_doc());
    row.append("ident", index.ident());
    row.append("table", index.table().0 as i64);
    row.append("ready", ready);
    if index.entry().collator.is_some() {
        row.append("sortKeys", SORT_KEY_DATA);
    }
    row.begin_array("multikeyPaths");
    for field in &index.entry().multikey_paths {
        row.push_begin_array();
        for part in field {
            row.push(*part as i32);
        }
        row.end();
    }
    row.end();
    row.end();
}

fn read_collection(uuid: Uuid, row: RawDoc<'_>, snapshot: &dyn Snapshot) -> Result<CollectionRow> {
    let mut indexes = Vec::new();
    let mut unfinished = Vec::new();
    for value in array(row, "indexes")? {
        let index = value
            .as_document()
            .ok_or_else(|| corrupt("an index is not a document", Some(row)))?;
        let table = TableId(integer(index, "table")? as u64);
        match index.get("ready") {
            Some(RawValue::Boolean(true)) => {
                indexes.push(read_index(index, table, snapshot)?);
            }
            _ => unfinished.push(table),
        }
    }
    for value in array(row, "buildTables")? {
        let table = value
            .as_i64_exact()
            .ok_or_else(|| corrupt("a build's table is not a number", Some(row)))?;
        unfinished.push(TableId(table as u64));
    }
    let options = row
        .get("options")
        .and_then(|v| v.as_document())
        .ok_or_else(|| corrupt("'options' is not a document", Some(row)))?;
    let options = CollectionOptions::from_row(options)?;
    let table = TableId(integer(row, "table")? as u64);
    check_sort_keys(row, &options)?;
    Ok(CollectionRow {
        collection: Collection {
            ns: Namespace::parse(text(row, "ns")?)?,
            uuid,
            ident: text(row, "ident")?.into(),
            table,
            indexes: Indexes::new(indexes, table, &options)?,
            options,
            builds: Vec::new(),
            generation: 0,
            plan_cache: Arc::default(),
            state: Arc::default(),
        },
        unfinished,
    })
}

/// Errors: `IncompatibleCollationVersion` if the records of a clustered collection with a collation
/// are keyed by sort keys of another collation version.
fn check_sort_keys(row: RawDoc<'_>, options: &CollectionOptions) -> Result<()> {
    if options.clustered().is_none() || options.collator().is_none() {
        return Ok(());
    }
    match text(row, "sortKeys")? {
        SORT_KEY_DATA => Ok(()),
        other => Err(Error::new(
            ErrorCode::INCOMPATIBLE_COLLATION_VERSION,
            format!(
                "the records of the clustered collection {} are ordered by sort keys of {other}, this program makes \
                 those of {SORT_KEY_DATA}; start the program version that wrote them, and copy the documents",
                text(row, "ns")?
            ),
        )),
    }
}

fn read_index(row: RawDoc<'_>, table: TableId, snapshot: &dyn Snapshot) -> Result<Index> {
    let spec = row
        .get("spec")
        .and_then(|v| v.as_document())
        .ok_or_else(|| corrupt("'spec' is not a document", Some(row)))?;
    let mut multikey = MultikeyPaths::new();
    for field in array(row, "multikeyPaths")? {
        let parts = field.as_array().ok_or_else(|| {
            corrupt(
                "'multikeyPaths' contains a value that is not an array",
                Some(row),
            )
        })?;
        multikey.push(
            parts
                .iter()
                .filter_map(|part| usize::try_from(part.as_i64_exact()?).ok())
                .collect(),
        );
    }
    let ident = text(row, "ident")?.into();
    let mut spec = IndexSpec::from_row(spec)?;
    if let Some(vector) = &spec.vector {
        // Opening the catalog reports a missing table, or repair recreates it.
        let there = snapshot.contains_table(table).into_client_error()?;
        let fields = vector.definition.vectors().iter().enumerate();
        let lists = fields.map(|(number, field)| match there {
            true => Lists::read(snapshot, table, number, field),
            false => Ok(Lists::one(field)),
        });
        let lists: Result<Vec<Lists>> = lists.collect();
        return Ok(Index::of_vectors(spec, ident, table, lists?.into()));
    }
    spec.resolve_collation(None);
    if spec.collator().is_some() && text(row, "sortKeys")? != SORT_KEY_DATA {
        return Err(Error::new(
            ErrorCode::INCOMPATIBLE_COLLATION_VERSION,
            format!(
                "the keys of index '{}' are sort keys of {}, this program makes those of \
                 {SORT_KEY_DATA}; start the program version that wrote them and drop the index",
                spec.name,
                text(row, "sortKeys")?
            ),
        ));
    }
    Index::new(spec, ident, table, multikey)
}

fn parse(bytes: &[u8]) -> Result<RawDoc<'_>> {
    sheaf_bson::validate(bytes, &sheaf_bson::ValidateOptions::STORED)
        .map_err(|e| corrupt(&e.to_string(), None))?;
    RawDoc::parse(bytes).map_err(|e| corrupt(&e.to_string(), None))
}

fn text<'a>(row: RawDoc<'a>, field: &str) -> Result<&'a str> {
    row.get(field)
        .and_then(|v| v.as_str())
        .ok_or_else(|| corrupt(&format!("'{field}' is not a string"), Some(row)))
}

fn integer(row: RawDoc<'_>, field: &str) -> Result<i64> {
    row.get(field)
        .and_then(|v| v.as_i64_exact())
        .filter(|n| *n >= 0)
        .ok_or_else(|| corrupt(&format!("'{field}' is not a number"), Some(row)))
}

fn array<'a>(row: RawDoc<'a>, field: &str) -> Result<sheaf_bson::RawArray<'a>> {
    row.get(field)
        .and_then(|v| v.as_array())
        .ok_or_else(|| corrupt(&format!("'{field}' is not an array"), Some(row)))
}

fn corrupt(what: &str, row: Option<RawDoc<'_>>) -> Error {
    let row = row.map(shell_doc).unwrap_or_default();
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("the catalog is damaged: {what} {row}; restore it from a backup"),
    )
}
