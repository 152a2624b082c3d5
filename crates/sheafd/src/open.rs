//! Opens the database and makes the service that answers requests.
//!
//! The one place where the process side, the engine and the commands meet.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::storage_error::coded;
use sheaf_db::{Db, DbEvent, DbOptions, Events};
use sheaf_storage::{MemoryEngine, RedbEngine, RedbOptions, StorageEngine};

use crate::config::Settings;
use crate::log::{Component, Log};
use crate::net::Service;
use crate::server::{CommandService, Server};
use crate::startup::Startup;

/// The file that holds everything, in the data folder.
const DATA_FILE: &str = "sheaf.redb";
/// Folder of temporary files, in the data folder; emptied on start.
const TEMP_FOLDER: &str = "_tmp";
/// The least memory for cached data, as MongoDB has it.
const CACHE_BYTES_MIN: u64 = 256 << 20;

/// Makes the service of a server that is starting.
///
/// Errors: the data folder cannot be opened, an option is not possible.
pub fn open(startup: &Startup) -> Result<Arc<dyn Service>, Error> {
    let Startup { settings, log, .. } = startup;
    let engine = open_engine(settings, log)?;
    let events = log.clone();
    let options = DbOptions {
        events: Events::to(move |event| log_event(&events, event)),
        temp_dir: Some(settings.storage.db_path.join(TEMP_FOLDER)),
        ..DbOptions::default()
    };
    let db = Db::open(engine, options)?;
    let server = Server::new(db, startup)?;
    Ok(Arc::new(CommandService(server)))
}

fn open_engine(settings: &Settings, log: &Arc<Log>) -> Result<Arc<dyn StorageEngine>, Error> {
    match settings.storage.engine.as_deref() {
        None | Some("redb") => {}
        Some("memory" | "ephemeralForTest" | "inMemory") => {
            log.startup_warning(
                9_000_031,
                "The memory engine keeps nothing on disk: everything is lost when the server stops",
                crate::log::none,
            );
            return Ok(Arc::new(MemoryEngine::new()));
        }
        Some(other) => {
            return Err(Error::bad_value(format!(
                "storage engine '{other}' does not exist; the engines are redb and memory"
            )));
        }
    }
    let path = settings.storage.db_path.join(DATA_FILE);
    let repair_log = log.clone();
    let options = RedbOptions {
        cache_bytes: usize::try_from(settings.storage.cache_bytes.unwrap_or_else(default_cache))
            .unwrap_or(usize::MAX),
        flush_interval: Duration::from_millis(settings.storage.journal_commit_interval_ms),
        on_repair: Some(Box::new(move |done| {
            repair_log.info(
                Component::Recovery,
                9_000_032,
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

/// Half of the memory beyond the first gigabyte, of the machine or of the
/// container, but not less than 256 MB.
fn default_cache() -> u64 {
    const GIGABYTE: u64 = 1 << 30;
    let memory = crate::process::memory_limit().unwrap_or(GIGABYTE);
    (memory.saturating_sub(GIGABYTE) / 2).max(CACHE_BYTES_MIN)
}

fn log_event(log: &Log, event: &DbEvent) {
    let strings = |attr: &mut DocBuilder, key: &str, list: &[String]| {
        attr.begin_array(key);
        for item in list {
            attr.push(item.as_str());
        }
        attr.end();
    };
    match event {
        DbEvent::UnfinishedIndexesDropped { ns } => log.info(
            Component::Storage,
            22253,
            "Index builds that were cut short have been taken back",
            |attr| {
                attr.append("namespace", ns.as_str());
            },
        ),
        DbEvent::UnknownTableDropped { table } => log.info(
            Component::Storage,
            22251,
            "Dropping a table that no collection or index names",
            |attr| {
                attr.append("table", table.0 as i64);
            },
        ),
        DbEvent::CollectionCreated { ns, uuid } => {
            log.info(Component::Storage, 20320, "createCollection", |attr| {
                attr.append("namespace", ns.as_str());
                attr.append("uuid", uuid.as_raw());
            });
        }
        DbEvent::CollectionDropped { ns, uuid } => {
            log.info(
                Component::Storage,
                20318,
                "Finishing collection drop",
                |attr| {
                    attr.append("namespace", ns.as_str());
                    attr.append("uuid", uuid.as_raw());
                },
            );
        }
        DbEvent::IndexBuildStarted {
            ns,
            indexes,
            documents,
        } => log.info(
            Component::Index,
            20438,
            "Index build: registering",
            |attr| {
                attr.append("namespace", ns.as_str());
                strings(attr, "indexNames", indexes);
                attr.append("documents", *documents as i64);
            },
        ),
        DbEvent::IndexBuildProgress {
            ns,
            phase,
            done,
            total,
        } => log.info(Component::Index, 51773, "progress meter", |attr| {
            attr.append("namespace", ns.as_str());
            attr.append("name", *phase);
            attr.append("done", *done as i64);
            attr.append("total", *total as i64);
            attr.append(
                "percent",
                (done * 100).checked_div(*total).unwrap_or(100) as i64,
            );
        }),
        DbEvent::IndexBuildDone {
            ns,
            indexes,
            keys,
            duration_ms,
        } => log.info(
            Component::Index,
            20345,
            "Index build: done building",
            |attr| {
                attr.append("namespace", ns.as_str());
                strings(attr, "indexNames", indexes);
                attr.append("keys", *keys as i64);
                attr.append("durationMillis", *duration_ms as i64);
            },
        ),
        DbEvent::IndexBuildFailed { ns, indexes, error } => {
            log.warning(Component::Index, 20649, "Index build: failed", |attr| {
                attr.append("namespace", ns.as_str());
                strings(attr, "indexNames", indexes);
                attr.append("error", error.as_str());
            });
        }
    }
}
