//! Which storage engine holds the data, how it is opened, verified and repaired.
//!
//! ```text
//!   data folder has   sheaf/        the engine sheaf
//!                     sheaf.redb    the engine redb
//!                     neither       the one asked for, or the default
//! ```
//!
//! What is in the folder decides; an option that says otherwise is refused, so that nobody is shown an empty
//! database where there is a full one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, ErrorCode};
use sheaf_db::ddl::index_build::{RebuiltCollection, make_missing_tables};
use sheaf_db::storage_error::coded;
use sheaf_db::{Db, DbOptions, Events, OpContext};
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::{
    LogTreeEngine, LogTreeOptions, MemoryEngine, RedbEngine, RedbOptions, StorageEngine,
    StorageError, repair, verify_files,
};

use crate::log::{Component, Log, events};
use crate::settings::{Maintenance, Settings};

/// The folder of the engine sheaf, in the data folder.
const SHEAF_FOLDER: &str = "sheaf";
/// Where a repair puts what it saves, until it is whole.
const REPAIRED_FOLDER: &str = "sheaf.repaired";
/// The file of the engine redb, in the data folder.
const REDB_FILE: &str = "sheaf.redb";
/// The least memory for cached data, as MongoDB has it.
const CACHE_BYTES_MIN: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Sheaf,
    Redb,
    Memory,
}

/// What a new data folder gets when nobody asks for an engine.
const DEFAULT: Engine = Engine::Sheaf;

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Sheaf => "sheaf",
            Engine::Redb => "redb",
            Engine::Memory => "memory",
        }
    }

    fn asked_for(settings: &Settings) -> Result<Option<Engine>, Error> {
        match settings.storage.engine.as_deref() {
            None => Ok(None),
            Some("sheaf") => Ok(Some(Engine::Sheaf)),
            Some("redb") => Ok(Some(Engine::Redb)),
            Some("memory" | "ephemeralForTest" | "inMemory") => Ok(Some(Engine::Memory)),
            Some(other) => Err(Error::bad_value(format!(
                "storage engine '{other}' does not exist; the engines are sheaf, redb and memory"
            ))),
        }
    }

    fn of_folder(folder: &Path) -> Result<Option<Engine>, Error> {
        let has = |name: &str| folder.join(name).exists();
        match (has(SHEAF_FOLDER), has(REDB_FILE)) {
            (true, false) => Ok(Some(Engine::Sheaf)),
            (false, true) => Ok(Some(Engine::Redb)),
            (false, false) => Ok(None),
            (true, true) => Err(Error::bad_value(format!(
                "the data folder {} holds data of two storage engines, {SHEAF_FOLDER} and \
                 {REDB_FILE}: move away the one that is not wanted",
                folder.display()
            ))),
        }
    }

    fn choose(settings: &Settings) -> Result<Engine, Error> {
        let folder = &settings.storage.db_path;
        let asked = Engine::asked_for(settings)?;
        if asked == Some(Engine::Memory) {
            return Ok(Engine::Memory);
        }
        match (asked, Engine::of_folder(folder)?) {
            (Some(asked), Some(there)) if asked != there => Err(Error::bad_value(format!(
                "the data folder {} was made by the storage engine '{}', not by '{}': leave out \
                 --storageEngine, or choose another --dbpath",
                folder.display(),
                there.name(),
                asked.name()
            ))),
            (asked, there) => Ok(asked.or(there).unwrap_or(DEFAULT)),
        }
    }
}

/// Opens the engine.
///
/// Errors: the data folder cannot be opened, an option is not possible.
pub fn open(settings: &Settings, log: &Arc<Log>) -> Result<Arc<dyn StorageEngine>, Error> {
    match Engine::choose(settings)? {
        Engine::Memory => {
            log.startup_warning(
                events::MEMORY_ENGINE,
                "The memory engine keeps nothing on disk: everything is lost when the server stops",
                crate::log::none,
            );
            Ok(Arc::new(MemoryEngine::new()))
        }
        Engine::Redb => open_redb(settings, log),
        Engine::Sheaf => open_sheaf(settings, log),
    }
}

fn sheaf_options(settings: &Settings) -> LogTreeOptions {
    LogTreeOptions {
        cache_bytes: settings.storage.cache_bytes.unwrap_or_else(default_cache),
        flush_interval: Duration::from_millis(settings.storage.journal_commit_interval_ms),
        checkpoint_interval: match settings.storage.sync_period_secs {
            // MongoDB: never by time alone.
            0.0 => Duration::MAX,
            seconds => Duration::from_secs_f64(seconds),
        },
        ..LogTreeOptions::default()
    }
}

fn open_sheaf(settings: &Settings, log: &Log) -> Result<Arc<dyn StorageEngine>, Error> {
    let path = settings.storage.db_path.join(SHEAF_FOLDER);
    let engine = LogTreeEngine::open(&path, sheaf_options(settings)).map_err(coded)?;
    let recovery = engine.recovery();
    if recovery.batches > 0 || recovery.torn.is_some() {
        log.info(
            Component::Recovery,
            events::LOG_REPLAYED,
            "The storage engine was not closed cleanly; its log has been read again",
            |attr| {
                attr.append("batches", recovery.batches as i64);
                attr.append("logBytes", recovery.log_bytes as i64);
                attr.append("durationMillis", recovery.took.as_millis() as i64);
                if let Some(torn) = &recovery.torn {
                    attr.append("tornFile", torn.file.as_str());
                    attr.append("tornOffset", torn.offset as i64);
                }
            },
        );
    }
    Ok(Arc::new(engine))
}

fn open_redb(settings: &Settings, log: &Arc<Log>) -> Result<Arc<dyn StorageEngine>, Error> {
    let path = settings.storage.db_path.join(REDB_FILE);
    let repair_log = log.clone();
    let options = RedbOptions {
        cache_bytes: usize::try_from(settings.storage.cache_bytes.unwrap_or_else(default_cache))
            .unwrap_or(usize::MAX),
        flush_interval: Duration::from_millis(settings.storage.journal_commit_interval_ms),
        on_repair: Some(Box::new(move |done| {
            repair_log.info(
                Component::Recovery,
                events::DATA_FILE_CHECKED,
                "The data file was not closed cleanly and is being checked",
                |attr| {
                    attr.append("percent", (done * 100.0).floor());
                },
            );
        })),
        ..RedbOptions::default()
    };
    let engine = RedbEngine::open(&path, options).map_err(coded)?;
    Ok(Arc::new(engine))
}

/// Whether the engine makes checkpoints by itself, also while it is written to.
///
/// `sheaf` does so each `checkpoint_interval`, paced; `redb` only after a second without writes;
/// `memory` has none to make.
pub fn checkpoints_itself(engine: &dyn StorageEngine) -> bool {
    engine.name() != Engine::Redb.name()
}

fn default_cache() -> u64 {
    cache_for(crate::host::memory_limit().unwrap_or(1 << 30))
}

/// Half of the memory beyond the first gigabyte, of the machine or of the
/// container, but not less than 256 MB; and where that would be more than
/// half of all there is, half.
fn cache_for(memory: u64) -> u64 {
    const GIGABYTE: u64 = 1 << 30;
    let usual = (memory.saturating_sub(GIGABYTE) / 2).max(CACHE_BYTES_MIN);
    usual.min(memory / 2)
}

/// Copies all that the engine has into a folder that is empty or does not exist; a server started on it has what was
/// there at one moment. Answers how many bytes were written. `go_on` is asked now and then whether to. On an error the
/// folder is left empty.
///
/// Errors: `CannotBackup`, `CommandNotSupported`, `OutOfDiskSpace`, those of reading and writing.
pub fn backup(
    engine: &dyn StorageEngine,
    folder: &Path,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<u64, Error> {
    let cannot = |error: std::io::Error| {
        let context = format!("back up to {}", folder.display());
        match StorageError::io(context, &error) {
            full @ StorageError::NoSpace { .. } => coded(full),
            other => Error::new(ErrorCode::CANNOT_BACKUP, other.to_string()),
        }
    };
    let is_new = |folder: &&Path| !folder.exists();
    let new: Vec<&Path> = folder.ancestors().skip(1).take_while(is_new).collect();
    DiskFolder::open(folder).map_err(cannot)?;
    // Of several folders that were made each is an entry of the one above it.
    for made in new.into_iter().filter_map(Path::parent) {
        std::fs::File::open(made)
            .and_then(|above| above.sync_all())
            .map_err(cannot)?;
    }
    if std::fs::read_dir(folder).map_err(cannot)?.next().is_some() {
        return Err(Error::new(
            ErrorCode::CANNOT_BACKUP,
            format!(
                "the folder {} is not empty: name one that is, or one that does not exist",
                folder.display()
            ),
        ));
    }
    let data = folder.join(SHEAF_FOLDER);
    engine.backup(&data, go_on).map_err(|error| {
        // Empty by now; where it is not, it says itself that it is not whole.
        let _ = std::fs::remove_dir(&data);
        match error {
            StorageError::Unsupported { what } => Error::new(
                ErrorCode::COMMAND_NOT_SUPPORTED,
                format!("not supported: {what}"),
            ),
            error => coded(error),
        }
    })
}

/// Verifies or repairs the files of a server that does not run. Answers whether they are whole now.
///
/// Errors: the files cannot be read at all, the engine cannot do this.
pub fn maintain(
    settings: &Settings,
    log: &Arc<Log>,
    maintenance: Maintenance,
) -> Result<bool, Error> {
    let data = &settings.storage.db_path;
    match Engine::choose(settings)? {
        Engine::Sheaf => {}
        other => {
            return Err(Error::bad_value(format!(
                "the storage engine '{}' can be neither verified nor repaired: it checks its file \
                 when it opens it",
                other.name()
            )));
        }
    }
    let path = data.join(SHEAF_FOLDER);
    let folder: Arc<dyn Folder> = Arc::new(open_folder(&path)?);
    let mut told = 0;
    let findings = verify_files(&folder, &mut |done| {
        let percent = (done * 10.0) as i32 * 10;
        if percent > told {
            told = percent;
            log.info(
                Component::Storage,
                events::VERIFY_PROGRESS,
                "Verifying the data files",
                |attr| {
                    attr.append("percent", percent);
                },
            );
        }
    })
    .map_err(coded)?;
    for finding in &findings {
        log_finding(log, finding);
    }
    if findings.is_empty() {
        log.info(
            Component::Storage,
            events::FILES_WHOLE,
            "The data files are whole",
            crate::log::none,
        );
    }
    if maintenance == Maintenance::Verify {
        return Ok(findings.is_empty());
    }
    if !findings.is_empty() {
        let aside = repair_into(data, &folder, settings, log)?;
        log.warning(
            Component::Storage,
            events::FILES_REPAIRED,
            "The data files have been repaired; what could not be read is missing",
            |attr| {
                attr.append("damagedFiles", aside.to_string_lossy().as_ref());
            },
        );
    }
    // As MongoDB does, whether anything was damaged or not.
    rebuild_indexes(settings, log)?;
    Ok(true)
}

/// Makes every index of every collection anew from the documents that are there.
fn rebuild_indexes(settings: &Settings, log: &Arc<Log>) -> Result<(), Error> {
    let engine = open_sheaf(settings, log)?;
    let made = make_missing_tables(&engine)?;
    if made > 0 {
        log.warning(
            Component::Storage,
            events::TABLES_RECREATED,
            "Of some collections and indexes nothing was left; they have been made anew, empty",
            |attr| {
                attr.append("tables", made as i64);
            },
        );
    }
    let events = log.clone();
    let options = DbOptions {
        events: Events::to(move |event| crate::open::log_event(&events, event)),
        temp_dir: Some(settings.storage.db_path.join(crate::open::TEMP_FOLDER)),
        ..DbOptions::default()
    };
    let db = Db::open(engine, options)?;
    for collection in db.rebuild_indexes(&OpContext::new())? {
        log_rebuilt(log, &collection);
    }
    db.close()
}

fn log_rebuilt(log: &Log, collection: &RebuiltCollection) {
    log.info(
        Component::Index,
        events::INDEXES_REBUILT,
        "The indexes of a collection have been made anew",
        |attr| {
            attr.append("namespace", collection.ns.as_str());
            attr.append("records", collection.records as i64);
            attr.append("recordsRemoved", collection.removed as i64);
            attr.begin_array("indexNames");
            for name in &collection.indexes {
                attr.push(name.as_str());
            }
            attr.end();
        },
    );
    for (name, why) in &collection.dropped {
        log.error(
            Component::Index,
            events::INDEX_DROPPED,
            "An index could not be made anew and has been dropped; create it again when the documents allow it",
            |attr| {
                attr.append("namespace", collection.ns.as_str());
                attr.append("index", name.as_str());
                attr.append("error", why.as_str());
            },
        );
    }
}

/// Saves what is readable into new files and puts them in place of the damaged ones, which stay beside them.
fn repair_into(
    data: &Path,
    damaged: &Arc<dyn Folder>,
    settings: &Settings,
    log: &Log,
) -> Result<PathBuf, Error> {
    let failed = |what: &str, error: std::io::Error| coded(StorageError::io(what, &error));
    let repaired = data.join(REPAIRED_FOLDER);
    // Of a repair that was cut short.
    if repaired.exists() {
        std::fs::remove_dir_all(&repaired).map_err(|e| failed("remove an old repair", e))?;
    }
    let new: Arc<dyn Folder> = Arc::new(open_folder(&repaired)?);
    let saved = repair(damaged, new, sheaf_options(settings)).map_err(coded)?;
    for finding in &saved.lost {
        log_finding(log, finding);
    }
    log.info(
        Component::Storage,
        events::REPAIR_SAVED,
        "What could be read has been saved",
        |attr| {
            attr.append("tables", saved.tables as i64);
            attr.append("entries", saved.entries as i64);
            attr.append("logBatches", saved.batches as i64);
            attr.append("mayHoldDeleted", saved.stale);
            attr.append("lost", saved.lost.len() as i64);
        },
    );
    let mut number = 1;
    let aside = loop {
        let aside = data.join(format!("{SHEAF_FOLDER}.damaged.{number}"));
        if !aside.exists() {
            break aside;
        }
        number += 1;
    };
    let in_place = data.join(SHEAF_FOLDER);
    std::fs::rename(&in_place, &aside).map_err(|e| failed("move the damaged files away", e))?;
    std::fs::rename(&repaired, &in_place).map_err(|e| failed("move the new files in", e))?;
    std::fs::File::open(data)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| failed("sync the data folder", e))?;
    Ok(aside)
}

fn open_folder(path: &Path) -> Result<DiskFolder, Error> {
    DiskFolder::open(path).map_err(|error| {
        let context = format!("open {}", path.display());
        coded(StorageError::io(context, &error))
    })
}

fn log_finding(log: &Log, finding: &sheaf_storage::Finding) {
    log.error(
        Component::Storage,
        events::FILE_DAMAGED,
        "A data file is damaged",
        |attr| {
            attr.append("file", finding.file.as_str());
            if let Some(offset) = finding.offset {
                attr.append("offset", offset as i64);
            }
            if let Some(table) = finding.table {
                attr.append("table", table.0 as i64);
            }
            attr.append("detail", finding.detail.as_str());
        },
    );
}

#[cfg(test)]
mod tests {
    use super::cache_for;

    #[test]
    fn the_cache_is_of_what_the_machine_or_the_container_has() {
        const MB: u64 = 1 << 20;
        for (memory, cache) in [
            (256, 128),
            (512, 256),
            (1024, 256),
            (1536, 256),
            (2048, 512),
            (24 << 10, 11_776),
        ] {
            assert_eq!(cache_for(memory * MB), cache * MB, "{memory} MB");
        }
    }
}
