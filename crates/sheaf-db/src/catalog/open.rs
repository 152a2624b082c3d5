//! Reads the catalog at startup and cleans up after a crash.
//!
//! ```text
//!   rows ──> collections with their ready indexes
//!     │        indexes and scratch tables of unfinished builds: dropped, rows rewritten
//!     └──> tables that no row names: dropped
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_storage::{Durability, Storage, TableId};

use crate::catalog::rows::{self, CatalogRows};
use crate::catalog::snapshot::{CatalogChange, CatalogSnapshot};
use crate::catalog::{Catalog, Random};
use crate::collection::{Collection, CollectionState};
use crate::damage::DamageReports;
use crate::events::{DbEvent, Events};
use crate::storage_error::IntoClientError;

/// Reads the catalog and reconciles the engine's tables with it.
pub(crate) fn open(storage: &Storage, random: Random, events: &Events) -> Result<Catalog> {
    let snapshot = storage.snapshot().into_client_error()?;
    let rows = rows::read_all(&*snapshot)?;
    let tables = storage.engine().tables().into_client_error()?;
    drop(snapshot);
    check_tables(&rows, &tables)?;
    tidy_up(storage, &rows, &tables, events)?;

    let highest = tables.last().map_or(0, |table| table.0);
    let next_table = rows.next_table.max(highest + 1);
    let change = CatalogChange {
        removed: Vec::new(),
        added: (rows.collections.into_iter())
            .map(|row| reporting(row.collection, events))
            .collect(),
        views: rows.views,
    };
    let snapshot = CatalogSnapshot::default().changed(&change);
    Ok(Catalog::new(snapshot, next_table, random, events.clone()))
}

/// The collection with damage reports directed to `events`.
fn reporting(mut collection: Collection, events: &Events) -> Collection {
    collection.state = Arc::new(CollectionState {
        damage: DamageReports::to(events),
        ..CollectionState::default()
    });
    collection
}

/// A table that a row names but the engine does not have is reported as damage.
fn check_tables(rows: &CatalogRows, tables: &[TableId]) -> Result<()> {
    let present: HashSet<TableId> = tables.iter().copied().collect();
    for row in &rows.collections {
        let collection = &row.collection;
        let mut named = vec![(collection.table(), collection.ident())];
        named.extend(
            collection
                .index_list()
                .iter()
                .map(|i| (i.table(), i.ident())),
        );
        for (table, ident) in named {
            if !present.contains(&table) {
                return Err(Error::new(
                    ErrorCode::DATA_CORRUPTION_DETECTED,
                    format!(
                        "the catalog names {ident} of {}, but the storage engine has no such table; \
                         restore the data from a backup",
                        collection.ns()
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn tidy_up(
    storage: &Storage,
    rows: &CatalogRows,
    tables: &[TableId],
    events: &Events,
) -> Result<()> {
    let mut unit = storage.begin().into_client_error()?;
    if rows.is_new {
        rows::put_format(&mut unit);
    }
    let mut known: HashSet<TableId> = HashSet::from([TableId::CATALOG]);
    for row in &rows.collections {
        known.insert(row.collection.table());
        known.extend(row.collection.index_list().iter().map(|i| i.table()));
        if !row.unfinished.is_empty() {
            rows::put_collection(&mut unit, &row.collection);
            events.send(DbEvent::UnfinishedIndexesDropped {
                ns: row.collection.ns().clone(),
            });
        }
    }
    for table in tables {
        if !known.contains(table) {
            unit.drop_table(*table);
            events.send(DbEvent::UnknownTableDropped { table: *table });
        }
    }
    unit.commit(Durability::Synced).into_client_error()?;
    Ok(())
}
