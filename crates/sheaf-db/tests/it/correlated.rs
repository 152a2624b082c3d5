//! `$lookup` pipelines that use variables of the outer document. A pipeline that uses them only in
//! its first filter is prepared once; it returns what it returns when it is parsed and planned for
//! each document.

use std::fmt::Write;

use sheaf_bson::json::{parse_doc, typed};
use sheaf_bson::{DocBuf, doc};
use sheaf_db::Events;
use sheaf_db::QueryOptions;

use crate::pipelines::{array, run_with};
use crate::support::{EngineKind, TestDb};

/// Values of all kinds that a variable may have; some are arrays.
const VALUES: [&str; 16] = [
    "1",
    "2",
    "NumberLong(3)",
    "2.0",
    "NaN",
    "null",
    "undefined",
    "'x'",
    "/x/",
    "[1, 2]",
    "[]",
    "{b: 1}",
    "MinKey",
    "true",
    "ISODate('2020-01-01T00:00:00Z')",
    "NumberDecimal('1')",
];

/// Each names `$$v`, `$$w` or both in its first filter.
const PIPELINES: [&str; 14] = [
    "[{$match: {$expr: {$eq: ['$a', '$$v']}}}]",
    "[{$match: {$expr: {$gte: ['$a', '$$v']}, b: {$gte: 1}}}, {$project: {a: 1}}]",
    "[{$match: {b: 1}}, {$match: {$expr: {$lt: ['$a', '$$v']}}}, {$sort: {a: -1, _id: 1}}, {$limit: 3}]",
    "[{$match: {$expr: {$and: [{$eq: ['$a', '$$v']}, {$gt: ['$b', '$$w']}]}}}, {$sort: {b: 1, _id: -1}}]",
    "[{$match: {$expr: {$in: ['$b', ['$$v', '$$w']]}}}, {$group: {_id: '$a', n: {$sum: 1}}}, {$sort: {_id: 1}}]",
    "[{$match: {$expr: {$eq: ['$b', '$$w']}}}, {$count: 'n'}]",
    "[{$match: {$expr: {$eq: ['$_id', '$$w']}}}]",
    "[{$match: {$or: [{$expr: {$eq: ['$a', '$$v']}}, {$expr: {$eq: ['$b', '$$w']}}]}}, {$unset: 'b'}]",
    "[{$match: {$expr: {$ne: ['$a', '$$v']}}}, {$group: {_id: '$b'}}, {$sort: {_id: 1}}]",
    "[{$match: {$expr: {$eq: [{$type: '$a'}, {$type: '$$v'}]}}}, {$skip: 1}]",
    "[{$match: {$expr: {$lte: ['$b', '$$w']}}}, {$project: {_id: 0, b: 1}}, {$match: {b: {$ne: 2}}}]",
    "[{$match: {$expr: {$eq: ['$a', '$$v']}}}, {$lookup: {from: 'inner', localField: 'b', foreignField: 'b', as: 'more'}}, {$set: {more: {$size: '$more'}}}]",
    "[{$match: {$expr: {$eq: ['$b', '$$w']}, $nor: [{a: 'y'}]}}, {$sort: {_id: 1}}, {$group: {_id: '$b', first: {$first: '$a'}}}]",
    "[{$match: {$expr: '$$v'}}, {$sort: {_id: -1}}, {$limit: 2}]",
];

fn filled() -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    for (at, value) in VALUES.iter().enumerate() {
        for turn in 0..3 {
            let id = 3 * at + turn;
            let text = format!("{{_id: {id}, a: {value}, b: {}}}", (at + turn) % 4);
            inner.push(parse_doc(&text).unwrap());
        }
        let text = format!(
            "{{_id: {at}, v: {value}, w: {}, l: [{}, 7]}}",
            at % 5,
            at % 3
        );
        outer.push(parse_doc(&text).unwrap());
    }
    inner.push(doc! {"_id": 100, "b": 1});
    outer.push(doc! {"_id": 100});
    t.insert_all("inner", &inner);
    t.insert_all("outer", &outer);
    t
}

fn results(t: &TestDb, on: &str, lookup: &str) -> Result<Vec<String>, String> {
    let stages = array(&format!("[{lookup}]"));
    let found = run_with(t, on, &stages, QueryOptions::default(), true);
    match found {
        Ok(docs) => Ok(docs
            .iter()
            .map(|doc: &DocBuf| typed(doc.as_raw()))
            .collect()),
        Err(e) => Err(format!("{} {}", e.code().0, e.message())),
    }
}

fn lookup(from: &str, equality: &str, pipeline: &str) -> String {
    format!(
        "{{$lookup: {{from: '{from}', {equality} let: {{v: '$v', w: '$w'}}, pipeline: {pipeline}, as: 'r'}}}}"
    )
}

#[test]
fn prepared_and_replanned_pipelines_agree() {
    let indexes: [&[DocBuf]; 5] = [
        &[],
        &[doc! {"a": 1}],
        &[doc! {"a": 1}, doc! {"b": 1}],
        &[doc! {"a": 1, "b": 1}, doc! {"b": -1, "a": 1}],
        &[doc! {"b": 1, "_id": 1}, doc! {"a": -1}],
    ];
    for keys in indexes {
        let t = filled();
        for key in keys {
            t.create_index("inner", key.clone(), doc! {}).unwrap();
        }
        for pipeline in PIPELINES {
            // A later stage uses a variable: nothing can be prepared.
            let unprepared = pipeline.trim_end_matches(']').to_owned()
                + ", {$addFields: {zz: '$$v'}}, {$unset: 'zz'}]";
            for equality in ["", "localField: 'l', foreignField: 'b',"] {
                let one = results(&t, "outer", &lookup("inner", equality, pipeline));
                let other = results(&t, "outer", &lookup("inner", equality, &unprepared));
                assert_eq!(one, other, "{keys:?} {equality} {pipeline}");
                assert_eq!(one.unwrap().len(), VALUES.len() + 1);
            }
        }
    }
}

#[test]
fn a_view_as_the_foreign_collection() {
    let t = filled();
    let stages = array("[{$match: {b: {$gt: 0}}}, {$set: {c: '$a'}}]");
    let collation = Default::default();
    let view = crate::support::ns("view");
    t.db.create_view(&t.op, &view, "inner", stages.as_raw(), &collation)
        .unwrap();
    for pipeline in PIPELINES {
        let unprepared = pipeline.trim_end_matches(']').to_owned()
            + ", {$addFields: {zz: '$$v'}}, {$unset: 'zz'}]";
        let one = results(&t, "outer", &lookup("view", "", pipeline));
        let other = results(&t, "outer", &lookup("view", "", &unprepared));
        assert_eq!(one, other, "{pipeline}");
    }
}

/// The plan that most values prove is expensive for the last one, which is replanned.
#[test]
fn a_plan_that_turns_out_badly_is_chosen_anew() {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    let inner: Vec<DocBuf> = (0..4000)
        .map(|i| match i {
            0..2000 => doc! {"_id": i, "a": i, "b": 0},
            _ => doc! {"_id": i, "a": -1, "b": i},
        })
        .collect();
    t.insert_all("inner", &inner);
    for key in ["a", "b"] {
        t.create_index("inner", doc! {key: 1}, doc! {}).unwrap();
    }
    let mut outer: Vec<DocBuf> = (0..20).map(|i| doc! {"_id": i, "v": i, "w": 0}).collect();
    outer.push(doc! {"_id": 99, "v": -1, "w": 3000});
    t.insert_all("outer", &outer);
    let pipeline = "[{$match: {$expr: {$and: [{$eq: ['$a', '$$v']}, {$eq: ['$b', '$$w']}]}}}]";
    let stages = array(&format!("[{}]", lookup("inner", "", pipeline)));
    let found = run_with(&t, "outer", &stages, QueryOptions::default(), true).unwrap();
    for doc in &found {
        let matched = typed(doc.as_raw());
        assert_eq!(matched.matches("_id: ").count(), 2, "{matched}");
    }
    let stats = crate::pipelines::stats(&t, "outer", &stages).unwrap();
    let mut shown = String::new();
    for line in &stats {
        writeln!(shown, "{line}").unwrap();
    }
    let after = shown.split("totalKeysExamined: ").nth(1).expect(&shown);
    let keys: u64 = after
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Without replanning the last document would scan the 2000 keys of -1.
    assert!(keys < 1000, "{shown}");
}
