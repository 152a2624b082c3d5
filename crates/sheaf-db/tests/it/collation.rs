//! Collations on disk: what the catalog stores, and what a restart reads.

use std::sync::Arc;

use sheaf_bson::{CollationChoice, DocBuf, doc};
use sheaf_db::QueryOptions;
use sheaf_db::find;
use sheaf_db::{CollectionOptions, Events, ResultSource};
use sheaf_query::canonical::FindSpec;

use crate::support::{EngineKind, TestDb, ns};

fn insensitive() -> DocBuf {
    doc! {"locale": "en", "strength": 2}
}

fn create(t: &TestDb, name: &str, collation: DocBuf) {
    let options = CollectionOptions::parse(doc! {"collation": collation}.as_raw()).unwrap();
    t.db.create_collection(&t.op, &ns(name), options).unwrap();
}

/// The matching documents, and how many keys and documents were examined.
fn found(t: &TestDb, name: &str, filter: DocBuf, collation: DocBuf) -> (Vec<DocBuf>, u64, u64) {
    let view = t.db.read_view(&ns(name)).unwrap();
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        collation: CollationChoice::parse(collation.as_raw()).unwrap(),
        ..FindSpec::default()
    };
    let query = Arc::new(find::canonicalize(&view, spec).unwrap());
    let mut source = find::find(&view, &t.op, query, &QueryOptions::default()).unwrap();
    let mut docs = Vec::new();
    while let Some(doc) = source.next(&t.op).unwrap() {
        docs.push(doc.as_raw().to_buf());
    }
    let counts = source.counts();
    (docs, counts.keys_examined, counts.docs_examined)
}

fn collations_of(t: &TestDb, name: &str) -> Vec<(String, bool)> {
    let catalog = t.db.catalog();
    let collection = catalog.collection(&ns(name)).unwrap();
    collection
        .index_list()
        .iter()
        .map(|index| (index.name().to_owned(), index.spec().collator().is_some()))
        .collect()
}

#[test]
fn collations_and_sort_keys_survive_a_restart() {
    let mut t = TestDb::new(EngineKind::Redb, Events::default());
    create(&t, "c", insensitive());
    t.create_index("c", doc! {"s": 1}, doc! {}).unwrap();
    t.create_index(
        "c",
        doc! {"n": 1},
        doc! {"collation": {"locale": "simple"}, "name": "plain"},
    )
    .unwrap();
    for (id, s) in ["x", "X", "y", "ẍ"].into_iter().enumerate() {
        t.insert("c", doc! {"_id": id as i32, "s": s, "n": s})
            .unwrap();
    }
    t.reopen();
    let named = |name: &str, collated| (name.to_owned(), collated);
    assert_eq!(
        collations_of(&t, "c"),
        [
            named("_id_", true),
            named("s_1", true),
            named("plain", false)
        ]
    );
    let (docs, keys, read) = found(&t, "c", doc! {"s": "X"}, doc! {});
    assert_eq!((docs.len(), keys, read), (2, 2, 2));
    let (docs, _, read) = found(&t, "c", doc! {"s": "X"}, doc! {"locale": "simple"});
    assert_eq!((docs.len(), read), (1, 4));
    let (docs, keys, _) = found(&t, "c", doc! {"n": "X"}, doc! {"locale": "simple"});
    assert_eq!((docs.len(), keys), (1, 1));
    let code = |result: sheaf_bson::Result<()>| result.unwrap_err().code().0;
    // The same index again, and one that conflicts.
    t.create_index("c", doc! {"s": 1}, doc! {"collation": insensitive()})
        .unwrap();
    let simple = doc! {"collation": {"locale": "simple"}};
    assert_eq!(code(t.create_index("c", doc! {"s": 1}, simple)), 86);
    t.assert_valid("c");
}

#[test]
fn builds_before_and_after_the_documents_make_the_same_keys() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let options = doc! {"collation": {"locale": "fr_CA", "alternate": "shifted"}, "unique": true};
    for name in ["first", "last"] {
        if name == "first" {
            t.create_index(name, doc! {"s": 1, "l.t": -1}, options.clone())
                .unwrap();
        }
        for (id, s) in ["côte", "coté", "a b", "cote"].into_iter().enumerate() {
            let doc = doc! {"_id": id as i32, "s": s, "l": [{"t": [s, 5]}, {"t": {"u": s}}]};
            t.insert(name, doc).unwrap();
        }
        if name == "last" {
            t.create_index(name, doc! {"s": 1, "l.t": -1}, options.clone())
                .unwrap();
        }
        t.assert_valid(name);
        let error = t
            .insert(name, doc! {"s": "ab", "l": [{"t": 5}]})
            .unwrap_err();
        assert_eq!(error.code().0, 11000, "{error}");
        assert!(
            error.to_string().contains("collation: { locale: \"fr_CA\""),
            "{error}"
        );
        let value = error
            .extra()
            .and_then(|extra| extra.get("keyValue"))
            .unwrap();
        let key = value.as_document().unwrap().get("s").unwrap();
        assert!(key.as_str().unwrap().starts_with("0x"), "{value}");
    }
}

#[test]
fn an_id_index_has_its_collections_collation() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    create(&t, "c", insensitive());
    let id = |collation: DocBuf| {
        t.create_index(
            "c",
            doc! {"_id": 1},
            doc! {"name": "_id_", "collation": collation},
        )
    };
    id(insensitive()).unwrap();
    assert_eq!(id(doc! {"locale": "fr"}).unwrap_err().code().0, 2);
    t.insert("c", doc! {"_id": "a"}).unwrap();
    assert_eq!(
        t.insert("c", doc! {"_id": "A"}).unwrap_err().code().0,
        11000
    );
    let (docs, keys, read) = found(&t, "c", doc! {"_id": "A"}, doc! {});
    assert_eq!((docs.len(), keys, read), (1, 1, 1));
}
