//! Collections and databases: created, dropped, renamed.

use sheaf_bson::doc;
use sheaf_db::catalog::options::CollectionOptions;
use sheaf_db::ddl::coll_mod::CollMod;
use sheaf_db::{Namespace, StatementContext};

use crate::support::{TestDb, code, index_spec, ns, on_every_engine};

fn create(t: &TestDb, ns: &Namespace) -> sheaf_bson::Result<()> {
    let options = CollectionOptions::default();
    t.db.create_collection(&t.op, ns, options).map(|_| ())
}

fn idents(t: &TestDb, name: &str) -> Vec<String> {
    let collection = t.collection(name);
    let mut idents = vec![collection.ident().to_owned()];
    idents.extend(collection.index_list().iter().map(|i| i.ident().to_owned()));
    idents
}

#[test]
fn identifiers_stay_through_writes_renames_and_restarts() {
    on_every_engine(|mut t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let first = idents(&t, "c");
        let uuid = t.collection("c").uuid();
        assert!(first[0].starts_with("collection-") && first[1].starts_with("index-"));
        t.insert("c", doc! {"_id": 2}).unwrap();
        assert_eq!(idents(&t, "c"), first);
        t.db.rename_collection(&t.op, &ns("c"), &ns("d"), false)
            .unwrap();
        t.reopen();
        assert_eq!(idents(&t, "d"), first);
        assert_eq!(t.collection("d").uuid(), uuid);
        assert_eq!(t.documents("d").len(), 2);
        t.db.drop_collection(&t.op, &ns("d")).unwrap();
        t.insert("d", doc! {"_id": 1}).unwrap();
        assert_ne!(idents(&t, "d")[0], first[0]);
    });
}

#[test]
fn temporary_collections_end_with_the_server() {
    on_every_engine(|mut t| {
        let options = doc! {"temp": true};
        for name in ["gone", "renamed", "stays_temporary"] {
            let options = CollectionOptions::parse(options.as_raw()).unwrap();
            t.db.create_collection(&t.op, &ns(name), options).unwrap();
        }
        assert_eq!(t.collection("gone").options().to_doc(), options);
        t.db.rename_collection(&t.op, &ns("renamed"), &ns("kept"), false)
            .unwrap();
        let (from, to) = (ns("stays_temporary"), ns("gone_too"));
        t.db.rename_collection_as(&t.op, &from, &to, false, true)
            .unwrap();
        t.reopen();
        let catalog = t.db.catalog();
        let names: Vec<&str> = catalog.collections().map(|c| c.ns().collection()).collect();
        assert_eq!(names, ["kept"]);
    });
}

#[test]
fn created_twice() {
    on_every_engine(|t| {
        create(&t, &ns("c")).unwrap();
        let uuid = t.collection("c").uuid();
        create(&t, &ns("c")).unwrap();
        assert_eq!(t.collection("c").uuid(), uuid);
        let listed = t.collection("c").to_list_doc();
        let expected = doc! {
            "name": "c", "type": "collection", "options": {},
            "info": {"readOnly": false, "uuid": uuid.as_raw()},
            "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"},
        };
        assert_eq!(listed, expected);
    });
}

#[test]
fn databases_that_differ_in_case() {
    on_every_engine(|t| {
        create(&t, &Namespace::new("Shop", "a").unwrap()).unwrap();
        let other = Namespace::new("shop", "b").unwrap();
        assert_eq!(code(create(&t, &other)), 13297);
        let inserted = t.db.insert_one(&t.op, &other, doc! {}.as_raw());
        assert_eq!(code(inserted), 13297);
        assert!(t.db.drop_database(&t.op, "Shop").unwrap());
        create(&t, &other).unwrap();
        let names: Vec<String> =
            t.db.catalog()
                .databases()
                .map(|(n, _)| n.to_owned())
                .collect();
        assert_eq!(names, ["shop"]);
    });
}

#[test]
fn dropped() {
    on_every_engine(|mut t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.insert("d", doc! {"_id": 1}).unwrap();
        let view = t.db.read_view(&ns("c")).unwrap();
        let dropped = t.db.drop_collection(&t.op, &ns("c")).unwrap().unwrap();
        assert_eq!(dropped.indexes_was, Some(2));
        assert_eq!(t.db.drop_collection(&t.op, &ns("c")).unwrap(), None);
        // A reader that began before the drop continues.
        assert_eq!(view.record_count().unwrap(), 1);
        assert_eq!(t.db.record_count(&ns("c")).unwrap(), 0);
        drop(view);
        // Left are the tables of the catalog, of d and of its index.
        assert_eq!(t.engine().tables().unwrap().len(), 3);
        assert!(t.db.drop_database(&t.op, "test").unwrap());
        assert!(!t.db.drop_database(&t.op, "test").unwrap());
        t.reopen();
        assert_eq!(t.db.catalog().databases().count(), 0);
        assert_eq!(t.engine().tables().unwrap().len(), 1);
    });
}

#[test]
fn renamed() {
    on_every_engine(|mut t| {
        t.insert("a", doc! {"_id": 1}).unwrap();
        t.insert("b", doc! {"_id": 2}).unwrap();
        let rename = |t: &TestDb, from: &str, to: &Namespace, drop: bool| {
            t.db.rename_collection(&t.op, &ns(from), to, drop)
        };
        assert_eq!(code(rename(&t, "x", &ns("y"), false)), 26);
        assert_eq!(code(rename(&t, "a", &ns("b"), false)), 48);
        assert_eq!(code(rename(&t, "a", &ns("a"), true)), 20);
        assert_eq!(code(rename(&t, "a", &ns("system.x"), false)), 20);
        rename(&t, "a", &ns("b"), true).unwrap();
        assert_eq!(t.documents("b"), [doc! {"_id": 1}]);
        assert!(t.db.catalog().collection(&ns("a")).is_none());
        let elsewhere = Namespace::new("other", "b").unwrap();
        rename(&t, "b", &elsewhere, false).unwrap();
        t.reopen();
        assert_eq!(t.db.record_count(&elsewhere).unwrap(), 1);
        let names: Vec<String> =
            t.db.catalog()
                .databases()
                .map(|(n, _)| n.to_owned())
                .collect();
        assert_eq!(names, ["other"]);
        t.insert("b", doc! {"_id": 1}).unwrap();
    });
}

#[test]
fn indexes_hidden_and_shown_again() {
    on_every_engine(|mut t| {
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let coll_mod = |t: &TestDb, request: sheaf_bson::DocBuf| {
            let request = CollMod::parse(request.as_raw())?;
            t.db.coll_mod(&t.op, &ns("c"), &request)
        };
        let hide = doc! {"index": {"name": "a_1", "hidden": true}};
        let result = coll_mod(&t, hide.clone()).unwrap();
        assert_eq!(result.hidden, Some((false, true)));
        assert_eq!(coll_mod(&t, hide).unwrap().hidden, None);
        t.reopen();
        assert!(
            t.collection("c")
                .index_by_name("a_1")
                .unwrap()
                .entry()
                .hidden
        );
        let show = doc! {"index": {"keyPattern": {"a": 1.0}, "hidden": false}};
        assert_eq!(coll_mod(&t, show).unwrap().hidden, Some((true, false)));
        let expire = doc! {"index": {"name": "a_1", "expireAfterSeconds": 60}};
        let result = coll_mod(&t, expire).unwrap();
        assert_eq!(result.expire_after_seconds, Some((None, 60)));
        for (request, expected) in [
            (doc! {"index": {"name": "_id_", "hidden": true}}, 2),
            (doc! {"index": {"name": "x", "hidden": true}}, 27),
            (doc! {"index": {"keyPattern": {"x": 1}, "hidden": true}}, 27),
            (doc! {"index": {"name": "a_1"}}, 72),
            (doc! {"index": {"hidden": true}}, 72),
            (doc! {"index": {"name": "a_1", "hidden": "yes"}}, 14),
            (doc! {"viewOn": "x"}, 72),
            (doc! {"nonsense": 1}, 40415),
        ] {
            assert_eq!(code(coll_mod(&t, request.clone())), expected, "{request}");
        }
        let nothing = doc! {};
        let missing = CollMod::parse(nothing.as_raw()).unwrap();
        assert_eq!(code(t.db.coll_mod(&t.op, &ns("none"), &missing)), 26);
    });
}

#[test]
fn figures() {
    on_every_engine(|t| {
        t.insert_all("c", &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        let stats = t.db.collection_stats(&t.collection("c")).unwrap();
        let bytes = doc! {"_id": 1, "a": 1}.len_bytes() as u64;
        assert_eq!((stats.size.count, stats.size.data_bytes), (2, 2 * bytes));
        assert_eq!(stats.size.document_bytes_mean(), bytes);
        assert!(stats.size.storage_bytes > 0);
        let names: Vec<_> = stats.indexes.iter().map(|i| (&*i.name, i.keys)).collect();
        assert_eq!(names, [("_id_", 2), ("a_1", 2)]);
        assert!(stats.indexes.iter().all(|i| i.storage_bytes > 0));
        let all = t.db.database_stats("test").unwrap();
        assert_eq!((all.collections, all.indexes), (1, 2));
        assert_eq!(all.index_bytes, stats.total_index_bytes());
        assert_eq!(t.db.database_stats("none").unwrap().collections, 0);
    });
}

#[test]
fn names_that_cannot_be_created() {
    on_every_engine(|t| {
        assert_eq!(code(t.insert("system.indexes", doc! {})), 73);
        assert_eq!(code(create(&t, &ns("system.version"))), 73);
        let long = Namespace::new("d", &"x".repeat(254)).unwrap();
        assert_eq!(code(create(&t, &long)), 73);
        t.insert("system.profile", doc! {"_id": 1}).unwrap();
        t.db.drop_collection(&t.op, &ns("system.profile")).unwrap();
    });
}

#[test]
fn a_new_format_is_refused() {
    on_every_engine(|t| {
        let mut unit = t.db.storage().begin().unwrap();
        let row = doc! {"format": 2i64}.into_vec();
        unit.put(sheaf_storage::TableId::CATALOG, b"v", row);
        unit.commit(sheaf_storage::Durability::Synced).unwrap();
        let opened = sheaf_db::Db::open(t.engine().clone(), sheaf_db::DbOptions::default());
        assert_eq!(code(opened), 158);
    });
}

#[test]
fn a_missing_table_is_reported() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        let table = t.collection("c").table();
        let mut unit = t.db.storage().begin().unwrap();
        unit.drop_table(table);
        unit.commit(sheaf_storage::Durability::Synced).unwrap();
        let opened = sheaf_db::Db::open(t.engine().clone(), sheaf_db::DbOptions::default());
        assert_eq!(code(opened), 301);
    });
}

#[test]
fn ddl_waits_for_writers_no_longer_than_its_operation() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        let patience = sheaf_db::write::unit::Patience::Waits;
        let (unit, _) =
            t.db.begin_write(&t.op, &ns("c"), patience)
                .unwrap()
                .unwrap();
        let killed = StatementContext::new();
        killed.kill(sheaf_bson::ErrorCode::INTERRUPTED);
        assert_eq!(code(t.db.drop_collection(&killed, &ns("c"))), 11601);
        let spec = index_spec(doc! {"a": 1}, doc! {});
        assert_eq!(code(t.db.create_indexes(&killed, &ns("c"), &[spec])), 11601);
        drop(unit);
        assert!(t.db.drop_collection(&t.op, &ns("c")).unwrap().is_some());
    });
}

/// The rows as `docs/format/catalog.md` has them: a change here is a change of the format.
#[test]
fn rows_on_disk() {
    let engine = std::sync::Arc::new(sheaf_storage::MemoryEngine::new());
    let options = sheaf_db::DbOptions {
        random: |bytes| bytes.fill(0xab),
        clock: || 1_000,
        ..sheaf_db::DbOptions::default()
    };
    let db = sheaf_db::Db::open(engine, options).unwrap();
    let op = StatementContext::new();
    let specs = [index_spec(doc! {"a.b": -1, "c": 1}, doc! {"unique": true})];
    db.create_indexes(&op, &ns("c"), &specs).unwrap();
    let multikey = doc! {"_id": 1, "a": [{"b": [1]}]};
    db.insert_one(&op, &ns("c"), multikey.as_raw()).unwrap();
    let snapshot = db.storage().snapshot().unwrap();
    let mut cursor = snapshot.cursor(sheaf_storage::TableId::CATALOG).unwrap();
    let mut rows = String::new();
    let mut on = cursor.seek_first().unwrap();
    while on {
        let key = cursor.key().escape_ascii().to_string();
        let row = sheaf_bson::RawDoc::parse(cursor.value()).unwrap();
        rows += &format!(
            "{key}  {}\n",
            sheaf_bson::json::to_canonical(sheaf_bson::RawValue::Document(row))
        );
        on = cursor.next().unwrap();
    }
    expect_test::expect![[r#"
        c\xab\xab\xab\xab\xab\xabK\xab\xab\xab\xab\xab\xab\xab\xab\xab  {"ns":"test.c","ident":"collection-1-abababababababab","table":{"$numberLong":"1"},"options":{},"indexes":[{"spec":{"v":{"$numberInt":"2"},"key":{"_id":{"$numberInt":"1"}},"name":"_id_"},"ident":"index-2-abababababababab","table":{"$numberLong":"2"},"ready":true,"multikeyPaths":[[]]},{"spec":{"v":{"$numberInt":"2"},"key":{"a.b":{"$numberInt":"-1"},"c":{"$numberInt":"1"}},"name":"a.b_-1_c_1","unique":true},"ident":"index-3-abababababababab","table":{"$numberLong":"3"},"ready":true,"multikeyPaths":[[{"$numberInt":"0"},{"$numberInt":"1"}],[]]}],"buildTables":[]}
        n  {"next":{"$numberLong":"4"}}
        t  {"clock":{"$timestamp":{"t":1020,"i":0}}}
        v  {"format":{"$numberLong":"1"}}
    "#]].assert_eq(&rows);
}
