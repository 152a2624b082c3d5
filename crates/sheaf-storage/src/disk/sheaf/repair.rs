//! What can be done about files that are damaged: say what is, and save the rest into new files.
//!
//! ```text
//!   tree ── salvage: all entries that can be read ──┐
//!   log  ── replay from the tree's sequence, as far  ├──> a new engine in another folder
//!           as it goes without a gap ────────────────┘
//! ```
//!
//! Nothing is written to the damaged files.

use std::sync::Arc;

use super::backup::verify_tree;
use super::budget::MemoryBudget;
use super::files::Folder;
use super::log::Replay;
use super::open::TREE;
use super::tree::{self, PageReading, TreeFile, TreeOptions};
use super::{SheafEngine, SheafOptions};
use crate::batch::WriteBatch;
use crate::engine::{Durability, Finding, StorageEngine, TableId};
use crate::error::{Result, StorageError};

/// How much is written at once to the new files.
const BATCH_BYTES: u64 = 4 << 20;

/// What [`repair`] saved, and what it did not.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Tables that the new files have.
    pub tables: u64,
    /// Entries that were read from the tree.
    pub entries: u64,
    /// Batches that were read from the log.
    pub batches: u64,
    /// Whether entries may be among them that had been deleted or replaced.
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

/// What an error says of a file; other errors are handed on.
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

/// Reads all that the engine has in a folder, without opening it for use and without writing. Answers what is
/// damaged. `progress` is told the part that is done, from 0 to 1.
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
    let mut findings = Vec::new();
    let tree_seq = match TreeFile::open(folder, TREE, options) {
        Ok(tree) => {
            let roots = tree.roots();
            findings = verify_tree(&tree, &roots, progress)?;
            Some(roots.sequence())
        }
        Err(error) => {
            findings.push(damage(error)?);
            None
        }
    };
    // Without the tree nobody knows from where on the log is needed.
    if let Some(tree_seq) = tree_seq
        && let Err(error) = Replay::read(folder, tree_seq, &mut |_, _| Ok(()))
    {
        findings.push(damage(error)?);
    }
    Ok(findings)
}

/// Saves everything that can be read from the files in `from` into new files in `to`, which is empty.
///
/// Errors: `InUse`, `Io`, `NoSpace`; damage is in the answer.
pub fn repair(
    from: &Arc<dyn Folder>,
    to: Arc<dyn Folder>,
    options: SheafOptions,
) -> Result<Repaired> {
    let _lock = from.lock()?;
    let engine = SheafEngine::open_in(to, options)?;
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
            let mut batches = 0;
            let read = Replay::read(from, sequence, &mut |_, batch| {
                batches += 1;
                apply_leniently(&engine, batch)
            });
            repaired.batches = batches;
            if let Err(error) = read {
                repaired.lost.push(damage(error)?);
            }
        }
        None => repaired.lost.push(Finding {
            file: from.display("log.*"),
            offset: None,
            table: None,
            detail: "it cannot be told which of its batches come after the tree".into(),
        }),
    }
    repaired.tables = engine.tables()?.len() as u64;
    engine.checkpoint()?;
    engine.close()?;
    Ok(repaired)
}

/// Gathers entries for the new files.
struct Saving<'a> {
    engine: &'a SheafEngine,
    batch: WriteBatch,
}

impl Saving<'_> {
    /// Has the table exist.
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

/// Applies a batch of the log to tables of which some may have been lost, or found again.
fn apply_leniently(engine: &SheafEngine, batch: WriteBatch) -> Result<()> {
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
