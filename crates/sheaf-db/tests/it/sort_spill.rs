//! A sort that exceeds its memory returns what a sort in memory returns.

use std::sync::Arc;

use sheaf_bson::{ErrorCode, RawValue, doc};
use sheaf_db::QueryOptions;
use sheaf_db::find::find;
use sheaf_db::{Events, ResultSource};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};

use crate::support::{EngineKind, TestDb, ns};

const DOCUMENTS: i32 = 3000;

fn filled() -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for id in 0..DOCUMENTS {
        // Three documents share each key, and must keep their order.
        let key = (id / 3).wrapping_mul(7919) % 1000;
        t.insert("c", doc! {"_id": id, "k": key, "pad": "x".repeat(200)})
            .unwrap();
    }
    t
}

fn sorted(
    t: &TestDb,
    limit: Option<u64>,
    options: &QueryOptions,
) -> Result<Vec<(i32, i32)>, sheaf_bson::Error> {
    let sort = doc! {"k": -1};
    let spec = FindSpec {
        sort: Some(sort.as_raw()),
        limit,
        ..FindSpec::default()
    };
    let query = Arc::new(CanonicalQuery::new(sheaf_bson::DateTime(0), spec)?);
    let view = t.db.read_view(&ns("c"))?;
    let mut source = find(&view, &t.op, query, options)?;
    let mut rows = Vec::new();
    while let Some(doc) = source.next(&t.op)? {
        let int = |name| match doc.as_raw().get(name) {
            Some(RawValue::Int32(n)) => n,
            other => panic!("{name}: {other:?}"),
        };
        rows.push((int("k"), int("_id")));
    }
    Ok(rows)
}

#[test]
fn spilling_does_not_change_the_order() {
    let t = filled();
    let folder = tempfile::tempdir().unwrap();
    let roomy = QueryOptions::default();
    let tight = QueryOptions {
        sort_memory_bytes_max: 50_000,
        temp_dir: Some(folder.path().into()),
        ..QueryOptions::default()
    };
    let mut model: Vec<(i32, i32)> = (0..DOCUMENTS)
        .map(|id| ((id / 3).wrapping_mul(7919) % 1000, id))
        .collect();
    model.sort_by_key(|(key, id)| (-key, *id));
    assert_eq!(sorted(&t, None, &roomy).unwrap(), model);
    assert_eq!(sorted(&t, None, &tight).unwrap(), model);
    for limit in [1, 7, 500, 2999] {
        let page = &model[..limit as usize];
        assert_eq!(sorted(&t, Some(limit), &roomy).unwrap(), page);
        assert_eq!(sorted(&t, Some(limit), &tight).unwrap(), page);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "temporary files remain: {left:?}");
}

#[test]
fn without_disk_use_the_limit_is_an_error() {
    let t = filled();
    let options = QueryOptions {
        sort_memory_bytes_max: 50_000,
        allow_disk_use: false,
        ..QueryOptions::default()
    };
    let error = sorted(&t, None, &options).unwrap_err();
    assert_eq!(
        error.code(),
        ErrorCode::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED
    );
    // A sort with a small limit needs little memory.
    assert_eq!(sorted(&t, Some(5), &options).unwrap().len(), 5);
}
