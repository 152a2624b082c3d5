//! Runs an index build from beginning to end.

use std::sync::Arc;
use std::time::Instant;

use sheaf_bson::keystring::decode_record_id;
use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_storage::{Durability, Prior, StorageTransaction, TableId};

use crate::catalog::duplicate_key::duplicate_key;
use crate::catalog::namespace::Namespace;
use crate::catalog::rows;
use crate::catalog::snapshot::CatalogChange;
use crate::change::DdlChange;
use crate::collection::Collection;
use crate::collection::index_build::IndexBuild;
use crate::collection::index_build::side_writes::Note;
use crate::database::Db;
use crate::ddl::index_build::load::{DoubtfulKeys, Watch, load};
use crate::events::DbEvent;
use crate::index::Index;
use crate::index::key_set::{Key, damaged_key};
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;

const PHASE_DRAIN: &str = "Index Build: draining writes received during build";

/// Number of side writes applied in one unit of work.
const DRAIN_UNIT_NOTES: usize = 1000;
/// Number of side writes that may remain for the exclusive part.
const DRAIN_REST: usize = 1000;
/// Maximum number of draining rounds concurrent with writers: if they are faster, it would never
/// end.
const DRAIN_ROUNDS: usize = 10;

/// Runs a build that has begun: finishes it, or rolls it back.
pub(crate) fn run(
    db: &Arc<Db>,
    op: &OpContext,
    collection: &Arc<Collection>,
    build: &Arc<IndexBuild>,
) -> Result<()> {
    let started = Instant::now();
    let ns = collection.ns();
    let names: Vec<String> = build
        .indexes()
        .iter()
        .map(|index| index.name().to_owned())
        .collect();
    db.events().send(DbEvent::IndexBuildStarted {
        ns: ns.clone(),
        indexes: names.clone(),
        documents: build.progress().done_of_total().1,
    });
    let rolls_back = RollBack {
        db,
        collection,
        build,
    };
    op.set_progress(Some(build.progress().clone()));
    let result = build_and_commit(db, op, collection, build);
    op.set_progress(None);
    match result {
        Ok(keys) => {
            std::mem::forget(rolls_back);
            build.set_ended();
            db.events().send(DbEvent::IndexBuildDone {
                ns: ns.clone(),
                indexes: names,
                keys,
                duration_ms: started.elapsed().as_millis() as u64,
            });
            Ok(())
        }
        Err(error) => {
            drop(rolls_back);
            db.events().send(DbEvent::IndexBuildFailed {
                ns: ns.clone(),
                indexes: names,
                error: error.to_string(),
            });
            let context = format!(
                "Index build failed: Collection {ns} ( {} )",
                collection.uuid()
            );
            Err(error.with_context(context))
        }
    }
}

fn build_and_commit(
    db: &Arc<Db>,
    op: &OpContext,
    collection: &Arc<Collection>,
    build: &Arc<IndexBuild>,
) -> Result<u64> {
    let mut watch = Watch::new(db, op, build, collection.ns());
    let mut doubtful = DoubtfulKeys::default();
    // Taken after the build began: whatever the snapshot lacks is in the side writes.
    let snapshot = db.storage().snapshot().into_client_error()?;
    let keys = load(&mut watch, collection, snapshot, &mut doubtful)?;

    build.progress().enter(PHASE_DRAIN, 0);
    for _ in 0..DRAIN_ROUNDS {
        if drain(&mut watch, &mut doubtful)? <= DRAIN_REST {
            break;
        }
    }
    let _intent = collection.state.intents.exclusive(op)?;
    // There are no writers now: these are the last side writes.
    while drain(&mut watch, &mut doubtful)? > 0 {}
    refuse_duplicates(db, collection.ns(), build, &doubtful)?;
    let now = current(db, collection)?;
    let mut indexes = now.index_list().to_vec();
    let replaced = |index: &Index| Some(index.table()) == build.replaces();
    let place = indexes.iter().position(replaced);
    if build.replaces().is_some() && place.is_none() {
        return Err(Error::new(
            ErrorCode::INDEX_BUILD_ABORTED,
            "index build ended: the index that it was to replace was dropped",
        ));
    }
    indexes.retain(|index| !replaced(index));
    let at = place.unwrap_or(indexes.len());
    indexes.splice(at..at, build.finished_indexes());
    let mut finished = now.with_indexes(indexes)?;
    finished.builds.retain(|other| !Arc::ptr_eq(other, build));
    let mut unit = db.storage().begin().into_client_error()?;
    unit.drop_table(build.side_table());
    rows::put_collection(&mut unit, &finished);
    let built = build.finished_indexes();
    let created = built.iter();
    let created = created.map(|index| DdlChange::IndexCreated(&finished, index));
    let ticket = db.observe_ddl(&mut unit, created)?;
    let change = CatalogChange {
        removed: Vec::new(),
        added: vec![finished],
        ..Default::default()
    };
    ticket.committed(db.catalog_writer().commit_then_publish(unit, &change)?);
    if let Some(table) = build.replaces() {
        db.drop_replaced(table)?;
    }
    Ok(keys)
}

impl Db {
    /// Drops a table that no row names any more. After a crash before that, the next start drops
    /// it.
    pub(crate) fn drop_replaced(&self, table: TableId) -> Result<()> {
        let mut unit = self.storage().begin().into_client_error()?;
        unit.drop_table(table);
        unit.commit(Durability::Buffered)
            .map(drop)
            .into_client_error()
    }
}

/// The current collection. The caller holds an intent on it, so it is not dropped or renamed.
fn current(db: &Db, collection: &Collection) -> Result<Arc<Collection>> {
    match db.catalog().collection(collection.ns()) {
        Some(now) if now.uuid() == collection.uuid() => Ok(now.clone()),
        _ => Err(Error::new(
            ErrorCode::INDEX_BUILD_ABORTED,
            format!("{} was dropped", collection.ns()),
        )),
    }
}

/// Applies the side writes present, and returns their number.
fn drain(watch: &mut Watch<'_>, doubtful: &mut DoubtfulKeys) -> Result<usize> {
    let build = watch.build;
    let snapshot = watch.db.storage().snapshot().into_client_error()?;
    let mut cursor = snapshot.cursor(build.side_table()).into_client_error()?;
    let mut on = cursor.seek_first().into_client_error()?;
    let mut applied = 0;
    while on {
        let mut unit = watch.db.storage().begin().into_client_error()?;
        let mut in_unit = 0;
        while on && in_unit < DRAIN_UNIT_NOTES {
            apply(watch, &mut unit, cursor.value(), doubtful)?;
            let prior = Prior::value(cursor.value());
            unit.delete_with(build.side_table(), cursor.key(), prior);
            in_unit += 1;
            on = cursor.next().into_client_error()?;
        }
        unit.commit(Durability::Buffered).into_client_error()?;
        applied += in_unit;
        watch.advance(in_unit as u64)?;
    }
    Ok(applied)
}

fn apply(
    watch: &Watch<'_>,
    unit: &mut StorageTransaction,
    note: &[u8],
    doubtful: &mut DoubtfulKeys,
) -> Result<()> {
    let note = Note::parse(note)?;
    let number = usize::from(note.index);
    let Some(index) = watch.build.indexes().get(number) else {
        return Err(damaged_key(
            "a side write names an index that is not being built",
        ));
    };
    if !note.present {
        unit.delete(index.table(), note.entry);
        return Ok(());
    }
    unit.put(index.table(), note.entry, note.type_bits.to_vec());
    if watch.build.enforces_unique(index) {
        let Some((_, key_len)) = decode_record_id(note.entry) else {
            return Err(damaged_key("it does not end with a record id"));
        };
        // Another record with the key may be gone by the end of the build: recheck then.
        let key = &note.entry[..key_len];
        if has_two(unit, index.table(), key)?.is_some() && !doubtful.add(number, key) {
            let key = Key {
                key,
                type_bits: note.type_bits,
            };
            return Err(duplicate_key(watch.ns, index, key));
        }
    }
    Ok(())
}

/// Whether two entries have the key; returns the type bits of the first.
fn has_two(
    unit: &StorageTransaction,
    table: sheaf_storage::TableId,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let reader = unit.reader();
    let mut cursor = reader.cursor(table).into_client_error()?;
    if !(cursor.seek(key).into_client_error()? && cursor.key().starts_with(key)) {
        return Ok(None);
    }
    let type_bits = cursor.value().to_vec();
    let second = cursor.next().into_client_error()? && cursor.key().starts_with(key);
    Ok(second.then_some(type_bits))
}

/// At the end of the build: rechecks the suspected duplicates.
/// Errors: `DuplicateKey`.
pub(super) fn refuse_duplicates(
    db: &Db,
    ns: &Namespace,
    build: &IndexBuild,
    doubtful: &DoubtfulKeys,
) -> Result<()> {
    let unit = db.storage().begin().into_client_error()?;
    for (number, key) in doubtful.iter() {
        let index = &build.indexes()[number];
        if let Some(type_bits) = has_two(&unit, index.table(), key)? {
            let key = Key {
                key,
                type_bits: &type_bits,
            };
            return Err(duplicate_key(ns, index, key));
        }
    }
    Ok(())
}

/// Rolls back the build when dropped, even if the building thread panics, so that no operation
/// waits indefinitely for its end.
struct RollBack<'a> {
    db: &'a Arc<Db>,
    collection: &'a Arc<Collection>,
    build: &'a Arc<IndexBuild>,
}

impl Drop for RollBack<'_> {
    fn drop(&mut self) {
        // A new operation context: the build's own may have been killed.
        let result = roll_back(self.db, &OpContext::new(), self.collection, self.build);
        self.build.set_ended();
        if let Err(error) = result {
            // The rows still have `ready: false`: the next start drops the indexes.
            self.db.events().send(DbEvent::IndexBuildFailed {
                ns: self.collection.ns().clone(),
                indexes: Vec::new(),
                error: format!("the build could not be rolled back: {error}"),
            });
        }
    }
}

fn roll_back(
    db: &Arc<Db>,
    op: &OpContext,
    collection: &Arc<Collection>,
    build: &Arc<IndexBuild>,
) -> Result<()> {
    let _intent = collection.state.intents.exclusive(op)?;
    let mut without = Collection::clone(&*current(db, collection)?);
    without.builds.retain(|other| !Arc::ptr_eq(other, build));
    let mut unit = db.storage().begin().into_client_error()?;
    for index in build.indexes() {
        unit.drop_table(index.table());
    }
    unit.drop_table(build.side_table());
    rows::put_collection(&mut unit, &without);
    let change = CatalogChange {
        removed: Vec::new(),
        added: vec![without],
        ..Default::default()
    };
    // Unpublished for all readers even if the commit fails: operations would wait forever for a
    // build that does not run.
    db.catalog_writer().publish(&change);
    unit.commit(Durability::Buffered)
        .map(drop)
        .into_client_error()
}
