//! Pipelines over collections, through the public API: the scripts in `testdata/pipelines`.
//!
//! ```text
//!   docs c [{...}, ...]          creates the collection with these documents
//!   index c {a: 1} {unique: true}
//!   view v on c [stages]         below it the error, if any
//!   search c name {fields: [..]}  a vector index
//!   drop c
//!   run c [stages]               below it the results, or `code message`
//!   stats c [stages]             the counters of each stage
//!   cursor c [stages]            the plan of $cursor, and what it examined
//!   show c                       the collection's documents
//! ```
//!
//! `run` executes twice: with the default memory, and with so little that every stage that can
//! spill does; both must return the same. `UPDATE_EXPECT=1` rewrites answers.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use sheaf_bson::json::{parse, parse_doc, parse_prefix, typed};
use sheaf_bson::{
    ArrayBuf, DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Value, doc,
};
use sheaf_db::QueryOptions;
use sheaf_db::aggregate::explain::{ExplainRequest, explain};
use sheaf_db::aggregate::request::on_collection;
use sheaf_db::aggregate::{self, AggregateContext};
use sheaf_db::catalog::options::CollectionOptions;
use sheaf_db::ddl::search_indexes::NewSearchIndex;
use sheaf_db::explain::Verbosity;
use sheaf_db::{Namespace, ResultSource, StatementContext};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::{OptimizedPipeline, Pipeline};
use sheaf_query::vector::VectorIndexDefinition;

use crate::support::{EngineKind, TestDb, ns};

pub fn array(text: &str) -> ArrayBuf {
    let value = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    match value.as_raw() {
        RawValue::Array(array) => array.to_buf(),
        _ => panic!("{text} is no array"),
    }
}

fn parse_context() -> ParseContext {
    ParseContext {
        variables: VariableScope::new(DateTime(1_700_000_000_000)),
    }
}

/// The pipeline with views resolved, and the collection it reads.
pub fn prepared(
    test: &TestDb,
    name: &str,
    stages: &ArrayBuf,
    optimize: bool,
) -> Result<(Namespace, OptimizedPipeline), Error> {
    let context = parse_context();
    let pipeline = Pipeline::parse(stages.as_raw(), &context)?;
    let (on, pipeline) = on_collection(&test.db, &ns(name), &context, pipeline)?;
    let pipeline = match optimize {
        true => pipeline.optimize(),
        false => OptimizedPipeline {
            prefix: Default::default(),
            rest: pipeline,
        },
    };
    Ok((on, pipeline))
}

pub fn run_with(
    test: &TestDb,
    name: &str,
    stages: &ArrayBuf,
    options: QueryOptions,
    optimize: bool,
) -> Result<Vec<DocBuf>, Error> {
    let (on, pipeline) = prepared(test, name, stages, optimize)?;
    let cx = AggregateContext::new(&test.db, on.db(), parse_context(), options, None);
    let view = cx.view(&test.op, &on)?;
    let mut source = aggregate::start(&cx, &view, &test.op, &pipeline, None)?;
    if let Some(sink) = &pipeline.rest.sink {
        aggregate::sink::run(&cx, &test.op, &mut source, sink)?;
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    while let Some(doc) = source.next(&test.op)? {
        found.push(doc.as_raw().to_buf());
        source.suspend();
        test.assert_all_suspended();
    }
    Ok(found)
}

pub fn small(test: &TestDb) -> QueryOptions {
    QueryOptions {
        sort_memory_bytes_max: 512,
        temp_dir: Some(test.dir().join("_tmp").into()),
        ..Default::default()
    }
}

/// Creates a vector index.
pub fn create_search_index(
    test: &TestDb,
    name: &str,
    index: &str,
    definition: &DocBuf,
) -> Result<(), Error> {
    let definition = VectorIndexDefinition::parse(definition.as_raw())?;
    let wanted = NewSearchIndex {
        name: index.to_owned(),
        definition: Arc::new(definition),
    };
    let made = test
        .db
        .create_search_indexes(&test.op, &ns(name), &[wanted]);
    made.map(|_| ())
}

fn lines(result: Result<Vec<DocBuf>, Error>) -> Vec<String> {
    match result {
        Ok(docs) => docs.iter().map(typed).collect(),
        Err(e) => vec![format!(
            "{} {}",
            e.code().0,
            without_random_names(e.message())
        )],
    }
}

/// Replaces the ObjectId at the end of a temporary collection's name.
fn without_random_names(message: &str) -> String {
    let prefix = sheaf_db::system_names::TEMPORARY_PREFIX;
    match message.split_once(prefix) {
        Some((before, after)) => format!("{before}{prefix}...{}", &after[24..]),
        None => message.to_owned(),
    }
}

/// The plan's stages from the top, and what they examined.
fn plan_of(test: &TestDb, name: &str, stages: &ArrayBuf) -> Vec<String> {
    let explained = explained(test, name, stages).unwrap();
    let cursor = match explained.get("stages") {
        Some(RawValue::Array(stages)) => stages
            .get(0)
            .and_then(|first| first.as_document()?.get("$cursor")?.as_document())
            .unwrap(),
        _ => explained.as_raw(),
    };
    let execution = cursor.get("executionStats").unwrap();
    let execution = execution.as_document().unwrap();
    let mut line = String::new();
    let mut stage = execution
        .get("executionStages")
        .and_then(|s| s.as_document());
    while let Some(on) = stage {
        let name = on.get("stage").and_then(|s| s.as_str()).unwrap();
        let index = on
            .get("indexName")
            .map_or(String::new(), |i| format!(" {i}"));
        let direction = on
            .get("direction")
            .map_or(String::new(), |d| format!(" {d}"));
        let _ = write!(line, "{name}{index}{direction} < ");
        stage = on.get("inputStage").and_then(|s| s.as_document());
    }
    let count = |field: &str| execution.get(field).unwrap().to_string();
    vec![format!(
        "{}keys {} documents {}",
        line.replacen(" < ", " <- ", usize::MAX)
            .trim_end_matches("<- ")
            .to_owned()
            + " ",
        count("totalKeysExamined"),
        count("totalDocsExamined")
    )]
}

fn explained(test: &TestDb, name: &str, stages: &ArrayBuf) -> Result<DocBuf, Error> {
    let (on, pipeline) = prepared(test, name, stages, true)?;
    let cx = AggregateContext::new(
        &test.db,
        on.db(),
        parse_context(),
        QueryOptions::default(),
        None,
    );
    let view = cx.view(&test.op, &on)?;
    let request = ExplainRequest {
        view: &view,
        op: &test.op,
        namespace: on.as_str(),
        verbosity: Verbosity::ExecutionStats,
        hint: None,
    };
    let mut out = DocBuilder::new();
    explain(&cx, &request, &pipeline, &mut out)?;
    Ok(out.finish())
}

pub fn stats(test: &TestDb, name: &str, stages: &ArrayBuf) -> Result<Vec<String>, Error> {
    let out = explained(test, name, stages)?;
    let Some(RawValue::Array(stages)) = out.get("stages") else {
        return Ok(vec!["all in the plan".into()]);
    };
    let mut lines = Vec::new();
    for stage in stages.iter().filter_map(|stage| stage.as_document()) {
        let name = stage.first().map_or("", |first| first.key());
        if name == "$cursor" {
            continue;
        }
        let mut line = name.to_owned();
        let search = stage.get("$vectorSearch").and_then(|s| s.as_document());
        if let Some(explain) = search.and_then(|s| s.get("explain")?.as_document()) {
            let _ = write!(line, "  {explain}");
        }
        for field in stage.iter().skip(1) {
            if field.key() != "executionTimeMillisEstimate" {
                let _ = write!(line, "  {}: {}", field.key(), field.value());
            }
        }
        lines.push(line);
    }
    Ok(lines)
}

fn answer(test: &TestDb, line: &str) -> Vec<String> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let done = |result: Result<(), Error>| lines(result.map(|()| Vec::new()));
    match word {
        "docs" => {
            let dropped = test.db.drop_collection(&test.op, &ns(name));
            dropped.unwrap();
            let docs = array(rest);
            for doc in docs.as_raw() {
                let doc = doc.as_document().unwrap();
                test.db.insert_one(&test.op, &ns(name), doc).unwrap();
            }
            Vec::new()
        }
        "index" => {
            let (_, end) = parse_prefix(rest).unwrap();
            let key = parse_doc(rest[..end].trim_end()).unwrap();
            let options = rest[end..].trim();
            let options = match options.is_empty() {
                true => DocBuf::new(),
                false => parse_doc(options).unwrap(),
            };
            done(test.create_index(name, key, options))
        }
        "create" => {
            let options = CollectionOptions::parse(parse_doc(rest).unwrap().as_raw());
            done(options.and_then(|options| {
                test.db
                    .create_collection(&test.op, &ns(name), options)
                    .map(|_| ())
            }))
        }
        "search" => {
            let (index, definition) = rest.split_once(' ').expect("search NAME INDEX {..}");
            let definition = parse_doc(definition).unwrap();
            done(create_search_index(test, name, index, &definition))
        }
        "drop" => {
            test.db.drop_collection(&test.op, &ns(name)).unwrap();
            Vec::new()
        }
        "view" => {
            let rest = rest.strip_prefix("on ").expect("view NAME on OTHER [..]");
            let (on, stages) = rest.split_once(' ').expect("view NAME on OTHER [..]");
            let stages = array(stages);
            done(test.db.create_view(
                &test.op,
                &ns(name),
                on,
                stages.as_raw(),
                &sheaf_bson::CollationChoice::default(),
            ))
        }
        "run" => {
            let stages = array(rest);
            let plain = run_with(test, name, &stages, QueryOptions::default(), true);
            let plain = lines(plain);
            let writes = rest.contains("$merge") || rest.contains("$out");
            if !writes {
                let mut spilled = lines(run_with(test, name, &stages, small(test), true));
                let mut in_memory = plain.clone();
                // Groups come in no order.
                if !rest.contains("$sort: ") {
                    spilled.sort();
                    in_memory.sort();
                }
                assert_eq!(in_memory, spilled, "{line} with little memory");
                let naive = lines(run_with(
                    test,
                    name,
                    &stages,
                    QueryOptions::default(),
                    false,
                ));
                assert_eq!(plain, naive, "{line} without the optimiser");
            }
            plain
        }
        "stats" => match stats(test, name, &array(rest)) {
            Ok(lines) => lines,
            Err(e) => vec![format!("{} {}", e.code().0, e.message())],
        },
        "cursor" => plan_of(test, name, &array(rest)),
        "show" => match test.db.catalog().collection(&ns(name)) {
            Some(_) => test.documents(name).iter().map(typed).collect(),
            None => vec!["there is no such collection".into()],
        },
        other => panic!("unknown statement {other}"),
    }
}

fn script(file: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/pipelines")
        .join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let test = TestDb::new(EngineKind::Memory, Default::default());
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        while lines.next_if(|next| next.starts_with("  ")).is_some() {}
        for line in answer(&test, line) {
            let _ = writeln!(out, "  {line}");
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, out).unwrap();
        return;
    }
    for (at, (wanted, got)) in text.lines().zip(out.lines()).enumerate() {
        assert_eq!(wanted, got, "{file}, line {}", at + 1);
    }
    assert_eq!(text.lines().count(), out.lines().count(), "{file}");
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            script(concat!(stringify!($name), ".txt"));
        })*
    };
}

scripts! { lookup graph_lookup union_facet merge_out views spill cursor vector_search }

/// A small random number generator: the same seed, the same pipelines.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len() as u64) as usize]
    }
}

fn random_document(dice: &mut Dice, id: u64) -> String {
    const VALUES: &[&str] = &[
        "1",
        "2",
        "3",
        "2.0",
        "null",
        "'x'",
        "'y'",
        "[1, 2]",
        "[]",
        "['x', 3]",
        "{k: 1}",
        "[{k: 1}, {k: 'x'}]",
        "{k: [2, 3]}",
    ];
    let mut out = format!("{{_id: {id}");
    for field in ["a", "b", "c"] {
        if dice.below(5) > 0 {
            let _ = write!(out, ", {field}: {}", dice.pick(VALUES));
        }
    }
    out + "}"
}

/// A random predicate of `$match` on a path.
fn random_test(dice: &mut Dice) -> String {
    let value = dice.pick(&["1", "2", "'x'", "null", "3", "[1, 2]", "{k: 1}"]);
    match dice.below(10) {
        0 => format!("{{$in: [{value}, 2]}}"),
        1 => format!("{{$nin: [{value}, 'y']}}"),
        2 => format!("{{$exists: {}}}", dice.pick(&["true", "false"])),
        3 => format!("{{$not: {{$gt: {value}}}}}"),
        4 => format!("{{$elemMatch: {{$gte: {value}}}}}"),
        5 => "{$elemMatch: {k: {$gt: 0}}}".into(),
        _ => format!(
            "{{{}: {value}}}",
            dice.pick(&["$eq", "$gt", "$lte", "$ne", "$lt", "$gte"])
        ),
    }
}

fn random_match(dice: &mut Dice) -> String {
    const PATHS: &[&str] = &[
        "a", "b", "c", "_id", "a.k", "b.k", "j", "j.a", "n", "n.k", "x", "x.y", "_id.k", "a.0",
    ];
    let (path, other) = (dice.pick(PATHS), dice.pick(PATHS));
    let (test, second) = (random_test(dice), random_test(dice));
    match dice.below(8) {
        0 => format!("{{$match: {{'{path}': {test}, c: {{$ne: 'z'}}}}}}"),
        1 => format!("{{$match: {{$or: [{{'{path}': {test}}}, {{'{other}': {second}}}]}}}}"),
        2 => format!("{{$match: {{$nor: [{{'{path}': {test}}}, {{'{other}': {second}}}]}}}}"),
        3 => format!(
            "{{$match: {{$expr: {{{}: ['${path}', {}]}}}}}}",
            dice.pick(&["$eq", "$gt", "$lte", "$ne"]),
            dice.pick(&["1", "2", "null", "'$b'", "'$n'", "['$a']"])
        )
        .replace("'$a.0'", "'$a'"),
        _ => format!("{{$match: {{'{path}': {test}}}}}"),
    }
}

/// Initial stages whose result depends on the order; every `_id` is still distinct there.
fn random_beginning(dice: &mut Dice) -> String {
    let sort = format!(
        "{{$sort: {{{}: {}, _id: 1}}}}",
        dice.pick(&["a", "b", "c", "'a.k'"]),
        dice.pick(&["1", "-1"])
    );
    let limit = format!("{{$limit: {}}}", 1 + dice.below(8));
    match dice.below(8) {
        0 => format!("{sort}, {limit}, "),
        1 => format!("{}, {sort}, {limit}, ", random_match(dice)),
        2 => format!("{sort}, {{$skip: 2}}, {limit}, "),
        3 => format!(
            "{sort}, {{$group: {{_id: '$c', a: {{$first: '$a'}}, b: {{$last: '$b'}}, n: {{$push: '$_id'}}}}}}, "
        ),
        4 => "{$setWindowFields: {sortBy: {_id: 1}, output: {n: {$sum: '$a', window: {documents: [-2, 'current']}}, x: {$push: '$b', window: {documents: [-1, 1]}}}}}, ".into(),
        _ => String::new(),
    }
}

/// A stage that returns the same documents whatever the order of its input.
fn random_stage(dice: &mut Dice) -> String {
    match dice.below(24) {
        0..=4 => random_match(dice),
        5 => format!(
            "{{$addFields: {{{}: {}}}}}",
            dice.pick(&["a", "n", "j", "'a.k'", "'b.k'", "x"]),
            dice.pick(&[
                "'$b'",
                "{$type: '$a'}",
                "{$ifNull: ['$c', 7]}",
                "'$a.k'",
                "'$a'",
                "{y: '$a'}",
                "5",
                "'$$REMOVE'",
            ])
        ),
        6 | 7 => dice
            .pick(&[
                "{$project: {a: 1, b: 1}}",
                "{$project: {c: 0}}",
                "{$project: {a: 1, n: '$b'}}",
                "{$unset: 'b'}",
                "{$unset: ['a.k', 'n']}",
                "{$replaceRoot: {newRoot: {_id: '$_id', a: '$b', b: '$a'}}}",
                "{$replaceWith: {$mergeObjects: [{a: '$b', n: 3}, '$$ROOT']}}",
                "{$project: {'a.k': 1, b: 1}}",
                "{$project: {'a.k': 0}}",
                "{$project: {x: {y: '$a'}, b: 1}}",
                "{$project: {'x.y': '$a', a: 1}}",
                "{$project: {a: '$b', b: '$a'}}",
                "{$project: {_id: 0, a: 1, c: 1}}",
                "{$addFields: {a: '$b', b: '$a'}}",
                "{$addFields: {x: '$a.k', 'n.k': '$b'}}",
                "{$project: {x: '$a', n: '$a.k', a: {k: '$b'}}}",
            ])
            .into(),
        8 => format!(
            "{{$unwind: '${}'}}",
            dice.pick(&["a", "b", "j", "a.k", "x"])
        ),
        9 => format!(
            "{{$unwind: {{path: '${}', {}}}}}",
            dice.pick(&["a", "b", "j"]),
            dice.pick(&[
                "preserveNullAndEmptyArrays: true",
                "includeArrayIndex: 'n'",
                "includeArrayIndex: 'x.y', preserveNullAndEmptyArrays: true",
            ])
        ),
        10 | 11 => format!(
            "{{$group: {{_id: {}, n: {}, a: {}}}}}",
            dice.pick(&[
                "'$a'",
                "'$b'",
                "{k: '$a'}",
                "null",
                "'$a.k'",
                "{k: '$b', y: '$c'}"
            ]),
            dice.pick(&[
                "{$sum: 1}",
                "{$sum: '$b'}",
                "{$count: {}}",
                "{$min: '$a.k'}"
            ]),
            dice.pick(&["{$max: '$b'}", "{$min: '$c'}", "{$max: '$a'}"])
        ),
        12 => format!(
            "{{$group: {{_id: {}, j: {}}}}}",
            dice.pick(&["'$a'", "'$c'", "null"]),
            dice.pick(&["{$addToSet: '$b'}", "{$push: '$$ROOT'}", "{$push: '$a'}"])
        ),
        13 => format!(
            "{{$lookup: {{from: 'o', localField: '{}', foreignField: '{}', as: '{}'}}}}",
            dice.pick(&["a", "b", "_id", "a.k", "x"]),
            dice.pick(&["a", "b", "_id", "b.k"]),
            dice.pick(&["j", "j", "j", "x.y"])
        )
        .replace("as: 'x.y'", "as: 'j'"),
        14 => format!(
            "{{$lookup: {{from: 'o', {}let: {{v: '$a'}}, pipeline: [{{$match: {{$expr: {{{}: ['$b', '$$v']}}}}}}, {{$project: {{a: 1}}}}], as: 'j'}}}}",
            dice.pick(&["", "localField: 'c', foreignField: 'c', "]),
            dice.pick(&["$eq", "$gte", "$lt"])
        ),
        15 => format!(
            "{{$lookup: {{from: 'o', {}pipeline: [{}], as: 'j'}}}}",
            dice.pick(&["", "localField: 'a', foreignField: 'b', "]),
            random_match(dice)
        ),
        16 => format!(
            "{{$graphLookup: {{from: 'o', startWith: '{}', connectFromField: '{}', connectToField: '{}', as: 'j'{}}}}}",
            dice.pick(&["$a", "$b", "$a.k"]),
            dice.pick(&["b", "a", "_id", "b.k"]),
            dice.pick(&["a", "b", "_id", "c", "a.k"]),
            dice.pick(&[
                "",
                ", maxDepth: 0",
                ", maxDepth: 2, depthField: 'd'",
                ", depthField: 'a'",
                ", restrictSearchWithMatch: {c: {$ne: 'x'}}",
            ])
        ),
        17 => match dice.below(2) {
            0 => "{$unionWith: 'o'}".into(),
            _ => format!(
                "{{$unionWith: {{coll: 'o', pipeline: [{}]}}}}",
                random_match(dice)
            ),
        },
        18 => format!(
            "{{$setWindowFields: {{partitionBy: {}, sortBy: {{{}: 1}}, output: {{n: {{{}}}, '{}': {{$max: '$b', window: {{documents: ['unbounded', 'unbounded']}}}}}}}}}}",
            dice.pick(&[
                "{$type: '$a'}",
                "{$cond: [{$isArray: '$b'}, 0, '$b']}",
                "null"
            ]),
            dice.pick(&["a", "c", "_id"]),
            dice.pick(&[
                "$denseRank: {}",
                "$rank: {}",
                "$sum: '$a', window: {documents: ['unbounded', 'unbounded']}"
            ]),
            dice.pick(&["x", "a.k", "c"])
        ),
        19 => format!(
            "{{$bucketAuto: {{groupBy: '{}', buckets: {}, output: {{n: {{$sum: 1}}, a: {{$max: '$b'}}}}}}}}",
            dice.pick(&["$a", "$b", "$_id"]),
            1 + dice.below(4)
        ),
        20 => dice
            .pick(&[
                "{$densify: {field: 'q', range: {step: 1, bounds: [0, 3]}}}",
                "{$fill: {output: {b: {value: 7}}}}",
                "{$fill: {output: {a: {value: '$c'}}}}",
                "{$count: 'n'}",
                "{$sortByCount: '$a'}",
            ])
            .into(),
        21 => format!(
            "{{$facet: {{j: [{}], n: [{}, {{$count: 'a'}}]}}}}",
            random_match(dice),
            random_match(dice)
        ),
        22 => format!(
            "{{$redact: {{$cond: [{{$eq: ['{}', 1]}}, '$${}', '$${}']}}}}",
            dice.pick(&["$a", "$k", "$b"]),
            dice.pick(&["PRUNE", "KEEP"]),
            dice.pick(&["DESCEND", "KEEP"])
        ),
        _ => format!("{{$sort: {{{}: 1, _id: 1}}}}", dice.pick(&["a", "b", "c"])),
    }
}

/// Results as text that depends neither on the order of joined documents nor on which of two equal
/// numbers came first.
fn canonical(result: Result<Vec<DocBuf>, Error>) -> Vec<String> {
    /// With the elements of every array `j` in order, at any depth.
    fn ordered(doc: RawDoc<'_>) -> DocBuf {
        let mut out = DocBuilder::new();
        for field in doc {
            match (field.key(), field.value()) {
                ("j", RawValue::Array(joined)) => {
                    let joined = joined.iter().map(|value| match value {
                        RawValue::Document(doc) => Value::Document(ordered(doc)),
                        other => other.to_value(),
                    });
                    let mut joined: Vec<Value> = joined.collect();
                    joined.sort_by_key(|value| typed(value.as_raw()));
                    let joined = ArrayBuf::from_values(joined.iter().map(Value::as_raw));
                    out.append("j", &joined);
                }
                (key, RawValue::Document(inner)) => {
                    out.append(key, &ordered(inner));
                }
                _ => {
                    out.append_raw_element(field);
                }
            }
        }
        out.finish()
    }
    let text = |doc: &DocBuf| typed(&ordered(doc.as_raw())).replace("2.0", "2");
    let mut lines: Vec<String> = match result {
        Ok(docs) => docs.iter().map(text).collect(),
        // Which of several errors comes first depends on the order of the stages.
        Err(e) => vec![format!("an error: {}", e.code().0 > 0)],
    };
    lines.sort();
    lines
}

/// A pipeline returns the same documents optimised or not, with indexes or without, in memory or on
/// disk.
#[test]
fn optimisation_does_not_change_results() {
    let mut dice = Dice(0x5eed_cafe_f00d);
    let rounds = std::env::var("SHEAF_PIPELINE_ROUNDS");
    let rounds: u64 = rounds.map_or(8, |n| n.parse().unwrap());
    for round in 0..rounds {
        let plain = TestDb::new(EngineKind::Memory, Default::default());
        let indexed = TestDb::new(EngineKind::Memory, Default::default());
        for name in ["c", "o"] {
            let docs: Vec<String> = (0..12).map(|id| random_document(&mut dice, id)).collect();
            for test in [&plain, &indexed] {
                answer(test, &format!("docs {name} [{}]", docs.join(", ")));
            }
            for key in ["{a: 1}", "{b: 1, c: -1}", "{'a.k': 1}"] {
                if dice.below(3) > 0 {
                    // A key with two arrays is refused: the case then has one index fewer.
                    answer(&indexed, &format!("index {name} {key}"));
                }
            }
        }
        for _ in 0..30 {
            let count = 1 + dice.below(5);
            let stages: Vec<String> = (0..count).map(|_| random_stage(&mut dice)).collect();
            let text = format!("[{}{}]", random_beginning(&mut dice), stages.join(", "));
            let stages = array(&text);
            let naive = run_with(&plain, "c", &stages, QueryOptions::default(), false);
            // A stage that fails on some document may never receive it if an earlier filter removes
            // it.
            if naive.is_err() {
                continue;
            }
            let naive = canonical(naive);
            for (what, test, options, optimize) in [
                ("optimised", &plain, QueryOptions::default(), true),
                ("with indexes", &indexed, QueryOptions::default(), true),
                ("on disk", &indexed, small(&indexed), true),
                ("plain on disk", &plain, small(&plain), false),
            ] {
                let got = run_with(test, "c", &stages, options, optimize);
                // The state of window functions cannot spill.
                if got.as_ref().is_err_and(|e| e.code().0 == 5643011) {
                    continue;
                }
                let error = got.as_ref().err().map(ToString::to_string);
                let got = canonical(got);
                assert_eq!(naive, got, "round {round}: {text} {what}: {error:?}");
            }
        }
    }
}

/// A collection whose documents are large.
fn large(documents: i32, bytes: usize) -> TestDb {
    let test = TestDb::new(EngineKind::Memory, Default::default());
    for id in 0..documents {
        let doc = doc! {"_id": id, "k": 1, "s": "x".repeat(bytes)};
        test.insert("c", doc).unwrap();
    }
    test
}

fn code_of(test: &TestDb, stages: &str) -> i32 {
    let run = run_with(test, "c", &array(stages), QueryOptions::default(), true);
    run.map_or_else(|e| e.code().0, |_| 0)
}

#[test]
fn bombs_end_in_an_error() {
    let test = large(40, 500_000);
    // 20 MB in one document: too large for a result, unless the array is unwound or not returned.
    let join = "{$lookup: {from: 'c', localField: 'k', foreignField: 'k', as: 'j'}}";
    assert_eq!(code_of(&test, &format!("[{{$limit: 2}}, {join}]")), 10334);
    let counted = format!("[{{$limit: 2}}, {join}, {{$project: {{n: {{$size: '$j'}}}}}}]");
    assert_eq!(code_of(&test, &counted), 0);
    let unwound = format!("[{{$limit: 2}}, {join}, {{$unwind: '$j'}}, {{$count: 'n'}}]");
    assert_eq!(code_of(&test, &unwound), 0);
    let pipeline = "[{$limit: 1}, {$lookup: {from: 'c', pipeline: [], as: 'j'}}]";
    assert_eq!(code_of(&test, pipeline), 10334);
    // 120 MB exceed the limit of a join.
    let three = "{$set: {k: [1, 2, 3]}}, {$unwind: '$k'}";
    let pipeline = format!(
        "[{{$limit: 1}}, {{$lookup: {{from: 'c', pipeline: [{three}], as: 'j'}}}}, {{$project: {{n: {{$size: '$j'}}}}}}]"
    );
    let test = large(75, 500_000);
    assert_eq!(code_of(&test, &pipeline), 4568);
    let test = large(40, 500_000);
    assert_eq!(code_of(&test, "[{$facet: {a: []}}]"), 10334);
    // 6 times 20 MB exceed the limit of a facet before its document is built.
    let many: Vec<String> = (0..6).map(|f| format!("f{f}: []")).collect();
    assert_eq!(
        code_of(&test, &format!("[{{$facet: {{{}}}}}]", many.join(", "))),
        4031700
    );
    let pushed = "[{$group: {_id: null, all: {$push: '$$ROOT'}}}]";
    assert_eq!(code_of(&test, pushed), 10334);
}

#[test]
fn pipelines_within_pipelines_have_a_limit() {
    let test = large(1, 1);
    let nested = |depth: usize| {
        let mut text = "[]".to_owned();
        for _ in 0..depth {
            text = format!("[{{$unionWith: {{coll: 'c', pipeline: {text}}}}}]");
        }
        code_of(&test, &text)
    };
    assert_eq!(nested(20), 0);
    assert_eq!(nested(21), 232);
}

#[test]
fn a_time_limit_ends_every_stage() {
    let test = large(3, 10);
    for stages in [
        "[{$group: {_id: '$k'}}]",
        "[{$addFields: {z: 1}}, {$sort: {z: 1}}]",
        "[{$unwind: '$k'}, {$group: {_id: '$k'}}]",
        "[{$lookup: {from: 'c', localField: 'k', foreignField: 'k', as: 'j'}}]",
        "[{$lookup: {from: 'c', pipeline: [{$count: 'n'}], as: 'j'}}]",
        "[{$graphLookup: {from: 'c', startWith: 1, connectFromField: 'k', connectToField: 'k', as: 'g'}}]",
        "[{$facet: {a: [], b: [{$sort: {_id: 1}}]}}]",
        "[{$unionWith: 'c'}, {$project: {z: 1}}]",
        "[{$merge: 'd'}]",
        "[{$out: 'd'}]",
    ] {
        let (on, pipeline) = prepared(&test, "c", &array(stages), true).unwrap();
        let cx = AggregateContext::new(
            &test.db,
            on.db(),
            parse_context(),
            QueryOptions::default(),
            None,
        );
        let op = StatementContext::new();
        let view = cx.view(&op, &on).unwrap();
        let mut source = aggregate::start(&cx, &view, &op, &pipeline, None).unwrap();
        op.kill(ErrorCode::INTERRUPTED);
        let ended = match &pipeline.rest.sink {
            Some(sink) => aggregate::sink::run(&cx, &op, &mut source, sink).unwrap_err(),
            None => source.next(&op).map(|_| ()).unwrap_err(),
        };
        assert_eq!(ended.code(), ErrorCode::INTERRUPTED, "{stages}");
    }
    // The collection being filled is removed.
    assert!(test.db.catalog().collection(&ns("d")).is_none());
    assert_eq!(test.db.catalog().collections().count(), 1);
}

#[test]
fn without_disk_use_the_limit_is_an_error_and_no_file_remains() {
    let test = large(50, 1000);
    let options = |allow_disk_use| QueryOptions {
        allow_disk_use,
        ..small(&test)
    };
    for stages in [
        "[{$addFields: {z: 1}}, {$sort: {z: 1}}]",
        "[{$group: {_id: '$_id', s: {$push: '$s'}}}]",
    ] {
        let stages = array(stages);
        let refused = run_with(&test, "c", &stages, options(false), true).unwrap_err();
        assert_eq!(
            refused.code(),
            ErrorCode::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED
        );
        assert_eq!(
            run_with(&test, "c", &stages, options(true), true)
                .unwrap()
                .len(),
            50
        );
    }
    let left = std::fs::read_dir(test.dir().join("_tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn an_unfinished_out_is_removed_at_restart() {
    let mut test = large(1, 1);
    let unfinished = format!(
        "{}0123456789abcdef01234567",
        sheaf_db::system_names::TEMPORARY_PREFIX
    );
    test.insert(&unfinished, doc! {"_id": 1}).unwrap();
    let series = format!(
        "{}fedcba9876543210fedcba98",
        sheaf_db::system_names::TEMPORARY_PREFIX
    );
    answer(
        &test,
        &format!("create {series} {{timeseries: {{timeField: 't'}}}}"),
    );
    assert!(test.db.catalog().timeseries(&ns(&series)).is_some());
    answer(&test, "view v on c [{$match: {k: 1}}]");
    test.reopen();
    assert!(test.db.catalog().collection(&ns(&unfinished)).is_none());
    assert!(test.db.catalog().view(&ns(&series)).is_none());
    assert!(
        test.db
            .catalog()
            .collection(&ns(&series).buckets().unwrap())
            .is_none()
    );
    // The views exist again.
    assert_eq!(answer(&test, "run v [{$count: 'n'}]"), ["{ n: 1 }"]);
}
