//! Pipelines that try to exhaust memory: each ends with MongoDB's error or with its result, and the
//! server uses at most a few times the limit of one stage.
//!
//! ```text
//!   big    120 documents of a megabyte          many   20,000 documents of 100 bytes
//! ```

use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value, doc};

use super::client::Client;
use super::server::Server;
use super::write_commands::command;

/// Maximum resident memory of the server: storage buffers, the binary, and the largest of the
/// pipelines below.
const RESIDENT_BYTES_MAX: u64 = 1600 << 20;

/// The server's peak resident memory so far.
fn resident_most(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.and_then(|n| n.parse::<u64>().ok()).unwrap() * 1024
}

fn fill(client: &mut Client) {
    let text = "x".repeat(1 << 20);
    for first in (0..120).step_by(12) {
        let mut insert = DocBuilder::new();
        insert.append("insert", "big").begin_array("documents");
        for id in first..first + 12 {
            insert.push_begin_document();
            insert
                .append("_id", id)
                .append("g", id % 4)
                .append("s", text.as_str());
            insert.end();
        }
        insert.end().append("$db", "test");
        client.ok(&insert.finish());
    }
    let mut insert = DocBuilder::new();
    insert.append("insert", "many").begin_array("documents");
    for id in 0..20_000 {
        insert.push_begin_document();
        insert
            .append("_id", id)
            .append("n", id % 100)
            .append("s", &text[..80]);
        insert.end();
    }
    insert.end().append("$db", "test");
    client.ok(&insert.finish());
    client.ok(&command("{insert: 'one', documents: [{_id: 0}]}"));
}

/// The expected outcome of a pipeline.
#[derive(Debug)]
enum Wanted {
    /// The error of this code.
    Code(i64),
    /// A first batch whose first document is this one, written in JSON.
    First(&'static str),
}

use Wanted::{Code, First};

fn run(client: &mut Client, from: &str, stages: &str) -> Result<DocBuf, i64> {
    let reply = client.run(&command(&format!(
        "{{aggregate: '{from}', pipeline: [{stages}], cursor: {{batchSize: 1}}, maxTimeMS: 600000}}"
    )));
    match reply.is_ok() {
        false => Err(reply.code()),
        true => {
            let cursor = reply
                .body
                .get("cursor")
                .and_then(|c| c.as_document())
                .unwrap();
            let id = cursor.get("id").and_then(|id| id.as_i64_exact()).unwrap();
            if id != 0 {
                let close = format!("{{killCursors: '{from}', cursors: [NumberLong('{id}')]}}");
                client.ok(&command(&close));
            }
            let first = cursor
                .get("firstBatch")
                .and_then(|b| b.as_array())
                .unwrap()
                .get(0);
            Ok(match first {
                Some(RawValue::Document(doc)) => doc.to_buf(),
                _ => DocBuf::new(),
            })
        }
    }
}

/// Runs all of them on a new server.
fn check(rows: &[(&str, String, Wanted)]) {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client);
    let mut before = resident_most(&server);
    for (from, stages, wanted) in rows {
        let found = run(&mut client, from, stages);
        let shown: String = stages.chars().take(200).collect();
        match (wanted, &found) {
            (Code(code), Err(found)) => assert_eq!(found, code, "{shown}"),
            (First(json), Ok(found)) => {
                let json = sheaf_bson::json::parse_doc(json).unwrap();
                assert_eq!(found, &json, "{shown}");
            }
            _ => panic!("{shown}: {wanted:?}, not {:.300}", format!("{found:?}")),
        }
        let now = resident_most(&server);
        assert!(
            now < RESIDENT_BYTES_MAX,
            "{now} bytes were resident, {before} before {shown}"
        );
        before = now;
    }
    client.ok(&command("{ping: 1}"));
}

fn row(from: &'static str, stages: &str, wanted: Wanted) -> (&'static str, String, Wanted) {
    (from, stages.to_owned(), wanted)
}

/// A document must not exceed 16 MB when it leaves a pipeline (10334); within one it may be larger.
/// A string may not (16493).
#[test]
fn results_past_sixteen_megabytes() {
    check(&[
        row("big", "{$group: {_id: null, all: {$push: '$s'}, n: {$sum: 1}}}", Code(146)),
        row("big", "{$match: {_id: {$lt: 60}}}, {$group: {_id: null, all: {$push: '$s'}}}", Code(10334)),
        row(
            "big",
            "{$match: {_id: {$lt: 60}}}, {$group: {_id: null, all: {$push: '$s'}}}, {$project: {n: {$size: '$all'}}}",
            First("{_id: null, n: 60}"),
        ),
        row(
            "big",
            "{$match: {_id: {$lt: 60}}}, {$group: {_id: null, all: {$push: '$s'}}}, {$unwind: '$all'}, {$count: 'n'}",
            First("{n: 60}"),
        ),
        // 20 MB, in one string or in an array.
        row("big", "{$limit: 1}, {$project: {t: {$concat: [SSSSS, SSSSS, SSSSS, SSSSS]}}}".replace("SSSSS", "'$s', '$s', '$s', '$s', '$s'").as_str(), Code(16493)),
        row("one", "{$project: {a: {$range: [0, 4000000]}}}", Code(10334)),
        row("one", "{$project: {n: {$size: {$range: [0, 4000000]}}}}", First("{_id: 0, n: 4000000}")),
        // Documents of 14 MB are sorted on disk and returned one by one.
        row(
            "big",
            "{$limit: 12}, {$set: {s: {$concat: [SSSSS, SSSSS, '$s', '$s', '$s', '$s']}}}, {$sort: {s: 1, _id: -1}}, {$project: {n: {$strLenBytes: '$s'}}}"
                .replace("SSSSS", "'$s', '$s', '$s', '$s', '$s'")
                .as_str(),
            First("{_id: 11, n: 14680064}"),
        ),
    ]);
}

/// The limit of one group does not depend on how its values are collected.
#[test]
fn accumulators_past_a_hundred_megabytes() {
    let twice = "{$set: {k: [1, 2, 3]}}, {$unwind: '$k'}, ";
    let text = "{$concat: ['$s', {$toString: '$k'}, {$toString: '$_id'}]}";
    let name = "{$concat: [{$toString: '$k'}, '/', {$toString: '$_id'}]}";
    let over = |accumulator: &str| {
        row(
            "big",
            &format!(
                "{twice}{{$group: {{_id: null, all: {accumulator}}}}}, {{$project: {{_id: 1}}}}"
            ),
            Code(146),
        )
    };
    let mut rows = vec![
        over("{$push: '$s'}"),
        over(&format!("{{$addToSet: {text}}}")),
        over(&format!("{{$concatArrays: {{$ifNull: [null, [{text}]]}}}}")),
        over(&format!("{{$setUnion: {{$ifNull: [null, [{text}]]}}}}")),
        over(&format!(
            "{{$mergeObjects: {{$arrayToObject: [[{{k: {name}, v: '$s'}}]]}}}}"
        )),
        over("{$firstN: {n: 1000, input: '$s'}}"),
        over("{$lastN: {n: 1000, input: '$s'}}"),
        over(&format!("{{$maxN: {{n: 1000, input: {text}}}}}")),
        over("{$topN: {n: 1000, sortBy: {k: 1}, output: '$s'}}"),
    ];
    // Many small accumulators have the same limit together.
    let many: Vec<String> = (0..50)
        .map(|n| format!("f{n}: {{$push: {{$substrBytes: ['$s', 0, 100000]}}}}"))
        .collect();
    let many = many.join(", ");
    rows.push(row(
        "big",
        &format!("{{$group: {{_id: null, {many}}}}}, {{$project: {{_id: 1}}}}"),
        Code(146),
    ));
    rows.push(row("big", &format!("{{$bucketAuto: {{groupBy: '$g', buckets: 1, output: {{{many}}}}}}}, {{$project: {{_id: 1}}}}"), Code(146)));
    rows.push(row("big", &format!("{twice}{{$bucketAuto: {{groupBy: '$g', buckets: 1, output: {{all: {{$push: '$s'}}}}}}}}"), Code(146)));
    // The same values in four groups of thirty megabytes each are spilled and returned.
    rows.push(row(
        "big",
        "{$group: {_id: '$g', all: {$push: '$s'}}}, {$project: {n: {$size: '$all'}}}, {$sort: {_id: 1}}",
        First("{_id: 0, n: 30}"),
    ));
    rows.push(row(
        "many",
        "{$bucketAuto: {groupBy: '$_id', buckets: 1000000}}, {$count: 'n'}",
        First("{n: 20000}"),
    ));
    // A window of the whole collection for each of its documents.
    let window = "{$setWindowFields: {sortBy: {_id: 1}, output: {all: {$push: '$s', window: {documents: ['unbounded', 'unbounded']}}}}}";
    rows.push(row("big", &format!("{twice}{window}"), Code(5643011)));
    rows.push(row(
        "many",
        &format!("{window}, {{$project: {{n: {{$size: '$all'}}}}}}, {{$limit: 2}}"),
        First("{_id: 0, n: 20000}"),
    ));
    check(&rows);
}

#[test]
fn joins_past_a_hundred_megabytes() {
    let all = "{$lookup: {from: 'big', pipeline: [], as: 'all'}}";
    let half = |name: &str| {
        format!(
            "{{$lookup: {{from: 'big', pipeline: [{{$match: {{_id: {{$lt: 60}}}}}}], as: '{name}'}}}}"
        )
    };
    let levels = |depth: usize| {
        (0..depth).fold("{$match: {}}".to_owned(), |inner, _| {
            format!("{{$lookup: {{from: 'one', pipeline: [{inner}], as: 'a'}}}}")
        })
    };
    let many_in_many = (0..4).fold("{$match: {}}".to_owned(), |inner, _| {
        format!("{{$lookup: {{from: 'many', pipeline: [{inner}], as: 'a'}}}}")
    });
    check(&[
        row("one", all, Code(4568)),
        row(
            "one",
            &format!("{all}, {{$unwind: '$all'}}, {{$count: 'n'}}"),
            First("{n: 120}"),
        ),
        row("one", &half("a"), Code(10334)),
        row(
            "one",
            &format!("{}, {{$project: {{n: {{$size: '$a'}}}}}}", half("a")),
            First("{_id: 0, n: 60}"),
        ),
        row(
            "one",
            &format!("{}, {{$unwind: '$a'}}, {{$count: 'n'}}", half("a")),
            First("{n: 60}"),
        ),
        // By fields, with and without an index on the foreign field.
        row(
            "one",
            "{$set: {ids: {$range: [0, 120]}}}, {$lookup: {from: 'big', localField: 'ids', foreignField: '_id', as: 'all'}}",
            Code(4568),
        ),
        row(
            "one",
            "{$set: {gs: [0, 1, 2, 3]}}, {$lookup: {from: 'big', localField: 'gs', foreignField: 'g', as: 'all'}}",
            Code(4568),
        ),
        // Several large arrays in one document.
        row(
            "one",
            &format!(
                "{}, {}, {}, {}, {{$project: {{_id: 1}}}}",
                half("a"),
                half("b"),
                half("c"),
                half("d")
            )
            .replace(
                "{$project: {_id: 1}}",
                "{$project: {n: {$size: {$concatArrays: ['$a', '$b', '$c', '$d']}}}}",
            ),
            Code(10334),
        ),
        row(
            "one",
            &format!("{}, {{$count: 'n'}}", levels(20)),
            First("{n: 1}"),
        ),
        row("one", &levels(21), Code(232)),
        row(
            "one",
            &format!("{many_in_many}, {{$project: {{n: {{$size: '$a'}}}}}}"),
            Code(4568),
        ),
        row(
            "one",
            "{$graphLookup: {from: 'big', startWith: {$range: [0, 120]}, connectFromField: 'none', connectToField: '_id', as: 'all'}}",
            Code(40099),
        ),
        row(
            "one",
            "{$graphLookup: {from: 'big', startWith: {$range: [0, 60]}, connectFromField: 'none', connectToField: '_id', as: 'all'}}, {$unwind: '$all'}, {$count: 'n'}",
            First("{n: 60}"),
        ),
    ]);
}

#[test]
fn facets_past_a_hundred_megabytes() {
    let facets = |count: usize, stages: &str| {
        let facets: Vec<String> = (0..count).map(|n| format!("f{n}: [{stages}]")).collect();
        format!("{{$facet: {{{}}}}}", facets.join(", "))
    };
    let push = "{$match: {_id: {$lt: 90}}}, {$group: {_id: null, all: {$push: '$s'}}}";
    let sort = "{$sort: {s: 1, _id: -1}}, {$group: {_id: null, first: {$first: '$_id'}}}";
    let spilling = facets(
        10,
        &format!("{push}, {{$project: {{n: {{$size: '$all'}}}}}}"),
    );
    check(&[
        row("big", &facets(1, ""), Code(4031700)),
        row("many", &facets(100, ""), Code(4031700)),
        row("big", &facets(2, push), Code(4031700)),
        // Ten facets share the memory of eight: each spills.
        row(
            "big",
            &format!("{spilling}, {{$project: {{f9: 1}}}}"),
            First("{f9: [{_id: null, n: 90}]}"),
        ),
        row(
            "big",
            &format!("{}, {{$project: {{f1: 1}}}}", facets(2, sort)),
            First("{f1: [{_id: null, first: 119}]}"),
        ),
        row("big", &facets(1, "{$limit: 30}"), Code(10334)),
        row(
            "big",
            &format!(
                "{}, {{$unwind: '$f0'}}, {{$count: 'n'}}",
                facets(1, "{$limit: 30}")
            ),
            First("{n: 30}"),
        ),
    ]);
}

#[test]
fn expressions_that_grow() {
    let project = |expression: &str| format!("{{$project: {{n: {expression}}}}}");
    let doubled = |initial: &str, twice: &str| {
        project(&format!(
            "{{$reduce: {{input: {{$range: [0, 60]}}, initialValue: {initial}, in: {twice}}}}}"
        ))
    };
    check(&[
        row(
            "one",
            &doubled("'xx'", "{$concat: ['$$value', '$$value']}"),
            Code(16493),
        ),
        row(
            "one",
            &doubled("[1]", "{$concatArrays: ['$$value', '$$value']}"),
            Code(146),
        ),
        row("one", &doubled("[1]", "['$$value', '$$value']"), Code(146)),
        row(
            "one",
            &doubled("{a: 1}", "{a: '$$value', b: '$$value'}"),
            Code(146),
        ),
        row("one", &project("{$range: [0, 2000000000]}"), Code(146)),
        row(
            "one",
            &project("{$map: {input: {$range: [0, 10000]}, in: {$range: [0, 10000]}}}"),
            Code(146),
        ),
        row(
            "one",
            &project(
                "{$zip: {inputs: [{$range: [0, 2000000]}, {$range: [0, 2000000]}, {$range: [0, 2000000]}]}}",
            ),
            Code(146),
        ),
    ]);
}

#[test]
fn pipelines_that_are_long() {
    let times = |count: usize, stage: &str| vec![stage; count].join(", ");
    let union = "{$unionWith: 'one'}";
    let unions = (0..21).fold("{$match: {}}".to_owned(), |inner, _| {
        format!("{{$unionWith: {{coll: 'one', pipeline: [{inner}]}}}}")
    });
    check(&[
        row(
            "one",
            &times(1000, "{$addFields: {a: 1}}"),
            First("{_id: 0, a: 1}"),
        ),
        row("one", &times(1001, "{$addFields: {a: 1}}"), Code(7749501)),
        row(
            "one",
            &format!("{}, {{$count: 'n'}}", times(500, union)),
            First("{n: 501}"),
        ),
        row("one", &unions, Code(232)),
        row(
            "one",
            "{$densify: {field: 'd', range: {step: 1, bounds: [0, 1000000000]}}}, {$count: 'n'}",
            Code(5897900),
        ),
        row(
            "many",
            "{$densify: {field: 'n', range: {step: 0.0001, bounds: 'full'}}}, {$count: 'n'}",
            Code(5897900),
        ),
    ]);
}

/// Nested expressions: a hundred levels are evaluated; a command beyond the nesting limit is
/// refused.
#[test]
fn expressions_that_are_deep() {
    let server = Server::start();
    let mut client = server.client();
    client.ok(&command("{insert: 'one', documents: [{_id: 0}]}"));
    let mut nested = |depth: usize, within: &str| {
        let mut expression = Value::from("$_id");
        for _ in 0..depth {
            expression = match within {
                "" => Value::from(vec![expression]),
                operator => Value::Document(doc! {operator: expression}),
            };
        }
        let stage = doc! {"$project": {"n": expression}};
        client.run(&doc! {"aggregate": "one", "pipeline": [stage], "cursor": {}, "$db": "test"})
    };
    for operator in ["$abs", "$not", ""] {
        assert!(nested(80, operator).is_ok(), "{operator}");
        for depth in [200, 250, 5_000] {
            let reply = nested(depth, operator);
            assert_eq!(
                reply.code(),
                15,
                "{operator} {depth}: {:.300}",
                format!("{:?}", reply.body)
            );
        }
    }
    client.ok(&command("{ping: 1}"));
}
