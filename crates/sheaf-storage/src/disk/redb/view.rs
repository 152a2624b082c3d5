//! Reading from redb: a view of one committed state, shared by its snapshots, and cursors.
//!
//! ```text
//!   snapshot ─┐                       ┌─ table 0 (opened on first use, then shared)
//!   snapshot ─┼──> View ── read txn ──┼─ table 7
//!   cursor  ──┘                       └─ ...
//! ```
//!
//! Opening a read transaction and its tables costs more than a look-up, so all snapshots taken
//! between two commits share one view. Each still counts individually in the statistics.
//!
//! Invariant: everything that points into a page (an entry's guards, returned bytes) is held
//! together with a reference that keeps the read transaction alive, as redb reuses pages as soon as
//! no transaction can see them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::{
    AccessGuard, OwnedAccessGuard, Range, ReadOnlyTable, ReadTransaction, ReadableTableMetadata,
    TableError,
};

use super::errors::{open_error, storage_error};
use super::file::{table_name, table_of};
use crate::engine::{Cursor, Snapshot, TableId};
use crate::error::{Result, StorageError};

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Guard = AccessGuard<'static, &'static [u8]>;

/// Values up to this length are copied out of their page, longer ones are returned in place. Up to
/// about this length copying costs less than reference counting, and it pins no page.
const COPIED_BYTES_MAX: usize = 8192;

/// One committed state.
pub(super) struct View {
    transaction: ReadTransaction,
    tables: RwLock<HashMap<TableId, Arc<Rows>>>,
}

impl View {
    pub(super) fn new(transaction: ReadTransaction) -> View {
        View {
            transaction,
            tables: RwLock::default(),
        }
    }

    fn table(&self, table: TableId) -> Result<Arc<Rows>> {
        if let Some(rows) = self.tables.read().get(&table) {
            return Ok(rows.clone());
        }
        let name = table_name(table);
        let rows = match self.transaction.open_table(table_of(&name)) {
            Ok(rows) => Arc::new(rows),
            Err(TableError::TableDoesNotExist(_)) => {
                return Err(StorageError::NoSuchTable(table));
            }
            Err(error) => return Err(open_error("open a table", error)),
        };
        Ok(self.tables.write().entry(table).or_insert(rows).clone())
    }
}

/// The open snapshots, by number, and when they were taken.
#[derive(Default)]
pub(super) struct OpenSnapshots {
    last: AtomicU64,
    taken: Mutex<BTreeMap<u64, Instant>>,
}

impl OpenSnapshots {
    pub(super) fn count_and_oldest(&self) -> (u64, Option<Duration>) {
        let taken = self.taken.lock();
        let oldest = taken.first_key_value().map(|(_, at)| at.elapsed());
        (taken.len() as u64, oldest)
    }
}

/// Keeps a snapshot in the statistics, and its view alive.
struct Hold {
    view: Arc<View>,
    number: u64,
    open: Arc<OpenSnapshots>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.open.taken.lock().remove(&self.number);
    }
}

pub(super) struct RedbSnapshot {
    hold: Arc<Hold>,
}

impl RedbSnapshot {
    pub(super) fn new(view: Arc<View>, open: &Arc<OpenSnapshots>) -> RedbSnapshot {
        let number = open.last.fetch_add(1, Ordering::Relaxed);
        open.taken.lock().insert(number, Instant::now());
        RedbSnapshot {
            hold: Arc::new(Hold {
                view,
                number,
                open: open.clone(),
            }),
        }
    }
}

/// A value in its page.
struct PinnedValue {
    value: OwnedAccessGuard<&'static [u8]>,
    _hold: Arc<Hold>,
}

impl AsRef<[u8]> for PinnedValue {
    fn as_ref(&self) -> &[u8] {
        self.value.value()
    }
}

fn get(hold: &Arc<Hold>, rows: &Rows, key: &[u8]) -> Result<Option<Bytes>> {
    let Some(value) = rows
        .get_owned(key)
        .map_err(|error| storage_error("read", error))?
    else {
        return Ok(None);
    };
    Ok(Some(if value.value().len() <= COPIED_BYTES_MAX {
        Bytes::copy_from_slice(value.value())
    } else {
        Bytes::from_owner(PinnedValue {
            value,
            _hold: hold.clone(),
        })
    }))
}

impl Snapshot for RedbSnapshot {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        get(&self.hold, &*self.hold.view.table(table)?, key)
    }

    fn cursor(&self, table: TableId) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(RedbCursor {
            entry: None,
            range: None,
            forward: true,
            turn_key: Vec::new(),
            rows: self.hold.view.table(table)?,
            hold: self.hold.clone(),
        }))
    }

    fn len(&self, table: TableId) -> Result<u64> {
        let rows = self.hold.view.table(table)?;
        rows.len().map_err(|error| storage_error("read", error))
    }

    fn contains_table(&self, table: TableId) -> Result<bool> {
        match self.hold.view.table(table) {
            Ok(_) => Ok(true),
            Err(StorageError::NoSuchTable(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A cursor over redb's range iterator, whose other end is open: a seek makes a new iterator, a
/// step takes its next entry and allocates nothing, and a change of direction makes a new one from
/// the current key.
struct RedbCursor {
    // Fields are dropped in this order: pointers into pages first, the owners of the pages last.
    entry: Option<(Guard, Guard)>,
    range: Option<Range<'static, &'static [u8], &'static [u8]>>,
    forward: bool,
    turn_key: Vec<u8>,
    rows: Arc<Rows>,
    hold: Arc<Hold>,
}

impl RedbCursor {
    fn start(&mut self, bounds: (Bound<&[u8]>, Bound<&[u8]>), forward: bool) -> Result<bool> {
        self.entry = None;
        self.range = None;
        self.forward = forward;
        let range = self
            .rows
            .range::<&[u8]>(bounds)
            .map_err(|error| storage_error("read", error))?;
        self.range = Some(range);
        self.advance()
    }

    fn advance(&mut self) -> Result<bool> {
        self.entry = None;
        let Some(range) = &mut self.range else {
            return Ok(false);
        };
        let entry = if self.forward {
            range.next()
        } else {
            range.next_back()
        };
        match entry {
            Some(Ok(entry)) => {
                self.entry = Some(entry);
                Ok(true)
            }
            Some(Err(error)) => {
                self.range = None;
                Err(storage_error("read", error))
            }
            None => {
                self.range = None;
                Ok(false)
            }
        }
    }

    fn step(&mut self, forward: bool) -> Result<bool> {
        if self.forward == forward || self.entry.is_none() {
            return self.advance();
        }
        let mut key = std::mem::take(&mut self.turn_key);
        key.clear();
        key.extend_from_slice(self.key());
        let bounds = if forward {
            (Bound::Excluded(&key[..]), Bound::Unbounded)
        } else {
            (Bound::Unbounded, Bound::Excluded(&key[..]))
        };
        let result = self.start(bounds, forward);
        self.turn_key = key;
        result
    }
}

impl Cursor for RedbCursor {
    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.start((Bound::Included(key), Bound::Unbounded), true)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.start((Bound::Unbounded, Bound::Included(key)), false)
    }

    fn seek_first(&mut self) -> Result<bool> {
        self.start((Bound::Unbounded, Bound::Unbounded), true)
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.start((Bound::Unbounded, Bound::Unbounded), false)
    }

    fn next(&mut self) -> Result<bool> {
        self.step(true)
    }

    fn prev(&mut self) -> Result<bool> {
        self.step(false)
    }

    fn key(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(key, _)| key.value())
    }

    fn value(&self) -> &[u8] {
        self.entry.as_ref().map_or(&[], |(_, value)| value.value())
    }

    fn value_bytes(&self) -> Bytes {
        let value = self.value();
        if value.len() > COPIED_BYTES_MAX
            && let Ok(Some(value)) = get(&self.hold, &self.rows, self.key())
        {
            // Looked up again, because an entry's guards cannot be shared: still cheaper than a
            // copy.
            return value;
        }
        Bytes::copy_from_slice(value)
    }

    fn valid(&self) -> bool {
        self.entry.is_some()
    }
}
