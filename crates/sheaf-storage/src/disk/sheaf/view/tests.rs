//! The view over maps against the memory engine: the same batches, the same answers, at every sequence, however
//! the batches are spread over generations and tree.

use std::sync::Arc;

use proptest::prelude::*;

use super::stand_in::StandIn;
use crate::batch::{Prior, WriteBatch};
use crate::checked::CheckedEngine;
use crate::engine::{Durability, Snapshot, StorageEngine, TableId};
use crate::memory::MemoryEngine;

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
    /// The flag: with true hints.
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
    ours: Arc<StandIn>,
    engines: [Arc<dyn StorageEngine>; 2],
    held: Vec<[Arc<dyn Snapshot>; 2]>,
}

impl World {
    fn new() -> World {
        let ours = Arc::new(StandIn::new());
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

/// Compares everything of a table, in both directions.
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
