//! Stages, expressions and accumulators on text with a collation: `en` at strength 2, which ignores
//! case but not accents.

use std::sync::Arc;

use sheaf_bson::json::{parse, shell_doc};
use sheaf_bson::{Collation, Collator, DocBuf, RawValue};
use sheaf_query::expression::VariableScope;
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::environment::Isolated;
use sheaf_query::pipeline::{Documents, Pipeline, PipelineExec};

/// The results of the stages on the documents, with the collation or by bytes.
fn run(collated: bool, stages: &str, docs: &str) -> String {
    let spec = sheaf_bson::doc! {"locale": "en", "strength": 2};
    let collation = Collation::parse(spec.as_raw()).unwrap().unwrap();
    let collator = collated.then(|| Arc::new(Collator::new(collation).unwrap()));
    let context = ParseContext {
        variables: VariableScope::default().with_collator(collator),
    };
    let (stages, docs) = (parse(stages).unwrap(), parse(docs).unwrap());
    let docs: Vec<DocBuf> = (docs.as_raw().as_array().unwrap().iter())
        .map(|doc| doc.as_document().unwrap().to_buf())
        .collect();
    let RawValue::Array(stages) = stages.as_raw() else {
        panic!("stages are a list")
    };
    let pipeline = Pipeline::parse(stages, &context).unwrap();
    let mut exec = PipelineExec::new(&pipeline.stages);
    let mut source = Documents::from(docs);
    let mut out = Vec::new();
    while let Some(doc) = exec.next(&mut source, &Isolated).unwrap() {
        out.push(shell_doc(doc.as_raw()));
    }
    out.join(" ")
}

const WORDS: &str = r#"[{_id: 1, s: "b", n: 1}, {_id: 2, s: "A", n: 2}, {_id: 3, s: "B", n: 3}, {_id: 4, s: "á", n: 4}]"#;

#[test]
fn stages_compare_text() {
    for (stages, by_bytes, collated) in [
        (
            r#"[{$match: {s: "B"}}, {$project: {_id: 1}}]"#,
            "{ _id: 3 }",
            "{ _id: 1 } { _id: 3 }",
        ),
        (
            r#"[{$sort: {s: 1, _id: 1}}, {$project: {_id: 1}}]"#,
            "{ _id: 2 } { _id: 3 } { _id: 1 } { _id: 4 }",
            "{ _id: 2 } { _id: 4 } { _id: 1 } { _id: 3 }",
        ),
        (
            r#"[{$group: {_id: "$s", n: {$sum: "$n"}}}, {$match: {n: {$ne: 2}}}, {$sort: {n: 1}}]"#,
            "{ _id: \"b\", n: 1 } { _id: \"B\", n: 3 } { _id: \"á\", n: 4 }",
            "{ _id: \"b\", n: 4 } { _id: \"á\", n: 4 }",
        ),
        (
            r#"[{$group: {_id: null, min: {$min: "$s"}, max: {$max: "$s"}, set: {$addToSet: "$s"}, top: {$maxN: {input: "$s", n: 1}}}}]"#,
            "{ _id: null, min: \"A\", max: \"á\", set: [ \"b\", \"A\", \"B\", \"á\" ], top: [ \"á\" ] }",
            "{ _id: null, min: \"A\", max: \"b\", set: [ \"b\", \"A\", \"á\" ], top: [ \"B\" ] }",
        ),
        (
            r#"[{$sortByCount: "$s"}, {$limit: 1}, {$project: {count: 1, _id: 0}}]"#,
            "{ count: 1 }",
            "{ count: 2 }",
        ),
        (
            r#"[{$bucket: {groupBy: "$s", boundaries: ["a", "c"], default: "z"}}]"#,
            "{ _id: \"a\", count: 1 } { _id: \"z\", count: 3 }",
            "{ _id: \"a\", count: 4 }",
        ),
        (
            r#"[{$match: {s: {$in: ["b", "B"]}}}, {$densify: {field: "n", partitionByFields: ["s"], range: {step: 1, bounds: "partition"}}}, {$count: "n"}]"#,
            "{ n: 2 }",
            "{ n: 3 }",
        ),
    ] {
        assert_eq!(run(false, stages, WORDS), by_bytes, "{stages}");
        assert_eq!(run(true, stages, WORDS), collated, "{stages}");
    }
}

#[test]
fn expressions_compare_text() {
    for (expression, by_bytes, collated) in [
        (r#"{$eq: ["$s", "X"]}"#, "false", "true"),
        (r#"{$lt: ["$s", "Y"]}"#, "false", "true"),
        // Constant folding during parsing also uses the collation.
        (r#"{$eq: ["x", "X"]}"#, "false", "true"),
        (r#"{$cmp: ["$d", {k: "X"}]}"#, "1", "0"),
        (r#"{$in: ["X", "$l"]}"#, "false", "true"),
        // A long constant array is sorted by the collation.
        (
            r#"{$in: ["$s", ["z", "Y", "X", "w", "v", "u", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]}"#,
            "false",
            "true",
        ),
        (r#"{$indexOfArray: ["$l", "X"]}"#, "-1", "0"),
        (r#"{$setEquals: ["$l", ["X", "Y"]]}"#, "false", "true"),
        (r#"{$setIntersection: ["$l", ["Y"]]}"#, "[]", "[ \"y\" ]"),
        (r#"{$max: ["a", "B"]}"#, "\"a\"", "\"B\""),
        (
            r#"{$filter: {input: "$l", cond: {$eq: ["$$this", "Y"]}}}"#,
            "[]",
            "[ \"y\" ]",
        ),
        (
            r#"{$let: {vars: {v: "X"}, in: {$eq: ["$s", "$$v"]}}}"#,
            "false",
            "true",
        ),
        (r#"{$cond: [{$ne: ["$s", "X"]}, 1, 2]}"#, "1", "2"),
        (
            r#"{$sortArray: {input: ["b", "A", "B"], sortBy: 1}}"#,
            "[ \"A\", \"B\", \"b\" ]",
            "[ \"A\", \"b\", \"B\" ]",
        ),
        // Searches within text do not use the collation.
        (r#"{$indexOfBytes: ["$s", "X"]}"#, "-1", "-1"),
        (
            r#"{$regexMatch: {input: "$s", regex: "X"}}"#,
            "false",
            "false",
        ),
    ] {
        let stages = format!("[{{$project: {{_id: 0, e: {expression}}}}}]");
        let docs = r#"[{s: "x", l: ["x", "y"], d: {k: "x"}}]"#;
        assert_eq!(
            run(false, &stages, docs),
            format!("{{ e: {by_bytes} }}"),
            "{expression}"
        );
        assert_eq!(
            run(true, &stages, docs),
            format!("{{ e: {collated} }}"),
            "{expression}"
        );
        // The same expression as a predicate.
        let stages = format!("[{{$match: {{$expr: {expression}}}}}, {{$count: \"n\"}}]");
        let passes = |answer: &str| match answer {
            "false" => "",
            answer if answer == "0" => "",
            _ => "{ n: 1 }",
        };
        assert_eq!(run(true, &stages, docs), passes(collated), "{expression}");
    }
}
