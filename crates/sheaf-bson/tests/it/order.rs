//! The total order of values: its laws, examples, and numbers compared by an independent method.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

use proptest::prelude::*;
use sheaf_bson::{
    Decimal128, FieldNames, RawValue, Value, array, compare_docs_with, compare_values, doc,
    hash_value, values_equal,
};
use sheaf_testkit::generate::{decimal, double, number, value};

fn cmp(a: &Value, b: &Value) -> Ordering {
    compare_values(a.as_raw(), b.as_raw())
}

fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_value(value.as_raw(), &mut hasher);
    hasher.finish()
}

/// A number written out in full: the sign, and 1100 digits on either side of the point, so that the
/// text compares as the number does.
fn written_out(value: &Value) -> Option<(bool, String)> {
    const SIDE: usize = 1100;
    let (negative, text) = match value {
        Value::Int32(n) => (*n < 0, i64::from(*n).unsigned_abs().to_string()),
        Value::Int64(n) => (*n < 0, n.unsigned_abs().to_string()),
        Value::Double(x) if x.is_finite() => (*x < 0.0, format!("{:.SIDE$}", x.abs())),
        Value::Decimal128(d) if d.is_finite() => {
            let (negative, coefficient, exponent) = d.decompose();
            if exponent.unsigned_abs() > 1000 {
                return None;
            }
            let digits = coefficient.to_string();
            if exponent >= 0 {
                (negative, digits + &"0".repeat(exponent as usize))
            } else {
                let padded = format!(
                    "{digits:0>width$}",
                    width = exponent.unsigned_abs() as usize + 1
                );
                let (whole, fraction) =
                    padded.split_at(padded.len() - exponent.unsigned_abs() as usize);
                (negative, format!("{whole}.{fraction}"))
            }
        }
        _ => return None,
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let out = format!("{whole:0>SIDE$}.{fraction:0<SIDE$}");
    let zero = out.bytes().all(|b| b == b'0' || b == b'.');
    Some((negative && !zero, out))
}

proptest! {
    #![proptest_config(crate::cases(2000))]

    #[test]
    fn order_is_antisymmetric(a in value(), b in value()) {
        prop_assert_eq!(cmp(&a, &b), cmp(&b, &a).reverse());
        prop_assert_eq!(cmp(&a, &a), Ordering::Equal);
    }

    #[test]
    fn order_is_transitive(a in value(), b in value(), c in value()) {
        let mut sorted = [a, b, c];
        sorted.sort_by(cmp);
        prop_assert!(cmp(&sorted[0], &sorted[2]).is_le());
        if cmp(&sorted[0], &sorted[2]).is_eq() {
            prop_assert!(cmp(&sorted[0], &sorted[1]).is_eq());
        }
    }

    #[test]
    fn order_of_numbers_is_transitive(a in number(), b in number(), c in number()) {
        let mut sorted = [a, b, c];
        sorted.sort_by(cmp);
        prop_assert!(cmp(&sorted[0], &sorted[2]).is_le());
    }

    #[test]
    fn equal_values_hash_alike(a in value(), b in value(), x in number(), y in number()) {
        for (a, b) in [(a, b), (x, y)] {
            if values_equal(a.as_raw(), b.as_raw()) {
                prop_assert_eq!(hash(&a), hash(&b), "{:?} {:?}", a, b);
            }
        }
    }

    #[test]
    fn numbers_compare_as_written_out(a in number(), b in number()) {
        if let (Some((na, ta)), Some((nb, tb))) = (written_out(&a), written_out(&b)) {
            let expected = match (na, nb) {
                (true, true) => tb.cmp(&ta),
                (false, false) => ta.cmp(&tb),
                _ => nb.cmp(&na),
            };
            prop_assert_eq!(cmp(&a, &b), expected, "{:?} {:?}", a, b);
        }
    }

    #[test]
    fn decimals_compare_exactly(d in decimal(), x in double(), n in any::<i64>()) {
        let value = Value::Decimal128(d);
        prop_assert_eq!(d.cmp_f64(x), cmp(&value, &Value::Double(x)));
        prop_assert_eq!(d.cmp_i64(n), cmp(&value, &Value::Int64(n)));
        if let Some(exact) = d.to_i64_exact() {
            prop_assert_eq!(d.cmp_i64(exact), Ordering::Equal);
        }
        if !d.is_nan() {
            // `to_f64` returns the nearest double, as the standard parser does.
            let back: f64 = d.to_string().parse().unwrap();
            prop_assert!(d.to_f64() == back, "{} {} {}", d, d.to_f64(), back);
        }
    }

    #[test]
    fn decimal_text_reads_back(d in decimal()) {
        let back: Decimal128 = d.to_string().parse().unwrap();
        prop_assert!(back == d || d.is_nan() && back.is_nan());
        let (negative, coefficient, exponent) = d.decompose();
        if d.is_finite() {
            prop_assert_eq!(Decimal128::from_parts(negative, coefficient, exponent), Some(d));
        }
    }
}

#[test]
fn the_order_of_types() {
    let decimal = |s: &str| Value::Decimal128(s.parse().unwrap());
    let groups: Vec<Vec<Value>> = vec![
        vec![Value::MinKey],
        vec![Value::Undefined],
        vec![Value::Null],
        vec![f64::NAN.into(), decimal("NaN")],
        vec![f64::NEG_INFINITY.into(), decimal("-Infinity")],
        vec![decimal("-1E+400")],
        vec![i64::MIN.into(), (-9223372036854775808.0).into()],
        vec![(-1).into(), (-1i64).into(), (-1.0).into(), decimal("-1.00")],
        vec![decimal("-1E-6176")],
        vec![
            0.into(),
            0i64.into(),
            0.0.into(),
            (-0.0).into(),
            decimal("0"),
            decimal("-0E+3"),
        ],
        vec![5e-324.into()],
        vec![decimal("0.1")],
        // The double 0.1 is slightly more than one tenth.
        vec![0.1.into()],
        vec![1.into(), 1.0.into()],
        vec![9007199254740992.0.into(), 9007199254740992i64.into()],
        vec![9007199254740993i64.into(), decimal("9007199254740993")],
        vec![i64::MAX.into()],
        vec![decimal("9223372036854775807.5")],
        vec![9223372036854775808.0.into(), decimal("9223372036854775808")],
        vec![decimal("1E+400")],
        vec![f64::INFINITY.into()],
        vec!["".into(), Value::Symbol(String::new())],
        vec!["a".into(), Value::Symbol("a".into())],
        vec!["a\0".into()],
        vec!["aa".into()],
        vec!["é".into()],
        vec![doc! {}.into()],
        // The type of the first field compares before its name.
        vec![doc! {"b": 1}.into()],
        vec![doc! {"b": 1, "a": 1}.into()],
        vec![doc! {"c": 0}.into()],
        vec![doc! {"a": "x"}.into()],
        vec![array![].into()],
        vec![array![1].into()],
        vec![array![1, 0].into()],
        vec![array!["a"].into()],
        vec![Value::Binary {
            subtype: 9,
            bytes: vec![],
        }],
        vec![Value::Binary {
            subtype: 0,
            bytes: vec![9],
        }],
        vec![Value::Binary {
            subtype: 1,
            bytes: vec![0],
        }],
        vec![Value::Binary {
            subtype: 0,
            bytes: vec![0, 0],
        }],
        vec![sheaf_bson::ObjectId([1; 12]).into()],
        vec![false.into()],
        vec![true.into()],
        vec![sheaf_bson::DateTime(-1).into()],
        vec![sheaf_bson::DateTime(1).into()],
        vec![sheaf_bson::Timestamp::new(1, u32::MAX).into()],
        vec![sheaf_bson::Timestamp::new(u32::MAX, 0).into()],
        vec![Value::Regex {
            pattern: "a".into(),
            options: "i".into(),
        }],
        vec![Value::Regex {
            pattern: "b".into(),
            options: "".into(),
        }],
        vec![Value::DbPointer {
            namespace: "z".into(),
            id: Default::default(),
        }],
        vec![Value::DbPointer {
            namespace: "aa".into(),
            id: Default::default(),
        }],
        vec![Value::JavaScript("a".into())],
        vec![Value::JavaScriptWithScope {
            code: "a".into(),
            scope: doc! {},
        }],
        vec![Value::MaxKey],
    ];
    for (i, group) in groups.iter().enumerate() {
        for a in group {
            for (j, others) in groups.iter().enumerate() {
                for b in others {
                    assert_eq!(cmp(a, b), i.cmp(&j), "{a:?} and {b:?}");
                }
            }
        }
    }
}

#[test]
fn names_of_fields_can_be_ignored_at_the_top() {
    let ignore = |a: &sheaf_bson::DocBuf, b: &sheaf_bson::DocBuf| {
        compare_docs_with(a.as_raw(), b.as_raw(), FieldNames::Ignore)
    };
    assert_eq!(
        ignore(&doc! {"a": 1, "b": 2}, &doc! {"x": 1, "": 2.0}),
        Ordering::Equal
    );
    assert_eq!(ignore(&doc! {"b": 1}, &doc! {"a": 2}), Ordering::Less);
    assert_eq!(
        ignore(&doc! {"a": {"x": 1}}, &doc! {"a": {"y": 1}}),
        Ordering::Less
    );
}

#[test]
fn keys_of_arrays_do_not_count() {
    let renamed = sheaf_bson::ArrayBuf::from_vec_unchecked(doc! {"7": 1, "x": 2}.into_vec());
    assert!(values_equal(
        RawValue::from(&renamed),
        RawValue::from(&array![1, 2])
    ));
}

#[test]
fn conversions_of_decimals() {
    let text = |x: f64| Decimal128::from_f64(x).to_string();
    assert_eq!(text(1.5), "1.50000000000000");
    assert_eq!(text(0.1), "0.100000000000000");
    assert_eq!(text(-1e300), "-1.00000000000000E+300");
    assert_eq!(text(5e-324), "4.94065645841247E-324");
    assert_eq!((text(0.0), text(-0.0)), ("0".to_owned(), "-0".to_owned()));
    assert_eq!(
        (text(f64::NAN), text(f64::NEG_INFINITY)),
        ("NaN".to_owned(), "-Infinity".to_owned())
    );
    let exact = |s: &str| s.parse::<Decimal128>().unwrap().to_i64_exact();
    assert_eq!(exact("1.50"), None);
    assert_eq!(exact("150E-1"), Some(15));
    assert_eq!(exact("9.223372036854775807E+18"), Some(i64::MAX));
    assert_eq!(exact("-9223372036854775808"), Some(i64::MIN));
    assert_eq!(exact("9223372036854775808"), None);
    assert_eq!(exact("1E+6000"), None);
    assert_eq!(
        (exact("0E+6000"), exact("NaN"), exact("Infinity")),
        (Some(0), None, None)
    );
    assert_eq!(RawValue::Double(9.3e18).as_i64_exact(), None);
    assert_eq!(
        RawValue::Double(i64::MIN as f64).as_i64_exact(),
        Some(i64::MIN)
    );
    assert_eq!(RawValue::Double(2.5).as_i64_exact(), None);
}

#[test]
fn decimals_rounded_to_an_integer() {
    let rounded = |s: &str| s.parse::<Decimal128>().unwrap().to_i64_saturating();
    for (text, wanted) in [
        ("0.5", 0),
        ("0.50001", 1),
        ("1.5", 2),
        ("2.5", 2),
        ("-1.5", -2),
        ("-0.5", 0),
        ("30E-1", 3),
        ("3E+2", 300),
        ("1E-6000", 0),
        ("9223372036854775807", i64::MAX),
        ("9223372036854775807.4", i64::MAX),
        ("-9223372036854775808", i64::MIN),
        ("9223372036854775808", i64::MAX),
        ("-1E+40", i64::MIN),
        ("9E+6111", i64::MAX),
        ("0E+6000", 0),
        ("Infinity", i64::MAX),
        ("-Infinity", i64::MIN),
        ("NaN", 0),
    ] {
        assert_eq!(rounded(text), wanted, "{text}");
    }
}
