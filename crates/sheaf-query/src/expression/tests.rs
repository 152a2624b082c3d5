//! Runs the scripts in `testdata/expression`, and properties over random documents.
//!
//! ```text
//!   expr {$add: ["$a", 1]}      an expression, followed by documents and its values
//!     {a: 1} => 2
//!     {} => null
//!     {a: "x"} => 14 $add only supports ...
//!   refuse {$foo: 1}            the error of parsing
//!   project {a: 1, b: "$c"}     a pipeline's projection, followed by documents and its results
//!   addFields {...}
//!   unset a b.c
//!   let {x: 5}                  variables of the expressions that follow
//! ```
//!
//! `UPDATE_EXPECT=1` rewrites the results.

use proptest::prelude::*;
use sheaf_bson::error_code::{Error, ErrorCode};
use sheaf_bson::json::typed;
use sheaf_bson::{DateTime, DocBuf, doc};

use super::projection_exec::ProjectionExec;
use super::*;
use crate::script::{self, Block, read, read_prefix};

const NOW: DateTime = DateTime(1_700_000_000_000);

fn value(text: &str) -> Value {
    sheaf_bson::json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn error(e: &Error) -> String {
    format!("{} {}", e.code().0, e.message())
}

fn evaluated(expression: &Result<Expression>, doc: &DocBuf) -> String {
    let expression = match expression {
        Ok(expression) => expression,
        Err(e) => return error(e),
    };
    match expression.evaluate_on(doc.as_raw()) {
        Err(e) => error(&e),
        Ok(value) => value.as_raw().map_or("missing".to_owned(), typed),
    }
}

fn projected(projection: &Result<ProjectionExec>, doc: &DocBuf) -> String {
    match projection.as_ref().map(|p| p.apply(doc.as_raw())) {
        Err(e) => error(e),
        Ok(Err(e)) => error(&e),
        Ok(Ok(doc)) => typed(&doc),
    }
}

/// Rows `left => right`: keeps the left side and computes the right side.
fn rows(block: &Block, mut answer: impl FnMut(&DocBuf) -> String) -> Option<Vec<String>> {
    let row = |line: &String| {
        let (doc, _) = read_prefix(line.trim());
        let left = line.trim().split(" =>").next().unwrap_or("").trim();
        format!("{left} => {}", answer(&doc))
    };
    Some(block.answer.iter().map(row).collect())
}

fn run(file: &str) {
    let mut scope = VariableScope::new(NOW);
    script::run(file, |block| match block.word.as_str() {
        "let" => {
            let vars = read(&block.rest);
            scope = VariableScope::new(NOW).with_let(vars.as_raw()).unwrap();
            None
        }
        "expr" => {
            let parsed = parse(value(&block.rest).as_raw(), &scope);
            rows(block, |doc| evaluated(&parsed, doc))
        }
        "refuse" => Some(vec![match parse(value(&block.rest).as_raw(), &scope) {
            Err(e) => error(&e),
            Ok(parsed) => format!("accepted: {parsed:?}"),
        }]),
        "project" => {
            let parsed = ProjectionExec::parse_project(read(&block.rest).as_raw(), &scope);
            rows(block, |doc| projected(&parsed, doc))
        }
        "addFields" => {
            let parsed = ProjectionExec::parse_add_fields(read(&block.rest).as_raw(), &scope);
            rows(block, |doc| projected(&parsed, doc))
        }
        "unset" => {
            let parsed = ProjectionExec::excluding(block.rest.split(' '));
            rows(block, |doc| projected(&parsed, doc))
        }
        other => panic!("{file}: unknown word {other}"),
    });
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(concat!("expression/", stringify!($name), ".txt"));
        })*
    };
}

scripts! {
    paths variables arithmetic boolean comparison conditional array string object types
    bits convert conversion digests json number_pairs objects pairs places sets slices texts truths vectors strings selection date date_zones projection refused coercion codes
}

fn parsed(text: &str) -> Expression {
    parse(value(text).as_raw(), &VariableScope::new(NOW)).unwrap()
}

#[test]
fn constants_are_folded() {
    for text in [
        "{$add: [1, 2]}",
        "{a: 1, b: ['x', '$$NOW']}",
        "{$cond: [true, {$concat: ['a', 'b']}, 3]}",
        "{$and: [1, {$eq: [2, 2]}]}",
        "'$$REMOVE'",
    ] {
        assert!(parsed(text).as_constant().is_some(), "{text}");
    }
    for text in ["{$add: ['$a', 1]}", "{$map: {input: [1], in: 2}}"] {
        assert!(parsed(text).as_constant().is_none(), "{text}");
    }
    // A failing call is an error, unless errors are deferred.
    let failing = value("{$ifNull: ['$a', {$divide: [1, 0]}]}");
    let refused = parse(failing.as_raw(), &VariableScope::new(NOW));
    assert_eq!(refused.unwrap_err().code(), ErrorCode::BAD_VALUE);
    let deferring = VariableScope::new(NOW).with_deferred_errors();
    let kept = parse(failing.as_raw(), &deferring).unwrap();
    assert!(kept.evaluate_on(doc! {"a": 1}.as_raw()).is_ok());
    assert!(kept.evaluate_on(doc! {}.as_raw()).is_err());
}

/// `$group` has separate error codes for divisions by zero, except for those of constants.
#[test]
fn divisions_in_groups() {
    let scope = VariableScope::new(NOW).with_group_codes();
    let document = doc! {"a": 1, "z": 0, "d": "1".parse::<sheaf_bson::Decimal128>().unwrap()};
    for (text, code) in [
        ("{$divide: ['$a', '$z']}", 4848401),
        ("{$add: [1, {$mod: ['$a', '$z']}]}", 4848403),
        ("{$mod: ['$d', '$z']}", 4848403),
        ("{$divide: ['$a', 'x']}", 14),
    ] {
        let found = parse(value(text).as_raw(), &scope).unwrap();
        let found = found.evaluate_on(document.as_raw()).map(|v| v.into_value());
        assert_eq!(found.unwrap_err().code().0, code, "{text}");
    }
    let constant = parse(value("{$divide: [1, 0]}").as_raw(), &scope);
    assert_eq!(constant.unwrap_err().code(), ErrorCode::BAD_VALUE);
}

#[test]
fn dependencies_are_what_is_read() {
    for (text, expected) in [
        ("{$add: ['$a', '$b.c', '$$ROOT.d']}", "[a, b.c, d]"),
        (
            "{$map: {input: '$a', as: 'x', in: {$add: ['$$x.y', '$z']}}}",
            "[a, z]",
        ),
        ("{$let: {vars: {v: '$a.b'}, in: '$$v.c'}}", "[a.b]"),
        (
            "{$switch: {branches: [{case: '$a', then: '$b'}], default: '$c'}}",
            "[a, b, c]",
        ),
        ("{x: ['$a', {y: '$a.b'}]}", "[a]"),
        ("{$literal: '$a'}", "[]"),
        ("'$$ROOT'", "all"),
        ("{$getField: 'a'}", "all"),
    ] {
        let found = parsed(text).dependencies();
        let paths: Vec<_> = found.paths.iter().map(String::as_str).collect();
        let shown = if found.whole_document {
            "all".into()
        } else {
            format!("[{}]", paths.join(", "))
        };
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn a_predicate_is_bound_and_answers() {
    let scope = VariableScope::new(NOW)
        .with_let(doc! {"limit": 5}.as_raw())
        .unwrap();
    let predicate = |text: &str| BoundExpression::parse(value(text).as_raw(), &scope).unwrap();
    let over = predicate("{$gt: ['$a', '$$limit']}");
    assert!(over.matches(doc! {"a": 6}.as_raw()).unwrap());
    assert!(!over.matches(doc! {"a": 5}.as_raw()).unwrap());
    assert_eq!(over.constant_answer(), None);
    assert_eq!(
        over.fields().map(|f| f.into_iter().collect()),
        Some(vec!["a".to_owned()])
    );
    assert_eq!(typed(over.spec()), "{ $gt: [ \"$a\", \"$$limit\" ] }");
    assert_eq!(
        predicate("{$lt: [1, '$$limit']}").constant_answer(),
        Some(true)
    );
    assert_eq!(predicate("null").constant_answer(), Some(false));
    assert_eq!(predicate("'$$ROOT'").fields(), None);
    assert!(
        predicate("{$divide: [1, '$a']}")
            .matches(doc! {"a": 0}.as_raw())
            .is_err()
    );
}

#[test]
fn nesting_is_limited() {
    let nest = |levels: usize| {
        let innermost = Value::String("$a".to_owned());
        let spec = (0..levels).fold(innermost, |inner, _| Value::Document(doc! {"$not": inner}));
        parse(spec.as_raw(), &VariableScope::default())
    };
    assert!(nest(199).is_ok());
    assert_eq!(nest(201).unwrap_err().code(), ErrorCode::OVERFLOW);
}

#[test]
fn an_evaluation_costs_no_more_than_it_may() {
    let a: Vec<i32> = (0..2000).collect();
    let doc = doc! {"a": a, "s": "x".repeat(1 << 20)};
    // 42 MB: not too large by itself.
    let text = format!("{{$concat: [{}]}}", ["'$s'"; 14].join(", "));
    let big = format!("[{text}, {text}, {text}]");
    for text in [
        // Text that doubles at each step.
        "{$reduce: {input: '$a', initialValue: 'xx', in: {$concat: ['$$value', '$$value']}}}",
        // An array that doubles at each step.
        "{$reduce: {input: '$a', initialValue: ['$s'], in: {$concatArrays: ['$$value', '$$value']}}}",
        // A large value, repeated.
        "{$map: {input: '$a', in: '$s'}}",
        "{$range: [0, 2000000000]}",
        // Nested variables.
        "{$let: {vars: {a: BIG}, in: {$let: {vars: {b: BIG}, in: {$let: {vars: {c: BIG}, in: 1}}}}}}",
        "{$let: {vars: {a: BIG, b: BIG, c: BIG}, in: 1}}",
        // Operands held while other operands are computed.
        "{$eq: [BIG, {$eq: [BIG, {$eq: [BIG, 1]}]}]}",
        "{$setUnion: [[BIG], [BIG], [BIG], [1]]}",
        // Named operands held while other operands are computed.
        "{$dateAdd: {startDate: BIG, unit: 'day', amount: {$dateAdd: {startDate: BIG, unit: 'day', amount: {$size: [BIG]}}}}}",
        "{$regexFind: {input: BIG, regex: BIG, options: {$regexFind: {input: 'x', regex: BIG}}}}",
        "{$convert: {input: BIG, to: 'int', onError: {$convert: {input: BIG, to: 'int', onError: {$size: [BIG]}}}}}",
        "{$replaceAll: {input: BIG, find: BIG, replacement: BIG}}",
        "{$zip: {inputs: [[BIG], [BIG], [BIG]]}}",
        "{$dateFromString: {dateString: BIG, onError: {$dateFromString: {dateString: BIG, onError: BIG}}}}",
        "{$replaceAll: {input: '$s', find: 'x', replacement: '$s'}}",
        // Nested loops with an empty result.
        "{$filter: {input: '$a', cond: {$filter: {input: '$a', cond: {$filter: {input: '$a', cond: false}}}}}}",
    ] {
        let text = &text.replace("BIG", &big);
        let parsed = parse(value(text).as_raw(), &VariableScope::new(NOW));
        let refused = parsed.and_then(|e| Ok(e.evaluate_on(doc.as_raw())?.into_value()));
        let code = refused.unwrap_err().code();
        assert!(
            matches!(
                code,
                // The last is that of a string longer than 16 MB.
                ErrorCode::EXCEEDED_MEMORY_LIMIT
                    | ErrorCode::EXCEEDED_TIME_LIMIT
                    | ErrorCode(16493)
            ),
            "{text}: {code}"
        );
    }
    let everywhere =
        ProjectionExec::parse_add_fields(doc! {"a.x": "$s"}.as_raw(), &VariableScope::default());
    let refused = everywhere.unwrap().apply(doc.as_raw());
    assert_eq!(
        refused.unwrap_err().code(),
        ErrorCode::EXCEEDED_MEMORY_LIMIT
    );
}

/// Any value as an expression: parsed or rejected, evaluated or rejected.
fn expression_value() -> impl Strategy<Value = Value> {
    let names: Vec<&'static str> = operators::TABLE.iter().map(|e| e.name()).collect();
    let leaf = prop_oneof![
        3 => prop::sample::select(vec!["$a", "$b.a", "$$ROOT", "$a.b", "$$this", "$$REMOVE", "x", ""])
            .prop_map(|s| Value::String(s.to_owned())),
        3 => sheaf_testkit::generate::number(),
        1 => sheaf_testkit::generate::value(),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let operator = prop::sample::select(names.clone());
        prop_oneof![
            2 => (operator.clone(), prop::collection::vec(inner.clone(), 0..4)).prop_map(|(name, args)| {
                Value::Document(doc! {name: Value::Array(args.iter().collect())})
            }),
            1 => (operator, inner.clone()).prop_map(|(name, arg)| Value::Document(doc! {name: arg})),
            1 => (inner.clone(), inner.clone()).prop_map(|(input, body)| Value::Document(doc! {
                "$map": {"input": input, "in": body}
            })),
            1 => (inner.clone(), inner).prop_map(|(a, b)| Value::Document(doc! {"a": a, "b": b})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 3000, ..ProptestConfig::default() })]

    /// Nothing panics, and the result is valid BSON.
    #[test]
    fn any_expression_is_evaluated_or_refused(
        spec in expression_value(),
        a in sheaf_testkit::generate::value(),
        b in sheaf_testkit::generate::document(),
    ) {
        let doc = doc! {"a": a, "b": b};
        if let Ok(expression) = parse(spec.as_raw(), &VariableScope::new(NOW))
            && let Ok(value) = expression.evaluate_on(doc.as_raw())
            && let Some(value) = value.as_raw()
        {
            let wrapped = doc! {"v": value};
            prop_assert!(sheaf_bson::validate::validate(wrapped.as_bytes(), &Default::default()).is_ok());
        }
    }

    /// A projection keeps or removes exactly what it names, for any document.
    #[test]
    fn plain_projections_split_a_document(doc in sheaf_testkit::generate::document()) {
        let names: Vec<String> = doc.iter().map(|e| e.key().to_owned()).collect();
        let usable = |n: &String| !n.is_empty() && !n.contains('.') && !n.starts_with('$') && n != "_id";
        let Some(name) = names.iter().find(|n| usable(n)) else { return Ok(()) };
        let keep = ProjectionExec::parse_project(doc! {name: 1, "_id": 0}.as_raw(), &VariableScope::default()).unwrap();
        let drop = ProjectionExec::parse_project(doc! {name: 0}.as_raw(), &VariableScope::default()).unwrap();
        let (kept, rest) = (keep.apply(doc.as_raw()).unwrap(), drop.apply(doc.as_raw()).unwrap());
        prop_assert!(kept.iter().all(|e| e.key() == name));
        prop_assert!(rest.iter().all(|e| e.key() != name));
        prop_assert_eq!(kept.iter().count() + rest.iter().count(), names.len());
    }
}
