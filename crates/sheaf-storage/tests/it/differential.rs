//! Random scripts on the memory engine, on redb and on logtree, each wrapped in a `CheckedEngine`,
//! all compared with the naive model.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sheaf_storage::testing::checked::CheckedEngine;
use sheaf_storage::testing::fault::{FaultDisk, FaultFolder, Remains};
use sheaf_storage::*;

use crate::engines::sheaf_with_cache;
use crate::model::{Model, Move, Op, TABLES, check_moves, dump, key, moves, op, op_or_change};

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Op>, bool),
    Load(TableId, u16),
    Hold,
    Release(usize),
    Look(usize, TableId, Vec<Move>),
    Sync,
    Checkpoint,
    Reopen,
    Begin,
    Write(usize, Vec<Op>),
    RollBack(usize, Vec<Op>),
    View(usize, TableId, Vec<Move>),
    End(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let table = || prop_oneof![3 => Just(TABLES[1]), 2 => Just(TABLES[2]), 1 => Just(TABLES[0])];
    let ops = || proptest::collection::vec(op(), 1..6);
    let known_ops = proptest::collection::vec(op_or_change(), 1..6);
    prop_oneof![
        6 => (known_ops, any::<bool>()).prop_map(|(ops, synced)| Step::Apply(ops, synced)),
        1 => (table(), 0_u16..300).prop_map(|(table, n)| Step::Load(table, n)),
        2 => Just(Step::Hold),
        1 => (0_usize..4).prop_map(Step::Release),
        4 => (0_usize..4, table(), moves()).prop_map(|(i, t, m)| Step::Look(i, t, m)),
        1 => Just(Step::Sync),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => Just(Step::Begin),
        6 => (0_usize..3, ops()).prop_map(|(i, ops)| Step::Write(i, ops)),
        2 => (0_usize..3, ops()).prop_map(|(i, ops)| Step::RollBack(i, ops)),
        4 => (0_usize..3, table(), moves()).prop_map(|(i, t, m)| Step::View(i, t, m)),
        3 => (0_usize..3, any::<bool>()).prop_map(|(i, commit)| Step::End(i, commit)),
    ]
}

/// A unit on each of the storages, and the state that it must see.
struct Units {
    units: [StorageTransaction; 3],
    model: Model,
    writes: Vec<Op>,
    contradicted: bool,
}

struct World {
    disk: FaultDisk,
    folder: FaultFolder,
    /// The memory budget of the logtree engine.
    cache_bytes: u64,
    storages: [Storage; 3],
    model: Model,
    held: Vec<([Arc<dyn Snapshot>; 3], Model)>,
    units: Vec<Units>,
}

fn redb(disk: &FaultDisk) -> Storage {
    let options = RedbOptions {
        cache_bytes: 1 << 20,
        flush_interval: Duration::from_secs(3600),
        ..RedbOptions::default()
    };
    let engine = RedbEngine::open_with_backend(disk.backend(), options).unwrap();
    Storage::new(Arc::new(CheckedEngine::new(Arc::new(engine))))
}

fn sheaf(folder: &FaultFolder, cache_bytes: u64) -> Storage {
    let engine = sheaf_with_cache(folder, Duration::from_secs(3600), cache_bytes).unwrap();
    Storage::new(Arc::new(CheckedEngine::new(Arc::new(engine))))
}

impl World {
    fn new(cache_bytes: u64) -> World {
        let disk = FaultDisk::default();
        let folder = FaultFolder::default();
        let memory = Arc::new(CheckedEngine::new(Arc::new(MemoryEngine::new())));
        World {
            storages: [
                Storage::new(memory),
                redb(&disk),
                sheaf(&folder, cache_bytes),
            ],
            disk,
            folder,
            cache_bytes,
            model: Model::new(),
            held: Vec::new(),
            units: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(ops, synced) => {
                let batch = self.model.batch(ops);
                let durability = if *synced {
                    Durability::Synced
                } else {
                    Durability::Buffered
                };
                let [a, b, c] = self.storages.each_ref().map(|storage| {
                    let applied = storage.engine().apply(batch.clone(), durability);
                    applied.map(drop)
                });
                assert_eq!(a, b);
                assert_eq!(a, c);
                assert_eq!(a.is_ok(), self.model.apply_all(ops), "{a:?} of {ops:?}");
            }
            Step::Load(table, n) => {
                let entries: Vec<_> = (0..*n)
                    .map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; usize::from(n)]))
                    .collect();
                let [a, b, c] = self.storages.each_ref().map(|storage| {
                    let mut entries = entries.iter().cloned().map(Ok);
                    storage.engine().bulk_load(*table, &mut entries)
                });
                assert_eq!(a, b);
                assert_eq!(a, c);
                match self.model.0.get_mut(table) {
                    Some(rows) if rows.is_empty() => {
                        assert_eq!(a, Ok(u64::from(*n)));
                        rows.extend(entries);
                    }
                    _ => assert!(a.is_err()),
                }
            }
            Step::Hold => {
                let views = self
                    .storages
                    .each_ref()
                    .map(|storage| storage.snapshot().unwrap());
                self.held.push((views, self.model.clone()));
            }
            Step::Release(index) => {
                if *index < self.held.len() {
                    self.held.swap_remove(*index);
                }
            }
            Step::Look(index, table, moves) => {
                if let Some((views, model)) = self.held.get(*index) {
                    for view in views {
                        look(&**view, model, *table, moves);
                    }
                }
            }
            Step::Sync => {
                for storage in &self.storages {
                    storage.engine().sync().unwrap();
                }
            }
            Step::Checkpoint => {
                for storage in &self.storages {
                    storage.engine().checkpoint().unwrap();
                }
            }
            Step::Reopen => {
                self.held.clear();
                self.units.clear();
                self.storages[1].engine().close().unwrap();
                self.storages[1] = redb(&self.disk);
                // With or without a close: the folder is unlocked, and batches that are not in the
                // tree are read from the log.
                if self.model.0.len() % 2 == 0 {
                    self.storages[2].engine().close().unwrap();
                    self.storages[2] = sheaf(&self.folder, self.cache_bytes);
                } else {
                    self.storages[2].engine().sync().unwrap();
                    self.folder = self.folder.after_crash(Remains::Nothing);
                    self.storages[2] = sheaf(&self.folder, self.cache_bytes);
                }
            }
            Step::Begin => {
                if self.units.len() < 3 {
                    self.units.push(Units {
                        units: self.storages.each_ref().map(|s| s.begin().unwrap()),
                        model: self.model.clone(),
                        writes: Vec::new(),
                        contradicted: false,
                    });
                }
            }
            Step::Write(index, ops) => {
                if let Some(units) = self.units.get_mut(*index) {
                    units.write(ops);
                }
            }
            Step::RollBack(index, ops) => {
                if let Some(units) = self.units.get_mut(*index) {
                    let before = (units.model.clone(), units.writes.len(), units.contradicted);
                    let savepoints = units.units.each_mut().map(|unit| unit.savepoint());
                    units.write(ops);
                    for (unit, savepoint) in units.units.iter_mut().zip(savepoints) {
                        unit.rollback_to(&savepoint);
                        unit.release(savepoint);
                    }
                    units.model = before.0;
                    units.writes.truncate(before.1);
                    units.contradicted = before.2;
                }
            }
            Step::View(index, table, moves) => {
                if let Some(units) = self.units.get(*index)
                    && !units.contradicted
                {
                    for unit in &units.units {
                        look(&*unit.reader(), &units.model, *table, moves);
                    }
                }
            }
            Step::End(index, commit) => {
                if *index < self.units.len() {
                    let units = self.units.swap_remove(*index);
                    if *commit {
                        let [a, b, c] = units
                            .units
                            .map(|u| u.commit(Durability::Buffered).map(drop));
                        assert_eq!(a, b);
                        assert_eq!(a, c);
                        if a.is_ok() {
                            // Locks exclude other writers from the same keys, but not from whole
                            // tables.
                            for op in &units.writes {
                                self.model.apply(op);
                            }
                        }
                    }
                }
            }
        }
    }

    fn check(&self) {
        for storage in &self.storages {
            let snapshot = storage.snapshot().unwrap();
            assert_eq!(dump(&*snapshot, TABLES), self.model);
            let tables: Vec<_> = self.model.0.keys().copied().collect();
            assert_eq!(storage.engine().tables().unwrap(), tables);
        }
    }
}

impl Units {
    /// Writes with a lock on every key; skips what cannot be locked.
    fn write(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::Put(table, key, _) | Op::Delete(table, key) = op {
                let [a, b, c] = self
                    .units
                    .each_mut()
                    .map(|unit| unit.lock(*table, key, LockMode::Fail));
                assert_eq!(a, b);
                assert_eq!(a, c);
                if a.is_err() {
                    continue;
                }
            }
            for unit in &mut self.units {
                match op {
                    Op::Put(table, key, value) => unit.put(*table, key, value.clone()),
                    Op::Change(..) => unreachable!("units know too little for it"),
                    Op::Delete(table, key) => unit.delete(*table, key),
                    Op::Range(table, lo, hi) => unit.delete_range(*table, lo, hi.as_deref()),
                    Op::Create(table) => unit.create_table(*table),
                    Op::Drop(table) => unit.drop_table(*table),
                }
            }
            // A contradiction between tables makes the commit fail; until then the views are
            // undefined.
            self.contradicted |= !self.model.apply(op);
            self.writes.push(op.clone());
        }
    }
}

fn look(view: &dyn Snapshot, model: &Model, table: TableId, moves: &[Move]) {
    assert_eq!(dump(view, TABLES), *model);
    match model.0.get(&table) {
        Some(rows) => {
            check_moves(view, table, rows, moves);
            for step in moves {
                if let Move::Seek(key) | Move::SeekForPrev(key) = step {
                    let found = view.get(table, key).unwrap();
                    assert_eq!(found.as_deref(), rows.get(key).map(|value| &value[..]));
                }
            }
        }
        None => assert!(matches!(
            view.cursor(table),
            Err(StorageError::NoSuchTable(_))
        )),
    }
}

/// 160, or the value of `SHEAF_STORAGE_DIFF_CASES`.
fn cases() -> u32 {
    let cases = std::env::var("SHEAF_STORAGE_DIFF_CASES").ok();
    cases.and_then(|n| n.parse().ok()).unwrap_or(160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn the_engines_agree_with_the_model(steps in proptest::collection::vec(step(), 1..60),
                                        cache_bytes in prop_oneof![Just(0_u64), Just(1 << 20)]) {
        let mut world = World::new(cache_bytes);
        world.step(&Step::Apply(vec![Op::Create(TABLES[1]), Op::Create(TABLES[2])], true));
        for step in &steps {
            world.step(step);
        }
        world.check();
        world.held.clear();
        world.units.clear();
        prop_assert_eq!(world.storages[1].engine().stats().open_snapshots, 0);
        prop_assert_eq!(world.storages[2].engine().stats().open_snapshots, 0);
        prop_assert_eq!(world.storages[0].lock_stats().known_keys, 0);
    }

    #[test]
    fn ranges_stay_apart(adds in proptest::collection::vec((key(), proptest::option::of(key())), 0..12),
                         probes in proptest::collection::vec(key(), 12)) {
        let mut ranges = KeyRanges::default();
        for (lo, hi) in &adds {
            ranges.add(lo.clone().into(), hi.clone().map(Into::into));
        }
        for probe in &probes {
            let covered = adds
                .iter()
                .any(|(lo, hi)| lo <= probe && hi.as_ref().is_none_or(|hi| probe < hi));
            prop_assert_eq!(ranges.covering(probe).is_some(), covered);
        }
        let all: Vec<_> = ranges.iter().collect();
        for pair in all.windows(2) {
            prop_assert!(pair[0].1.is_some_and(|end| end < pair[1].0));
        }
        for (lo, hi) in all {
            prop_assert!(hi.is_none_or(|hi| lo < hi));
        }
    }
}
