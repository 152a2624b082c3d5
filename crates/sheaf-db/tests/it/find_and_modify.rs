//! What findAndModify returns, and that it reports no error after the write.

use sheaf_bson::{DocBuf, RawValue, doc};
use sheaf_db::Events;
use sheaf_db::QueryOptions;
use sheaf_db::modify::{
    DeleteReport, DeleteStatement, ReturnDocument, UpdateReport, UpdateStatement, delete, update,
};
use sheaf_query::canonical::FindSpec;

use crate::support::{EngineKind, TestDb, code, ns};

const BAD_VALUE: i32 = 2;
const DIVISION_BY_ZERO: i32 = 2;
const NO_MATCHING_ELEMENT: i32 = 51246;
const ELEMENT_MISMATCH: i32 = 51247;
const TOO_LARGE: i32 = 10334;

fn stored() -> DocBuf {
    doc! {
        "_id": 1,
        "a": [doc! {"k": 1, "v": 1}, doc! {"k": 2, "v": 2}, doc! {"k": 3, "v": 3}],
        "b": 7,
        "z": 0,
    }
}

fn collection() -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    t.insert("c", stored()).unwrap();
    t
}

/// The returned document, or the error's code.
fn find_and_update(
    t: &TestDb,
    filter: DocBuf,
    change: DocBuf,
    return_document: ReturnDocument,
    fields: DocBuf,
    upsert: bool,
) -> Result<Option<DocBuf>, i32> {
    let statement = UpdateStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        },
        update: RawValue::Document(change.as_raw()),
        constants: None,
        upsert_supplied: None,
        array_filters: None,
        upsert,
        multi: false,
        return_document,
        projection: Some(fields.as_raw()),
    };
    let mut report = UpdateReport::default();
    let options = QueryOptions::default();
    match update(&t.db, &t.op, &ns("c"), &statement, &options, &mut report) {
        Ok(()) => Ok(report.returned),
        Err(error) => Err(code(Err::<(), _>(error))),
    }
}

fn find_and_remove(t: &TestDb, filter: DocBuf, fields: DocBuf) -> Result<Option<DocBuf>, i32> {
    let statement = DeleteStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        },
        multi: false,
        return_document: ReturnDocument::Before,
        projection: Some(fields.as_raw()),
    };
    let mut report = DeleteReport::default();
    let options = QueryOptions::default();
    match delete(&t.db, &t.op, &ns("c"), &statement, &options, &mut report) {
        Ok(()) => Ok(report.returned),
        Err(error) => Err(code(Err::<(), _>(error))),
    }
}

#[test]
fn a_positional_projection_keeps_the_matched_element() {
    let element = |v: i32| doc! {"_id": 1, "a": [doc! {"k": 2, "v": v}]};
    let of_two = || doc! {"a.k": 2};
    let set = |v: i32| doc! {"$set": {"a.$.v": v}};
    let fields = || doc! {"a.$": 1};
    let t = collection();
    let change = |v, which| find_and_update(&t, of_two(), set(v), which, fields(), false);
    assert_eq!(change(8, ReturnDocument::Before), Ok(Some(element(2))));
    assert_eq!(change(9, ReturnDocument::After), Ok(Some(element(9))));
    // Nothing to change.
    assert_eq!(change(9, ReturnDocument::Before), Ok(Some(element(9))));
    assert_eq!(change(9, ReturnDocument::After), Ok(Some(element(9))));
    // The element of the new document at the matched position, although it no longer matches.
    let other = doc! {"$set": {"a.$.k": 5}};
    let changed = find_and_update(&t, of_two(), other, ReturnDocument::After, fields(), false);
    let expected = doc! {"_id": 1, "a": [doc! {"k": 5, "v": 9}]};
    assert_eq!(changed, Ok(Some(expected.clone())));
    assert_eq!(
        find_and_remove(&t, doc! {"a.k": 5}, fields()),
        Ok(Some(expected))
    );
    assert_eq!(t.documents("c"), []);
}

#[test]
fn nothing_is_written_if_the_result_cannot_be_returned() {
    let large = "x".repeat(9 << 20);
    for (filter, change, which, fields, expected) in [
        // No element matched.
        (
            doc! {"b": 7},
            doc! {"$set": {"b": 8}},
            ReturnDocument::Before,
            doc! {"a.$": 1},
            NO_MATCHING_ELEMENT,
        ),
        (
            doc! {"b": 7},
            doc! {"$set": {"b": 8}},
            ReturnDocument::After,
            doc! {"a.$": 1},
            NO_MATCHING_ELEMENT,
        ),
        // The same if nothing changes.
        (
            doc! {"b": 7},
            doc! {"$set": {"b": 7}},
            ReturnDocument::After,
            doc! {"a.$": 1},
            NO_MATCHING_ELEMENT,
        ),
        // The new array has no such element.
        (
            doc! {"a.k": 2},
            doc! {"$set": {"a": [1]}},
            ReturnDocument::After,
            doc! {"a.$": 1},
            ELEMENT_MISMATCH,
        ),
        // An expression fails on the document.
        (
            doc! {"b": 7},
            doc! {"$set": {"b": 8}},
            ReturnDocument::Before,
            doc! {"q": {"$divide": [1, "$z"]}},
            DIVISION_BY_ZERO,
        ),
        (
            doc! {"b": 7},
            doc! {"$set": {"z": 0, "b": 8}},
            ReturnDocument::After,
            doc! {"q": {"$divide": [1, "$z"]}},
            DIVISION_BY_ZERO,
        ),
        // The result is too large.
        (
            doc! {"b": 7},
            doc! {"$set": {"s": &large}},
            ReturnDocument::After,
            doc! {"p": "$s", "q": "$s"},
            TOO_LARGE,
        ),
        // The plan of a write has no sort key.
        (
            doc! {"b": 7},
            doc! {"$set": {"b": 8}},
            ReturnDocument::Before,
            doc! {"k": {"$meta": "sortKey"}},
            BAD_VALUE,
        ),
    ] {
        let t = collection();
        let found = find_and_update(
            &t,
            filter.clone(),
            change.clone(),
            which,
            fields.clone(),
            false,
        );
        assert_eq!(found, Err(expected), "{fields}");
        assert_eq!(t.documents("c"), [stored()], "{fields}");
    }
    for (filter, fields, expected) in [
        (doc! {"b": 7}, doc! {"a.$": 1}, NO_MATCHING_ELEMENT),
        (
            doc! {"b": 7},
            doc! {"q": {"$divide": [1, "$z"]}},
            DIVISION_BY_ZERO,
        ),
        (doc! {"b": 7}, doc! {"k": {"$meta": "sortKey"}}, BAD_VALUE),
    ] {
        let t = collection();
        assert_eq!(
            find_and_remove(&t, filter.clone(), fields.clone()),
            Err(expected),
            "{fields}"
        );
        assert_eq!(t.documents("c"), [stored()], "{fields}");
    }
    // An upsert inserts nothing.
    let t = collection();
    let upserted = find_and_update(
        &t,
        doc! {"_id": 2},
        doc! {"$set": {"a": [1]}},
        ReturnDocument::After,
        doc! {"a.$": 1},
        true,
    );
    assert_eq!(upserted, Err(NO_MATCHING_ELEMENT));
    assert_eq!(t.documents("c"), [stored()]);
}
