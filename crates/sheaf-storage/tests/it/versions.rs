//! The memory engine keeps the versions that a snapshot can see, and removes the others soon.

use sheaf_storage::*;

const T: TableId = TableId(7);

fn put(engine: &MemoryEngine, key: u8, value: u32) {
    let mut batch = WriteBatch::new();
    batch.put(T, &[key], value.to_be_bytes().to_vec());
    engine.apply(batch, Durability::Buffered).unwrap();
}

fn engine() -> MemoryEngine {
    let engine = MemoryEngine::new();
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    engine.apply(batch, Durability::Buffered).unwrap();
    engine
}

#[test]
fn without_snapshots_there_is_one_version_of_each_key() {
    let engine = engine();
    for n in 0..1000 {
        put(&engine, (n % 10) as u8, n);
    }
    assert_eq!(engine.versions(), 10);
    let mut batch = WriteBatch::new();
    batch.delete(T, &[3]);
    batch.delete_range(T, &[5], None);
    engine.apply(batch, Durability::Buffered).unwrap();
    assert_eq!(engine.versions(), 4);
    let mut batch = WriteBatch::new();
    batch.drop_table(T);
    engine.apply(batch, Durability::Buffered).unwrap();
    assert_eq!(engine.versions(), 0);
}

#[test]
fn versions_are_removed_with_their_snapshot() {
    let engine = engine();
    for key in 0..10 {
        put(&engine, key, 0);
    }
    let old = engine.snapshot().unwrap();
    for n in 1..=50 {
        put(&engine, 1, n);
    }
    let young = engine.snapshot().unwrap();
    put(&engine, 1, 51);
    assert_eq!(old.get(T, &[1]).unwrap().unwrap(), 0_u32.to_be_bytes()[..]);
    assert_eq!(
        young.get(T, &[1]).unwrap().unwrap(),
        50_u32.to_be_bytes()[..]
    );
    assert_eq!(engine.versions(), 10 + 51);
    drop(old);
    put(&engine, 2, 1);
    // Two versions of each of the two keys: the one that the younger snapshot sees, and a newer
    // one.
    assert_eq!(engine.versions(), 10 + 2);
    drop(young);
    assert_eq!(engine.versions(), 10);
}
