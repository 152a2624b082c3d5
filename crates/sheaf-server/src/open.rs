//! Opens the database, whose events go to the log.

use std::sync::Arc;

use sheaf_bson::{DocBuilder, Error};
use sheaf_db::{Db, DbEvent, DbOptions, Events};

use crate::engine;
use crate::log::{Component, Log, events};
use crate::settings::Settings;

/// Folder of temporary files, in the data folder; emptied on start.
pub(crate) const TEMP_FOLDER: &str = "_tmp";

/// Opens the database in the settings' data folder.
///
/// Errors: the data folder cannot be opened, an option is not possible.
pub fn open(settings: &Settings, log: &Arc<Log>) -> Result<Arc<Db>, Error> {
    let engine = engine::open(settings, log)?;
    let events = log.clone();
    let options = DbOptions {
        events: Events::to(move |event| log_event(&events, event)),
        temp_dir: Some(settings.storage.db_path.join(TEMP_FOLDER)),
        ..DbOptions::default()
    };
    Db::open(engine, options)
}

pub(crate) fn log_event(log: &Log, event: &DbEvent) {
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
            "Rolled back index builds interrupted by the last shutdown",
            |attr| {
                attr.append("namespace", ns.as_str());
            },
        ),
        DbEvent::UnknownTableDropped { table } => log.info(
            Component::Storage,
            22251,
            "Dropping a table that belongs to no collection or index",
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
        DbEvent::DamageFound { ns, error } => {
            log.error(
                Component::Storage,
                events::STORED_DATA_DAMAGED,
                "Stored data is damaged",
                |attr| {
                    attr.append("namespace", ns.as_str());
                    attr.append("error", error.as_str());
                },
            );
        }
        DbEvent::ValidationFailed { ns, info, refused } => {
            let message = match refused {
                true => "Document failed validation",
                false => "Document would fail validation",
            };
            log.warning(Component::Storage, 20294, message, |attr| {
                attr.append("namespace", ns.as_str());
                attr.append_bson("errInfo", info);
            });
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
