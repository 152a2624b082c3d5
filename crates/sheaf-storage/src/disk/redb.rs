//! The first durable engine: redb, a copy-on-write B-tree in one file.
//!
//! ```text
//!   apply ──┐                    ┌ one redb transaction for all who wait
//!   apply ──┼─> group, a leader ─┤   Buffered only:  Durability::None      (visible, in memory)
//!   sync  ──┘                    └   with a Synced:  Durability::Immediate (one fdatasync)
//!   flusher ── sync, one flush interval after the first commit that was not durable
//! ```
//!
//! redb has one writer at a time, and holds it through the sync of a durable commit. Waiting batches are
//! therefore put into one transaction: they become visible, and durable, together. A batch that
//! is refused (a table that is not there) is left out before anything is written and does not
//! disturb the others.
//!
//! The file has one redb table for each of ours, and two of its own: what the file is, and the sizes
//! of the tables; `docs/format/redb.md` describes them.
//!
//! redb can keep its allocator's state in the file, with which a file that was not closed cleanly opens at once
//! instead of being read as a whole. Writing it costs a sync more and bytes in proportion to the file, so
//! not every commit does: the flusher does it when nothing has been written for a second, and
//! `checkpoint` on demand.
//!
//! After a failed write or sync redb refuses all further writing, and so does the engine
//! (`ReadOnly`): what is durable is safe, and what is not is lost with the process. A full disk is
//! therefore looked for before it is met: below a reserve of free space batches that put something are
//! refused, and the engine goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use redb::{
    Builder, CommitError, CursorError, Database, DatabaseError, ReadableDatabase, ReadableTable,
    StorageBackend, Table, TableDefinition, TableError, TableHandle, TransactionError,
    WriteTransaction,
};

use super::backend::{CountingBackend, IoCounters, SpaceProbe, open_file};
use super::group::{Group, Leader, Ticket};
use super::redb_view::{OpenSnapshots, RedbSnapshot, View};
use crate::batch::{KeyWrite, TableFate, TableWrites, WriteBatch};
use crate::engine::{
    CommitSeq, Durability, EngineStats, Snapshot, StorageEngine, TableId, TableStats,
};
use crate::error::{Result, StorageError};

/// What the file is: `format` and `version`. Present in every file of this engine.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("sheaf");
/// For each table the entries, the keys' bytes and the values' bytes, as of the last durable commit.
const SIZES: TableDefinition<u64, (u64, u64, u64)> = TableDefinition::new("sheaf-sizes");

const FORMAT: &[u8] = b"sheaf-redb";
const VERSION: u64 = 1;

/// The longest key or value, in bytes: below redb's own limit of 3 GiB for the two together.
const LENGTH_MAX: u64 = 1 << 30;
/// How long a sync may be put off for others to join it, and how long the next of them may take to come.
const PUT_OFF_MAX: Duration = Duration::from_millis(2);
const RETURN_MAX: Duration = Duration::from_micros(60);
/// How long nothing is written before the flusher makes a checkpoint.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// How much a bulk load gathers before it writes it in one transaction.
const LOAD_BYTES: usize = 8 << 20;

/// How to open a [`RedbEngine`].
pub struct RedbOptions {
    /// Memory for pages, in bytes; half of it may hold pages not yet written.
    pub cache_bytes: usize,
    /// How long a `Buffered` commit may stay in memory only.
    pub flush_interval: Duration,
    /// Free disk space, in bytes, below which batches with puts are refused.
    pub reserve_bytes: u64,
    /// Told the progress, from 0 to 1, while a file is repaired that was not closed cleanly.
    pub on_repair: Option<Box<dyn Fn(f64) + Send>>,
}

impl Default for RedbOptions {
    fn default() -> Self {
        RedbOptions {
            cache_bytes: 256 << 20,
            flush_interval: Duration::from_millis(100),
            reserve_bytes: 64 << 20,
            on_repair: None,
        }
    }
}

/// The engine on redb.
pub struct RedbEngine {
    shared: Arc<Shared>,
    flusher: Mutex<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    file: String,
    /// `None` once closed. Written only to close; everybody else reads, also to write through it.
    db: RwLock<Option<Database>>,
    group: Group<Request, Answer>,
    /// The view of the newest state, once somebody has asked for it. Locked while a view is made
    /// and after every commit, so that no view can be kept that is older than a finished commit.
    newest: Mutex<Option<Arc<View>>>,
    snapshots: Arc<OpenSnapshots>,
    sizes: RwLock<Sizes>,
    /// Held from before a transaction begins until what it did is noted here.
    writing: Mutex<()>,
    /// Sequence of the newest batch that may be visible already, of the newest that is, and of the
    /// newest that is durable.
    begun: AtomicU64,
    applied: AtomicU64,
    durable: AtomicU64,
    /// Of the newest that is durable together with the allocator's state.
    checkpointed: AtomicU64,
    /// How long the last durable commit took.
    sync_nanos: AtomicU64,
    /// Whether requests were waiting when it ended.
    company: AtomicBool,
    /// Why the engine writes no more.
    failed: Mutex<Option<String>>,
    space: Option<SpaceProbe>,
    reserve_bytes: u64,
    io: Arc<IoCounters>,
    counters: Mutex<EngineStats>,
    flush: Mutex<Flush>,
    flush_changed: Condvar,
}

/// The tables there are, with their sizes, in the newest visible state.
#[derive(Default)]
struct Sizes {
    tables: HashMap<TableId, TableStats>,
    /// Tables whose row in `SIZES` is not up to date.
    unsaved: BTreeSet<TableId>,
}

#[derive(Default)]
struct Flush {
    /// Something is not durable yet.
    wanted: bool,
    /// The flusher waits to be told of the next commit, with no end in sight.
    asleep: bool,
    stop: bool,
}

struct Request {
    batch: WriteBatch,
    durability: Durability,
}

type Answer = Result<CommitSeq>;

/// The name of a table's table.
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

/// Our error for one of redb's.
pub(super) fn storage_error(context: &str, error: redb::StorageError) -> StorageError {
    match error {
        redb::StorageError::Io(error) => StorageError::io(context, &error),
        redb::StorageError::Corrupted(detail) => StorageError::Corrupt {
            file: "the redb file".into(),
            detail,
        },
        redb::StorageError::ValueTooLarge(bytes) => StorageError::TooLarge {
            bytes: bytes as u64,
            limit: LENGTH_MAX,
        },
        redb::StorageError::DatabaseClosed => StorageError::Closed,
        error => other_error(context, &error),
    }
}

fn other_error(context: &str, error: &dyn std::fmt::Display) -> StorageError {
    StorageError::Io {
        context: context.into(),
        kind: std::io::ErrorKind::Other,
        message: error.to_string(),
    }
}

/// redb panicked: it has met a state that it holds to be impossible.
fn internal_failure(context: &str) -> StorageError {
    other_error(context, &"the storage engine failed an internal check")
}

pub(super) fn open_error(context: &str, error: TableError) -> StorageError {
    match error {
        TableError::Storage(error) => storage_error(context, error),
        error => StorageError::Corrupt {
            file: "the redb file".into(),
            detail: error.to_string(),
        },
    }
}

fn begin_error(error: TransactionError) -> StorageError {
    match error {
        TransactionError::Storage(error) => storage_error("begin a transaction", error),
        error => other_error("begin a transaction", &error),
    }
}

fn commit_error(error: CommitError) -> StorageError {
    match error {
        CommitError::Storage(error) => storage_error("commit", error),
        error => other_error("commit", &error),
    }
}

impl RedbEngine {
    /// Opens the file, or creates it. A file that was not closed cleanly is repaired first, which
    /// reads all of it.
    ///
    /// Errors: `InUse`, `WrongFormat`, `NewerFormat`, `Corrupt`, `Io`, `NoSpace`.
    pub fn open(path: &Path, options: RedbOptions) -> Result<RedbEngine> {
        let file = path.display().to_string();
        let io = |error| StorageError::io(format!("open {file}"), &error);
        if !path.try_exists().map_err(io)? {
            // Made under another name, so that a crash meanwhile leaves nothing that looks like data.
            let mut unfinished = path.as_os_str().to_owned();
            unfinished.push(".new");
            let unfinished = Path::new(&unfinished);
            match std::fs::remove_file(unfinished) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(io(error));
                }
                _ => {}
            }
            let (backend, _) = open_file(unfinished).map_err(io)?;
            let empty = Self::open_on(file.clone(), backend, None, RedbOptions::default())?;
            empty.close()?;
            std::fs::rename(unfinished, path).map_err(io)?;
        }
        let (backend, space) = open_file(path).map_err(io)?;
        Self::open_on(file, backend, Some(space), options)
    }

    /// Opens or creates the engine's data on anything that behaves like a file. A crash while it is created
    /// leaves what cannot be opened; once this has returned, no crash does.
    /// Errors: as [`RedbEngine::open`].
    pub fn open_with_backend(
        backend: impl StorageBackend,
        options: RedbOptions,
    ) -> Result<RedbEngine> {
        Self::open_on("the redb file".into(), backend, None, options)
    }

    fn open_on(
        file: String,
        backend: impl StorageBackend,
        space: Option<SpaceProbe>,
        options: RedbOptions,
    ) -> Result<RedbEngine> {
        let io = Arc::new(IoCounters::default());
        let mut builder = Builder::new();
        builder.set_cache_size(options.cache_bytes);
        if let Some(on_repair) = options.on_repair {
            builder.set_repair_callback(move |repair| on_repair(repair.progress()));
        }
        let db = builder
            .create_with_backend(CountingBackend::new(backend, io.clone()))
            .map_err(|error| match error {
                DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
                    StorageError::InUse { file: file.clone() }
                }
                DatabaseError::Storage(redb::StorageError::Io(error))
                    if error.kind() == std::io::ErrorKind::InvalidData =>
                {
                    StorageError::WrongFormat {
                        detail: format!("{file}: {error}"),
                    }
                }
                DatabaseError::Storage(redb::StorageError::Corrupted(detail)) => {
                    StorageError::Corrupt {
                        file: file.clone(),
                        detail,
                    }
                }
                DatabaseError::Storage(error) => storage_error(&format!("open {file}"), error),
                error => StorageError::WrongFormat {
                    detail: format!("{file}: {error}"),
                },
            })?;
        let sizes = match read_sizes(&db, &file)? {
            Some(sizes) => sizes,
            None => initialise(&db)?,
        };
        let shared = Arc::new(Shared {
            file,
            db: RwLock::new(Some(db)),
            group: Group::new(),
            newest: Mutex::default(),
            snapshots: Arc::default(),
            sizes: RwLock::new(sizes),
            writing: Mutex::new(()),
            begun: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            checkpointed: AtomicU64::new(0),
            sync_nanos: AtomicU64::new(0),
            company: AtomicBool::new(false),
            failed: Mutex::default(),
            space,
            reserve_bytes: options.reserve_bytes,
            io,
            counters: Mutex::default(),
            flush: Mutex::default(),
            flush_changed: Condvar::new(),
        });
        let flusher = {
            let shared = shared.clone();
            thread::Builder::new()
                .name("redb flusher".into())
                .spawn(move || shared.flush_loop(options.flush_interval))
                .map_err(|error| StorageError::io("start the flusher thread", &error))?
        };
        Ok(RedbEngine {
            shared,
            flusher: Mutex::new(Some(flusher)),
        })
    }
}

/// Reads what the file is and which tables it has; `None` for a file that has just been made.
fn read_sizes(db: &Database, file: &str) -> Result<Option<Sizes>> {
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

/// Makes a new file ours.
fn initialise(db: &Database) -> Result<Sizes> {
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

impl Shared {
    fn submit(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        let request = Request { batch, durability };
        let answer = self.group.submit(request, |leader| {
            // redb asserts what it believes impossible: such a panic must not take the caller with it.
            // What the leader had taken is abandoned by the unwinding.
            if catch_unwind(AssertUnwindSafe(|| self.lead(leader))).is_err() {
                self.fail(&internal_failure("commit"));
            }
        });
        answer.unwrap_or_else(|| Err(internal_failure("commit")))
    }

    /// Serves those that wait, until a commit has answered all of them.
    ///
    /// ```text
    ///   only buffered            commit            all are answered
    ///   only synced              commit and sync   all are answered
    ///   both                     commit            the buffered are answered, and a little later ...
    ///                            commit and sync   with whoever has come meanwhile
    /// ```
    ///
    /// A unit of work that others wait for applies buffered, lets go of its locks, and syncs. Were it made
    /// to wait for a sync that others have asked for, each holder of a hot record would take one whole
    /// sync. So buffered batches go first, and the sync is put off, for no longer than one takes, while
    /// more come: the units that were just answered, and those that waited for their locks.
    fn lead(&self, leader: &Leader<'_, Request, Answer>) {
        let mut due = Vec::new();
        let mut put_off = None;
        // Somebody was waiting when the last sync ended: more are likely to come.
        let mut company = self.company.load(Ordering::Relaxed);
        loop {
            let tickets = leader.take();
            let is_buffered = |ticket: &Ticket<Request, Answer>| {
                ticket.request.durability == Durability::Buffered
            };
            let buffered = tickets.iter().filter(|ticket| is_buffered(ticket)).count();
            if due.is_empty() && buffered == tickets.len() {
                self.write_group(tickets, Vec::new(), false);
                return;
            }
            let until = *put_off.get_or_insert_with(|| {
                let last = Duration::from_nanos(self.sync_nanos.load(Ordering::Relaxed));
                Instant::now() + last.min(PUT_OFF_MAX)
            });
            let left = until.saturating_duration_since(Instant::now());
            let writes = tickets
                .iter()
                .any(|ticket| !ticket.request.batch.is_empty());
            if left.is_zero() || (buffered == 0 && (writes || !company)) {
                self.write_group(tickets, due, true);
                let waiting = leader.waiting() > 0;
                self.company.store(waiting, Ordering::Relaxed);
                return;
            }
            due.extend(self.write_group(tickets, Vec::new(), false));
            leader.wait_for(1 + buffered, left.min(RETURN_MAX));
            company = false;
        }
    }

    /// Commits what the tickets bring, in one transaction, durably if `sync`, and answers them and those
    /// that were `due` a sync. Without `sync`, returns the tickets that still want one.
    fn write_group(
        &self,
        tickets: Vec<Ticket<Request, Answer>>,
        due: Vec<(Ticket<Request, Answer>, CommitSeq)>,
        sync: bool,
    ) -> Vec<(Ticket<Request, Answer>, CommitSeq)> {
        let mut answers = vec![None; tickets.len()];
        let outcome = {
            let requests: Vec<&Request> = tickets.iter().map(|ticket| &ticket.request).collect();
            self.write_requests(&requests, &mut answers, sync)
        };
        if let Err(error) = &outcome {
            self.fail(error);
        }
        for (ticket, seq) in due {
            ticket.answer(outcome.clone().map(|()| seq));
        }
        let mut still_due = Vec::new();
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            let answer = match (answer, &outcome) {
                (Some(answer), _) => answer,
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(())) => Err(internal_failure("commit")),
            };
            match answer {
                Ok(seq) if !sync && ticket.request.durability == Durability::Synced => {
                    still_due.push((ticket, seq));
                }
                answer => ticket.answer(answer),
            }
        }
        still_due
    }

    /// Writes no more from now on: what redb says after a failure is of no use any more.
    fn fail(&self, error: &StorageError) {
        let passing = matches!(
            error,
            StorageError::Closed
                | StorageError::ReadOnly { .. }
                | StorageError::NoSuchTable(_)
                | StorageError::TableNotEmpty(_)
                | StorageError::TooLarge { .. }
        );
        if !passing {
            self.failed.lock().get_or_insert_with(|| error.to_string());
        }
    }

    /// Answers every request, or fails for those that it has not answered. A request is answered by itself
    /// when it is refused, and together with the others by the commit.
    fn write_requests(
        &self,
        requests: &[&Request],
        answers: &mut [Option<Answer>],
        sync: bool,
    ) -> Result<()> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let _writing = self.writing.lock();
        if let Some(why) = &*self.failed.lock() {
            return Err(StorageError::ReadOnly { why: why.clone() });
        }
        let space_left = self.space_left(requests);
        let plan = {
            let sizes = self.sizes.read();
            Plan::make(&sizes.tables, requests, answers, space_left)
        };
        let applied = self.applied.load(Ordering::Acquire);
        let seq = applied + plan.accepted.len() as u64;
        if !plan.accepted.is_empty() || (sync && self.durable.load(Ordering::Acquire) < applied) {
            // Before it can be seen: who has seen it and asks for a sync must get one.
            self.begun.store(seq, Ordering::Release);
            let mut txn = db.begin_write().map_err(begin_error)?;
            if !sync {
                txn.set_durability(redb::Durability::None)
                    .map_err(|error| other_error("begin a transaction", &error))?;
            }
            let start = Instant::now();
            self.write_and_commit(txn, &plan, sync)?;
            if sync {
                let nanos = start.elapsed().as_nanos() as u64;
                self.sync_nanos.store(nanos, Ordering::Relaxed);
            }
        }
        for (index, seq) in plan.accepted.iter().zip(applied + 1..) {
            answers[*index] = Some(Ok(CommitSeq(seq)));
        }
        for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(Ok(CommitSeq(seq)));
        }
        self.applied.store(seq, Ordering::Release);
        if sync {
            self.durable.store(seq, Ordering::Release);
        }
        self.wake_flusher(sync);
        self.count(requests, &plan);
        Ok(())
    }

    fn count(&self, requests: &[&Request], plan: &Plan<'_>) {
        if plan.accepted.is_empty() {
            return;
        }
        let mut counters = self.counters.lock();
        counters.groups += 1;
        counters.commits += plan.accepted.len() as u64;
        counters.group_max = counters.group_max.max(plan.accepted.len() as u64);
        for index in &plan.accepted {
            counters.operations += requests[*index].batch.operations();
            counters.bytes_logged += requests[*index].batch.bytes();
        }
    }

    /// Whether the disk has room for what the requests put.
    fn space_left(&self, requests: &[&Request]) -> bool {
        let bytes: u64 = requests.iter().map(|request| request.batch.bytes()).sum();
        // Copied pages and the tree above them: a few times what was given.
        let wanted = bytes.saturating_mul(4).saturating_add(self.reserve_bytes);
        match self.space.as_ref().and_then(SpaceProbe::available) {
            Some(available) => available >= wanted,
            None => true,
        }
    }

    /// Carries the plan out in the transaction, commits it, and lets it be seen.
    fn write_and_commit(&self, txn: WriteTransaction, plan: &Plan<'_>, sync: bool) -> Result<()> {
        let mut written = Vec::new();
        for (table, writes) in &plan.tables {
            let before = self.sizes.read().tables.get(table).copied();
            written.push((*table, write_table(&txn, *table, writes, before)?));
        }
        if sync {
            let mut unsaved = BTreeMap::new();
            {
                let sizes = self.sizes.read();
                for table in &sizes.unsaved {
                    unsaved.insert(*table, sizes.tables.get(table).copied());
                }
            }
            unsaved.extend(written.iter().copied());
            save_sizes(&txn, &unsaved)?;
        }
        txn.commit().map_err(commit_error)?;
        let mut sizes = self.sizes.write();
        for (table, stats) in written {
            match stats {
                Some(stats) => sizes.tables.insert(table, stats),
                None => sizes.tables.remove(&table),
            };
            sizes.unsaved.insert(table);
        }
        if sync {
            sizes.unsaved.clear();
        }
        drop(sizes);
        *self.newest.lock() = None;
        Ok(())
    }

    fn view(&self) -> Result<Arc<View>> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let mut newest = self.newest.lock();
        if let Some(view) = &*newest {
            return Ok(view.clone());
        }
        let view = Arc::new(View::new(db.begin_read().map_err(begin_error)?));
        *newest = Some(view.clone());
        Ok(view)
    }

    fn sync(&self) -> Result<()> {
        if self.db.read().is_none() {
            return Err(StorageError::Closed);
        }
        let begun = self.begun.load(Ordering::Acquire);
        if self.durable.load(Ordering::Acquire) < begun {
            self.submit(WriteBatch::new(), Durability::Synced)?;
        }
        Ok(())
    }

    /// Tells the flusher of a commit.
    fn wake_flusher(&self, durable: bool) {
        let mut flush = self.flush.lock();
        let wants_sync = !durable && !flush.wanted;
        flush.wanted |= wants_sync;
        if wants_sync || flush.asleep {
            self.flush_changed.notify_one();
        }
    }

    fn flush_loop(&self, interval: Duration) {
        let mut flush = self.flush.lock();
        while !flush.stop {
            if flush.wanted {
                // Woken early only to stop.
                self.flush_changed.wait_for(&mut flush, interval);
                flush.wanted = false;
                if !flush.stop {
                    // A failure is kept by the engine and told to the next writer.
                    let _ = MutexGuard::unlocked(&mut flush, || self.sync());
                }
            } else if self.is_checkpointed() {
                flush.asleep = true;
                self.flush_changed.wait(&mut flush);
                flush.asleep = false;
            } else {
                let before = self.begun.load(Ordering::Acquire);
                let waited = self.flush_changed.wait_for(&mut flush, SETTLED_AFTER);
                let settled = waited.timed_out() && !flush.wanted && !flush.stop;
                if settled && before == self.begun.load(Ordering::Acquire) {
                    let _ = MutexGuard::unlocked(&mut flush, || self.checkpoint());
                }
            }
        }
    }

    fn is_checkpointed(&self) -> bool {
        let begun = self.begun.load(Ordering::Acquire);
        self.checkpointed.load(Ordering::Acquire) >= begun || self.failed.lock().is_some()
    }

    /// Makes everything durable, with the state that opens fastest.
    fn checkpoint(&self) -> Result<()> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let _writing = self.writing.lock();
        if let Some(why) = &*self.failed.lock() {
            return Err(StorageError::ReadOnly { why: why.clone() });
        }
        if self.is_checkpointed() {
            return Ok(());
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut txn = db.begin_write().map_err(begin_error)?;
            txn.set_quick_repair(true);
            self.write_and_commit(txn, &Plan::default(), true)
        }));
        let outcome = outcome.unwrap_or_else(|_| Err(internal_failure("checkpoint")));
        if let Err(error) = &outcome {
            self.fail(error);
        } else {
            let applied = self.applied.load(Ordering::Acquire);
            self.durable.store(applied, Ordering::Release);
            self.checkpointed.store(applied, Ordering::Release);
        }
        outcome
    }

    /// Runs `write` in a transaction of its own, not in the group; it answers the table's new size.
    fn write_alone(
        &self,
        table: TableId,
        write: impl FnOnce(&WriteTransaction, TableStats) -> Result<TableStats>,
    ) -> Result<()> {
        let db = self.db.read();
        let Some(db) = &*db else {
            return Err(StorageError::Closed);
        };
        let _writing = self.writing.lock();
        if let Some(why) = &*self.failed.lock() {
            return Err(StorageError::ReadOnly { why: why.clone() });
        }
        let seq = self.applied.load(Ordering::Acquire) + 1;
        self.begun.store(seq, Ordering::Release);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut txn = db.begin_write().map_err(begin_error)?;
            txn.set_durability(redb::Durability::None)
                .map_err(|error| other_error("begin a transaction", &error))?;
            let Some(before) = self.sizes.read().tables.get(&table).copied() else {
                return Err(StorageError::NoSuchTable(table));
            };
            let after = write(&txn, before)?;
            txn.commit().map_err(commit_error)?;
            Ok(after)
        }));
        let after = match outcome.unwrap_or_else(|_| Err(internal_failure("commit"))) {
            Ok(after) => after,
            Err(error) => {
                self.fail(&error);
                return Err(error);
            }
        };
        let mut sizes = self.sizes.write();
        sizes.tables.insert(table, after);
        sizes.unsaved.insert(table);
        drop(sizes);
        *self.newest.lock() = None;
        self.applied.store(seq, Ordering::Release);
        self.wake_flusher(false);
        Ok(())
    }
}

/// The batches of a group that are accepted, sorted by table.
#[derive(Default)]
struct Plan<'a> {
    accepted: Vec<usize>,
    tables: BTreeMap<TableId, Vec<&'a TableWrites>>,
}

impl<'a> Plan<'a> {
    /// Checks the batches one after the other, each against what those before it leave, and answers the
    /// refused ones.
    fn make(
        tables: &HashMap<TableId, TableStats>,
        requests: &[&'a Request],
        answers: &mut [Option<Answer>],
        space_left: bool,
    ) -> Plan<'a> {
        let mut plan = Plan::default();
        let mut exists: BTreeMap<TableId, bool> = BTreeMap::new();
        for (index, Request { batch, .. }) in requests.iter().copied().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let checked = batch.check(&mut |table| match exists.get(&table) {
                Some(exists) => *exists,
                None => tables.contains_key(&table),
            });
            let refused = match checked {
                Err(error) => Some(error),
                Ok(()) if longest(batch) > LENGTH_MAX => Some(StorageError::TooLarge {
                    bytes: longest(batch),
                    limit: LENGTH_MAX,
                }),
                Ok(()) if !space_left && batch.puts() > 0 => Some(StorageError::NoSpace {
                    context: "the reserve of free disk space is reached".into(),
                }),
                Ok(()) => None,
            };
            if let Some(error) = refused {
                answers[index] = Some(Err(error));
                continue;
            }
            for (table, writes) in batch.tables() {
                exists.insert(table, writes.fate().exists_after());
                plan.tables.entry(table).or_default().push(writes);
            }
            plan.accepted.push(index);
        }
        plan
    }
}

/// The longest key or value of a batch, in bytes.
fn longest(batch: &WriteBatch) -> u64 {
    if batch.bytes() <= LENGTH_MAX {
        return batch.bytes();
    }
    let lengths = batch.tables().flat_map(|(_, writes)| writes.keys());
    let lengths = lengths.map(|(key, write)| match write {
        KeyWrite::Put(value) => key.len().max(value.len()),
        KeyWrite::Delete => key.len(),
    });
    lengths.max().unwrap_or(0) as u64
}

/// Carries out what several batches do to one table, in order. Answers the table's size afterwards,
/// `None` when it is gone.
fn write_table(
    txn: &WriteTransaction,
    table: TableId,
    writes: &[&TableWrites],
    mut stats: Option<TableStats>,
) -> Result<Option<TableStats>> {
    let name = table_name(table);
    let mut rows: Option<Table<'_, &[u8], &[u8]>> = None;
    for writes in writes {
        if matches!(writes.fate(), TableFate::Dropped | TableFate::Replaced) {
            rows = None;
            stats = None;
            txn.delete_table(table_of(&name))
                .map_err(|error| open_error("drop a table", error))?;
        }
        if !writes.fate().exists_after() {
            continue;
        }
        let rows = match &mut rows {
            Some(rows) => rows,
            none => none.insert(
                txn.open_table(table_of(&name))
                    .map_err(|error| open_error("open a table", error))?,
            ),
        };
        let stats = stats.get_or_insert_default();
        for (lo, hi) in writes.ranges().iter() {
            let upper = hi.map_or(Bound::Unbounded, |hi| Bound::Excluded(&hi[..]));
            rows.retain_in::<&[u8], _>((Bound::Included(&lo[..]), upper), |key, value| {
                stats.entries -= 1;
                stats.key_bytes -= key.len() as u64;
                stats.value_bytes -= value.len() as u64;
                false
            })
            .map_err(|error| storage_error("delete a range", error))?;
        }
        for (key, write) in writes.keys() {
            let (before, after) = match write {
                KeyWrite::Put(value) => (rows.insert(&key[..], &value[..]), Some(value.len())),
                KeyWrite::Delete => (rows.remove(&key[..]), None),
            };
            let before = before.map_err(|error| storage_error("write", error))?;
            if let Some(before) = before {
                stats.entries -= 1;
                stats.key_bytes -= key.len() as u64;
                stats.value_bytes -= before.value().len() as u64;
            }
            if let Some(after) = after {
                stats.entries += 1;
                stats.key_bytes += key.len() as u64;
                stats.value_bytes += after as u64;
            }
        }
    }
    Ok(stats)
}

/// Brings the rows of `SIZES` up to date; `None` for a table that is gone.
fn save_sizes(
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

impl StorageEngine for RedbEngine {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let view = self.shared.view()?;
        Ok(Arc::new(RedbSnapshot::new(view, &self.shared.snapshots)))
    }

    fn apply(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        if batch.is_empty() {
            let seq = CommitSeq(self.shared.applied.load(Ordering::Acquire));
            if durability == Durability::Synced {
                self.shared.sync()?;
            }
            return Ok(seq);
        }
        self.shared.submit(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        self.shared.sync()
    }

    fn bulk_load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        if self.table_stats(table)?.entries > 0 {
            return Err(StorageError::TableNotEmpty(table));
        }
        let loaded = self.shared.load(table, entries);
        match loaded {
            Ok(count) => {
                self.shared.sync()?;
                Ok(count)
            }
            Err(error) => {
                // What was loaded goes again. Where that fails too, the first error tells more.
                let mut batch = WriteBatch::new();
                batch.drop_table(table);
                batch.create_table(table);
                let _ = self.shared.submit(batch, Durability::Buffered);
                Err(error)
            }
        }
    }

    fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint()
    }

    fn stats(&self) -> EngineStats {
        let io = &self.shared.io;
        let (open_snapshots, oldest_snapshot_age) = self.shared.snapshots.count_and_oldest();
        EngineStats {
            bytes_written: io.bytes_written.load(Ordering::Relaxed),
            bytes_read: io.bytes_read.load(Ordering::Relaxed),
            syncs: io.syncs.load(Ordering::Relaxed),
            file_bytes: Some(io.file_bytes.load(Ordering::Relaxed)),
            open_snapshots,
            oldest_snapshot_age,
            ..self.shared.counters.lock().clone()
        }
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        if self.shared.db.read().is_none() {
            return Err(StorageError::Closed);
        }
        let sizes = self.shared.sizes.read();
        let stats = sizes.tables.get(&table).copied();
        let mut stats = stats.ok_or(StorageError::NoSuchTable(table))?;
        stats.disk_bytes = disk_bytes(&stats);
        Ok(stats)
    }

    fn tables(&self) -> Result<Vec<TableId>> {
        if self.shared.db.read().is_none() {
            return Err(StorageError::Closed);
        }
        let sizes = self.shared.sizes.read();
        let mut tables: Vec<TableId> = sizes.tables.keys().copied().collect();
        tables.sort_unstable();
        Ok(tables)
    }

    fn close(&self) -> Result<()> {
        if let Some(flusher) = self.flusher.lock().take() {
            self.shared.flush.lock().stop = true;
            self.shared.flush_changed.notify_one();
            // A flusher that panicked has nothing more to flush.
            let _ = flusher.join();
        }
        let synced = match self.shared.sync() {
            Err(StorageError::Closed) => return Ok(()),
            synced => synced,
        };
        let Some(db) = self.shared.db.write().take() else {
            return Ok(());
        };
        *self.shared.newest.lock() = None;
        let file = &self.shared.file;
        let closed = catch_unwind(AssertUnwindSafe(|| db.close()));
        let closed = match closed {
            Ok(closed) => closed.map_err(|error| match error {
                DatabaseError::Storage(error) => storage_error(&format!("close {file}"), error),
                error => other_error(&format!("close {file}"), &error),
            }),
            Err(_) => Err(internal_failure(&format!("close {file}"))),
        };
        synced.and(closed)
    }
}

impl Drop for RedbEngine {
    fn drop(&mut self) {
        // Who wants to know of a failure closes.
        let _ = self.close();
    }
}

/// What a table of this size takes in the file, about: redb keeps two offsets of four bytes for each
/// entry, and its leaves are about three quarters full.
fn disk_bytes(stats: &TableStats) -> u64 {
    (stats.key_bytes + stats.value_bytes + 8 * stats.entries) * 4 / 3
}

impl Shared {
    /// Gathers entries and writes them chunk by chunk, each chunk in a transaction of its own: others
    /// may write in between, and a chunk's gathering (which may read and sort) holds nobody up.
    fn load(
        &self,
        table: TableId,
        entries: &mut dyn Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> Result<u64> {
        let mut count = 0;
        let mut last: Option<Vec<u8>> = None;
        let mut chunk: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut chunk_bytes = 0;
        loop {
            let entry = entries.next().transpose()?;
            let end = entry.is_none();
            if let Some((key, value)) = entry {
                let last = chunk.last().map(|(key, _)| key).or(last.as_ref());
                if last.is_some_and(|last| *last >= key) {
                    return Err(StorageError::OutOfOrder { position: count });
                }
                let longest = key.len().max(value.len()) as u64;
                if longest > LENGTH_MAX {
                    return Err(StorageError::TooLarge {
                        bytes: longest,
                        limit: LENGTH_MAX,
                    });
                }
                chunk_bytes += key.len() + value.len();
                chunk.push((key, value));
                count += 1;
            }
            if !chunk.is_empty() && (end || chunk_bytes >= LOAD_BYTES) {
                if !self.room_for(chunk_bytes as u64) {
                    return Err(StorageError::NoSpace {
                        context: "the reserve of free disk space is reached".into(),
                    });
                }
                self.write_alone(table, |txn, before| {
                    append(txn, table, &chunk, before, last.as_deref())
                })?;
                last = chunk.pop().map(|(key, _)| key);
                chunk.clear();
                chunk_bytes = 0;
            }
            if end {
                return Ok(count);
            }
        }
    }

    fn room_for(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_mul(2).saturating_add(self.reserve_bytes);
        match self.space.as_ref().and_then(SpaceProbe::available) {
            Some(available) => available >= wanted,
            None => true,
        }
    }
}

/// Appends a chunk at the end of a table that ends with `last`.
fn append(
    txn: &WriteTransaction,
    table: TableId,
    chunk: &[(Vec<u8>, Vec<u8>)],
    before: TableStats,
    last: Option<&[u8]>,
) -> Result<TableStats> {
    let write = |error| storage_error("bulk load", error);
    let name = table_name(table);
    let mut rows = txn
        .open_table(table_of(&name))
        .map_err(|error| open_error("bulk load", error))?;
    let found = rows.last().map_err(write)?;
    if found.as_ref().map(|(key, _)| key.value()) != last {
        return Err(StorageError::TableNotEmpty(table));
    }
    drop(found);
    let mut stats = before;
    let mut end = rows
        .upper_bound_mut(Bound::<&[u8]>::Unbounded)
        .map_err(write)?;
    for (key, value) in chunk {
        end.insert_before(&key[..], &value[..])
            .map_err(|error| match error {
                CursorError::Storage(error) => write(error),
                error => other_error("bulk load", &error),
            })?;
        stats.entries += 1;
        stats.key_bytes += key.len() as u64;
        stats.value_bytes += value.len() as u64;
    }
    end.close().map_err(write)?;
    Ok(stats)
}
