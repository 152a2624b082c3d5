//! States that are split, written and merged have the same result as a single state.

use proptest::prelude::*;
use sheaf_bson::json::typed;
use sheaf_bson::{DocBuf, RawValue, Value, doc};

use super::*;
use crate::expression::VariableScope;

fn specs() -> Vec<AccumulatorSpec> {
    let scope = VariableScope::default();
    TABLE
        .iter()
        .map(|(name, kind)| {
            use AccumulatorKind::*;
            let operand = match kind {
                FirstN | LastN | MinN | MaxN => doc! {"input": "$a", "n": 3},
                Top | Bottom => doc! {"output": "$a", "sortBy": {"b": 1, "a": -1}},
                TopN | BottomN => doc! {"output": "$a", "sortBy": {"b": -1}, "n": 3},
                Percentile => {
                    doc! {"input": "$a", "p": vec![0.0, 0.3, 1.0], "method": "approximate"}
                }
                Median => doc! {"input": "$a", "method": "approximate"},
                ConcatArrays | SetUnion => doc! {"$cond": vec![
                    Value::Document(doc! {"$isArray": "$a"}),
                    Value::from("$a"),
                    Value::from(vec![1]),
                ]},
                MergeObjects => doc! {"x": "$a", "y": "$b"},
                _ => doc! {"$ifNull": vec!["$a", "$b"]},
            };
            AccumulatorSpec::parse(name, RawValue::Document(operand.as_raw()), &scope)
                .unwrap_or_else(|e| panic!("{name}: {e}"))
        })
        .collect()
}

fn accumulate(spec: &AccumulatorSpec, docs: &[DocBuf]) -> Accumulator {
    let mut state = spec.start(RawValue::Null).unwrap();
    let mut feed = spec.feed();
    for doc in docs {
        feed.feed(spec, doc.as_raw(), &mut state).unwrap();
    }
    state
}

/// Whether two values are equal, or two numbers differ only by rounding.
fn agree(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(x), Value::Double(y)) => {
            x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-9 * x.abs().max(1.0)
        }
        _ => typed(a) == typed(b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn cut_anywhere_and_merged(
        rows in prop::collection::vec((sheaf_testkit::generate::value(), 0i32..4), 0..12),
        cut in 0usize..12,
        again in 0usize..12,
    ) {
        let docs: Vec<DocBuf> = rows.iter().map(|(a, b)| doc! {"a": a, "b": *b}).collect();
        let cut = cut.min(docs.len());
        let again = again.clamp(cut, docs.len());
        for spec in specs() {
            let whole = accumulate(&spec, &docs).finish().unwrap();
            let mut merged = spec.start(RawValue::Null).unwrap();
            for part in [&docs[..cut], &docs[cut..again], &docs[again..]] {
                let partial = accumulate(&spec, part).into_partial();
                merged.merge(partial.as_raw()).unwrap();
            }
            let merged = merged.finish().unwrap();
            let deviation = matches!(spec.kind, AccumulatorKind::StdDevPop | AccumulatorKind::StdDevSamp);
            prop_assert!(
                typed(&whole) == typed(&merged) || (deviation && agree(&whole, &merged)),
                "{:?}: {} {}", spec.kind, typed(&whole), typed(&merged)
            );
        }
    }
}

#[test]
fn damaged_states_are_errors() {
    for spec in specs() {
        for partial in [Value::Int32(1), Value::Boolean(true)] {
            let mut state = spec.start(RawValue::Null).unwrap();
            if let Accumulator::First(_) | Accumulator::Extreme(..) = state {
                continue;
            }
            assert!(state.merge(partial.as_raw()).is_err(), "{:?}", spec.kind);
        }
    }
}
