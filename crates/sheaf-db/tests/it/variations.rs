//! Each extension of the planner with indexes of many kinds, sorts, pages and projections: where it
//! is used, where it is not, that the parameter disables it, and that a collection scan returns the
//! same.

use std::sync::Arc;

use sheaf_bson::json::{parse_doc, typed};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};
use sheaf_db::QueryOptions;
use sheaf_db::explain::Verbosity;
use sheaf_db::explain::query::{self, Explained};
use sheaf_db::find::{canonicalize, find};
use sheaf_db::{Events, IndexSelector, ResultSource};
use sheaf_query::canonical::{FindSpec, Hint};

use crate::pipelines::{array, run_with};
use crate::support::{EngineKind, TestDb, ns};

/// How explain shows the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    SkipScan,
    ExplodedPrefixes,
    AndSorted,
}

struct Case {
    /// A key and options each.
    indexes: &'static [(&'static str, &'static str)],
    filter: &'static str,
    sort: &'static str,
    /// skip and limit; a limit of 0 is none.
    page: (u64, u64),
    projection: &'static str,
    mark: Option<Mark>,
}

const N: i32 = 3_000;

fn documents() -> Vec<DocBuf> {
    let one = |i: i32| {
        let (k, n, at) = (i % 6, i / 6, i * 7919 % 3001);
        let (t, u) = (i % 3, i % 5);
        // Some documents lack the first field, and in some it is null.
        let w = match i % 40 {
            0 => String::new(),
            1 => "w: null,".to_owned(),
            _ => format!("w: {k},"),
        };
        let a = i % 60;
        let b = i / 60;
        parse_doc(&format!(
            "{{_id: {i}, k: {k}, n: {n}, at: {at}, {w} z: {}, d: {{k: {k}, n: {n}}}, s: 's{k}', \
             tags: [{t}, {u}], many: {i}, a: {a}, b: {b}, as: [{a}, {}]}}",
            i % 2,
            a + 100
        ))
        .unwrap()
    };
    (0..N).map(one).collect()
}

fn filled() -> TestDb {
    let t = TestDb::new(EngineKind::Memory, Events::default());
    for part in documents().chunks(1000) {
        t.insert_all("c", part);
    }
    t
}

/// Replaces all indexes by these.
fn with_indexes<'t>(t: &'t TestDb, indexes: &[(&str, &str)]) -> &'t TestDb {
    t.db.drop_indexes(&t.op, &ns("c"), &IndexSelector::All)
        .unwrap();
    for (key, options) in indexes {
        let (key, options) = (parse_doc(key).unwrap(), parse_doc(options).unwrap());
        t.create_index("c", key, options).unwrap();
    }
    t
}

fn has_mark(doc: RawDoc<'_>, mark: Mark) -> bool {
    let this = match mark {
        Mark::SkipScan => doc.get("skipScan").is_some(),
        Mark::ExplodedPrefixes => doc.get("explodedPrefixes").is_some(),
        Mark::AndSorted => doc.get("stage").and_then(|s| s.as_str()) == Some("AND_SORTED"),
    };
    this || doc.iter().any(|element| match element.value() {
        RawValue::Document(below) => has_mark(below, mark),
        RawValue::Array(list) => list.iter().any(|below| {
            below
                .as_document()
                .is_some_and(|below| has_mark(below, mark))
        }),
        _ => false,
    })
}

/// The results, in order if a sort was given, and the extensions that the plan uses.
fn run(
    t: &TestDb,
    case: &Case,
    options: &QueryOptions,
    hint: Option<Hint>,
) -> (Vec<String>, Vec<Mark>) {
    let [filter, sort, projection] =
        [case.filter, case.sort, case.projection].map(|text| parse_doc(text).unwrap());
    let spec = FindSpec {
        filter: Some(filter.as_raw()),
        sort: Some(sort.as_raw()),
        projection: Some(projection.as_raw()),
        skip: case.page.0,
        limit: (case.page.1 > 0).then_some(case.page.1),
        hint,
        ..FindSpec::default()
    };
    let view = t.db.read_view(&ns("c")).unwrap();
    let query = Arc::new(canonicalize(&view, spec).unwrap());
    let mut out = DocBuilder::new();
    let explained = Explained {
        view: &view,
        op: &t.op,
        query: &query,
        options,
        namespace: "test.c",
        verbosity: Verbosity::QueryPlanner,
        is_pipeline: false,
    };
    query::find(&explained, &mut out).unwrap();
    let explain = out.finish();
    let planner = explain.get("queryPlanner").unwrap().as_document().unwrap();
    let plan = planner.get("winningPlan").unwrap().as_document().unwrap();
    let marks = [Mark::SkipScan, Mark::ExplodedPrefixes, Mark::AndSorted];
    let marks = marks
        .into_iter()
        .filter(|mark| has_mark(plan, *mark))
        .collect();
    let mut found = Vec::new();
    // The third time the plan may come from the cache.
    for _ in 0..3 {
        found.clear();
        let mut source = find(&view, &t.op, query.clone(), options).unwrap();
        while let Some(doc) = source.next(&t.op).unwrap() {
            found.push(typed(doc.as_raw()));
        }
    }
    if case.sort == "{}" {
        found.sort();
    }
    (found, marks)
}

fn check(t: &TestDb, case: &Case) {
    let t = with_indexes(t, case.indexes);
    let context = format!("{:?} {} {}", case.indexes, case.filter, case.sort);
    let published = QueryOptions {
        planner_extensions: false,
        ..QueryOptions::default()
    };
    let (with, marks) = run(t, case, &QueryOptions::default(), None);
    let (without, no_marks) = run(t, case, &published, None);
    let (scanned, _) = run(t, case, &published, Some(Hint::Natural(1)));
    assert_eq!(marks, Vec::from_iter(case.mark), "{context}");
    assert_eq!(no_marks, [], "{context}");
    assert!(!scanned.is_empty(), "{context}");
    assert_eq!(with, scanned, "{context}");
    assert_eq!(without, scanned, "{context}");
}

const FEW: &str = "{n: {$gte: 100, $lt: 103}}";

fn skip_scan(
    indexes: &'static [(&'static str, &'static str)],
    filter: &'static str,
    is_used: bool,
) -> Case {
    Case {
        indexes,
        filter,
        sort: "{}",
        page: (0, 0),
        projection: "{}",
        mark: is_used.then_some(Mark::SkipScan),
    }
}

#[test]
fn skip_scans() {
    let t = filled();
    for case in [
        skip_scan(&[("{k: 1, n: 1}", "{}")], FEW, true),
        skip_scan(&[("{k: -1, n: -1}", "{}")], FEW, true),
        skip_scan(
            &[("{k: 1, n: -1, z: 1}", "{}")],
            "{n: {$in: [5, 490]}, z: 1}",
            true,
        ),
        skip_scan(&[("{k: 1, z: 1, n: 1}", "{}")], FEW, true),
        skip_scan(&[("{'d.k': 1, 'd.n': 1}", "{}")], "{'d.n': 7}", true),
        skip_scan(&[("{w: 1, n: 1}", "{}")], FEW, true),
        // A document with an array is returned once.
        skip_scan(&[("{tags: 1, n: 1}", "{}")], FEW, true),
        // A sparse or partial index can be used only if the query excludes the documents it omits.
        skip_scan(&[("{k: 1, n: 1}", "{sparse: true}")], FEW, true),
        skip_scan(
            &[("{w: 1, x: 1}", "{sparse: true}")],
            "{x: null, n: 3}",
            false,
        ),
        skip_scan(
            &[("{k: 1, n: 1}", "{partialFilterExpression: {n: {$gte: 50}}}")],
            FEW,
            true,
        ),
        skip_scan(
            &[(
                "{k: 1, n: 1}",
                "{partialFilterExpression: {n: {$gte: 101}}}",
            )],
            FEW,
            false,
        ),
        // Text compared by bytes cannot be found by sort keys; numbers can.
        skip_scan(
            &[("{k: 1, s: 1}", "{collation: {locale: 'en'}}")],
            "{s: 's1'}",
            false,
        ),
        // Too many values of the first field.
        skip_scan(&[("{many: 1, n: 1}", "{}")], FEW, false),
        skip_scan(&[("{k: 1, n: 1}", "{hidden: true}")], FEW, false),
    ] {
        check(&t, &case);
    }
    // With a sort, a page and a covered projection.
    check(
        &t,
        &Case {
            sort: "{at: 1}",
            page: (2, 5),
            ..skip_scan(&[("{k: 1, n: 1}", "{}")], FEW, true)
        },
    );
    check(
        &t,
        &Case {
            projection: "{n: 1, k: 1, _id: 0}",
            ..skip_scan(&[("{k: 1, n: 1}", "{}")], FEW, true)
        },
    );
}

fn explosion(
    indexes: &'static [(&'static str, &'static str)],
    filter: &'static str,
    sort: &'static str,
    is_used: bool,
) -> Case {
    Case {
        indexes,
        filter,
        sort,
        page: (0, 10),
        projection: "{}",
        mark: is_used.then_some(Mark::ExplodedPrefixes),
    }
}

#[test]
fn exploded_prefixes() {
    let t = filled();
    for case in [
        explosion(&[("{k: 1, at: -1}", "{}")], "{}", "{at: -1}", true),
        explosion(&[("{k: 1, at: -1}", "{}")], "{}", "{at: 1}", true),
        explosion(
            &[("{k: -1, at: 1}", "{}")],
            "{k: {$gt: 2}}",
            "{at: -1}",
            true,
        ),
        explosion(&[("{w: 1, at: 1}", "{}")], "{}", "{at: 1}", true),
        explosion(
            &[("{w: 1, at: 1}", "{}")],
            "{w: {$lte: 3}}",
            "{at: 1}",
            true,
        ),
        explosion(&[("{k: 1, z: 1, at: 1}", "{}")], "{z: 1}", "{at: 1}", true),
        explosion(&[("{'d.k': 1, at: 1}", "{}")], "{}", "{at: 1}", true),
        explosion(&[("{tags: 1, at: 1}", "{}")], "{}", "{at: -1}", true),
        // Equal sort values may be ordered by the following key fields.
        explosion(
            &[("{k: 1, n: 1, _id: 1}", "{}")],
            "{}",
            "{n: -1, _id: -1}",
            true,
        ),
        explosion(&[("{many: 1, at: 1}", "{}")], "{}", "{at: 1}", false),
        explosion(
            &[("{w: 1, x: 1, at: 1}", "{sparse: true}")],
            "{}",
            "{at: 1}",
            false,
        ),
        explosion(
            &[("{k: 1, at: 1}", "{partialFilterExpression: {k: {$gt: 2}}}")],
            "{}",
            "{at: 1}",
            false,
        ),
        explosion(
            &[("{k: 1, at: 1}", "{partialFilterExpression: {k: {$gt: 2}}}")],
            "{k: {$gt: 3}}",
            "{at: 1}",
            true,
        ),
        explosion(
            &[("{s: 1, at: 1}", "{collation: {locale: 'en'}}")],
            "{}",
            "{at: 1}",
            false,
        ),
    ] {
        check(&t, &case);
    }
    check(
        &t,
        &Case {
            page: (7, 5),
            projection: "{k: 1, at: 1, _id: 0}",
            ..explosion(&[("{k: 1, at: -1}", "{}")], "{}", "{at: -1}", true)
        },
    );
    // Without a limit everything must be sorted.
    check(
        &t,
        &Case {
            page: (0, 0),
            ..explosion(&[("{k: 1, at: -1}", "{}")], "{}", "{at: -1}", false)
        },
    );
}

#[test]
fn intersections() {
    let t = filled();
    let case = |indexes, filter, is_used: bool| Case {
        indexes,
        filter,
        sort: "{}",
        page: (0, 0),
        projection: "{}",
        mark: is_used.then_some(Mark::AndSorted),
    };
    const BOTH: &str = "{a: 5, b: 6}";
    for case in [
        case(&[("{a: 1}", "{}"), ("{b: 1}", "{}")], BOTH, true),
        case(&[("{a: -1}", "{}"), ("{b: -1}", "{}")], BOTH, true),
        case(
            &[("{a: 1}", "{sparse: true}"), ("{b: 1}", "{}")],
            BOTH,
            true,
        ),
        case(
            &[("{as: 1}", "{}"), ("{b: 1}", "{}")],
            "{as: 105, b: 6}",
            true,
        ),
        case(
            &[
                ("{a: 1}", "{partialFilterExpression: {b: {$lt: 30}}}"),
                ("{b: 1}", "{}"),
            ],
            BOTH,
            true,
        ),
        // No intersection: a range is not in record order, a compound index is better.
        case(
            &[("{a: 1}", "{}"), ("{b: 1}", "{}")],
            "{a: {$lt: 5}, b: 6}",
            false,
        ),
        case(
            &[("{a: 1}", "{}"), ("{b: 1}", "{}"), ("{a: 1, b: 1}", "{}")],
            BOTH,
            false,
        ),
    ] {
        check(&t, &case);
    }
    check(
        &t,
        &Case {
            sort: "{at: -1}",
            page: (0, 3),
            projection: "{_id: 1}",
            ..case(
                &[("{a: 1}", "{}"), ("{b: 1}", "{}")],
                "{a: 5, b: {$in: [6]}}",
                true,
            )
        },
    );
}

/// Indexes with other kinds of keys: whatever the plan, the same results.
#[test]
fn other_kinds_of_indexes() {
    let all = filled();
    let indexes: [&'static [(&str, &str)]; 6] = [
        &[("{k: 'hashed', n: 1}", "{}")],
        &[("{k: 1, n: 'hashed'}", "{}")],
        &[("{k: 1, '$**': 1}", "{wildcardProjection: {k: 0}}")],
        &[("{'d.$**': 1}", "{}"), ("{k: 1, at: 1}", "{}")],
        &[("{s: 1, n: 1}", "{collation: {locale: 'en', strength: 1}}")],
        &[("{tags: 1, 'd.n': 1, at: -1}", "{}")],
    ];
    let published = QueryOptions {
        planner_extensions: false,
        ..QueryOptions::default()
    };
    for indexes in indexes {
        let t = with_indexes(&all, indexes);
        for (filter, sort, page) in [
            ("{n: 7}", "{}", (0, 0)),
            ("{n: {$gte: 3, $lt: 9}}", "{at: -1}", (1, 7)),
            ("{'d.n': {$in: [4, 400]}}", "{at: 1}", (0, 3)),
            ("{}", "{at: -1}", (2, 5)),
            ("{k: {$gt: 1}}", "{at: 1}", (0, 10)),
            ("{tags: {$elemMatch: {$gt: 1}}, 'd.n': 5}", "{}", (0, 0)),
        ] {
            let case = Case {
                indexes,
                filter,
                sort,
                page,
                projection: "{}",
                mark: None,
            };
            let context = format!("{indexes:?} {filter} {sort}");
            let (with, _) = run(t, &case, &QueryOptions::default(), None);
            let (without, no_marks) = run(t, &case, &published, None);
            let (scanned, _) = run(t, &case, &published, Some(Hint::Natural(1)));
            assert_eq!(no_marks, [], "{context}");
            assert_eq!(with, scanned, "{context}");
            assert_eq!(without, scanned, "{context}");
        }
    }
}

#[test]
fn in_pipelines() {
    let t = filled();
    with_indexes(
        &t,
        &[
            ("{k: 1, n: 1}", "{}"),
            ("{k: 1, at: -1}", "{}"),
            ("{a: 1}", "{}"),
            ("{b: 1}", "{}"),
        ],
    );
    t.insert_all(
        "outer",
        &(0..6)
            .map(|i| parse_doc(&format!("{{_id: {i}, n: {}, a: {i}}}", 80 * i)).unwrap())
            .collect::<Vec<_>>(),
    );
    for (on, stages) in [
        (
            "c",
            "[{$match: {n: {$gte: 100, $lt: 103}}}, {$group: {_id: '$k', n: {$sum: '$at'}}}, {$sort: {_id: 1}}]",
        ),
        ("c", "[{$match: {n: 9}}, {$count: 'n'}]"),
        (
            "c",
            "[{$sort: {at: -1}}, {$limit: 20}, {$group: {_id: '$k', n: {$max: '$at'}}}, {$sort: {_id: 1}}]",
        ),
        (
            "c",
            "[{$match: {a: 5, b: 6}}, {$group: {_id: null, ids: {$push: '$n'}}}, {$unwind: '$ids'}, {$sort: {ids: 1}}]",
        ),
        (
            "outer",
            "[{$lookup: {from: 'c', localField: 'n', foreignField: 'n', pipeline: [{$sort: {_id: 1}}], as: 'r'}}]",
        ),
        (
            "outer",
            "[{$lookup: {from: 'c', let: {n: '$n'}, pipeline: [{$match: {$expr: {$eq: ['$n', '$$n']}}}, {$sort: {at: 1}}], as: 'r'}}]",
        ),
        (
            "outer",
            "[{$lookup: {from: 'c', let: {n: '$n'}, pipeline: [{$match: {$expr: {$gt: ['$at', '$$n']}}}, {$sort: {at: -1}}, {$limit: 3}], as: 'r'}}]",
        ),
        (
            "outer",
            "[{$lookup: {from: 'c', let: {a: '$a'}, pipeline: [{$match: {b: 6, $expr: {$eq: ['$a', '$$a']}}}, {$sort: {_id: 1}}], as: 'r'}}]",
        ),
    ] {
        let results = |planner_extensions| {
            let options = QueryOptions {
                planner_extensions,
                ..QueryOptions::default()
            };
            let found = run_with(&t, on, &array(stages), options, true).unwrap();
            found
                .iter()
                .map(|doc| typed(doc.as_raw()))
                .collect::<Vec<_>>()
        };
        let with = results(true);
        assert!(!with.is_empty(), "{stages}");
        assert_eq!(with, results(false), "{stages}");
    }
}
