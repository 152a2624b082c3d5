//! Runs the scripts in `testdata/pipeline`.
//!
//! ```text
//!   docs [{a: 1}, {a: 2}]      the documents of the collection, for the following lines
//!   run [{$match: {a: 1}}]     a pipeline, followed by its results
//!   optimize [...]             a pipeline, followed by its prefix and the remaining stages
//!   refuse [...]               the error of parsing
//! ```
//!
//! `run` also runs the optimised form with a naive find layer, and compares the results.
//! `UPDATE_EXPECT=1` rewrites the answers.

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::json::typed;
use sheaf_bson::{DateTime, DocBuf, doc};

use super::limits::STAGES_MAX;
use super::*;
use crate::expression::VariableScope;
use crate::matcher::ParseContext;
use crate::projection::Projection;
use crate::script;
use crate::sort::{SortKeyGenerator, SortSpec};

fn value(text: &str) -> Value {
    sheaf_bson::json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn context() -> ParseContext {
    ParseContext {
        variables: VariableScope::new(DateTime(1_700_000_000_000)),
    }
}

fn parsed(text: &str) -> Result<Pipeline> {
    match value(text).as_raw() {
        RawValue::Array(stages) => Pipeline::parse(stages, &context()),
        other => panic!("{other:?} is no array"),
    }
}

fn documents(text: &str) -> Vec<DocBuf> {
    let array = value(text);
    let Some(array) = array.as_raw().as_array() else {
        panic!("{text} is no array")
    };
    array
        .iter()
        .map(|v| v.as_document().unwrap().to_buf())
        .collect()
}

/// The results of the stages; asserts that they are the same with and without fused stages.
fn executed(stages: &[Stage], docs: Vec<DocBuf>) -> Result<Vec<DocBuf>> {
    let together = all(PipelineExec::new(stages), docs.clone());
    let apart = all(PipelineExec::explained(stages), docs);
    assert_eq!(
        together.as_ref().map_err(|e| e.code()),
        apart.as_ref().map_err(|e| e.code())
    );
    together
}

fn all(mut exec: PipelineExec, docs: Vec<DocBuf>) -> Result<Vec<DocBuf>> {
    let mut source = Documents::from(docs);
    let mut out = Vec::new();
    while let Some(doc) = exec.next(&mut source, &Isolated)? {
        out.push(doc);
    }
    let end = exec.next(&mut source, &Isolated)?;
    assert_eq!(end, None, "the end is the end");
    Ok(out)
}

/// The results of the find layer, computed naively.
pub(super) fn find(
    prefix: &CursorPrefix,
    docs: &[DocBuf],
    narrow: bool,
    context: &ParseContext,
) -> Vec<DocBuf> {
    let filter = crate::matcher::parse(prefix.filter.as_raw(), context).unwrap();
    let mut found: Vec<DocBuf> = docs
        .iter()
        .filter(|doc| filter.matches(doc.as_raw()).unwrap())
        .cloned()
        .collect();
    if let Some(sort) = &prefix.sort
        && let SortSpec::Pattern(pattern) = SortSpec::parse(sort.as_raw()).unwrap()
    {
        let mut keys = SortKeyGenerator::new(&pattern);
        found.sort_by_cached_key(|doc| {
            let mut key = Vec::new();
            keys.key_of_document(doc.as_raw(), &mut key).unwrap();
            key
        });
    }
    let limit = prefix.limit.map_or(usize::MAX, |n| n as usize);
    let page = found.into_iter().skip(prefix.skip as usize).take(limit);
    let dependencies = prefix.dependency_projection().filter(|_| narrow);
    let projection = prefix.projection.clone().or(dependencies);
    match projection {
        None => page.collect(),
        Some(spec) => {
            let projection = Projection::parse(spec.as_raw(), context).unwrap();
            let project = |doc: DocBuf| {
                let mut out = DocBuilder::new();
                projection
                    .apply(doc.as_raw(), None, Default::default(), &mut out)
                    .unwrap();
                out.finish()
            };
            page.map(project).collect()
        }
    }
}

fn lines(result: Result<Vec<DocBuf>>) -> Vec<String> {
    match result {
        Ok(docs) => docs.iter().map(typed).collect(),
        Err(e) => vec![format!("{} {}", e.code().0, e.message())],
    }
}

fn run_pipeline(text: &str, docs: &[DocBuf]) -> Vec<String> {
    let pipeline = match parsed(text) {
        Ok(pipeline) => pipeline,
        Err(e) => return lines(Err(e)),
    };
    let own;
    let docs = match &pipeline.source {
        PipelineSource::Documents(docs) => {
            own = docs.to_vec();
            &own[..]
        }
        _ => docs,
    };
    let plain = lines(executed(&pipeline.stages, docs.to_vec()));
    let optimized = pipeline.optimize();
    for narrow in [false, true] {
        let input = find(&optimized.prefix, docs, narrow, &context());
        let other = lines(executed(&optimized.rest.stages, input));
        assert_eq!(
            plain, other,
            "{text} optimised, dependencies {narrow}: {optimized:?}"
        );
    }
    plain
}

fn explained(optimized: &OptimizedPipeline) -> Vec<String> {
    let prefix = &optimized.prefix;
    let mut out = Vec::new();
    let mut say = |name: &str, text: String| out.push(format!("{name} {text}"));
    if !prefix.filter.is_empty() {
        say("filter", typed(&prefix.filter));
    }
    if let Some(sort) = &prefix.sort {
        say("sort", typed(sort));
    }
    if prefix.skip > 0 {
        say("skip", prefix.skip.to_string());
    }
    if let Some(limit) = prefix.limit {
        say("limit", limit.to_string());
    }
    if let Some(projection) = &prefix.projection {
        say("projection", typed(projection));
    }
    if let Some(dependencies) = prefix.dependency_projection() {
        let counts = if prefix.counts_only() {
            ", counts only"
        } else {
            ""
        };
        say("needs", format!("{}{counts}", typed(&dependencies)));
    }
    if let Some(distinct) = &prefix.distinct {
        say("distinct", format!("{} {:?}", distinct.path, distinct.take));
    }
    for stage in optimized.rest.serialize() {
        say("stage", typed(&stage));
    }
    out
}

fn run(file: &str) {
    let mut docs = Vec::new();
    script::run(file, |block| match block.word.as_str() {
        "docs" => {
            docs = documents(&block.rest);
            None
        }
        "run" => Some(run_pipeline(&block.rest, &docs)),
        "optimize" => Some(match parsed(&block.rest) {
            Ok(pipeline) => explained(&pipeline.optimize()),
            Err(e) => lines(Err(e)),
        }),
        "refuse" => Some(match parsed(&block.rest) {
            Ok(pipeline) => vec![format!("accepted: {:?}", pipeline.serialize())],
            Err(e) => lines(Err(e)),
        }),
        other => panic!("{file}: unknown word {other}"),
    });
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(concat!("pipeline/", stringify!($name), ".txt"));
        })*
    };
}

scripts! { stages group bucket bucket_auto densify fill window unwind optimize refused scenarios }

/// A source that counts the documents it has returned.
struct Counting {
    given: usize,
    total: usize,
    doc: DocBuf,
}

impl DocSource for Counting {
    fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
        if self.given == self.total {
            return Ok(None);
        }
        self.given += 1;
        self.doc = doc! {"_id": self.given as i32, "a": [1, 2, 3], "g": (self.given % 7) as i32};
        Ok(Some(self.doc.as_raw()))
    }
}

fn counting(total: usize) -> Counting {
    Counting {
        given: 0,
        total,
        doc: DocBuf::new(),
    }
}

#[test]
fn no_more_is_read_than_a_limit_needs() {
    for (text, expected) in [
        ("[{$limit: 5}]", 5),
        ("[{$unwind: '$a'}, {$limit: 4}]", 2),
        (
            "[{$match: {_id: {$gt: 10}}}, {$skip: 2}, {$limit: 3}, {$sort: {_id: -1}}]",
            15,
        ),
        ("[{$limit: 5}, {$group: {_id: null, n: {$sum: 1}}}]", 5),
        ("[{$sort: {_id: -1}}, {$limit: 2}]", 1000),
    ] {
        let mut exec = PipelineExec::new(&parsed(text).unwrap().stages);
        let mut source = counting(1000);
        while exec.next(&mut source, &Isolated).unwrap().is_some() {}
        assert_eq!(source.given, expected, "{text}");
    }
}

#[test]
fn results_come_as_soon_as_they_are_known() {
    let mut exec = PipelineExec::new(
        &parsed("[{$unwind: '$a'}, {$match: {a: 3}}]")
            .unwrap()
            .stages,
    );
    let mut source = counting(1000);
    exec.next(&mut source, &Isolated).unwrap().unwrap();
    assert_eq!(source.given, 1);
}

#[test]
fn one_document_is_unwound_step_by_step() {
    // 20,000 elements in a document of 1 MB: all outputs together would take 20 GB.
    let doc = doc! {"a": (0..20_000).collect::<Vec<i32>>(), "s": "x".repeat(1 << 20)};
    let mut exec = PipelineExec::new(
        &parsed("[{$unwind: '$a'}, {$group: {_id: null, n: {$sum: '$a'}}}]")
            .unwrap()
            .stages,
    );
    // A few outputs are enough to show that none is buffered; a limit cuts off the others.
    let mut few = PipelineExec::new(&parsed("[{$unwind: '$a'}, {$limit: 100}]").unwrap().stages);
    let mut source = Documents::from(vec![doc]);
    let mut count = 0;
    while few.next(&mut source, &Isolated).unwrap().is_some() {
        count += 1;
        assert!(few.waiting() <= 1);
    }
    assert_eq!(count, 100);
    let small = doc! {"a": (0..20_000).collect::<Vec<i32>>()};
    let sum = exec
        .next(&mut Documents::from(vec![small]), &Isolated)
        .unwrap()
        .unwrap();
    assert_eq!(sum.get("n"), Some(RawValue::Int32(199_990_000)));
}

#[test]
fn blocking_stages_hold_no_more_than_they_may() {
    struct Endless(DocBuf, i32);
    impl DocSource for Endless {
        fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
            self.1 += 1;
            self.0 = doc! {"_id": self.1, "s": "x".repeat(1 << 20)};
            Ok(Some(self.0.as_raw()))
        }
    }
    for text in [
        "[{$sort: {_id: 1}}]",
        "[{$group: {_id: '$_id', s: {$push: '$s'}}}]",
        "[{$group: {_id: '$_id', s: {$first: '$s'}}}]",
        "[{$group: {_id: null, s: {$push: '$$ROOT'}}}]",
        "[{$group: {_id: {i: '$_id', s: '$s'}}}]",
    ] {
        let mut exec = PipelineExec::new(&parsed(text).unwrap().stages);
        let error = exec
            .next(&mut Endless(DocBuf::new(), 0), &Isolated)
            .unwrap_err();
        // A single array that exceeds the memory limit cannot be spilled.
        let expected = match text.contains("$$ROOT") {
            true => ErrorCode::EXCEEDED_MEMORY_LIMIT,
            false => ErrorCode::QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED,
        };
        assert_eq!(error.code(), expected, "{text}");
    }
}

#[test]
fn a_sort_that_keeps_a_few_holds_no_more() {
    struct Large(DocBuf, i32);
    impl DocSource for Large {
        fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
            self.1 += 1;
            self.0 = doc! {"_id": self.1, "s": "x".repeat(1 << 20)};
            Ok((self.1 <= 200).then(|| self.0.as_raw()))
        }
    }
    let stages = [Stage::Sort {
        pattern: match SortSpec::parse(doc! {"_id": -1}.as_raw()).unwrap() {
            SortSpec::Pattern(pattern) => pattern,
            other => panic!("{other:?}"),
        },
        limit: Some(2),
        keeps: None,
    }];
    // 200 MB are read, 2 MB are kept.
    let mut exec = PipelineExec::new(&stages);
    let mut source = Large(DocBuf::new(), 0);
    let mut found = Vec::new();
    while let Some(doc) = exec.next(&mut source, &Isolated).unwrap() {
        found.push(doc.get("_id").and_then(|v| v.as_i64_exact()));
    }
    assert_eq!(found, [Some(200), Some(199)]);
}

#[test]
fn a_blocking_stage_holds_only_what_later_stages_read() {
    struct Padded(DocBuf, i32);
    impl DocSource for Padded {
        fn next(&mut self) -> Result<Option<RawDoc<'_>>> {
            self.1 += 1;
            self.0 = doc! {"_id": self.1, "a": [self.1, -self.1], "s": "x".repeat(1 << 20)};
            Ok((self.1 <= 100).then(|| self.0.as_raw()))
        }
    }
    // No stage may buffer the 200 MB of documents that are read.
    for (stages, expected) in [
        (
            "[{$unwind: '$a'}, {$sort: {a: 1}}, {$group: {_id: null, n: {$first: '$a'}}}]",
            Some(-100),
        ),
        (
            "[{$addFields: {b: {$first: '$a'}}}, {$unwind: '$a'}, {$sort: {b: -1, a: -1}}, {$project: {_id: 0, n: '$b'}}]",
            Some(100),
        ),
        (
            "[{$unwind: '$a'}, {$bucketAuto: {groupBy: '$a', buckets: 2, output: {n: {$max: '$a'}}}}]",
            Some(-1),
        ),
    ] {
        let rest = parsed(stages).unwrap().optimize().rest;
        let mut exec = PipelineExec::new(&rest.stages);
        let found = exec.next(&mut Padded(DocBuf::new(), 0), &Isolated).unwrap();
        let n = found.unwrap().get("n").and_then(|n| n.as_i64_exact());
        assert_eq!(n, expected, "{stages}");
    }
}

#[test]
fn a_result_too_large_is_refused() {
    let mut exec = PipelineExec::new(
        &parsed("[{$project: {a: ['$s', '$s', '$s']}}]")
            .unwrap()
            .stages,
    );
    let mut source = Documents::from(vec![doc! {"s": "x".repeat(7 << 20)}]);
    assert_eq!(
        exec.next(&mut source, &Isolated).unwrap_err().code(),
        ErrorCode::BSON_OBJECT_TOO_LARGE
    );
}

#[test]
fn a_pipeline_has_a_limit_of_stages() {
    let stages = |n: usize| format!("[{}]", vec!["{$skip: 1}"; n].join(","));
    assert!(parsed(&stages(STAGES_MAX)).is_ok());
    assert_eq!(
        parsed(&stages(STAGES_MAX + 1)).unwrap_err().code(),
        ErrorCode(7749501)
    );
}
