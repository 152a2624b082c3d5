//! Tests the memory budget: the memory that the engine accounts stays within it, and allocated
//! memory stays within the accounted memory plus a slack that does not grow with the data.
//!
//! Pages are outside the allocator's heap, so for them only the engine's account is checked here;
//! that their memory is returned to the system is tested in `page_memory.rs`.
//!
//! A separate binary, since its allocator counts; its tests run one after the other.
//!
//! ```text
//!   accounted     <=  budget + writes in flight
//!   allocated     <=  budget + writes in flight + SLACK
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sheaf_storage::{
    Durability, LogTreeEngine, LogTreeOptions, MemoryStats, StorageEngine, TableId, WriteBatch,
};

/// Memory that is not accounted: buffers of constant size, lists of tables and of space, this
/// test's keys and values.
const SLACK: u64 = 12 << 20;
/// Maximum excess over the budget by threads that charge concurrently, before the cache has shrunk.
const AT_ONCE: u64 = 1 << 20;
const TABLE: TableId = TableId(1);
const LARGE: TableId = TableId(2);

struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);
static ALLOCATED_MAX: AtomicU64 = AtomicU64::new(0);

fn allocated(bytes: usize) {
    let now = ALLOCATED.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
    ALLOCATED_MAX.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: passes everything to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs one test at a time, with the counters reset.
struct Watch {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Watch {
    fn begin() -> Watch {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ALLOCATED.load(Ordering::Relaxed);
        ALLOCATED_MAX.store(before, Ordering::Relaxed);
        Watch {
            before,
            _alone: alone,
        }
    }

    fn most(&self) -> u64 {
        ALLOCATED_MAX.load(Ordering::Relaxed) - self.before
    }
}

fn open(folder: &tempfile::TempDir, cache_bytes: u64) -> LogTreeEngine {
    let options = LogTreeOptions {
        cache_bytes,
        // Only what is requested is synced: this test does not concern the disk.
        flush_interval: Duration::from_secs(3600),
        ..LogTreeOptions::default()
    };
    let engine = LogTreeEngine::open(folder.path(), options).unwrap();
    let mut batch = WriteBatch::new();
    batch.create_table(TABLE);
    batch.create_table(LARGE);
    engine.apply(batch, Durability::Buffered).unwrap();
    engine
}

fn memory(engine: &LogTreeEngine) -> MemoryStats {
    engine.detail().memory
}

fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ (n >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (n >> 7)
}

/// Bytes that identify a key and a version.
fn value(n: u64, version: u64, length: usize) -> Vec<u8> {
    let mut value = vec![(n ^ version) as u8; length];
    value[..8].copy_from_slice(&n.to_be_bytes());
    value[8..16].copy_from_slice(&version.to_be_bytes());
    value
}

fn put(
    engine: &LogTreeEngine,
    table: TableId,
    keys: impl Iterator<Item = u64>,
    version: u64,
    length: usize,
) {
    let mut batch = WriteBatch::new();
    for n in keys {
        batch.put(table, &n.to_be_bytes(), value(n, version, length));
    }
    engine.apply(batch, Durability::Buffered).unwrap();
}

/// Walks a table in both directions and returns its number of entries.
fn walk(
    snapshot: &dyn sheaf_storage::Snapshot,
    table: TableId,
    check: impl Fn(&[u8], &[u8]),
) -> u64 {
    let mut counts = [0, 0];
    for (forward, count) in [true, false].into_iter().zip(&mut counts) {
        let mut cursor = snapshot.cursor(table).unwrap();
        let mut found = if forward {
            cursor.seek_first().unwrap()
        } else {
            cursor.seek_last().unwrap()
        };
        while found {
            check(cursor.key(), cursor.value());
            *count += 1;
            found = if forward {
                cursor.next().unwrap()
            } else {
                cursor.prev().unwrap()
            };
        }
    }
    assert_eq!(counts[0], counts[1]);
    counts[0]
}

#[test]
fn four_times_the_budget_of_small_values() {
    let watch = Watch::begin();
    const BUDGET: u64 = 8 << 20;
    const KEYS: u64 = 32 << 10;
    let folder = tempfile::tempdir().unwrap();
    // Mapped at first; read through the cache once the file exceeds half of the budget.
    let engine = open(&folder, BUDGET);
    for from in (0..KEYS).step_by(128) {
        // Not in key order: leaves are read and rewritten.
        put(
            &engine,
            TABLE,
            (from..from + 128).map(|n| mixed(n) % KEYS),
            1,
            1000,
        );
    }
    let snapshot = engine.snapshot().unwrap();
    let entries = walk(&*snapshot, TABLE, |key, value| assert_eq!(key, &value[..8]));
    assert_eq!(entries, snapshot.len(TABLE).unwrap());
    for n in 0..5000 {
        let n = mixed(n) % KEYS;
        if let Some(value) = snapshot.get(TABLE, &n.to_be_bytes()).unwrap() {
            assert_eq!(value[..8], n.to_be_bytes());
        }
    }
    let memory = memory(&engine);
    assert!(memory.total.bytes_max <= BUDGET + AT_ONCE, "{memory:?}");
    drop(snapshot);
    engine.close().unwrap();
    assert!(watch.most() <= BUDGET + SLACK, "{}", watch.most());
}

#[test]
fn a_snapshot_held_during_overwrites() {
    let watch = Watch::begin();
    const BUDGET: u64 = 16 << 20;
    const KEYS: u64 = 4 << 10;
    // Data that a checkpoint has merged is held by snapshots until it is spilled, while as much is
    // written again.
    const MOST: u64 = BUDGET + BUDGET / 8 + AT_ONCE;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder, BUDGET);
    let overwrite = |version: u64| {
        for from in (0..KEYS).step_by(64) {
            put(&engine, TABLE, from..from + 64, version, 1000);
        }
    };
    // A snapshot of every fourth megabyte that is written, with a cursor in the middle of the
    // table.
    let mut held = Vec::new();
    for version in 0..24 {
        overwrite(version);
        let snapshot = engine.snapshot().unwrap();
        let mut cursor = snapshot.cursor(TABLE).unwrap();
        assert!(cursor.seek(&(KEYS / 2).to_be_bytes()).unwrap());
        held.push((version, snapshot, cursor));
        for (version, _, cursor) in &mut held {
            // All are moved: a cursor that neither moves nor is suspended pins its generations.
            assert!(cursor.next().unwrap());
            assert_eq!(cursor.value()[8..16], version.to_be_bytes());
        }
    }
    overwrite(99);
    engine.checkpoint().unwrap();
    let memory = memory(&engine);
    assert!(memory.snapshots_spilled > 0, "{memory:?}");
    assert!(memory.total.bytes_max <= MOST, "{memory:?}");
    assert!(watch.most() <= MOST + SLACK, "{}", watch.most());
    for (version, snapshot, mut cursor) in held {
        let entries = walk(&*snapshot, TABLE, |key, value| {
            assert_eq!(key, &value[..8]);
            assert_eq!(value[8..16], version.to_be_bytes());
        });
        assert_eq!(entries, KEYS);
        let place = u64::from_be_bytes(cursor.key().try_into().unwrap());
        assert_eq!(place, KEYS / 2 + 24 - version);
        assert!(cursor.prev().unwrap());
        assert_eq!(cursor.key(), (place - 1).to_be_bytes());
    }
    // When they are dropped, they free the pages that only they used.
    engine.checkpoint().unwrap();
    assert_eq!(engine.verify(&mut |_| ()).unwrap(), []);
    engine.close().unwrap();
}

#[test]
fn suspended_cursors_during_overwrites() {
    let watch = Watch::begin();
    const BUDGET: u64 = 64 << 20;
    const KEYS: u64 = 8 << 10;
    const BATCH: u64 = 128;
    const MOST: u64 = BUDGET + BUDGET / 8 + AT_ONCE;
    const ROUNDS: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder, BUDGET);
    // The version that a batch of keys had after this many batches had been written.
    let version_at =
        |batch: u64, written: u64| (written + KEYS / BATCH - 1 - batch) / (KEYS / BATCH);
    let mut held = Vec::new();
    let mut written = 0;
    for version in 1..=ROUNDS {
        for from in (0..KEYS).step_by(BATCH as usize) {
            put(&engine, TABLE, from..from + BATCH, version, 1000);
            written += 1;
            // Opened at any time, read for a while in one direction or the other, and then left
            // idle.
            if written > KEYS / BATCH && mixed(written) % 16 == 0 {
                let mut cursor = engine.snapshot().unwrap().cursor(TABLE).unwrap();
                let (forward, first) = (mixed(written) & 16 == 0, mixed(written) % KEYS);
                let first = first.clamp(10, KEYS - 10);
                assert!(cursor.seek(&first.to_be_bytes()).unwrap());
                for _ in 0..5 {
                    let found = match forward {
                        true => cursor.next(),
                        false => cursor.prev(),
                    };
                    assert!(found.unwrap());
                }
                cursor.suspend();
                let at = if forward { first + 5 } else { first - 5 };
                held.push((written, forward, at, cursor));
            }
        }
    }
    assert!(held.len() > 30, "{}", held.len());
    engine.checkpoint().unwrap();
    let memory = memory(&engine);
    assert!(memory.snapshots_spilled > 0, "{memory:?}");
    assert!(memory.total.bytes_max <= MOST, "{memory:?}");
    assert!(watch.most() <= MOST + SLACK, "{}", watch.most());
    for (written, forward, at, mut cursor) in held {
        // To the end of the table, as of the time when the cursor was opened.
        let left = if forward { KEYS - 1 - at } else { at };
        for step in 1..=left {
            let found = match forward {
                true => cursor.next(),
                false => cursor.prev(),
            };
            assert!(found.unwrap());
            let n = if forward { at + step } else { at - step };
            let version = version_at(n / BATCH, written);
            assert_eq!(cursor.key(), n.to_be_bytes());
            assert_eq!(cursor.value()[..8], n.to_be_bytes());
            assert_eq!(cursor.value()[8..16], version.to_be_bytes());
        }
        assert!(
            !if forward {
                cursor.next()
            } else {
                cursor.prev()
            }
            .unwrap()
        );
    }
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().open_snapshots, 0);
    assert_eq!(engine.verify(&mut |_| ()).unwrap(), []);
    engine.close().unwrap();
}

#[test]
fn values_of_sixteen_megabytes() {
    let watch = Watch::begin();
    const BUDGET: u64 = 128 << 20;
    const LENGTH: usize = (16 << 20) - 100;
    let folder = tempfile::tempdir().unwrap();
    let engine = open(&folder, BUDGET);
    put(&engine, TABLE, 0..1000, 1, 1000);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0..6 {
                    put(engine, LARGE, std::iter::once(thread * 6 + n), n, LENGTH);
                }
            });
        }
    });
    let snapshot = engine.snapshot().unwrap();
    for n in 0..4 {
        put(&engine, LARGE, std::iter::once(n), 100, LENGTH);
    }
    let entries = walk(&*snapshot, LARGE, |key, value| {
        assert_eq!((key, value.len()), (&value[..8], LENGTH));
        assert!(value[8..16] < 100_u64.to_be_bytes()[..]);
    });
    assert_eq!(entries, 18);
    let memory = memory(&engine);
    // Each of three writers holds the value that it puts, and this thread the one that it reads.
    let under_way = 4 * (LENGTH as u64);
    assert!(
        memory.total.bytes_max <= BUDGET + LENGTH as u64,
        "{memory:?}"
    );
    assert!(
        watch.most() <= BUDGET + under_way + SLACK,
        "{}",
        watch.most()
    );
    drop(snapshot);
    engine.close().unwrap();
}
