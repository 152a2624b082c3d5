//! Repair of damaged files: reports the damage, and saves what is readable into new files.
//!
//! ```text
//!   tree ── salvage: all entries that can be read ──┐
//!   log  ── replay from the tree's sequence, as far ├──> a new engine in another folder
//!           as it goes without a gap ───────────────┘
//! ```
//!
//! Nothing is written to the damaged files.

use std::collections::HashMap;
use std::sync::Arc;

use super::backup::verify_tree;
use super::budget::MemoryBudget;
use super::log::{KeyDelta, Record, Replay, baseless};
use super::open::{TREE, UNFINISHED, check_never_begun, unfinished};
use super::tree::{self, PageReading, Roots, TreeFile, TreeOptions};
use super::view::Base;
use super::{LogTreeEngine, LogTreeOptions};
use crate::batch::{KeyWrite, WriteBatch};
use crate::engine::{Durability, Finding, StorageEngine, TableId};
use crate::error::{Result, StorageError};
use crate::folder::Folder;

/// Bytes written to the new files in one batch.
const BATCH_BYTES: u64 = 4 << 20;
/// Maximum number of values reported as lost.
const LOST_MAX: usize = 1000;

/// What [`repair`] saved, and what it could not.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Tables in the new files.
    pub tables: u64,
    /// Entries that were read from the tree.
    pub entries: u64,
    /// Batches that were read from the log.
    pub batches: u64,
    /// Whether the saved entries may include some that had been deleted or replaced.
    pub stale: bool,
    /// What could not be read.
    pub lost: Vec<Finding>,
}

fn found(finding: tree::Finding) -> Finding {
    Finding {
        file: finding.file,
        offset: Some(finding.offset),
        table: finding.table,
        detail: finding.detail,
    }
}

/// Describes an error that means damage; other errors are returned as errors.
fn damage(error: StorageError) -> Result<Finding> {
    match error {
        StorageError::Corrupt { file, detail } => Ok(Finding {
            file,
            offset: None,
            table: None,
            detail,
        }),
        error => Err(error),
    }
}

/// Reads everything that the engine has in a folder, without opening it for use and without
/// writing. Returns what is damaged. `progress` is called with the part that is done, from 0 to 1.
///
/// Errors: `InUse`, `NewerFormat`, `WrongFormat`, `Io`.
pub fn verify_files(
    folder: &Arc<dyn Folder>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Finding>> {
    let _lock = folder.lock()?;
    let options = TreeOptions {
        reading: PageReading::Cached,
        budget: MemoryBudget::new(64 << 20),
    };
    let names = folder
        .list()
        .map_err(|error| StorageError::io("list the data folder", &error))?;
    if names.iter().any(|name| name == UNFINISHED) {
        return Err(unfinished(folder));
    }
    let mut findings = Vec::new();
    let tree_seq = match TreeFile::open(folder, TREE, options) {
        Ok(tree) => {
            let roots = tree.roots();
            findings = verify_tree(&tree, &roots, progress)?;
            Some((roots.sequence(), roots))
        }
        Err(error) => {
            findings.push(damage(error)?);
            None
        }
    };
    // Without the tree it is unknown where in the log replay must begin.
    if let Some((tree_seq, roots)) = tree_seq {
        let mut chains = Chains {
            roots: roots.clone(),
            newest: HashMap::new(),
        };
        let read = Replay::read(folder, tree_seq, &mut |record| chains.follow(record));
        let begun = match read {
            Ok(read) if read.found_nothing() => check_never_begun(folder, &roots),
            read => read.map(drop),
        };
        if let Err(error) = begun {
            findings.push(damage(error)?);
        }
    }
    Ok(findings)
}

/// Checks the chains of deltas in the log without computing the values: a delta contains the
/// checksums of the value that it begins with and of the one that it ends with.
struct Chains {
    roots: Arc<Roots>,
    /// Length and checksum of the newest value of each key that the log has put.
    newest: HashMap<(TableId, Box<[u8]>), (u32, u32)>,
}

impl Chains {
    fn follow(&mut self, record: Record<'_>) -> Result<()> {
        for found in &record.decoded.deltas {
            let KeyDelta { table, key, delta } = found;
            let fits = match self.newest.get(&(*table, Box::from(*key))) {
                Some(newest) => *newest == (delta.base_len, delta.base_crc),
                None => match Base::get(&self.roots, *table, key) {
                    Ok(base) => base.is_some_and(|base| delta.begins_with(&base)),
                    // A page that cannot be read has been reported already.
                    Err(StorageError::Corrupt { .. }) => true,
                    Err(error) => return Err(error),
                },
            };
            if !fits {
                return Err(baseless(record.file, record.offset, found));
            }
            let newest = (delta.new_len, delta.new_crc);
            self.newest.insert((*table, Box::from(*key)), newest);
        }
        for (table, writes) in record.decoded.batch.tables() {
            for (key, change) in writes.keys() {
                let newest = match &change.write {
                    KeyWrite::Put(value) => (value.len() as u32, crc32c::crc32c(value)),
                    // Matches no value.
                    KeyWrite::Delete => (u32::MAX, 0),
                };
                self.newest.insert((table, Box::from(&key[..])), newest);
            }
        }
        Ok(())
    }
}

/// Saves everything that can be read from the files in `from` into new files in `to`, which must be
/// empty.
///
/// Errors: `InUse`, `Io`, `NoSpace`; damage is reported in the result.
pub fn repair(
    from: &Arc<dyn Folder>,
    to: Arc<dyn Folder>,
    options: LogTreeOptions,
) -> Result<Repaired> {
    let _lock = from.lock()?;
    let engine = LogTreeEngine::open_in(to, options)?;
    if engine.tables()? != [TableId::CATALOG] || engine.table_stats(TableId::CATALOG)?.entries > 0 {
        return Err(StorageError::TableNotEmpty(TableId::CATALOG));
    }
    let mut repaired = Repaired::default();
    let mut saving = Saving {
        engine: &engine,
        batch: WriteBatch::new(),
    };
    let salvaged = tree::salvage(from, TREE, &mut |table, key, value| {
        saving.put(table, key, value)
    })?;
    for table in &salvaged.tables {
        saving.table(*table)?;
    }
    saving.write()?;
    repaired.entries = salvaged.entries;
    repaired.stale = salvaged.stale;
    repaired.lost = salvaged.lost.into_iter().map(found).collect();
    match salvaged.sequence {
        Some(sequence) => {
            let (mut batches, mut baseless) = (0, Vec::new());
            let read = Replay::read(from, sequence, &mut |record| {
                batches += 1;
                let batch = make_leniently(&engine, record, &mut baseless)?;
                apply_leniently(&engine, batch)
            });
            repaired.batches = batches;
            repaired.stale |= !baseless.is_empty();
            repaired.lost.append(&mut baseless);
            if let Err(error) = read {
                repaired.lost.push(damage(error)?);
            }
        }
        None => repaired.lost.push(Finding {
            file: from.display("log.*"),
            offset: None,
            table: None,
            detail: "it is unknown which of its batches come after the tree".into(),
        }),
    }
    repaired.tables = engine.tables()?.len() as u64;
    engine.checkpoint()?;
    engine.close()?;
    Ok(repaired)
}

/// Collects entries for the new files.
struct Saving<'a> {
    engine: &'a LogTreeEngine,
    batch: WriteBatch,
}

impl Saving<'_> {
    /// Creates the table if it does not exist.
    fn table(&mut self, table: TableId) -> Result<()> {
        if self.batch.table(table).is_none()
            && matches!(
                self.engine.table_stats(table),
                Err(StorageError::NoSuchTable(_))
            )
        {
            self.batch.create_table(table);
        }
        Ok(())
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<()> {
        self.table(table)?;
        self.batch.put(table, key, value.to_vec());
        match self.batch.bytes() >= BATCH_BYTES {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.engine.apply(batch, Durability::Buffered).map(drop)
    }
}

/// The batch of a record, without the values that cannot be computed because their base is lost.
fn make_leniently(
    engine: &LogTreeEngine,
    record: Record<'_>,
    lost: &mut Vec<Finding>,
) -> Result<WriteBatch> {
    let Record {
        seq, file, offset, ..
    } = record;
    let snapshot = engine.snapshot()?;
    record.into_batch(&mut |found| {
        let KeyDelta { table, key, delta } = found;
        let base = match snapshot.get(*table, key) {
            Ok(base) => base,
            Err(StorageError::NoSuchTable(_)) => None,
            Err(error) => return Err(error),
        };
        let what = match &base {
            Some(base) if delta.ends_with(base) => return Ok(None),
            Some(base) => match delta.apply(base) {
                Some(value) => return Ok(Some(value)),
                None => "an older value is kept",
            },
            None => "nothing of it is left",
        };
        if lost.len() < LOST_MAX {
            let key: String = key.iter().take(32).map(|b| format!("{b:02x}")).collect();
            lost.push(Finding {
                file: file.into(),
                offset: Some(offset),
                table: Some(*table),
                detail: format!(
                    "the value of key {key} in batch {seq}: the log contains only a delta, and the \
                     value to which it applies is lost; {what}"
                ),
            });
        }
        Ok(None)
    })
}

/// Applies a batch of the log to tables some of which may have been lost, or salvaged.
fn apply_leniently(engine: &LogTreeEngine, batch: WriteBatch) -> Result<()> {
    let mut before = WriteBatch::new();
    for (table, writes) in batch.tables() {
        let exists = engine.table_stats(table).is_ok();
        match (writes.fate().exists_before(), exists) {
            (true, false) => before.create_table(table),
            (false, true) if table != TableId::CATALOG => before.drop_table(table),
            _ => {}
        }
    }
    engine.apply(before, Durability::Buffered)?;
    engine.apply(batch, Durability::Buffered).map(drop)
}
