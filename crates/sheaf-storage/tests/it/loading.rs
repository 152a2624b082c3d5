//! Replay of the log into generations: gathered batches, and deltas that wait for their bases,
//! against the model.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sheaf_storage::testing::fault::{FaultFolder, Remains};
use sheaf_storage::*;

use crate::logtree_engine::contents;
use crate::model::{Model, Op, TABLES, dump, op_or_change};

const NEVER: Duration = Duration::from_secs(3600);

fn open(folder: &FaultFolder, generation_bytes: u64) -> Result<LogTreeEngine> {
    let options = LogTreeOptions {
        cache_bytes: 16 << 20,
        generation_bytes: Some(generation_bytes),
        flush_interval: NEVER,
        checkpoint_interval: NEVER,
        reserve_bytes: 0,
        ..LogTreeOptions::default()
    };
    LogTreeEngine::open_in(Arc::new(folder.clone()), options)
}

/// Opens the files after a crash, and compares contents and sizes with the model.
fn check(folder: &FaultFolder, generation_bytes: u64, model: &Model) {
    let found = folder.after_crash(Remains::Nothing);
    let engine = open(&found, generation_bytes).unwrap();
    let view = engine.snapshot().unwrap();
    assert_eq!(&dump(&*view, TABLES), model);
    for (table, rows) in &model.0 {
        let stats = engine.table_stats(*table).unwrap();
        let sum = |lens: &mut dyn Iterator<Item = usize>| lens.sum::<usize>() as u64;
        assert_eq!(stats.entries, rows.len() as u64, "{table}");
        assert_eq!(stats.key_bytes, sum(&mut rows.keys().map(Vec::len)));
        assert_eq!(stats.value_bytes, sum(&mut rows.values().map(Vec::len)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_from_the_log_is_what_was_written(
        steps in prop::collection::vec(
            (prop::collection::vec(op_or_change(), 1..5), prop::bool::weighted(0.1)),
            1..60,
        ),
    ) {
        let folder = FaultFolder::default();
        let engine = open(&folder, 8 << 20).unwrap();
        let mut model = Model::new();
        for (ops, checkpoint) in &steps {
            let applied = engine.apply(model.batch(ops), Durability::Buffered);
            prop_assert_eq!(applied.is_ok(), model.apply_all(ops));
            if *checkpoint {
                engine.checkpoint().unwrap();
            }
        }
        engine.sync().unwrap();
        for generation_bytes in [64 << 10, 8 << 20] {
            check(&folder, generation_bytes, &model);
        }
    }
}

/// Far more keys than one thread looks up, each changed several times, while others are replaced
/// and deleted, singly and by range.
#[test]
fn many_changes_wait_for_their_bases_together() {
    let table = TABLES[1];
    let key = |n: u32| n.to_be_bytes().to_vec();
    let folder = FaultFolder::default();
    let engine = open(&folder, 16 << 20).unwrap();
    let mut model = Model::new();
    let mut apply = |ops: &[Op]| {
        let batch = model.batch(ops);
        engine.apply(batch, Durability::Buffered).unwrap();
        assert!(model.apply_all(ops));
    };
    let puts = (0..3000).map(|n| Op::Put(table, key(n), vec![n as u8; 120]));
    apply(&[vec![Op::Create(table)], puts.collect()].concat());
    engine.checkpoint().unwrap();
    for round in 0..3_u64 {
        for first in (0..3000_u32).step_by(20) {
            let mut ops = match first {
                2000 => vec![Op::Delete(table, key(1))],
                2300 => vec![Op::Put(table, key(2), vec![3; 200])],
                2600 => vec![Op::Range(table, key(10), Some(key(40)))],
                _ => Vec::new(),
            };
            let seed = |n: u32| round << 40 | u64::from(n) << 20;
            ops.extend((first..first + 20).map(|n| Op::Change(table, key(n * 7 % 3000), seed(n))));
            apply(&ops);
        }
    }
    engine.sync().unwrap();
    let stats = engine.detail();
    assert!(stats.log_deltas > 8000, "{stats:?}");
    for generation_bytes in [64 << 10, 1 << 20, 16 << 20] {
        check(&folder, generation_bytes, &model);
    }
    // Nothing was put into the range again: later writes are to the keys from 200 to 2993.
    assert_eq!(model.0[&table].len(), 2970);
}

/// A log next to a tree of the same sequence with other values: the bases of its deltas do not
/// exist.
#[test]
fn a_delta_without_its_base_is_refused_by_file_and_offset() {
    let table = TABLES[1];
    let files = |byte: u8, changes: u32| {
        let folder = FaultFolder::default();
        let engine = open(&folder, 8 << 20).unwrap();
        let mut batch = WriteBatch::new();
        batch.create_table(table);
        for n in 0..1000_u32 {
            batch.put(table, &n.to_be_bytes(), vec![byte; 300]);
        }
        engine.apply(batch, Durability::Synced).unwrap();
        engine.checkpoint().unwrap();
        for n in 0..changes {
            let (base, mut new) = (vec![byte; 300], vec![byte; 300]);
            new[7] = byte + 1;
            let mut batch = WriteBatch::new();
            batch.put_over(table, &n.to_be_bytes(), new, &base.into());
            engine.apply(batch, Durability::Buffered).unwrap();
        }
        engine.sync().unwrap();
        contents(&folder.after_crash(Remains::Nothing))
    };
    // A single change is looked up directly, many are looked up concurrently.
    for changes in [1, 1000] {
        let mut mixed = files(1, changes);
        let (_, tree) = files(2, 0).remove_entry("tree").unwrap();
        mixed.insert("tree".into(), tree);
        let refused = open(&FaultFolder::new(mixed), 8 << 20).map(drop);
        let Err(StorageError::Corrupt { file, detail }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(file, "log.0000000001");
        let what = "a delta for key 00000000 of table 1 does not match the previous value";
        assert!(detail.starts_with(what), "{detail}");
        assert!(detail.contains("at offset"), "{detail}");
    }
}
