//! Compares every rewrite with running the stages one after the other, each on all documents of the
//! previous one.
//!
//! ```text
//!   rule         a pair of adjacent stages, and its replacement, have the same results
//!   pipeline     several stages: one by one, optimised, and optimised with documents reduced
//!                to the dependencies, have the same results
//! ```
//!
//! Filters read fields, or read no field: constants, variables, `$$NOW`, `$in: []`, `$rand`
//! compared with a number outside its range.

use sheaf_bson::json::typed;
use sheaf_bson::{DateTime, DocBuf, RawArray, RawDoc, RawValue, Value};

use super::super::environment::{
    Environment, ForeignCursor, ForeignReader, ForeignRequest, JoinRequest,
};
use super::super::stages::lookup::equality_filter;
use super::super::tests::find;
use super::super::{Documents, Pipeline, PipelineExec, PipelineSource, Stage};
use super::rules::RULES;
use crate::expression::VariableScope;
use crate::matcher::{self, ParseContext};
use crate::random::Random;
use sheaf_bson::error_code::Result;

fn parse_json(text: &str) -> Value {
    sheaf_bson::json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn context() -> ParseContext {
    let mut variables = VariableScope::new(DateTime(1_700_000_000_000));
    variables.bind_optional("who", Some(Value::String("user".into())));
    variables.bind_optional("empty", None);
    ParseContext { variables }
}

fn parsed(texts: &[String]) -> Option<Pipeline> {
    let text = format!("[{}]", texts.join(", "));
    let value = parse_json(&text);
    let array: RawArray<'_> = value.as_raw().as_array()?;
    Some(Pipeline::parse(array, &context()).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// The other collections: `f` has documents of the same form with other `_id`s; all others are
/// empty.
struct World {
    foreign: Vec<DocBuf>,
}

struct Found {
    docs: Vec<DocBuf>,
    at: usize,
    /// For a join: the foreign path, the additional filter, and the pipeline for the matches.
    join: Option<(String, DocBuf, Option<Pipeline>)>,
}

impl ForeignReader for Found {
    fn suspend(&mut self) {}
}

impl World {
    fn collection(&self, name: &str) -> Vec<DocBuf> {
        match name {
            "f" => self.foreign.clone(),
            _ => Vec::new(),
        }
    }

    /// Runs the stages one after the other, each on all documents of the previous one.
    fn plainly(&self, stages: &[Stage], docs: Vec<DocBuf>) -> Result<Vec<DocBuf>> {
        stages.iter().try_fold(docs, |docs, stage| {
            self.together(std::slice::from_ref(stage), docs)
        })
    }

    fn together(&self, stages: &[Stage], docs: Vec<DocBuf>) -> Result<Vec<DocBuf>> {
        let mut exec = PipelineExec::new(stages);
        let mut source = Documents::from(docs);
        let mut out = Vec::new();
        while let Some(doc) = exec.next(&mut source, self)? {
            out.push(doc);
        }
        Ok(out)
    }

    fn run(&self, pipeline: &Pipeline, docs: Vec<DocBuf>) -> Result<Vec<DocBuf>> {
        match &pipeline.source {
            PipelineSource::Documents(own) => self.plainly(&pipeline.stages, own.to_vec()),
            _ => self.plainly(&pipeline.stages, docs),
        }
    }

    fn found<'c>(&self, cursor: &'c mut ForeignCursor) -> &'c mut Found {
        let reader: &mut dyn std::any::Any = &mut *cursor.0;
        reader.downcast_mut().expect("a cursor of this world")
    }
}

impl Environment for World {
    /// A sample is the first documents, however many numbers other stages draw.
    fn random(&self) -> u64 {
        0
    }

    fn check_interrupt(&self) -> Result<()> {
        Ok(())
    }

    fn open(&self, request: &ForeignRequest<'_>) -> Result<ForeignCursor> {
        let docs = self.run(request.pipeline, self.collection(&request.from.collection))?;
        Ok(ForeignCursor(Box::new(Found {
            docs,
            at: 0,
            join: None,
        })))
    }

    fn open_join(&self, request: &JoinRequest<'_>) -> Result<ForeignCursor> {
        let pipeline = request.pipeline.map(|p| Pipeline::clone(p));
        Ok(ForeignCursor(Box::new(Found {
            docs: Vec::new(),
            at: 0,
            join: Some((request.path.to_owned(), request.filter.clone(), pipeline)),
        })))
    }

    fn probe(&self, cursor: &mut ForeignCursor, values: &[RawValue<'_>]) -> Result<()> {
        let found = self.found(cursor);
        let (path, filter, pipeline) = found.join.as_ref().expect("opened for a join");
        let both = matcher::conjunction(&equality_filter(path, values), filter);
        let filter = matcher::parse(both.as_raw(), &context())?;
        let mut docs = self.collection("f");
        docs.retain(|doc| filter.matches(doc.as_raw()).unwrap());
        found.docs = match pipeline {
            None => docs,
            Some(pipeline) => self.run(pipeline, docs)?,
        };
        found.at = 0;
        Ok(())
    }

    fn advance<'c>(&self, cursor: &'c mut ForeignCursor) -> Result<Option<RawDoc<'c>>> {
        let found = self.found(cursor);
        found.at += 1;
        Ok(found.docs.get(found.at - 1).map(DocBuf::as_raw))
    }
}

const PATHS: &[&str] = &[
    "a", "b", "a.b", "a.c", "x", "x.b", "x.c.b", "a.0", "x.0", "x.0.b", "_id", "k", "n", "j",
];

fn scalar(random: &mut Random) -> &'static str {
    random.pick(&["1", "2", "3", "1.5", "null", "\"s\"", "true"])
}

/// A filter that reads a field.
fn field_filter(random: &mut Random) -> String {
    let path = random.pick(PATHS);
    let value = scalar(random);
    match random.below(19) {
        0..=3 => format!("{{\"{path}\": {value}}}"),
        4 => format!("{{\"{path}\": {{$gt: {value}}}}}"),
        5 => format!("{{\"{path}\": {{$lte: {value}}}}}"),
        6 => format!("{{\"{path}\": {{$ne: {value}}}}}"),
        7 => format!("{{\"{path}\": {{$exists: {}}}}}", random.coin()),
        8 => format!("{{\"{path}\": {{$in: [{value}, 2]}}}}"),
        9 => format!("{{\"{path}\": {{$nin: [{value}, 2]}}}}"),
        10 => format!("{{\"{path}\": {{$elemMatch: {{b: {value}}}}}}}"),
        11 => format!("{{\"{path}\": {{$elemMatch: {{$gt: 1}}}}}}"),
        12 => format!("{{\"{path}\": {{$size: 1}}}}"),
        13 => format!(
            "{{\"{path}\": {{$type: {}}}}}",
            random.pick(&["\"array\"", "\"number\"", "\"object\""])
        ),
        14 => format!("{{\"{path}\": {{$not: {{$gte: {value}}}}}}}"),
        15 => format!(
            "{{\"{path}\": {{{}: MinKey}}}}",
            random.pick(&["$gt", "$gte"])
        ),
        16 => format!("{{$expr: {{$eq: [\"${path}\", {value}]}}}}"),
        17 => format!("{{$expr: {{$gt: [\"${path}\", {value}]}}}}"),
        _ => format!("{{$jsonSchema: {{required: [\"{path}\"]}}}}"),
    }
}

/// A filter that reads no field; most of them are false.
fn fieldless_filter(random: &mut Random) -> String {
    let path = random.pick(PATHS);
    match random.below(15) {
        0 => "{}".into(),
        1 => "{$alwaysTrue: 1}".into(),
        2 => "{$expr: {$eq: [\"$$who\", \"user\"]}}".into(),
        3 => "{$expr: {$lt: [{$rand: {}}, 2]}}".into(),
        4 => "{$sampleRate: 1.0}".into(),
        5 => format!("{{\"{path}\": {{$in: []}}}}"),
        6 => format!("{{\"{path}\": {{$all: []}}}}"),
        7 => "{$alwaysFalse: 1}".into(),
        8 => "{$expr: {$eq: [\"$$who\", \"admin\"]}}".into(),
        9 => "{$expr: \"$$empty\"}".into(),
        10 => "{$expr: {$lt: [\"$$NOW\", ISODate(\"1970-01-01T00:00:00Z\")]}}".into(),
        11 => "{$expr: {$lt: [{$rand: {}}, 0]}}".into(),
        12 => "{$sampleRate: 0.0}".into(),
        13 => "{$expr: {$in: [1, []]}}".into(),
        _ => "{$expr: {$and: [{$lt: [{$rand: {}}, 2]}, {$eq: [\"$$who\", \"admin\"]}]}}".into(),
    }
}

fn filter(random: &mut Random) -> String {
    match random.below(8) {
        0..=2 => fieldless_filter(random),
        3 => {
            let (f, g) = (field_filter(random), fieldless_filter(random));
            format!("{{{}: [{f}, {g}]}}", random.pick(&["$and", "$or", "$nor"]))
        }
        4 => {
            let (f, g) = (field_filter(random), field_filter(random));
            format!("{{{}: [{f}, {g}]}}", random.pick(&["$and", "$or", "$nor"]))
        }
        _ => field_filter(random),
    }
}

fn match_stage(random: &mut Random) -> String {
    format!("{{$match: {}}}", filter(random))
}

/// A sort by a path, then by `_id`, so that no two documents of the collection are equal.
fn sort_stage(random: &mut Random) -> String {
    let direction = random.pick(&["1", "-1"]);
    match random.pick(PATHS) {
        "_id" => format!("{{$sort: {{_id: {direction}}}}}"),
        path => format!("{{$sort: {{\"{path}\": {direction}, _id: 1}}}}"),
    }
}

fn page_stage(random: &mut Random) -> String {
    let n = 1 + random.below(6);
    format!("{{{}: {n}}}", random.pick(&["$skip", "$limit"]))
}

fn project_stage(random: &mut Random) -> String {
    let (path, other) = (random.pick(PATHS), random.pick(PATHS));
    let name = random.pick(&["$addFields", "$set"]);
    match random.below(9) {
        0 => format!("{{$project: {{\"{path}\": 1}}}}"),
        1 => format!("{{$project: {{\"{path}\": 0}}}}"),
        2 => "{$project: {a: 1, \"x.b\": 1, k: 1}}".into(),
        3 => "{$project: {\"a.b\": 1, x: 1, z: \"$k\"}}".into(),
        4 => format!(
            "{{$project: {{_id: 0, k: 1, \"{}\": 1}}}}",
            random.pick(&["a", "a.b", "x.c"])
        ),
        5 => format!("{{$unset: \"{path}\"}}"),
        6 => {
            format!("{{$replaceRoot: {{newRoot: {{_id: \"$_id\", a: \"${other}\", k: \"$k\"}}}}}}")
        }
        _ => format!("{{{name}: {{\"{path}\": \"${other}\"}}}}"),
    }
}

fn unwind_stage(random: &mut Random) -> String {
    let path = random.pick(&["x", "a", "x.c", "a.b", "j", "j.x"]);
    let index = random.pick(&[
        "",
        "",
        "",
        ", includeArrayIndex: \"n\"",
        ", includeArrayIndex: \"a.c\"",
    ]);
    let keep = random.coin();
    format!("{{$unwind: {{path: \"${path}\", preserveNullAndEmptyArrays: {keep}{index}}}}}")
}

fn group_stage(random: &mut Random) -> String {
    let path = random.pick(PATHS);
    match random.below(7) {
        0 => format!("{{$group: {{_id: \"${path}\", n: {{$sum: 1}}}}}}"),
        1 => format!("{{$group: {{_id: {{a: \"${path}\"}}, k: {{$sum: \"$k\"}}}}}}"),
        2 => format!("{{$group: {{_id: {{a: \"$a\", b: \"${path}\"}}, k: {{$max: \"$k\"}}}}}}"),
        3 => "{$group: {_id: null, n: {$sum: 1}, x: {$push: \"$a\"}}}".into(),
        4 => {
            format!("{{$group: {{_id: \"${path}\", x: {{$push: \"$x\"}}, a: {{$first: \"$a\"}}}}}}")
        }
        5 => format!("{{$sortByCount: \"${path}\"}}"),
        _ => "{$count: \"n\"}".into(),
    }
}

fn join_stage(random: &mut Random) -> String {
    let to = random.pick(&["j", "j.x", "a.j", "x"]);
    let (local, foreign) = (
        random.pick(&["a", "x", "x.b", "k"]),
        random.pick(&["a", "x.b", "k"]),
    );
    let lookup = match random.below(5) {
        0 => format!(
            "{{$lookup: {{from: \"f\", pipeline: [{}], as: \"{to}\"}}}}",
            match_stage(random)
        ),
        1 => format!(
            "{{$lookup: {{from: \"f\", let: {{v: \"${local}\"}}, pipeline: [{{$match: {{$expr: {{$eq: [\"$$v\", \"${foreign}\"]}}}}}}], as: \"{to}\"}}}}"
        ),
        2 => format!(
            "{{$graphLookup: {{from: \"f\", startWith: \"${local}\", connectFromField: \"b\", connectToField: \"a\", as: \"{to}\"}}}}"
        ),
        _ => format!(
            "{{$lookup: {{from: \"f\", localField: \"{local}\", foreignField: \"{foreign}\", as: \"{to}\"}}}}"
        ),
    };
    match random.below(3) {
        0 => {
            let keep = random.coin();
            format!(
                "{lookup}, {{$unwind: {{path: \"${to}\", preserveNullAndEmptyArrays: {keep}}}}}"
            )
        }
        1 if random.coin() => {
            format!("{lookup}, {{$unwind: {{path: \"${to}\", includeArrayIndex: \"n\"}}}}")
        }
        _ => lookup,
    }
}

/// A stage before which no filter, or not every filter, may move.
fn barrier_stage(random: &mut Random) -> String {
    match random.below(12) {
        0 => "{$unionWith: \"f\"}".into(),
        1 => format!("{{$unionWith: {{coll: \"f\", pipeline: [{}]}}}}", match_stage(random)),
        2 => format!("{{$facet: {{p: [{}], q: [{{$count: \"n\"}}]}}}}", match_stage(random)),
        3 => "{$densify: {field: \"k\", range: {step: 2, bounds: [0, 12]}}}".into(),
        4 => "{$setWindowFields: {sortBy: {k: 1}, output: {n: {$sum: \"$k\", window: {documents: [\"unbounded\", \"current\"]}}}}}".into(),
        5 => "{$setWindowFields: {partitionBy: \"$b\", sortBy: {k: 1}, output: {n: {$documentNumber: {}}}}}".into(),
        6 => "{$bucketAuto: {groupBy: \"$k\", buckets: 2, output: {n: {$sum: 1}, a: {$push: \"$a\"}}}}".into(),
        7 => "{$bucket: {groupBy: \"$k\", boundaries: [0, 5, 100], default: \"other\", output: {n: {$sum: 1}}}}".into(),
        8 => "{$sample: {size: 3}}".into(),
        9 => "{$fill: {sortBy: {k: 1}, output: {b: {method: \"locf\"}, n: {value: 7}}}}".into(),
        10 => "{$redact: {$cond: [{$eq: [\"$b\", 2]}, \"$$PRUNE\", \"$$DESCEND\"]}}".into(),
        _ => page_stage(random),
    }
}

fn any_stage(random: &mut Random) -> String {
    match random.below(13) {
        0..=3 => match_stage(random),
        4 | 5 => project_stage(random),
        6 => unwind_stage(random),
        7 => group_stage(random),
        8 | 9 => join_stage(random),
        10 => page_stage(random),
        _ => barrier_stage(random),
    }
}

fn value_of(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 3 } else { 6 }) {
        0..=2 => scalar(random).into(),
        3 => {
            let (b, c) = (value_of(random, depth - 1), value_of(random, depth - 1));
            match random.below(3) {
                0 => format!("{{b: {b}}}"),
                1 => format!("{{c: {c}}}"),
                _ => format!("{{b: {b}, c: {c}}}"),
            }
        }
        _ => {
            let count = random.below(4);
            let elements: Vec<_> = (0..count).map(|_| value_of(random, depth - 1)).collect();
            format!("[{}]", elements.join(", "))
        }
    }
}

/// Random documents. No sort path traverses two arrays.
fn documents(random: &mut Random, first_id: usize) -> Vec<DocBuf> {
    let count = random.below(9);
    let mut docs = Vec::new();
    for n in 0..count {
        let mut fields = vec![format!("_id: {}", first_id + n), format!("k: {}", n + 1)];
        for name in ["a", "b", "x"] {
            if !random.one_in(4) {
                let depth = if name == "b" { 0 } else { 3 };
                fields.push(format!("{name}: {}", value_of(random, depth)));
            }
        }
        if random.one_in(3) {
            fields.push(format!("n: {}", value_of(random, 1)));
        }
        match parse_json(&format!("{{{}}}", fields.join(", "))) {
            Value::Document(doc) => docs.push(doc),
            other => panic!("{other:?}"),
        }
    }
    docs
}

fn worlds(random: &mut Random) -> (World, Vec<DocBuf>) {
    let docs = documents(random, 0);
    let foreign = documents(random, 100);
    (World { foreign }, docs)
}

fn lines(docs: &[DocBuf]) -> Vec<String> {
    docs.iter().map(typed).collect()
}

fn one_of(makers: &[fn(&mut Random) -> String], random: &mut Random) -> String {
    random.pick(makers)(random)
}

/// Checks a rule on random pairs of stages: whenever it rewrites them, the results are the same.
fn check_rule(
    name: &str,
    firsts: &[fn(&mut Random) -> String],
    seconds: &[fn(&mut Random) -> String],
) {
    let rule = RULES.iter().find(|rule| rule.name == name).unwrap();
    let (mut applied, mut with_results) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::new(seed + 1);
        let texts = [one_of(firsts, &mut random), one_of(seconds, &mut random)];
        let pipeline = parsed(&texts).unwrap();
        // Some stages are shorthand for several: the rule applies to the last two.
        let stages = &pipeline.stages;
        let [before @ .., first, second] = &stages[..] else {
            panic!("{texts:?} is one stage");
        };
        let Some(together) = (rule.apply)(first, second) else {
            continue;
        };
        for _ in 0..3 {
            let (world, docs) = worlds(&mut random);
            let Ok(docs) = world.plainly(before, docs) else {
                continue;
            };
            let pair = [first.clone(), second.clone()];
            let Ok(plain) = world.plainly(&pair, docs.clone()) else {
                continue;
            };
            applied += 1;
            with_results += usize::from(!plain.is_empty());
            let rewritten = world.plainly(&together, docs.clone());
            assert_eq!(
                lines(&plain),
                lines(&rewritten.unwrap_or_else(|e| panic!("seed {seed}, {texts:?}: {e}"))),
                "seed {seed}: {texts:?} over {:?} with {:?}",
                lines(&docs),
                lines(&world.foreign)
            );
        }
        if with_results > 1_000 {
            break;
        }
    }
    // A rule that was rarely applied is not tested sufficiently.
    assert!(
        applied > 500 && with_results > 200,
        "{name}: {applied}, {with_results}"
    );
}

const MAKERS: &[fn(&mut Random) -> String] = &[
    project_stage,
    unwind_stage,
    group_stage,
    join_stage,
    barrier_stage,
    sort_stage,
    page_stage,
];

#[test]
fn a_match_goes_first() {
    check_rule("match_first", MAKERS, &[match_stage]);
}

#[test]
fn two_matches_are_one() {
    check_rule("one_match", &[match_stage], &[match_stage]);
}

#[test]
fn of_two_limits_the_lesser_stays() {
    check_rule("least_limit", &[page_stage], &[page_stage]);
}

#[test]
fn two_skips_are_their_sum() {
    check_rule("one_skip", &[page_stage], &[page_stage]);
}

#[test]
fn of_two_sorts_the_second_decides() {
    check_rule("last_sort", &[sort_stage], &[sort_stage]);
}

#[test]
fn a_page_goes_first() {
    check_rule("page_first", MAKERS, &[page_stage]);
}

#[test]
fn a_sort_goes_first() {
    check_rule("sort_first", MAKERS, &[sort_stage]);
}

#[test]
fn a_stage_absorbs_the_next() {
    check_rule(
        "absorbed",
        &[join_stage, barrier_stage],
        &[unwind_stage, match_stage],
    );
}

/// Complete pipelines: a naive find layer, followed by the remaining stages.
#[test]
fn an_optimized_pipeline_gives_what_its_stages_give() {
    let mut with_results = 0;
    for seed in 0..6_000 {
        let mut random = Random::new(seed + 1);
        let count = 1 + random.below(5);
        let mut texts: Vec<String> = (0..count).map(|_| any_stage(&mut random)).collect();
        if random.coin() {
            let at = random.below(texts.len() + 1);
            texts.insert(at, sort_stage(&mut random));
        }
        let pipeline = parsed(&texts).unwrap();
        // After two sorts, the second decides, except for documents that are equal in it.
        let sorts = pipeline.stages.iter();
        if sorts.filter(|s| matches!(s, Stage::Sort { .. })).count() > 1 {
            continue;
        }
        let (world, docs) = worlds(&mut random);
        let Ok(plain) = world.plainly(&pipeline.stages, docs.clone()) else {
            continue;
        };
        let plain = lines(&plain);
        with_results += usize::from(!plain.is_empty());
        let reordered = super::reorder(pipeline.stages.clone());
        let optimized = pipeline.optimize();
        let inputs = [false, true].map(|narrow| find(&optimized.prefix, &docs, narrow, &context()));
        let [whole, narrow] = inputs.map(|input| world.together(&optimized.rest.stages, input));
        let within = world.together(&reordered, docs.clone());
        for (how, result) in [("whole", whole), ("narrow", narrow), ("within", within)] {
            assert_eq!(
                plain,
                lines(&result.unwrap_or_else(|e| panic!("seed {seed} {how}, {texts:?}: {e}"))),
                "seed {seed} {how}: {texts:?} as {optimized:?} over {:?} with {:?}",
                lines(&docs),
                lines(&world.foreign)
            );
        }
    }
    assert!(with_results > 1_000, "{with_results}");
}

/// A filter with random numbers is evaluated as often as before.
#[test]
fn a_filter_that_draws_does_not_pass_a_stage_that_multiplies() {
    for (text, passes) in [
        ("{$unwind: '$a'}", false),
        (
            "{$lookup: {from: 'f', pipeline: [], as: 'j'}}, {$unwind: '$j'}",
            false,
        ),
        ("{$lookup: {from: 'f', pipeline: [], as: 'j'}}", true),
        ("{$project: {a: 1}}", true),
        ("{$sort: {a: 1}}", true),
    ] {
        let texts = [text.to_owned(), "{$match: {$sampleRate: 0.5}}".to_owned()];
        let optimized = parsed(&texts).unwrap().optimize();
        assert_eq!(!optimized.prefix.filter.is_empty(), passes, "{text}");
    }
}
