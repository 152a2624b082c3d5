//! The storage engine of the data folder: opening, backing up, verifying and repairing it.
//!
//! Which engine it is follows from the folder and from `--storageEngine`, by the rules of
//! [`sheaf_storage::registry`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, ErrorCode};
use sheaf_db::ddl::index_build::{RebuiltCollection, make_missing_tables};
use sheaf_db::storage_error::client_error;
use sheaf_db::{Db, DbOptions, Events, OpContext};
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::registry::{self, EngineKind, Location, OpenEvent, Options};
use sheaf_storage::{Recovery, StorageEngine, StorageError, repair, verify_files};

use crate::log::{Component, Log, events};
use crate::settings::{Maintenance, Settings};

/// Folder that a repair writes to until it is complete.
const REPAIRED_FOLDER: &str = "sheaf.repaired";
/// Minimum memory for cached data, as in MongoDB.
const CACHE_BYTES_MIN: u64 = 256 << 20;

fn choose(settings: &Settings) -> Result<Location, Error> {
    let storage = &settings.storage;
    Location::choose(&storage.db_path, storage.engine.as_deref())
        .map_err(|error| Error::bad_value(error.to_string()))
}

/// Opens the engine.
///
/// Errors: the data folder cannot be opened, an option is not possible.
pub fn open(settings: &Settings, log: &Arc<Log>) -> Result<Arc<dyn StorageEngine>, Error> {
    let location = choose(settings)?;
    if location == Location::Memory {
        log.startup_warning(
            events::MEMORY_ENGINE,
            "The memory engine stores nothing on disk: all data is lost when the server stops",
            crate::log::none,
        );
    }
    let log = log.clone();
    let options = Options {
        on_event: Some(Box::new(move |event| log_open_event(&log, event))),
        ..options(settings)
    };
    registry::open(&location, options).map_err(client_error)
}

fn options(settings: &Settings) -> Options {
    Options {
        cache_bytes: settings.storage.cache_bytes.unwrap_or_else(default_cache),
        flush_interval: Duration::from_millis(settings.storage.journal_commit_interval_ms),
        checkpoint_interval: match settings.storage.sync_period_secs {
            // As in MongoDB: no checkpoint by time alone.
            0.0 => Duration::MAX,
            seconds => Duration::from_secs_f64(seconds),
        },
        ..Options::default()
    }
}

fn log_open_event(log: &Log, event: OpenEvent<'_>) {
    match event {
        OpenEvent::Recovered(recovery) => log_recovery(log, recovery),
        OpenEvent::Checking(done) => log.info(
            Component::Recovery,
            events::DATA_FILE_CHECKED,
            "Checking the data file after an unclean shutdown",
            |attr| {
                attr.append("percent", (done * 100.0).floor());
            },
        ),
    }
}

fn log_recovery(log: &Log, recovery: &Recovery) {
    if recovery.batches == 0 && recovery.torn.is_none() {
        return;
    }
    log.info(
        Component::Recovery,
        events::LOG_REPLAYED,
        "Recovered from the log after an unclean shutdown",
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

pub(crate) fn default_cache() -> u64 {
    cache_for(crate::host::memory_limit().unwrap_or(1 << 30))
}

/// Half of the memory (of the machine or the container) beyond the first gigabyte, but at least
/// 256 MB, and at most half of all memory.
fn cache_for(memory: u64) -> u64 {
    const GIGABYTE: u64 = 1 << 30;
    let usual = (memory.saturating_sub(GIGABYTE) / 2).max(CACHE_BYTES_MIN);
    usual.min(memory / 2)
}

/// Copies all data of the engine into a folder that is empty or does not exist. A server started on
/// the copy has the state of one point in time. Returns the number of bytes written. `go_on` is
/// called at intervals; if it returns false, the backup fails. A failed backup leaves the folder
/// empty.
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
            full @ StorageError::NoSpace { .. } => client_error(full),
            other => Error::new(ErrorCode::CANNOT_BACKUP, other.to_string()),
        }
    };
    let is_new = |folder: &&Path| !folder.exists();
    let new: Vec<&Path> = folder.ancestors().skip(1).take_while(is_new).collect();
    DiskFolder::open(folder).map_err(cannot)?;
    // Each created folder is an entry of its parent, which must be synced.
    for made in new.into_iter().filter_map(Path::parent) {
        std::fs::File::open(made)
            .and_then(|above| above.sync_all())
            .map_err(cannot)?;
    }
    if std::fs::read_dir(folder).map_err(cannot)?.next().is_some() {
        return Err(Error::new(
            ErrorCode::CANNOT_BACKUP,
            format!(
                "the folder {} is not empty: choose an empty folder, or one that does not exist",
                folder.display()
            ),
        ));
    }
    // Only this engine supports backups.
    let data = folder.join(EngineKind::LogTree.entry());
    engine.backup(&data, go_on).map_err(|error| {
        // The engine has emptied the folder. Where it could not, the files are marked unfinished
        // and do not open.
        let _ = std::fs::remove_dir(&data);
        match error {
            StorageError::Unsupported { what } => Error::new(
                ErrorCode::COMMAND_NOT_SUPPORTED,
                format!("not supported: {what}"),
            ),
            error => client_error(error),
        }
    })
}

/// The folder of an engine whose files can be verified and repaired.
fn files_of(location: &Location) -> Option<PathBuf> {
    match location {
        Location::Folder {
            engine: EngineKind::LogTree,
            ..
        } => location.data(),
        _ => None,
    }
}

/// Verifies or repairs the data files while no server runs on them. Returns whether they are
/// undamaged now.
///
/// Errors: the files cannot be read at all, the engine cannot do this.
pub fn maintain(
    settings: &Settings,
    log: &Arc<Log>,
    maintenance: Maintenance,
) -> Result<bool, Error> {
    let data = &settings.storage.db_path;
    let location = choose(settings)?;
    let Some(path) = files_of(&location) else {
        return Err(Error::bad_value(format!(
            "the storage engine '{}' can be neither verified nor repaired: it checks its file when it \
             opens it",
            location.engine_name()
        )));
    };
    let folder: Arc<dyn Folder> = Arc::new(open_folder(&path)?);
    let mut reported = 0;
    let findings = verify_files(&folder, &mut |done| {
        let percent = (done * 10.0) as i32 * 10;
        if percent > reported {
            reported = percent;
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
    .map_err(client_error)?;
    for finding in &findings {
        log_finding(log, finding);
    }
    if findings.is_empty() {
        log.info(
            Component::Storage,
            events::FILES_WHOLE,
            "The data files are not damaged",
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
            "The data files have been repaired; unreadable data is missing",
            |attr| {
                attr.append("damagedFiles", aside.to_string_lossy().as_ref());
            },
        );
    }
    // As in MongoDB, even if nothing was damaged.
    rebuild_indexes(settings, log)?;
    Ok(true)
}

/// Rebuilds every index of every collection from the stored documents.
fn rebuild_indexes(settings: &Settings, log: &Arc<Log>) -> Result<(), Error> {
    let engine = open(settings, log)?;
    let made = make_missing_tables(&engine)?;
    if made > 0 {
        log.warning(
            Component::Storage,
            events::TABLES_RECREATED,
            "Some collections and indexes could not be recovered and were recreated empty",
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
        "Rebuilt the indexes of a collection",
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
            "Could not rebuild an index, which has been dropped; create it again after correcting \
             the documents",
            |attr| {
                attr.append("namespace", collection.ns.as_str());
                attr.append("index", name.as_str());
                attr.append("error", why.as_str());
            },
        );
    }
}

/// Saves the readable data into new files and replaces the damaged files with them. The damaged
/// files stay in the data folder; returns their path.
fn repair_into(
    data: &Path,
    damaged: &Arc<dyn Folder>,
    settings: &Settings,
    log: &Log,
) -> Result<PathBuf, Error> {
    let failed = |what: &str, error: std::io::Error| client_error(StorageError::io(what, &error));
    let repaired = data.join(REPAIRED_FOLDER);
    // Left by an interrupted repair.
    if repaired.exists() {
        std::fs::remove_dir_all(&repaired).map_err(|e| failed("remove an old repair", e))?;
    }
    let new: Arc<dyn Folder> = Arc::new(open_folder(&repaired)?);
    let saved = repair(damaged, new, options(settings).for_log_tree()).map_err(client_error)?;
    for finding in &saved.lost {
        log_finding(log, finding);
    }
    log.info(
        Component::Storage,
        events::REPAIR_SAVED,
        "Salvaged the readable data",
        |attr| {
            attr.append("tables", saved.tables as i64);
            attr.append("entries", saved.entries as i64);
            attr.append("logBatches", saved.batches as i64);
            attr.append("mayHoldDeleted", saved.stale);
            attr.append("lost", saved.lost.len() as i64);
        },
    );
    let entry = EngineKind::LogTree.entry();
    let mut number = 1;
    let aside = loop {
        let aside = data.join(format!("{entry}.damaged.{number}"));
        if !aside.exists() {
            break aside;
        }
        number += 1;
    };
    let in_place = data.join(entry);
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
        client_error(StorageError::io(context, &error))
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
    fn the_cache_follows_machine_and_container_memory() {
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
