//! Single documents: inserts, updates and deletes, and their effect on the indexes.

use sheaf_bson::{RawDoc, RawValue, doc};
use sheaf_db::index::modified::Modified;
use sheaf_db::write::insert::InsertResult;
use sheaf_db::write::unit::Patience;

use crate::support::{TestDb, code, ns, on_every_engine, with_field};

fn id_is(id: i32) -> impl Fn(RawDoc<'_>) -> bool {
    move |doc: RawDoc<'_>| doc.get("_id") == Some(RawValue::Int32(id))
}

#[test]
fn inserted_and_read_back() {
    on_every_engine(|mut t| {
        assert_eq!(t.db.record_count(&ns("c")).unwrap(), 0);
        t.insert("c", doc! {"a": 1, "_id": 1}).unwrap();
        t.insert_all("c", &[doc! {"_id": 2, "a": "x"}, doc! {"b": [1, 2]}]);
        let documents = t.documents("c");
        assert_eq!(documents[0], doc! {"_id": 1, "a": 1});
        assert_eq!(documents[1], doc! {"_id": 2, "a": "x"});
        assert!(matches!(
            documents[2].get("_id"),
            Some(RawValue::ObjectId(_))
        ));
        assert_eq!(t.db.record_count(&ns("c")).unwrap(), 3);
        t.assert_valid("c");
        t.reopen();
        assert_eq!(t.documents("c"), documents);
        t.assert_valid("c");
    });
}

#[test]
fn a_second_document_with_the_same_id() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        let error = t.insert("c", doc! {"_id": 1.0, "x": 1}).unwrap_err();
        assert_eq!(error.code().0, 11000);
        assert_eq!(
            error.message(),
            "E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 1.0 }"
        );
        let extra = doc! {"keyPattern": {"_id": 1}, "keyValue": {"_id": 1.0}};
        assert_eq!(error.extra(), Some(&extra));
        assert_eq!(t.documents("c"), [doc! {"_id": 1}]);
        t.assert_valid("c");
    });
}

#[test]
fn ordered_stops_and_unordered_goes_on() {
    on_every_engine(|t| {
        let given = [
            doc! {"_id": 1},
            doc! {"_id": 1},
            doc! {"_id": [1]},
            doc! {"_id": 2},
        ];
        let docs: Vec<RawDoc<'_>> = given.iter().map(|doc| doc.as_raw()).collect();
        let outcome = |result: &InsertResult| {
            let errors = result.errors.iter();
            let errors: Vec<_> = errors.map(|e| (e.index, e.error.code().0)).collect();
            (result.inserted, errors)
        };
        let ordered = t.db.insert(&t.op, &ns("o"), &docs, true).unwrap();
        assert_eq!(outcome(&ordered), (1, vec![(1, 11000)]));
        let unordered = t.db.insert(&t.op, &ns("u"), &docs, false).unwrap();
        assert_eq!(outcome(&unordered), (2, vec![(1, 11000), (2, 53)]));
        assert_eq!(t.documents("u"), [doc! {"_id": 1}, doc! {"_id": 2}]);
        t.assert_valid("o");
        t.assert_valid("u");
    });
}

#[test]
fn more_documents_than_a_unit_takes() {
    on_every_engine(|t| {
        let docs: Vec<_> = (0..2500).map(|n| doc! {"_id": n, "a": n % 7}).collect();
        t.create_index("c", doc! {"a": 1}, doc! {}).unwrap();
        t.insert_all("c", &docs);
        assert_eq!(t.db.record_count(&ns("c")).unwrap(), 2500);
        assert_eq!(t.op.counters().counts().keys_inserted, 5000);
        t.assert_valid("c");
        let deleted = t.delete("c", |_| true, true);
        assert_eq!((deleted.deleted, deleted.stats.keys_deleted), (2500, 5000));
        t.assert_valid("c");
    });
}

/// The costs that scenario 19 publishes: only keys whose values changed are written.
#[test]
fn an_update_writes_only_the_keys_that_changed() {
    on_every_engine(|t| {
        let emails = vec!["a@x", "b@x", "c@x"];
        t.insert("c", doc! {"_id": 1, "name": "H", "n": 0, "email": emails})
            .unwrap();
        for key in [doc! {"name": 1}, doc! {"email": 1}, doc! {"n": 1}] {
            t.create_index("c", key, doc! {}).unwrap();
        }
        let cost = |value: RawValue<'_>, field: &str| {
            let (result, done) =
                t.update("c", id_is(1), |doc| with_field(doc, field, value), false);
            done.unwrap();
            let stats = result.stats;
            (
                result.matched,
                result.modified,
                stats.keys_inserted,
                stats.keys_deleted,
            )
        };
        let list = |emails: &[&str]| sheaf_bson::ArrayBuf::from_values(emails.iter().copied());
        assert_eq!(cost(RawValue::Int32(7), "other"), (1, 1, 0, 0));
        assert_eq!(cost(RawValue::Int32(7), "other"), (1, 0, 0, 0));
        assert_eq!(cost(RawValue::Int32(1), "n"), (1, 1, 1, 1));
        // The same key with another type: its entry is rewritten.
        assert_eq!(cost(RawValue::Double(1.0), "n"), (1, 1, 1, 1));
        let replaced = list(&["a@x", "h@x", "c@x"]);
        assert_eq!(
            cost(RawValue::Array(replaced.as_raw()), "email"),
            (1, 1, 1, 1)
        );
        let reordered = list(&["c@x", "a@x", "h@x"]);
        assert_eq!(
            cost(RawValue::Array(reordered.as_raw()), "email"),
            (1, 1, 0, 0)
        );
        let added = list(&["c@x", "a@x", "h@x", "x@x"]);
        assert_eq!(cost(RawValue::Array(added.as_raw()), "email"), (1, 1, 1, 0));
        let removed = list(&["c@x", "a@x", "h@x"]);
        assert_eq!(
            cost(RawValue::Array(removed.as_raw()), "email"),
            (1, 1, 0, 1)
        );
        assert_eq!(
            t.keys("c", "email_1"),
            [
                "{ email: \"a@x\" }",
                "{ email: \"c@x\" }",
                "{ email: \"h@x\" }"
            ]
        );
        assert_eq!(t.keys("c", "n_1"), ["{ n: 1.0 }"]);
        t.assert_valid("c");
    });
}

#[test]
fn an_update_that_changes_nothing_writes_nothing() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1, "a": 1}).unwrap();
        let before = t.engine().stats().bytes_logged;
        let (result, done) = t.update("c", |_| true, |doc| doc.to_buf(), true);
        done.unwrap();
        assert_eq!((result.matched, result.modified), (1, 0));
        assert_eq!(t.engine().stats().bytes_logged, before);
    });
}

#[test]
fn a_duplicate_in_an_update_keeps_earlier_writes() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"a": 1}, doc! {"unique": true})
            .unwrap();
        t.insert_all(
            "c",
            &[
                doc! {"_id": 1, "a": 1},
                doc! {"_id": 2, "a": 2},
                doc! {"_id": 3, "a": 12},
            ],
        );
        // 1 -> 11, 2 -> 12: 12 is taken.
        let (result, done) = t.update(
            "c",
            |_| true,
            |doc| {
                let a = doc.get("a").and_then(|v| v.as_i64_exact()).unwrap();
                with_field(doc, "a", RawValue::Int32(a as i32 + 10))
            },
            true,
        );
        assert_eq!(code(done), 11000);
        assert_eq!((result.matched, result.modified), (1, 1));
        assert_eq!(
            t.documents("c"),
            [
                doc! {"_id": 1, "a": 11},
                doc! {"_id": 2, "a": 2},
                doc! {"_id": 3, "a": 12}
            ]
        );
        t.assert_valid("c");
    });
}

#[test]
fn keys_swapped_and_freed_within_one_unit() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"a": 1}, doc! {"unique": true})
            .unwrap();
        t.insert_all("c", &[doc! {"_id": 1, "a": 1}, doc! {"_id": 2, "a": 2}]);
        // The first document releases key 1, which the second takes, in one unit.
        let (result, done) = t.update(
            "c",
            |_| true,
            |doc| match doc.get("_id") {
                Some(RawValue::Int32(1)) => with_field(doc, "a", RawValue::Int32(3)),
                _ => with_field(doc, "a", RawValue::Int32(1)),
            },
            true,
        );
        done.unwrap();
        assert_eq!(result.modified, 2);
        assert_eq!(t.keys("c", "a_1"), ["{ a: 1 }", "{ a: 3 }"]);
        assert_eq!(code(t.insert("c", doc! {"_id": 4, "a": 3})), 11000);
        t.insert("c", doc! {"_id": 4, "a": 2}).unwrap();
        t.assert_valid("c");
    });
}

#[test]
fn record_ids_are_never_reused() {
    on_every_engine(|mut t| {
        t.insert_all("c", &[doc! {"_id": 1}, doc! {"_id": 2}, doc! {"_id": 3}]);
        let ids: Vec<i64> = t
            .records("c")
            .iter()
            .map(|(id, _)| id.number().unwrap())
            .collect();
        assert_eq!(ids, [1, 2, 3]);
        t.reopen();
        // The first write after a restart deletes the last document.
        assert_eq!(t.delete("c", id_is(3), false).deleted, 1);
        t.insert("c", doc! {"_id": 4}).unwrap();
        let last = t.records("c").last().unwrap().0.clone();
        assert!(last.number() > Some(3), "{last}");
        let (_, done) = t.update(
            "c",
            id_is(4),
            |doc| with_field(doc, "pad", "x".repeat(50_000).as_str()),
            false,
        );
        done.unwrap();
        assert_eq!(t.records("c").last().unwrap().0, last);
    });
}

#[test]
fn growing_past_the_limit() {
    on_every_engine(|t| {
        t.insert("c", doc! {"_id": 1, "a": "x".repeat(9 << 20)})
            .unwrap();
        let grow = |doc: RawDoc<'_>| with_field(doc, "b", "y".repeat(9 << 20).as_str());
        let (result, done) = t.update("c", |_| true, grow, false);
        assert_eq!((code(done), result.modified), (10334, 0));
        t.assert_valid("c");
    });
}

#[test]
fn a_killed_operation_stops() {
    on_every_engine(|t: TestDb| {
        t.insert("c", doc! {"_id": 1}).unwrap();
        t.op.kill(sheaf_bson::ErrorCode::INTERRUPTED);
        assert_eq!(code(t.insert("c", doc! {"_id": 2})), 11601);
        assert_eq!(t.documents("c").len(), 1);
    });
}

/// A search may take long: while a plan searches, no record is locked and no unit holds a snapshot.
#[test]
fn no_lock_or_snapshot_is_held_while_a_plan_searches() {
    on_every_engine(|t| {
        t.insert_all("c", &[doc! {"_id": 1}, doc! {"_id": 2}, doc! {"_id": 3}]);
        let all = |_: RawDoc<'_>| true;
        let change = |doc: RawDoc<'_>| with_field(doc, "a", RawValue::Int32(1));
        let mut found = crate::support::source(&t.db, &ns("c"), &all);
        let mut searched = |op: &sheaf_db::OpContext| {
            assert_eq!(t.db.storage().lock_stats().open_units, 0);
            sheaf_db::write::RecordSource::next(&mut found, op)
        };
        let mut update = crate::support::Change {
            matches: &all,
            change: &change,
        };
        let mut result = sheaf_db::write::update::UpdateResult::default();
        let collection = t.collection("c");
        t.db.update_records(
            &t.op,
            &collection,
            &mut searched,
            &mut update,
            true,
            &mut result,
        )
        .unwrap();
        assert_eq!(result.modified, 3);
        assert_eq!(t.op.counters().counts().commits, 2);
    });
}

/// An error of the plan is reported after the documents found before it are written.
#[test]
fn a_plan_that_fails_half_way() {
    on_every_engine(|t| {
        t.insert_all("c", &[doc! {"_id": 1}, doc! {"_id": 2}]);
        let first = id_is(1);
        let mut found = crate::support::source(&t.db, &ns("c"), &first);
        let mut failing =
            |op: &sheaf_db::OpContext| match sheaf_db::write::RecordSource::next(&mut found, op)? {
                Some(record) => Ok(Some(record)),
                None => Err(sheaf_bson::Error::bad_value("half way")),
            };
        let mut delete = crate::support::Remove { matches: &first };
        let mut result = sheaf_db::write::delete::DeleteResult::default();
        let collection = t.collection("c");
        let done = t.db.delete_records(
            &t.op,
            &collection,
            &mut failing,
            &mut delete,
            true,
            &mut result,
        );
        assert_eq!(code(done), 2);
        assert_eq!(result.deleted, 1);
        assert_eq!(t.documents("c"), [doc! {"_id": 2}]);
    });
}

#[test]
fn a_unit_of_work_rolls_back_to_a_savepoint() {
    on_every_engine(|t| {
        t.create_index("c", doc! {"a": 1}, doc! {"unique": true})
            .unwrap();
        t.insert("c", doc! {"_id": 1, "a": 1}).unwrap();
        let (id, old) = t.records("c").remove(0);
        let hasty = Patience::FailsAtOnce;
        let (mut unit, slot) = t.db.begin_write(&t.op, &ns("c"), hasty).unwrap().unwrap();
        unit.insert(&t.op, slot, doc! {"_id": 2, "a": 2}.into_vec().into())
            .unwrap();
        let before = *unit.stats();
        let savepoint = unit.savepoint();
        unit.lock_record(&t.op, slot, &id).unwrap();
        let new = doc! {"_id": 1, "a": [5, 6]};
        unit.update(
            &t.op,
            slot,
            &id,
            old.as_raw(),
            None,
            &new.as_bytes().to_vec().into(),
            Modified::Everything,
        )
        .unwrap();
        // The unit sees its own writes, and that the index is multikey now; others see neither.
        let view = unit.read_view(slot);
        assert_eq!(view.record_count().unwrap(), 2);
        assert!(view.collection.unwrap().indexes()[1].multikey);
        assert_eq!(unit.document(slot, &id).unwrap().unwrap(), new.as_bytes());
        assert_eq!(t.documents("c"), [old.clone()]);
        let taken = unit.insert(&t.op, slot, doc! {"_id": 3, "a": 6}.into_vec().into());
        assert_eq!(code(taken), 11000);
        unit.rollback_to(savepoint);
        assert_eq!(*unit.stats(), before);
        unit.insert(&t.op, slot, doc! {"_id": 3, "a": 6}.into_vec().into())
            .unwrap();
        let stats = unit.commit(&t.op).unwrap();
        assert_eq!((stats.docs_inserted, stats.docs_modified), (2, 0));
        assert_eq!((stats.keys_inserted, stats.keys_deleted), (4, 0));
        assert_eq!(
            t.documents("c"),
            [old, doc! {"_id": 2, "a": 2}, doc! {"_id": 3, "a": 6}]
        );
        t.assert_valid("c");
    });
}

#[test]
fn a_unit_of_work_on_two_collections() {
    on_every_engine(|t| {
        t.insert("a", doc! {"_id": 1}).unwrap();
        t.insert("b", doc! {"_id": 1}).unwrap();
        let hasty = Patience::FailsAtOnce;
        let begin = || t.db.begin_write(&t.op, &ns("a"), hasty).unwrap().unwrap();
        let (mut unit, a) = begin();
        let b = unit.open(&t.op, &ns("b"), None).unwrap().unwrap();
        assert_eq!(unit.open(&t.op, &ns("a"), None).unwrap(), Some(a));
        assert_eq!(unit.open(&t.op, &ns("none"), None).unwrap(), None);
        unit.insert(&t.op, a, doc! {"_id": 2}.into_vec().into())
            .unwrap();
        unit.insert(&t.op, b, doc! {"_id": 2}.into_vec().into())
            .unwrap();
        assert_eq!(t.db.record_count(&ns("b")).unwrap(), 1);
        unit.commit(&t.op).unwrap();
        assert_eq!(t.db.record_count(&ns("a")).unwrap(), 2);
        assert_eq!(t.db.record_count(&ns("b")).unwrap(), 2);
        // A collection whose definition changed after the unit began does not fit the unit's
        // snapshot.
        let (mut unit, _) = begin();
        t.create_index("b", doc! {"x": 1}, doc! {}).unwrap();
        assert_eq!(code(unit.open(&t.op, &ns("b"), None)), 112);
        // A unit dropped without a commit leaves no trace.
        unit.insert(&t.op, a, doc! {"_id": 3}.into_vec().into())
            .unwrap();
        drop(unit);
        assert_eq!(t.db.record_count(&ns("a")).unwrap(), 2);
        t.assert_valid("a");
        t.assert_valid("b");
    });
}
