//! The file format: a small file of each released version stays readable, other files are rejected
//! with a clear error.

use std::path::PathBuf;

use sheaf_storage::*;

use crate::engines::folder;
use crate::model::{Model, Op, dump};

const TABLE: TableId = TableId(0x1f);

fn testdata(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "testdata", name]
        .iter()
        .collect()
}

/// The contents of the files.
fn content() -> Vec<Op> {
    let mut ops = vec![Op::Create(TABLE), Op::Create(TableId(u64::MAX))];
    ops.push(Op::Put(
        TableId::CATALOG,
        b"name".to_vec(),
        b"value".to_vec(),
    ));
    ops.push(Op::Put(TABLE, Vec::new(), Vec::new()));
    for n in 0..40_u8 {
        ops.push(Op::Put(
            TABLE,
            vec![n, n ^ 0xa5],
            vec![n; usize::from(n) * 3],
        ));
    }
    ops.push(Op::Put(TABLE, vec![255], vec![1; 6000]));
    ops
}

#[test]
fn files_of_version_1_open() {
    let kept = testdata("redb-v1.redb");
    let (_folder, path) = folder();
    let mut model = Model::new();
    assert!(model.apply_all(&content()));
    if std::env::var_os("SHEAF_BLESS").is_some() && !kept.exists() {
        let engine = RedbEngine::open(&path, RedbOptions::default()).unwrap();
        let mut batch = WriteBatch::new();
        content().iter().for_each(|op| op.add_to(&mut batch));
        engine.apply(batch, Durability::Synced).unwrap();
        engine.close().unwrap();
        std::fs::copy(&path, &kept).unwrap();
    }
    // Opening writes to the file.
    std::fs::copy(&kept, &path).unwrap();
    let engine = RedbEngine::open(&path, RedbOptions::default()).unwrap();
    let tables = engine.tables().unwrap();
    assert_eq!(tables, [TableId::CATALOG, TABLE, TableId(u64::MAX)]);
    assert_eq!(dump(&*engine.snapshot().unwrap(), tables), model);
    let stats = engine.table_stats(TABLE).unwrap();
    assert_eq!((stats.entries, stats.key_bytes), (42, 81));
}

/// The folders kept for a version: a tree with most of the data, and the rest in a log.
#[test]
fn folders_of_version_1_open() {
    opens("sheaf-v1", &[]);
}

/// Version 2 of the log has deltas: over the tree, over each other, and over a value that the log
/// has in full.
#[test]
fn folders_with_deltas_in_the_log_open() {
    let key = vec![255];
    opens(
        "sheaf-v2",
        &[
            Op::Change(TABLE, key.clone(), 0x0123_4567_89ab_cdef),
            Op::Change(TABLE, key.clone(), 0x1123_4567_89ab_cdef),
            Op::Put(TABLE, key.clone(), vec![8; 300]),
            Op::Change(TABLE, key, 0x2123_4567_89ab_cdef),
            Op::Change(TABLE, b"later".to_vec(), 0x3123_4567_89ab_cdef),
        ],
    );
}

fn opens(name: &str, changes: &[Op]) {
    let kept = testdata(name);
    let options = || LogTreeOptions {
        segment_bytes: 16 << 10,
        flush_interval: std::time::Duration::from_secs(3600),
        ..LogTreeOptions::default()
    };
    let last = TableId(u64::MAX - 1);
    let mut before = content();
    before.retain(|op| !matches!(op, Op::Create(TableId(u64::MAX))));
    before.push(Op::Create(last));
    let mut model = Model::new();
    assert!(model.apply_all(&before));
    let at_checkpoint = model.clone();
    let mut after = vec![
        Op::Delete(TABLE, vec![3, 3 ^ 0xa5]),
        Op::Range(TABLE, vec![10], Some(vec![20])),
        Op::Put(TABLE, b"later".to_vec(), vec![9; 300]),
        Op::Drop(last),
        Op::Create(TableId(0x20)),
        Op::Put(TableId(0x20), vec![1], vec![2; 70_000]),
        Op::Put(TableId(0x20), vec![2], vec![3]),
    ];
    after.extend_from_slice(changes);
    assert!(model.apply_all(&after));
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            let spare = name.to_str().unwrap().contains("spare");
            if !spare && name != "sheaf.lock" {
                std::fs::copy(from.join(&name), to.join(&name)).unwrap();
            }
        }
    };
    if std::env::var_os("SHEAF_BLESS").is_some() && !kept.exists() {
        let engine = LogTreeEngine::open(folder.path(), options()).unwrap();
        let batch = Model::new().batch(&before);
        engine.apply(batch, Durability::Synced).unwrap();
        engine.checkpoint().unwrap();
        let mut model = at_checkpoint;
        for op in &after {
            let batch = model.batch(std::slice::from_ref(op));
            model.apply(op);
            engine.apply(batch, Durability::Synced).unwrap();
        }
        let deltas = changes.iter().filter(|op| matches!(op, Op::Change(..)));
        assert_eq!(engine.detail().log_deltas, deltas.count() as u64);
        // The state after a crash: a close would empty the log.
        copy(folder.path(), &kept);
    }
    let folder = tempfile::tempdir().unwrap();
    copy(&kept, folder.path());
    let disk: std::sync::Arc<dyn folder::Folder> =
        std::sync::Arc::new(folder::DiskFolder::open(folder.path()).unwrap());
    assert_eq!(verify_files(&disk, &mut |_| {}), Ok(vec![]));
    let engine = LogTreeEngine::open(folder.path(), options()).unwrap();
    assert_eq!(engine.recovery().batches, after.len() as u64);
    let tables = engine.tables().unwrap();
    assert_eq!(tables, [TableId::CATALOG, TABLE, TableId(0x20)]);
    assert_eq!(dump(&*engine.snapshot().unwrap(), tables.clone()), model);
    engine.close().unwrap();
    let engine = LogTreeEngine::open(folder.path(), options()).unwrap();
    assert_eq!(engine.recovery().batches, 0);
    assert_eq!(dump(&*engine.snapshot().unwrap(), tables), model);
    assert_eq!(engine.verify(&mut |_| {}), Ok(vec![]));
}

#[test]
fn a_newer_version_is_refused_by_number() {
    let (_folder, path) = folder();
    RedbEngine::open(&path, RedbOptions::default())
        .unwrap()
        .close()
        .unwrap();
    {
        let db = redb::Database::open(&path).unwrap();
        let txn = db.begin_write().unwrap();
        let meta = redb::TableDefinition::<&str, &[u8]>::new("sheaf");
        let version = 2_u64.to_le_bytes();
        txn.open_table(meta)
            .unwrap()
            .insert("version", &version[..])
            .unwrap();
        txn.commit().unwrap();
    }
    let Err(error) = RedbEngine::open(&path, RedbOptions::default()) else {
        panic!("opened");
    };
    let expected = StorageError::NewerFormat {
        found: 2,
        supported: 1,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        "the data files have format version 2, newer than 1, the newest that this program reads; \
         start the program version that wrote them"
    );
}

#[test]
fn files_of_other_programs_are_refused() {
    let refused = |path: &PathBuf| match RedbEngine::open(path, RedbOptions::default()) {
        Err(StorageError::WrongFormat { detail }) => detail,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("opened"),
    };
    let (_folder, path) = folder();
    std::fs::write(&path, b"a text, and not a short one: ".repeat(1000)).unwrap();
    assert!(refused(&path).contains("data.redb"));
    let (_folder, path) = folder();
    {
        let db = redb::Database::create(&path).unwrap();
        let txn = db.begin_write().unwrap();
        let table = redb::TableDefinition::<&str, &[u8]>::new("somebody else's");
        txn.open_table(table).unwrap();
        txn.commit().unwrap();
    }
    assert!(refused(&path).contains("another program"));
}

#[test]
fn a_file_is_opened_exclusively() {
    let (_folder, path) = folder();
    let engine = RedbEngine::open(&path, RedbOptions::default()).unwrap();
    let again = RedbEngine::open(&path, RedbOptions::default());
    assert!(matches!(again, Err(StorageError::InUse { .. })));
    engine.close().unwrap();
    RedbEngine::open(&path, RedbOptions::default()).unwrap();
}
