//! The metadata in the file: its format, and the sizes of the tables. `docs/format/redb.md`
//! describes it.
//!
//! Invariant: every table of the engine has a row in `SIZES`, exact as of the last durable commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redb::{Database, ReadableDatabase, TableDefinition, TableHandle, WriteTransaction};

use super::errors::{begin_error, commit_error, open_error, storage_error};
use crate::engine::{TableId, TableStats};
use crate::error::{Result, StorageError};

/// The file's `format` and `version`. Present in every file of this engine.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("sheaf");
/// For each table the number of entries, and the bytes of keys and of values, as of the last
/// durable commit.
const SIZES: TableDefinition<u64, (u64, u64, u64)> = TableDefinition::new("sheaf-sizes");

const FORMAT: &[u8] = b"sheaf-redb";
const VERSION: u64 = 1;

/// The name of a table in redb.
pub(super) fn table_name(table: TableId) -> String {
    format!("t{:x}", table.0)
}

pub(super) fn table_of(name: &str) -> TableDefinition<'_, &'static [u8], &'static [u8]> {
    TableDefinition::new(name)
}

fn table_id(name: &str) -> Option<TableId> {
    let number = u64::from_str_radix(name.strip_prefix('t')?, 16).ok()?;
    (table_name(TableId(number)) == name).then_some(TableId(number))
}

/// The tables with their sizes, in the newest visible state.
#[derive(Default)]
pub(super) struct Sizes {
    pub(super) tables: HashMap<TableId, TableStats>,
    /// Tables whose row in `SIZES` is not up to date.
    pub(super) unsaved: BTreeSet<TableId>,
}

/// Reads the file's format and its tables; `None` for a file that has just been created.
pub(super) fn read_sizes(db: &Database, file: &str) -> Result<Option<Sizes>> {
    let wrong = |detail: &str| StorageError::WrongFormat {
        detail: format!("{file}: {detail}"),
    };
    let read = db.begin_read().map_err(begin_error)?;
    let names: Vec<String> = read
        .list_tables()
        .map_err(|error| storage_error("list the tables", error))?
        .map(|table| table.name().to_owned())
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    if !names.iter().any(|name| name == META.name()) {
        return Err(wrong("a redb file of another program"));
    }
    let meta = read
        .open_table(META)
        .map_err(|error| open_error("read the format", error))?;
    let row = |name: &str| {
        meta.get_owned(name)
            .map_err(|error| storage_error("read the format", error))
    };
    if row("format")?.is_none_or(|value| value.value() != FORMAT) {
        return Err(wrong("a redb file of another program"));
    }
    let version = match row("version")? {
        Some(value) => <[u8; 8]>::try_from(value.value()).ok(),
        None => None,
    };
    match version.map(u64::from_le_bytes) {
        Some(VERSION) => {}
        Some(found) if found > VERSION => {
            return Err(StorageError::NewerFormat {
                found,
                supported: VERSION,
            });
        }
        _ => return Err(wrong("its format version cannot be read")),
    }
    let mut sizes = Sizes::default();
    let rows = read
        .open_table(SIZES)
        .map_err(|error| open_error("read the sizes", error))?;
    for name in names {
        if name == META.name() || name == SIZES.name() {
            continue;
        }
        let Some(table) = table_id(&name) else {
            return Err(wrong(&format!("it has an unknown table {name:?}")));
        };
        let row = rows
            .get_owned(table.0)
            .map_err(|error| storage_error("read the sizes", error))?;
        let Some(row) = row else {
            return Err(StorageError::Corrupt {
                file: file.into(),
                detail: format!("table {table} has no size"),
            });
        };
        let (entries, key_bytes, value_bytes) = row.value();
        let stats = TableStats {
            entries,
            key_bytes,
            value_bytes,
            disk_bytes: 0,
        };
        sizes.tables.insert(table, stats);
    }
    if !sizes.tables.contains_key(&TableId::CATALOG) {
        return Err(wrong("it has no catalog"));
    }
    Ok(Some(sizes))
}

/// Initialises a new file.
pub(super) fn initialise(db: &Database) -> Result<Sizes> {
    let txn = db.begin_write().map_err(begin_error)?;
    let open = |error| open_error("create the file", error);
    let write = |error| storage_error("create the file", error);
    {
        let mut meta = txn.open_table(META).map_err(open)?;
        meta.insert("format", FORMAT).map_err(write)?;
        let version = VERSION.to_le_bytes();
        meta.insert("version", &version[..]).map_err(write)?;
        let mut sizes = txn.open_table(SIZES).map_err(open)?;
        sizes.insert(TableId::CATALOG.0, (0, 0, 0)).map_err(write)?;
        let name = table_name(TableId::CATALOG);
        txn.open_table(table_of(&name)).map_err(open)?;
    }
    txn.commit().map_err(commit_error)?;
    let mut sizes = Sizes::default();
    sizes.tables.insert(TableId::CATALOG, TableStats::default());
    Ok(sizes)
}

/// Updates the rows of `SIZES`; deletes the row of a table whose size is `None`.
pub(super) fn save_sizes(
    txn: &WriteTransaction,
    unsaved: &BTreeMap<TableId, Option<TableStats>>,
) -> Result<()> {
    if unsaved.is_empty() {
        return Ok(());
    }
    let mut rows = txn
        .open_table(SIZES)
        .map_err(|error| open_error("write the sizes", error))?;
    for (table, stats) in unsaved {
        match stats {
            Some(stats) => {
                let row = (stats.entries, stats.key_bytes, stats.value_bytes);
                rows.insert(table.0, row)
                    .map_err(|error| storage_error("write the sizes", error))?;
            }
            None => {
                rows.remove(table.0)
                    .map_err(|error| storage_error("write the sizes", error))?;
            }
        }
    }
    Ok(())
}

/// Estimate of a table's size in the file: redb stores two offsets of four bytes for each entry,
/// and its leaves are about three quarters full.
pub(super) fn disk_bytes(stats: &TableStats) -> u64 {
    (stats.key_bytes + stats.value_bytes + 8 * stats.entries) * 4 / 3
}
