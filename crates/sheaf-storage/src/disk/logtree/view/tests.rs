//! Compares the view over maps with the memory engine: the same batches have the same results at
//! every sequence, regardless of how they are distributed over generations and tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::fake::FakeEngine;
use crate::batch::{Prior, WriteBatch};
use crate::engine::{Durability, Snapshot, StorageEngine, TableId};
use crate::memory::MemoryEngine;
use crate::testing::checked::CheckedEngine;

const TABLES: [TableId; 4] = [TableId(0), TableId(1), TableId(2), TableId(257)];

#[derive(Clone, Debug)]
enum Op {
    Put(TableId, Vec<u8>, Vec<u8>),
    Delete(TableId, Vec<u8>),
    Range(TableId, Vec<u8>, Option<Vec<u8>>),
    Create(TableId),
    Drop(TableId),
}

#[derive(Clone, Debug)]
enum Step {
    /// The flag: with prior hints.
    Apply(Vec<Op>, bool),
    Freeze,
    Merge(usize),
    Hold,
    Release(usize),
    Look(usize, TableId, Vec<Move>),
}

#[derive(Clone, Debug)]
enum Move {
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    First,
    Last,
    Next(u8),
    Prev(u8),
    Suspend,
}

fn table() -> impl Strategy<Value = TableId> {
    prop_oneof![
        1 => Just(TABLES[0]),
        6 => Just(TABLES[1]),
        2 => Just(TABLES[2]),
        1 => Just(TABLES[3]),
    ]
}

/// Few keys, some longer than the head that a node keeps of them.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255)], 0..4);
    (short, any::<bool>()).prop_map(|(mut key, long)| {
        if long {
            key.splice(0..0, *b"12345678");
        }
        key
    })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 0_usize..6000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (table(), key(), value()).prop_map(|(t, k, v)| Op::Put(t, k, v)),
        6 => (table(), key()).prop_map(|(t, k)| Op::Delete(t, k)),
        2 => (table(), key(), proptest::option::of(key())).prop_map(|(t, lo, hi)| Op::Range(t, lo, hi)),
        1 => table().prop_map(|t| Op::Range(t, Vec::new(), None)),
        2 => table().prop_map(Op::Create),
        1 => table().prop_map(Op::Drop),
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let step = prop_oneof![
        3 => key().prop_map(Move::Seek),
        3 => key().prop_map(Move::SeekForPrev),
        1 => Just(Move::First),
        1 => Just(Move::Last),
        5 => (1_u8..6).prop_map(Move::Next),
        5 => (1_u8..6).prop_map(Move::Prev),
        3 => Just(Move::Suspend),
    ];
    proptest::collection::vec(step, 1..12)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (proptest::collection::vec(op(), 1..8), any::<bool>()).prop_map(|(o, h)| Step::Apply(o, h)),
        2 => Just(Step::Freeze),
        1 => (1_usize..3).prop_map(Step::Merge),
        3 => Just(Step::Hold),
        1 => (0_usize..6).prop_map(Step::Release),
        5 => (0_usize..6, table(), moves()).prop_map(|(i, t, m)| Step::Look(i, t, m)),
    ]
}

struct World {
    ours: Arc<FakeEngine>,
    engines: [Arc<dyn StorageEngine>; 2],
    held: Vec<[Arc<dyn Snapshot>; 2]>,
}

impl World {
    fn new() -> World {
        let ours = Arc::new(FakeEngine::new());
        let mut batch = WriteBatch::new();
        batch.create_table(TABLES[1]);
        let engines: [Arc<dyn StorageEngine>; 2] = [
            Arc::new(CheckedEngine::new(ours.clone())),
            Arc::new(MemoryEngine::new()),
        ];
        for engine in &engines {
            engine.apply(batch.clone(), Durability::Buffered).unwrap();
        }
        World {
            ours,
            engines,
            held: Vec::new(),
        }
    }

    fn batch(&self, ops: &[Op], hints: bool) -> WriteBatch {
        let now = self.engines[1].snapshot().unwrap();
        let prior = |table: TableId, key: &[u8]| match now.get(table, key) {
            Ok(Some(value)) if hints => Prior::value(&value),
            Ok(None) if hints => Prior::Absent,
            _ => Prior::Unknown,
        };
        let mut batch = WriteBatch::new();
        for op in ops {
            match op {
                Op::Put(table, key, value) => {
                    batch.put_with(*table, key, value.clone(), prior(*table, key));
                }
                Op::Delete(table, key) => batch.delete_with(*table, key, prior(*table, key)),
                Op::Range(table, lo, hi) => batch.delete_range(*table, lo, hi.as_deref()),
                Op::Create(table) => batch.create_table(*table),
                Op::Drop(table) => batch.drop_table(*table),
            }
        }
        batch
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(ops, hints) => {
                let batch = self.batch(ops, *hints);
                let [ours, memory] = self.engines.each_ref().map(|engine| {
                    let applied = engine.apply(batch.clone(), Durability::Buffered);
                    applied.map(drop)
                });
                assert_eq!(ours, memory);
            }
            Step::Freeze => self.ours.freeze(),
            Step::Merge(count) => self.ours.merge(*count),
            Step::Hold => {
                let views = self.engines.each_ref().map(|e| e.snapshot().unwrap());
                self.held.push(views);
            }
            Step::Release(at) => {
                if *at < self.held.len() {
                    self.held.swap_remove(*at);
                }
            }
            Step::Look(at, table, moves) => match self.held.get(*at) {
                Some(views) => look(views, *table, moves),
                None => {
                    let views = self.engines.each_ref().map(|e| e.snapshot().unwrap());
                    look(&views, *table, moves);
                }
            },
        }
    }

    fn check(&self) {
        let [ours, memory] = &self.engines;
        assert_eq!(ours.tables().unwrap(), memory.tables().unwrap());
        for table in memory.tables().unwrap() {
            assert_eq!(ours.table_stats(table), memory.table_stats(table));
        }
        for views in &self.held {
            for table in TABLES {
                dump(views, table);
            }
        }
    }
}

/// Compares a table's contents, in both directions.
fn dump(views: &[Arc<dyn Snapshot>; 2], table: TableId) {
    let [ours, memory] = views;
    assert_eq!(ours.contains_table(table), memory.contains_table(table));
    assert_eq!(ours.len(table), memory.len(table));
    let [ours, memory] = views.each_ref().map(|view| walk(&**view, table, true));
    assert_eq!(ours, memory);
    let [mut back, forward] = [walk(&*views[0], table, false), ours];
    if let Ok(entries) = &mut back {
        entries.reverse();
    }
    assert_eq!(back, forward);
}

type Entries = crate::Result<Vec<(Vec<u8>, Vec<u8>)>>;

fn walk(view: &dyn Snapshot, table: TableId, forward: bool) -> Entries {
    let mut cursor = view.cursor(table)?;
    let mut entries = Vec::new();
    let mut found = if forward {
        cursor.seek_first()?
    } else {
        cursor.seek_last()?
    };
    while found {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        found = if forward {
            cursor.next()?
        } else {
            cursor.prev()?
        };
    }
    Ok(entries)
}

fn look(views: &[Arc<dyn Snapshot>; 2], table: TableId, moves: &[Move]) {
    let [ours, memory] = views.each_ref().map(|view| view.cursor(table));
    let (mut ours, mut memory) = match (ours, memory) {
        (Ok(ours), Ok(memory)) => (ours, memory),
        (ours, memory) => {
            assert_eq!(ours.err(), memory.err());
            return;
        }
    };
    for step in moves {
        if let Move::Suspend = step {
            ours.suspend();
            assert_eq!((ours.valid(), ours.key()), (memory.valid(), memory.key()));
            continue;
        }
        let repeat = match step {
            Move::Next(times) | Move::Prev(times) => *times,
            _ => 1,
        };
        for _ in 0..repeat {
            let [found, expected] = [&mut ours, &mut memory].map(|cursor| {
                let found = match step {
                    Move::Seek(key) => cursor.seek(key),
                    Move::SeekForPrev(key) => cursor.seek_for_prev(key),
                    Move::First => cursor.seek_first(),
                    Move::Last => cursor.seek_last(),
                    Move::Next(_) => cursor.next(),
                    Move::Prev(_) => cursor.prev(),
                    Move::Suspend => unreachable!("done above"),
                };
                let found = found.unwrap();
                assert_eq!(found, cursor.valid());
                found.then(|| (cursor.key().to_vec(), cursor.value_bytes()))
            });
            assert_eq!(found, expected, "{step:?} of {moves:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_view_is_the_memory_engine(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 60 })
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.check();
    }
}

const T: TableId = TABLES[1];

/// An engine with the table [`T`], which exists as of sequence 1.
fn with_table() -> FakeEngine {
    let engine = FakeEngine::new();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    engine.apply(batch, Durability::Buffered).unwrap();
    engine
}

fn apply(engine: &FakeEngine, build: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    build(&mut batch);
    engine.apply(batch, Durability::Buffered).unwrap();
}

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn readers_see_a_prefix_of_the_batches_while_many_threads_insert() {
    const WRITERS: u64 = 4;
    const KEYS: u64 = 12;
    let batches: u64 = if cfg!(miri) { 8 } else { 400 };
    type Ops = Vec<(Vec<u8>, Option<Vec<u8>>)>;
    #[derive(Default)]
    struct Done {
        visible: u64,
        waiting: BTreeSet<u64>,
        ops: BTreeMap<u64, Ops>,
    }
    let engine = with_table();
    apply(&engine, |batch| {
        for key in 0..WRITERS * KEYS / 2 {
            batch.put(T, &key_of(key), "below");
        }
    });
    engine.checkpoint().unwrap();
    let base = walk(&*engine.snapshot().unwrap(), T, true).unwrap();
    let view = engine.view();
    let next_seq = AtomicU64::new(3);
    let done = Mutex::new(Done {
        visible: 2,
        ..Done::default()
    });
    let last = 2 + WRITERS * batches;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (view, next_seq, done) = (&view, &next_seq, &done);
            scope.spawn(move || {
                let mut numbers = Numbers(writer + 1);
                for _ in 0..batches {
                    let seq = next_seq.fetch_add(1, Ordering::Relaxed);
                    // Each writer has its own keys, as if it held their locks.
                    let mut ops: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
                    for _ in 0..=numbers.below(3) {
                        let key = key_of(numbers.below(KEYS) * WRITERS + writer);
                        let value = vec![seq as u8; numbers.below(30) as usize];
                        ops.insert(key, (numbers.below(3) > 0).then_some(value));
                    }
                    let mut batch = WriteBatch::new();
                    for (key, value) in &ops {
                        match value {
                            Some(value) => batch.put(T, key, value.clone()),
                            None => batch.delete(T, key),
                        }
                    }
                    view.insert(seq, &batch);
                    let mut done = done.lock();
                    done.ops.insert(seq, ops.into_iter().collect());
                    done.waiting.insert(seq);
                    while done.waiting.first() == Some(&(done.visible + 1)) {
                        done.waiting.pop_first();
                        done.visible += 1;
                    }
                }
            });
        }
        for reader in 0..2_u64 {
            let (engine, done, base) = (&engine, &done, &base);
            scope.spawn(move || {
                let mut numbers = Numbers(99 + reader);
                loop {
                    let newest = done.lock().visible;
                    // The newest state, or an earlier one.
                    let visible = newest - numbers.below(newest - 1).min(numbers.below(50));
                    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = base.iter().cloned().collect();
                    for (_, ops) in done.lock().ops.range(..=visible) {
                        for (key, value) in ops {
                            match value {
                                Some(value) => rows.insert(key.clone(), value.clone()),
                                None => rows.remove(key),
                            };
                        }
                    }
                    let rows: Vec<_> = rows.into_iter().collect();
                    let snapshot = engine.snapshot_at(visible);
                    assert_eq!(walk(&snapshot, T, true).unwrap(), rows);
                    let mut back = walk(&snapshot, T, false).unwrap();
                    back.reverse();
                    assert_eq!(back, rows);
                    assert_eq!(snapshot.len(T), Ok(rows.len() as u64));
                    let key = key_of(numbers.below(WRITERS * KEYS));
                    let expected = rows.iter().find(|(other, _)| *other == key);
                    let value = snapshot.get(T, &key).unwrap();
                    assert_eq!(value.as_deref(), expected.map(|(_, value)| &value[..]));
                    if newest == last {
                        break;
                    }
                }
            });
        }
    });
    let stats = view.table_stats(T).unwrap();
    let rows = walk(&engine.snapshot_at(last), T, true).unwrap();
    assert_eq!(stats.entries, rows.len() as u64);
    let value_bytes: usize = rows.iter().map(|(_, value)| value.len()).sum();
    assert_eq!(stats.value_bytes, value_bytes as u64);
}

/// Longer than a head, and many with the same one.
fn key_of(number: u64) -> Vec<u8> {
    let mut key = b"a long beginning "[..5 + number as usize % 12].to_vec();
    key.extend(number.to_be_bytes());
    key
}

#[test]
fn a_hot_key_costs_few_steps() {
    let versions: u64 = if cfg!(miri) { 100 } else { 100_000 };
    let engine = with_table();
    apply(&engine, |batch| {
        for key in ["a", "c", "e"] {
            batch.put(T, key.as_bytes(), "1");
        }
    });
    let held = engine.snapshot().unwrap();
    for n in 0..versions {
        apply(&engine, |batch| batch.put(T, b"c", n.to_string()));
    }
    let newest = engine.snapshot().unwrap();
    for (snapshot, value) in [
        (&held, "1".to_string()),
        (&newest, (versions - 1).to_string()),
    ] {
        // If each of these walked along the versions, this would take minutes.
        let mut cursor = snapshot.cursor(T).unwrap();
        for _ in 0..if cfg!(miri) { 3 } else { 10_000 } {
            assert!(cursor.seek(b"b").unwrap());
            assert_eq!(
                (cursor.key(), cursor.value()),
                (&b"c"[..], value.as_bytes())
            );
            assert!(cursor.next().unwrap() && cursor.key() == b"e");
            assert!(cursor.prev().unwrap() && cursor.value() == value.as_bytes());
            assert!(cursor.prev().unwrap() && cursor.key() == b"a");
            assert!(cursor.seek_for_prev(b"d").unwrap() && cursor.value() == value.as_bytes());
        }
        assert_eq!(snapshot.get(T, b"c").unwrap().unwrap(), value.as_bytes());
        assert_eq!(snapshot.len(T), Ok(3));
    }
}

#[test]
fn large_values_are_shared_and_outlive_their_generation() {
    let engine = with_table();
    let large = bytes::Bytes::from(vec![7; 1 << 20]);
    let handed_over = large.clone();
    apply(&engine, |batch| batch.put(T, b"large", handed_over));
    let read = engine
        .snapshot()
        .unwrap()
        .get(T, b"large")
        .unwrap()
        .unwrap();
    assert_eq!(read.as_ptr(), large.as_ptr());
    assert!(engine.budget.used() > 1 << 20);
    let held = engine.snapshot().unwrap();
    let mut cursor = held.cursor(T).unwrap();
    assert!(cursor.seek_first().unwrap());
    drop(held);
    engine.checkpoint().unwrap();
    // The cursor still pins the generation.
    assert!(engine.retired.bytes() > 1 << 20);
    let kept = cursor.value_bytes();
    drop(cursor);
    let freed = engine.retired.sweep();
    assert!(freed > 1 << 20, "{freed}");
    assert_eq!(engine.retired.bytes(), 0);
    assert_eq!(engine.budget.used(), engine.view().active().bytes());
    assert!(kept == large && read == large);
}

#[test]
fn a_suspended_cursor_holds_nothing() {
    let engine = with_table();
    let large = bytes::Bytes::from(vec![7; 1 << 20]);
    apply(&engine, |batch| {
        for key in ["a", "b", "c", "d"] {
            batch.put(T, key.as_bytes(), large.clone());
        }
    });
    let held = engine.snapshot().unwrap();
    let [mut forward, mut backward, mut nowhere] = [(); 3].map(|()| held.cursor(T).unwrap());
    assert!(forward.seek(b"b").unwrap() && backward.seek_for_prev(b"c").unwrap());
    let all = engine.view();
    engine.checkpoint().unwrap();
    // The snapshot is switched to the tree, as when it is spilled; cursors are still in the
    // generation.
    let seq = engine.visible();
    let candidates = engine
        .open
        .candidates(|view| std::ptr::eq(view, &raw const *all));
    let [candidate] = &candidates[..] else {
        panic!("one snapshot was taken")
    };
    assert_eq!(candidate.visible, seq);
    assert_eq!(engine.open.replace(candidate, &engine.view()), 1);
    drop((candidates, all));
    engine.open.forget();
    engine.retired.sweep();
    assert!(engine.retired.bytes() > 0);
    for cursor in [&mut forward, &mut backward, &mut nowhere] {
        cursor.suspend();
        // A second call changes nothing.
        cursor.suspend();
        assert_eq!(cursor.value(), b"");
    }
    engine.retired.sweep();
    assert_eq!(engine.retired.bytes(), 0);
    assert_eq!((forward.key(), backward.key()), (&b"b"[..], &b"c"[..]));
    assert!(forward.valid() && backward.valid() && !nowhere.valid());
    // Each continues where it was, in its direction or the other.
    assert!(forward.next().unwrap() && forward.key() == b"c" && forward.value() == large);
    assert!(backward.prev().unwrap() && backward.key() == b"b" && backward.value() == large);
    forward.suspend();
    assert!(forward.prev().unwrap() && forward.key() == b"b");
    backward.suspend();
    assert!(backward.next().unwrap() && backward.key() == b"c");
    backward.suspend();
    assert!(backward.seek_last().unwrap() && backward.key() == b"d");
    assert!(!nowhere.next().unwrap());
    nowhere.suspend();
    assert!(nowhere.seek_first().unwrap() && nowhere.value_bytes() == large);
}

/// A snapshot may be accessed while it is being dropped. Also run under Miri.
#[test]
fn snapshots_are_dropped_while_others_are_read() {
    let rounds = if cfg!(miri) { 3 } else { 3000 };
    let engine = with_table();
    apply(&engine, |batch| batch.put(T, b"a", "1"));
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let snapshot = engine.snapshot().unwrap();
                    let mut cursor = snapshot.cursor(T).unwrap();
                    drop(snapshot);
                    assert!(cursor.seek_first().unwrap());
                    cursor.suspend();
                    drop(cursor);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < 2 {
                for candidate in engine.open.candidates(|_| true) {
                    engine.open.replace(&candidate, &candidate.pinned.view);
                }
                thread::yield_now();
            }
        });
    });
    assert_eq!(engine.open.count_and_oldest().0, 0);
}

#[test]
fn deleted_runs_are_not_scanned_repeatedly() {
    let entries: u64 = if cfg!(miri) { 30 } else { 3000 };
    let engine = with_table();
    let key = |n: u64| n.to_be_bytes();
    apply(&engine, |batch| {
        (0..entries).for_each(|n| batch.put(T, &key(n), "x"));
    });
    engine.checkpoint().unwrap();
    let held = engine.snapshot().unwrap();
    let moves = engine.view().roots().1.clone();
    let before = moves.load(Ordering::Relaxed);
    // A queue at one end, a stack at the other; the generation with the first deletes is frozen on
    // the way.
    for n in 0..entries / 3 {
        for (forward, expected) in [(true, n), (false, entries - 1 - n)] {
            let snapshot = engine.snapshot().unwrap();
            let mut cursor = snapshot.cursor(T).unwrap();
            let found = if forward {
                cursor.seek_first()
            } else {
                cursor.seek_last()
            };
            assert!(found.unwrap());
            assert_eq!(cursor.key(), key(expected));
            apply(&engine, |batch| batch.delete(T, &key(expected)));
        }
        if n == entries / 5 {
            engine.freeze();
        }
    }
    let moves = moves.load(Ordering::Relaxed) - before;
    // Walking over the deleted keys each time would be entries squared / 9 moves.
    assert!(moves < 10 * entries, "{moves}");
    assert_eq!(held.len(T), Ok(entries));
    assert_eq!(walk(&*held, T, true).unwrap().len() as u64, entries);

    // A put among deleted keys is seen by the snapshots that may see it, and by no other.
    let earlier = engine.snapshot().unwrap();
    let left: Vec<u64> = (entries / 3..entries - entries / 3).collect();
    let mut expected = left.clone();
    for n in [entries / 6, 0, entries / 4, entries - 1] {
        apply(&engine, |batch| batch.put(T, &key(n), "again"));
        expected.push(n);
        expected.sort_unstable();
        let now = engine.snapshot().unwrap();
        for (snapshot, expected) in [(&now, &expected), (&earlier, &left)] {
            let keys: Vec<_> = expected.iter().map(|n| key(*n).to_vec()).collect();
            let walked = walk(&**snapshot, T, true).unwrap();
            assert!(walked.iter().map(|(key, _)| key).eq(&keys));
            let walked = walk(&**snapshot, T, false).unwrap();
            assert!(walked.iter().rev().map(|(key, _)| key).eq(&keys));
        }
    }
}

#[test]
fn a_put_within_a_deleted_run_is_seen() {
    let rounds: u64 = if cfg!(miri) { 4 } else { 3000 };
    let engine = with_table();
    apply(&engine, |batch| {
        (0..40).for_each(|n| batch.put(T, &[n], "x"));
    });
    engine.checkpoint().unwrap();
    apply(&engine, |batch| {
        (0..40).for_each(|n| batch.delete(T, &[n]));
    });
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (engine, done) = (&engine, &done);
            scope.spawn(move || {
                // Walks that record runs of deleted keys, continuously.
                while done.load(Ordering::Relaxed) < rounds {
                    let snapshot = engine.snapshot().unwrap();
                    let entries = walk(&*snapshot, T, reader == 0).unwrap();
                    assert_eq!(snapshot.len(T), Ok(entries.len() as u64));
                }
            });
        }
        let mut numbers = Numbers(5);
        for _ in 0..rounds {
            let key = [numbers.below(40) as u8];
            apply(&engine, |batch| batch.put(T, &key, "y"));
            let snapshot = engine.snapshot().unwrap();
            let mut expected = vec![(key.to_vec(), b"y".to_vec())];
            assert_eq!(walk(&*snapshot, T, true).unwrap(), expected);
            assert_eq!(walk(&*snapshot, T, false).unwrap(), expected);
            apply(&engine, |batch| batch.delete(T, &key));
            expected.clear();
            assert_eq!(
                walk(&*engine.snapshot().unwrap(), T, true).unwrap(),
                expected
            );
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn of_concurrent_batches_the_last_in_order_wins() {
    const WRITERS: u64 = 4;
    let batches: u64 = if cfg!(miri) { 10 } else { 1000 };
    let engine = with_table();
    let view = engine.view();
    let next_seq = AtomicU64::new(2);
    let last = 1 + WRITERS * batches;
    let key = |n: u64| [n as u8];
    // Which of three keys a sequence writes, and which it deletes.
    let writes = |seq: u64| (seq * 7 % 3, seq * 5 % 4);
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..batches {
                    let seq = next_seq.fetch_add(1, Ordering::Relaxed);
                    let mut batch = WriteBatch::new();
                    let (put, delete) = writes(seq);
                    batch.put(T, &key(put), seq.to_be_bytes().to_vec());
                    if delete < 3 && delete != put {
                        batch.delete(T, &key(delete));
                    }
                    view.insert(seq, &batch);
                }
            });
        }
    });
    let mut rows: [Option<u64>; 3] = [None; 3];
    for seq in 2..=last {
        let (put, delete) = writes(seq);
        if delete < 3 && delete != put {
            rows[delete as usize] = None;
        }
        rows[put as usize] = Some(seq);
        // A look-up begins at the newest version, the walk at the oldest or the newest.
        let snapshot = engine.snapshot_at(seq);
        let mut expected = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            let value = row.map(|seq| seq.to_be_bytes().to_vec());
            let found = snapshot.get(T, &key(n as u64)).unwrap();
            assert_eq!(found.as_deref(), value.as_deref(), "key {n} at {seq}");
            expected.extend(value.map(|value| (key(n as u64).to_vec(), value)));
        }
        if seq % 16 == 0 || seq == last {
            assert_eq!(walk(&snapshot, T, true).unwrap(), expected);
            expected.reverse();
            assert_eq!(walk(&snapshot, T, false).unwrap(), expected);
        }
    }
    // Each was counted against the state below it when it was inserted.
    let entries = rows.iter().flatten().count() as u64;
    assert_eq!(view.table_stats(T).unwrap().entries, entries);
}
