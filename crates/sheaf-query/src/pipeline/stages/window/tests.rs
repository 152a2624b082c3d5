//! A sliding window has the same result as computing each window separately.

use proptest::prelude::*;
use sheaf_bson::json::typed;
use sheaf_bson::{ArrayBuf, DateTime, DocBuf, RawValue, Value, compare_values, doc};

use crate::arithmetic::Number;
use crate::expression::VariableScope;
use crate::matcher::ParseContext;
use crate::pipeline::accumulator::AccumulatorSpec;
use crate::pipeline::environment::{Environment, SpillStore, SpilledRecord};
use crate::pipeline::{Documents, Isolated, Pipeline, PipelineExec};

fn functions() -> Vec<(&'static str, Value)> {
    let n = |input: &str| Value::Document(doc! {"input": input, "n": 2});
    let ranked = |n: Option<i32>| {
        let mut spec = sheaf_bson::DocBuilder::new();
        spec.append("output", "$i");
        spec.append("sortBy", &Value::Document(doc! {"v": -1, "i": 1}));
        if let Some(n) = n {
            spec.append("n", n);
        }
        Value::Document(spec.finish())
    };
    let quantile = doc! {"input": "$v", "p": vec![0.0, 0.4, 1.0], "method": "approximate"};
    let median = doc! {"input": "$v", "method": "approximate"};
    vec![
        ("$sum", Value::from("$v")),
        ("$avg", Value::from("$v")),
        ("$min", Value::from("$v")),
        ("$max", Value::from("$v")),
        ("$count", Value::Document(DocBuf::new())),
        ("$first", Value::from("$v")),
        ("$last", Value::from("$v")),
        ("$push", Value::from("$v")),
        ("$addToSet", Value::from("$v")),
        ("$stdDevPop", Value::from("$v")),
        ("$stdDevSamp", Value::from("$v")),
        ("$firstN", n("$v")),
        ("$lastN", n("$v")),
        ("$minN", n("$v")),
        ("$maxN", n("$v")),
        ("$top", ranked(None)),
        ("$bottom", ranked(None)),
        ("$topN", ranked(Some(2))),
        ("$bottomN", ranked(Some(2))),
        ("$percentile", Value::Document(quantile)),
        ("$median", Value::Document(median)),
    ]
}

/// Numbers whose sums are exact, and values that are not numbers.
fn value() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Value::Null)),
        4 => (-20i32..20).prop_map(|n| Some(Value::Int32(n))),
        2 => (-20i64..20).prop_map(|n| Some(Value::Int64(n))),
        4 => (-40i32..40).prop_map(|n| Some(Value::Double(f64::from(n) / 4.0))),
        2 => (-20i64..20).prop_map(|n| Some(Value::Decimal128(crate::arithmetic::decimal::from_i64(n)))),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN]).prop_map(|x| Some(Value::Double(x))),
        1 => Just(Some(Value::from("text"))),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    rows: Vec<(i32, Option<Value>)>,
    range: bool,
    lower: Option<i32>,
    upper: Option<i32>,
}

fn case() -> impl Strategy<Value = Case> {
    let bound = || prop::option::of(-4i32..5);
    let rows = prop::collection::vec((0i32..12, value()), 0..14);
    (rows, any::<bool>(), bound(), bound()).prop_map(|(mut rows, range, lower, upper)| {
        rows.sort_by_key(|row| row.0);
        let (lower, upper) = match (lower, upper) {
            (Some(a), Some(b)) if a > b => (Some(b), Some(a)),
            other => other,
        };
        Case {
            rows,
            range,
            lower,
            upper,
        }
    })
}

impl Case {
    fn docs(&self) -> Vec<DocBuf> {
        let row = |(i, (t, v)): (usize, &(i32, Option<Value>))| {
            let mut out = sheaf_bson::DocBuilder::new();
            out.append("i", i as i32).append("t", *t);
            if let Some(v) = v {
                out.append("v", v);
            }
            out.finish()
        };
        self.rows.iter().enumerate().map(row).collect()
    }

    fn window(&self) -> DocBuf {
        let bound = |b: Option<i32>| b.map_or(Value::from("unbounded"), Value::Int32);
        let bounds = vec![bound(self.lower), bound(self.upper)];
        match self.range {
            true => doc! {"range": bounds},
            false => doc! {"documents": bounds},
        }
    }

    /// The documents in the window of document `i`, by definition.
    fn members(&self, i: usize) -> Vec<usize> {
        let distance = |j: usize| match self.range {
            true => self.rows[j].0 - self.rows[i].0,
            false => j as i32 - i as i32,
        };
        let within = |j: &usize| {
            self.lower.is_none_or(|lower| distance(*j) >= lower)
                && self.upper.is_none_or(|upper| distance(*j) <= upper)
        };
        (0..self.rows.len()).filter(within).collect()
    }
}

fn context() -> ParseContext {
    ParseContext {
        variables: VariableScope::new(DateTime(0)),
    }
}

fn computed(case: &Case, env: &dyn Environment) -> Vec<DocBuf> {
    let mut output = sheaf_bson::DocBuilder::new();
    for (at, (name, operand)) in functions().into_iter().enumerate() {
        let mut function = sheaf_bson::DocBuilder::new();
        function.append(name, &operand);
        function.append("window", &Value::Document(case.window()));
        output.append(format!("f{at}"), &function.finish());
    }
    let stage = doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": output.finish()}};
    let pipeline = ArrayBuf::from_values([RawValue::Document(stage.as_raw())]);
    let pipeline = Pipeline::parse(pipeline.as_raw(), &context()).unwrap();
    let mut exec = PipelineExec::new(&pipeline.stages);
    let mut source = Documents::from(case.docs());
    let mut out = Vec::new();
    while let Some(doc) = exec.next(&mut source, env).unwrap() {
        out.push(doc);
    }
    out
}

fn near(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    match (Number::from_raw(a), Number::from_raw(b)) {
        (Some(a), Some(b)) => {
            let (a, b) = (a.to_f64(), b.to_f64());
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() < 1e-6
        }
        _ => compare_values(a, b).is_eq(),
    }
}

fn sorted(value: RawValue<'_>) -> Vec<Value> {
    let mut values: Vec<Value> = match value {
        RawValue::Array(array) => array.iter().map(|v| v.to_value()).collect(),
        other => vec![other.to_value()],
    };
    values.sort_by(|a, b| compare_values(a.as_raw(), b.as_raw()));
    values
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn sliding_is_computing_anew(case in case()) {
        let docs = case.docs();
        let found = computed(&case, &Isolated);
        prop_assert_eq!(found.len(), docs.len());
        for (i, result) in found.iter().enumerate() {
            for (at, (name, operand)) in functions().into_iter().enumerate() {
                let spec = AccumulatorSpec::parse(name, operand.as_raw(), &VariableScope::default()).unwrap();
                let mut state = spec.start(RawValue::Null).unwrap();
                let mut feed = spec.feed();
                for j in case.members(i) {
                    feed.feed(&spec, docs[j].as_raw(), &mut state).unwrap();
                }
                let expected = state.finish().unwrap();
                let value = result.get(&format!("f{at}")).unwrap();
                let agree = match name {
                    "$addToSet" => {
                        let (a, b) = (sorted(value), sorted(expected.as_raw()));
                        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| near(a.as_raw(), b.as_raw()))
                    }
                    "$stdDevPop" | "$stdDevSamp" => near(value, expected.as_raw()),
                    _ => typed(value) == typed(&expected),
                };
                prop_assert!(agree, "{} of {}: {} for {}", name, i, typed(value), typed(&expected));
            }
        }
    }

    /// Results are the same whether documents wait in temporary files or in memory.
    #[test]
    fn spilled_is_in_memory(case in case()) {
        let spilling = Spilling(std::cell::Cell::new(0));
        prop_assert_eq!(computed(&case, &spilling), computed(&case, &Isolated));
    }
}

/// An environment with a very low memory limit, whose temporary files are vectors.
struct Spilling(std::cell::Cell<usize>);

impl Environment for Spilling {
    fn check_interrupt(&self) -> sheaf_bson::error_code::Result<()> {
        Ok(())
    }

    /// Enough for the states of the functions, but not for many documents.
    fn memory_bytes_max(&self) -> usize {
        60_000
    }

    fn spill(&self, _: &'static str) -> sheaf_bson::error_code::Result<Box<dyn SpillStore>> {
        self.0.set(self.0.get() + 1);
        Ok(Box::new(Kept(Vec::new(), 0)))
    }
}

struct Kept(Vec<SpilledRecord>, usize);

impl SpillStore for Kept {
    fn begin_run(&mut self) -> sheaf_bson::error_code::Result<()> {
        Ok(())
    }

    fn push(&mut self, key: &[u8], payload: &[u8]) -> sheaf_bson::error_code::Result<()> {
        self.0.push(SpilledRecord {
            key: key.to_vec(),
            payload: payload.to_vec(),
        });
        Ok(())
    }

    fn next(&mut self) -> sheaf_bson::error_code::Result<Option<SpilledRecord>> {
        self.1 += 1;
        Ok(self.0.get(self.1 - 1).cloned())
    }

    fn bytes_written(&self) -> u64 {
        self.0.iter().map(|r| r.payload.len() as u64).sum()
    }
}

/// A whole partition waits in temporary files, and all of it is returned.
#[test]
fn a_partition_larger_than_memory_waits_on_disk() {
    let docs: Vec<DocBuf> = (0..500)
        .map(|i| doc! {"i": i, "p": i / 250, "text": "x".repeat(1000)})
        .collect();
    let stage = doc! {"$setWindowFields": {"partitionBy": "$p", "output": {"n": {"$sum": "$i"}}}};
    let pipeline = ArrayBuf::from_values([RawValue::Document(stage.as_raw())]);
    let pipeline = Pipeline::parse(pipeline.as_raw(), &context()).unwrap();
    // Without the preceding sort, which has a separate memory limit.
    let mut exec = PipelineExec::new(&pipeline.stages[1..]);
    let env = Spilling(std::cell::Cell::new(0));
    let mut source = Documents::from(docs);
    let mut found = Vec::new();
    while let Some(doc) = exec.next(&mut source, &env).unwrap() {
        let number = |key: &str| doc.get(key).and_then(|v| v.as_i64_exact()).unwrap();
        let total = if number("p") == 0 { 31_125 } else { 93_625 };
        assert_eq!(number("n"), total);
        found.push(number("i"));
    }
    assert_eq!(found, (0..500).collect::<Vec<i64>>());
    assert!(env.0.get() >= 2, "both partitions went to disk");
}
