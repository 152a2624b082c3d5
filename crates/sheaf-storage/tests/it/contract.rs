//! What the trait promises, case by case, of every engine.

use sheaf_storage::*;

const T: TableId = TableId(7);

fn engines() -> Vec<Box<dyn StorageEngine>> {
    vec![Box::new(MemoryEngine::new())]
}

fn with_table(engine: &dyn StorageEngine, keys: &[&str]) {
    let mut batch = WriteBatch::new();
    batch.create_table(T);
    for key in keys {
        batch.put(T, key.as_bytes(), format!("value of {key}").into_bytes());
    }
    engine.apply(batch, Durability::Buffered).unwrap();
}

fn keys(snapshot: &dyn Snapshot) -> String {
    let mut cursor = snapshot.cursor(T).unwrap();
    let mut keys = Vec::new();
    let mut found = cursor.seek_first().unwrap();
    while found {
        keys.push(String::from_utf8_lossy(cursor.key()).into_owned());
        found = cursor.next().unwrap();
    }
    keys.join(" ")
}

#[test]
fn a_snapshot_does_not_see_later_batches() {
    for engine in engines() {
        with_table(&*engine, &["a", "c"]);
        let before = engine.snapshot().unwrap();
        let mut batch = WriteBatch::new();
        batch.put(T, b"b", "new");
        batch.delete(T, b"a");
        engine.apply(batch, Durability::Synced).unwrap();
        assert_eq!(keys(&*before), "a c");
        assert_eq!(before.len(T).unwrap(), 2);
        let after = engine.snapshot().unwrap();
        assert_eq!(keys(&*after), "b c");
        assert_eq!(after.get(T, b"b").unwrap().unwrap(), "new");
        assert_eq!(after.get(T, b"a").unwrap(), None);
    }
}
