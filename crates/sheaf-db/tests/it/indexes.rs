//! Index specs against a collection, the keys of documents, multikey paths.

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_db::ddl::index_build::ALL_INDEXES_EXIST;
use sheaf_db::ddl::indexes::IndexSelector;

use crate::support::{TestDb, code, index_spec, ns, on_every_engine, with_field};

fn names(t: &TestDb, collection: &str) -> Vec<String> {
    let collection = t.collection(collection);
    let list = collection.index_list().iter();
    list.map(|index| index.name().to_owned()).collect()
}

#[test]
fn created_once() {
    on_every_engine(|mut t| {
        let specs = [
            index_spec(doc! {"a": 1}, doc! {}),
            index_spec(doc! {"b": -1, "c.d": 1}, doc! {"unique": true}),
        ];
        let result = t.db.create_indexes(&t.op, &ns("c"), &specs).unwrap();
        assert!(result.created_collection);
        assert_eq!((result.indexes_before, result.indexes_after), (1, 3));
        assert_eq!(result.note, None);
        let again = t.db.create_indexes(&t.op, &ns("c"), &specs).unwrap();
        assert!(!again.created_collection);
        assert_eq!((again.indexes_before, again.indexes_after), (3, 3));
        assert_eq!(again.note, Some(ALL_INDEXES_EXIST));
        assert_eq!(names(&t, "c"), ["_id_", "a_1", "b_-1_c.d_1"]);
        let before = t.collection("c");
        t.reopen();
        let after = t.collection("c");
        for (a, b) in before.index_list().iter().zip(after.index_list()) {
            assert_eq!(
                (a.spec(), a.ident(), a.table()),
                (b.spec(), b.ident(), b.table())
            );
        }
    });
}

fn with_name(options: DocBuf, name: &str) -> DocBuf {
    with_field(options.as_raw(), "name", name)
}

#[test]
fn conflicts() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let create = |key: DocBuf, options: DocBuf| t.create_index("c", key, options);
        assert_eq!(code(create(doc! {"a": 1}, doc! {"unique": true})), 86);
        assert_eq!(code(create(doc! {"a": 1}, doc! {"name": "x"})), 85);
        assert_eq!(code(create(doc! {"b": 1}, doc! {"name": "a_1"})), 86);
        let two = [
            index_spec(doc! {"x": 1}, doc! {"name": "n"}),
            index_spec(doc! {"y": 1}, doc! {"name": "n"}),
        ];
        assert_eq!(code(t.db.create_indexes(&t.op, &ns("c"), &two)), 86);
        create(doc! {"a": 1}, doc! {"unique": true, "name": "a_unique"}).unwrap();
        let partial = doc! {"partialFilterExpression": {"a": {"$ne": 1}}, "name": "p"};
        assert_eq!(code(create(doc! {"a": 1}, partial.clone())), 67);
        // An invalid spec is refused as invalid, whatever it conflicts with.
        assert_eq!(code(create(doc! {"a": 1}, with_name(partial, "a_1"))), 67);
        assert_eq!(names(&t, "c"), ["_id_", "a_1", "a_unique"]);
    });
}

#[test]
fn at_most_sixty_four_indexes() {
    on_every_engine(|t| {
        let specs: Vec<_> = (0..63)
            .map(|n| index_spec(doc! {format!("f{n}"): 1}, doc! {}))
            .collect();
        t.db.create_indexes(&t.op, &ns("c"), &specs).unwrap();
        assert_eq!(code(t.create_index("c", doc! {"g": 1}, doc! {})), 67);
        t.insert("c", doc! {"_id": 1, "f3": [1, 2]}).unwrap();
        t.assert_valid("c");
    });
}

#[test]
fn dropped() {
    on_every_engine(|t| {
        for (key, options) in [
            (doc! {"a": 1}, doc! {}),
            (doc! {"a": 1}, doc! {"sparse": true, "name": "s"}),
            (doc! {"b": 1}, doc! {}),
            (doc! {"c": 1}, doc! {}),
        ] {
            t.create_index("c", key, options).unwrap();
        }
        t.insert("c", doc! {"_id": 1, "a": 1, "b": 1}).unwrap();
        let dropped = |selector: IndexSelector<'_>| t.db.drop_indexes(&t.op, &ns("c"), &selector);
        let by_key = |key: &DocBuf| dropped(IndexSelector::KeyPattern(key.as_raw()));
        assert_eq!(code(by_key(&doc! {"a": 1})), 181);
        assert_eq!(code(by_key(&doc! {"x": 1})), 27);
        assert_eq!(code(by_key(&doc! {"_id": 1})), 72);
        assert_eq!(code(dropped(IndexSelector::Names(vec!["_id_"]))), 72);
        // All or none.
        assert_eq!(code(dropped(IndexSelector::Names(vec!["b_1", "no"]))), 27);
        assert_eq!(by_key(&doc! {"b": 1.0}).unwrap(), 5);
        assert_eq!(dropped(IndexSelector::Names(vec!["s"])).unwrap(), 4);
        assert_eq!(names(&t, "c"), ["_id_", "a_1", "c_1"]);
        assert_eq!(dropped(IndexSelector::All).unwrap(), 3);
        assert_eq!(dropped(IndexSelector::All).unwrap(), 1);
        assert_eq!(t.engine().tables().unwrap().len(), 3);
        let none = t.db.drop_indexes(&t.op, &ns("none"), &IndexSelector::All);
        assert_eq!(code(none), 26);
    });
}

#[test]
fn unique_sparse_and_partial() {
    on_every_engine(|t| {
        let unique = doc! {"unique": true};
        t.create_index("u", doc! {"a": 1}, unique).unwrap();
        t.insert("u", doc! {"_id": 1}).unwrap();
        // A missing field is indexed as null, and null is a key like any other.
        assert_eq!(code(t.insert("u", doc! {"_id": 2})), 11000);
        assert_eq!(code(t.insert("u", doc! {"_id": 2, "a": null})), 11000);
        // A document may have the same key twice.
        t.insert("u", doc! {"_id": 3, "a": [1, 1, 2]}).unwrap();
        assert_eq!(code(t.insert("u", doc! {"_id": 4, "a": [5, 2]})), 11000);
        t.assert_valid("u");

        let sparse = doc! {"unique": true, "sparse": true};
        t.create_index("s", doc! {"a": 1, "b": 1}, sparse).unwrap();
        t.insert_all("s", &[doc! {"_id": 1}, doc! {"_id": 2}]);
        t.insert("s", doc! {"_id": 3, "b": 1}).unwrap();
        assert_eq!(code(t.insert("s", doc! {"_id": 4, "b": 1})), 11000);
        assert_eq!(t.keys("s", "a_1_b_1"), ["{ a: null, b: 1 }"]);
        t.assert_valid("s");

        let partial = doc! {"unique": true, "partialFilterExpression": {"on": true}};
        t.create_index("p", doc! {"a": 1}, partial).unwrap();
        t.insert_all(
            "p",
            &[
                doc! {"_id": 1, "a": 1},
                doc! {"_id": 2, "a": 1},
                doc! {"_id": 3, "a": 1, "on": true},
            ],
        );
        assert_eq!(
            code(t.insert("p", doc! {"_id": 4, "a": 1, "on": true})),
            11000
        );
        // Only the filter's field changes: the document enters the index, where its key is taken.
        let switch_on = |doc: RawDoc<'_>| with_field(doc, "on", true);
        let first = |doc: RawDoc<'_>| doc.get("_id").unwrap().as_i64_exact() == Some(1);
        assert_eq!(code(t.update("p", first, switch_on, false).1), 11000);
        assert_eq!(t.keys("p", "a_1"), ["{ a: 1 }"]);
        t.assert_valid("p");
    });
}

#[test]
fn multikey_paths_are_recorded_and_kept() {
    on_every_engine(|mut t| {
        t.create_index("c", doc! {"a.b": 1, "c": 1}, doc! {})
            .unwrap();
        let paths = |t: &TestDb| {
            let collection = t.collection("c");
            let entry = collection.index_list()[1].entry().clone();
            assert!(std::sync::Arc::ptr_eq(&entry, &collection.indexes()[1]));
            (entry.multikey, entry.multikey_paths.clone())
        };
        t.insert("c", doc! {"_id": 1, "a": {"b": 1}, "c": 1})
            .unwrap();
        assert_eq!(paths(&t), (false, vec![vec![], vec![]]));
        let cache = t.collection("c").plan_cache().clone();
        t.insert("c", doc! {"_id": 2, "a": [{"b": 1}], "c": 1})
            .unwrap();
        assert_eq!(paths(&t), (true, vec![vec![0], vec![]]));
        // Cached plans for the previous definition of the index are discarded.
        assert!(!std::sync::Arc::ptr_eq(
            &cache,
            t.collection("c").plan_cache()
        ));
        t.insert("c", doc! {"_id": 3, "a": {"b": []}}).unwrap();
        assert_eq!(paths(&t), (true, vec![vec![0, 1], vec![]]));
        let with_array = |doc: RawDoc<'_>| {
            let list = sheaf_bson::ArrayBuf::from_values([1, 2]);
            with_field(doc, "c", sheaf_bson::RawValue::Array(list.as_raw()))
        };
        let first = |doc: RawDoc<'_>| doc.get("_id").unwrap().as_i64_exact() == Some(1);
        t.update("c", first, with_array, false).1.unwrap();
        assert_eq!(paths(&t), (true, vec![vec![0, 1], vec![0]]));
        assert_eq!(
            t.keys("c", "a.b_1_c_1"),
            [
                "{ a.b: undefined, c: null }",
                "{ a.b: 1, c: 1 }",
                "{ a.b: 1, c: 1 }",
                "{ a.b: 1, c: 2 }",
            ]
        );
        t.assert_valid("c");
        t.reopen();
        assert_eq!(paths(&t), (true, vec![vec![0, 1], vec![0]]));
        t.assert_valid("c");
    });
}

#[test]
fn parallel_arrays_are_refused_without_a_trace() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"x": 1}, doc! {}).unwrap();
        t.create_index("c", doc! {"a": 1, "b": 1}, doc! {}).unwrap();
        let refused = doc! {"_id": 1, "x": [1, 2], "a": [1], "b": [2]};
        let error = t.insert("c", refused).unwrap_err();
        assert_eq!(error.code().0, 171);
        assert_eq!(error.message(), "cannot index parallel arrays [b] [a]");
        // Neither documents nor keys nor a multikey path are stored.
        assert!(!t.collection("c").index_list()[1].entry().multikey);
        t.insert("c", doc! {"_id": 1, "a": [1, 2], "b": 2}).unwrap();
        assert_eq!(t.documents("c").len(), 1);
        t.assert_valid("c");
    });
}

#[test]
fn keys_beyond_the_memory_limit_are_refused() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"s": 1, "a": 1}, doc! {}).unwrap();
        let many: Vec<i32> = (0..1000).collect();
        let refused = doc! {"_id": 1, "s": "x".repeat(1 << 20), "a": many};
        assert_eq!(code(t.insert("c", refused)), 201);
        t.assert_valid("c");
    });
}

#[test]
fn a_damaged_index_is_found() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.insert_all("c", &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
        let collection = t.collection("c");
        let index = collection.index_by_name("a_1").unwrap();
        let entry = |n: i32, id: i64| {
            let mut entry = sheaf_db::index::key_set::EntryKey::default();
            let key = index.encoder().encode([sheaf_bson::RawValue::Int32(n)]);
            entry.of(&key, &sheaf_bson::RecordId::new(id)).to_vec()
        };
        let mut unit = t.db.storage().begin().unwrap();
        unit.delete(index.table(), &entry(1, 1));
        unit.put(index.table(), &entry(7, 2), Vec::new());
        unit.put(index.table(), &entry(8, 2), Vec::new());
        unit.commit(sheaf_storage::Durability::Buffered).unwrap();
        let report = t.validate("c");
        assert_eq!((report.missing_entries, report.extra_entries), (1, 2));
        assert!(!report.is_valid());
        let missing = doc! {"indexName": "a_1", "recordId": 1i64, "idKey": 1, "indexKey": {"a": 1}};
        assert_eq!(report.missing, [missing]);
        let extra = |n: i32| doc! {"indexName": "a_1", "recordId": 2i64, "indexKey": {"a": n}};
        assert_eq!(report.extra, [extra(7), extra(8)]);
        assert_eq!(report.keys_per_index["a_1"], 3);
        assert_eq!(report.records, 2);
    });
}
