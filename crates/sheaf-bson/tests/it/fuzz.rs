//! Runs the bodies of the fuzz targets over mutated examples, as part of every test run.

use sheaf_bson::{DocBuilder, RawValue, Value, doc};
use sheaf_testkit::fuzz::{Random, bson, json, keystring, mutate};

fn examples() -> Vec<Vec<u8>> {
    let decimal = |s: &str| Value::Decimal128(s.parse().unwrap());
    let scope = doc! {"x": 1};
    let mut deep = DocBuilder::new();
    for _ in 0..100 {
        deep.begin_array("a");
    }
    [
        doc! {},
        doc! {"a": 1, "b": 1.0, "c": 1i64, "d": decimal("1.00"), "e": decimal("0.1"), "f": 0.1},
        doc! {"a": {"b": [1, {"c": [null, "x"]}]}, "d": [[], {}, [[1.5]]]},
        doc! {"s": "a\0b", "t": "", "u": "\u{1}é", "v": Value::Symbol("a".into())},
        doc! {
            "r": RawValue::Regex { pattern: "a/b", options: "im" },
            "c": RawValue::JavaScript("f()"),
            "w": RawValue::JavaScriptWithScope { code: "g()", scope: scope.as_raw() },
            "p": Value::DbPointer { namespace: "d.c".into(), id: Default::default() },
        },
        doc! {
            "b": RawValue::Binary { subtype: 0, bytes: &[1, 2, 3] },
            "o": RawValue::Binary { subtype: 2, bytes: &[1, 0, 0, 0, 9] },
            "i": sheaf_bson::ObjectId([7; 12]), "t": sheaf_bson::Timestamp::new(1, 2),
            "d": sheaf_bson::DateTime(-1), "y": true, "n": null, "u": Value::Undefined,
            "min": Value::MinKey, "max": Value::MaxKey, "nan": f64::NAN, "inf": f64::NEG_INFINITY,
        },
        doc! {"a": i64::MAX, "b": i64::MIN, "c": 9.3e18, "d": decimal("9223372036854775807.5")},
        deep.finish(),
    ]
    .into_iter()
    .map(|doc| doc.into_vec())
    .collect()
}

/// Feeds `body` with every example, mutated repeatedly.
fn run(seed: u64, rounds: usize, prefix: usize, body: impl Fn(&[u8])) {
    let mut random = Random::new(seed);
    for example in examples() {
        for round in 0..rounds {
            let mut bytes = example.clone();
            if round > 0 {
                mutate(&mut bytes, &mut random);
            }
            bytes.splice(0..0, (0..prefix).map(|_| random.number() as u8));
            body(&bytes);
        }
    }
}

#[test]
fn mutated_documents() {
    run(1, 2_000, 0, bson);
}

#[test]
fn mutated_fields_of_keys() {
    run(2, 2_000, 2, keystring);
}

#[test]
fn mutated_keys() {
    let mut random = Random::new(3);
    for example in examples() {
        let raw = sheaf_bson::RawDoc::parse(&example).unwrap();
        let mut key = sheaf_bson::keystring::KeyStringBuilder::default();
        for element in raw {
            key.append(element.value());
        }
        for _ in 0..2_000 {
            let mut bytes = key.as_bytes().to_vec();
            mutate(&mut bytes, &mut random);
            let split = bytes.len().min(255) as u8;
            bytes.extend_from_slice(key.type_bits().as_bytes());
            bytes.splice(0..0, [0, split]);
            keystring(&bytes);
        }
    }
}

#[test]
fn mutated_text() {
    let mut random = Random::new(4);
    for example in examples() {
        let text = sheaf_bson::json::typed(sheaf_bson::RawDoc::parse(&example).unwrap());
        for _ in 0..1_000 {
            let mut bytes = text.clone().into_bytes();
            mutate(&mut bytes, &mut random);
            json(&bytes);
        }
    }
}
