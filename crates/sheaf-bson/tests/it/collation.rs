//! Collations: how the document is parsed and shown, what each field means (tables), and that sort
//! keys agree with comparison (properties).

use std::cmp::Ordering;

use proptest::prelude::*;
use sheaf_bson::collation::{CollationChoice, text_of_sort_key};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{Collation, Collator, DocBuf, Value, compare_values, compare_values_with, doc};
use sheaf_testkit::generate::value;

fn collator(spec: DocBuf) -> Collator {
    let collation = Collation::parse(spec.as_raw())
        .unwrap_or_else(|e| panic!("{spec}: {e}"))
        .expect("not the simple collation");
    Collator::new(collation).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

/// Checks a chain `"a < b = c < d"`: every adjacent pair, both ways, by comparison and by sort key.
fn table(spec: DocBuf, chain: &str) {
    let collator = collator(spec.clone());
    let words: Vec<&str> = chain.split(' ').collect();
    for three in words.windows(3).step_by(2) {
        let [a, relation, b] = three else {
            unreachable!()
        };
        let (a, b) = (a.replace('_', " "), b.replace('_', " "));
        let expected = match *relation {
            "<" => Ordering::Less,
            "=" => Ordering::Equal,
            other => panic!("{other}"),
        };
        assert_eq!(collator.compare(&a, &b), expected, "{spec}: {a:?} {b:?}");
        assert_eq!(
            collator.compare(&b, &a),
            expected.reverse(),
            "{spec}: {b:?} {a:?}"
        );
        let keys = (collator.key_text(&a), collator.key_text(&b));
        assert_eq!(keys.0.cmp(&keys.1), expected, "{spec}: keys of {a:?} {b:?}");
    }
}

#[test]
fn strength_says_which_differences_count() {
    table(doc! {"locale": "en", "strength": 1}, "a = A = á = Á < b");
    table(doc! {"locale": "en", "strength": 2}, "a = A < á = Á < b");
    table(doc! {"locale": "en", "strength": 3}, "a < A < á < Á < b");
    table(doc! {"locale": "en"}, "a < A < á < Á < b");
    // A difference in letters outweighs accents, which outweigh case.
    table(doc! {"locale": "en"}, "role < Role < rôle < roles < Roles");
    // Level 5 distinguishes texts that differ only in code points.
    table(doc! {"locale": "en", "strength": 4}, "a\u{1}b = ab");
    table(doc! {"locale": "en", "strength": 5}, "ab < a\u{1}c");
    assert!(
        collator(doc! {"locale": "en", "strength": 5})
            .compare("a\u{1}b", "ab")
            .is_ne()
    );
}

#[test]
fn case_level_adds_case_without_accents() {
    table(
        doc! {"locale": "en", "strength": 1, "caseLevel": true},
        "a = á < A = Á < b",
    );
    table(
        doc! {"locale": "en", "strength": 2, "caseLevel": true},
        "a < A < á < Á < b",
    );
}

#[test]
fn case_first_says_which_case_leads() {
    table(
        doc! {"locale": "en", "caseFirst": "upper"},
        "A < a < Á < á < B < b",
    );
    table(
        doc! {"locale": "en", "caseFirst": "lower"},
        "a < A < á < Á < b < B",
    );
    table(
        doc! {"locale": "en", "caseFirst": "off"},
        "a < A < á < Á < b < B",
    );
    // The default for Danish.
    table(doc! {"locale": "da"}, "A < a < B < b");
}

/// The manual's example: the sign and the point are not part of a number.
#[test]
fn numeric_ordering_compares_runs_of_digits() {
    table(
        doc! {"locale": "en_US", "numericOrdering": true},
        "-2.1 < -10 < 1 < 2 < 2.1 < 2.2 < 2.10 < 2.20 < 10 < 20 < 20.1",
    );
    table(doc! {"locale": "en_US"}, "1 < 10 < 2 < 20");
    table(
        doc! {"locale": "en", "numericOrdering": true},
        "A2 < A10 < A010x < B1",
    );
}

#[test]
fn shifted_passes_over_spaces_and_punctuation() {
    let shifted =
        |strength: i32| doc! {"locale": "en", "alternate": "shifted", "strength": strength};
    // `_` means a space.
    table(
        doc! {"locale": "en"},
        "di_Silva < Di_Silva < diSilva < U.S.A. < USA",
    );
    table(
        shifted(3),
        "di_Silva = diSilva < Di_Silva = DiSilva < U.S.A. = USA",
    );
    table(
        shifted(4),
        "di_Silva < diSilva < Di_Silva < DiSilva < U.S.A. < USA",
    );
    table(
        doc! {"locale": "en", "alternate": "shifted", "maxVariable": "space"},
        "di_Silva = diSilva < U.S.A. < USA",
    );
    // The default for Thai.
    table(doc! {"locale": "th"}, "a_b = ab");
}

#[test]
fn backwards_compares_accents_from_the_end() {
    table(doc! {"locale": "fr"}, "cote < coté < côte < côté");
    table(doc! {"locale": "fr_CA"}, "cote < côte < coté < côté");
    // The opposite of the locale's default.
    table(
        doc! {"locale": "fr", "backwards": true},
        "cote < côte < coté < côté",
    );
    table(
        doc! {"locale": "fr_CA", "backwards": false},
        "cote < coté < côte < côté",
    );
    table(
        doc! {"locale": "de", "strength": 2, "backwards": true},
        "cote < côte = Côte < coté < côté",
    );
}

#[test]
fn languages_have_their_own_alphabets() {
    table(doc! {"locale": "en"}, "a < ä < z");
    table(doc! {"locale": "sv"}, "a < z < å < ä < ö");
    table(doc! {"locale": "de"}, "ad < äd < af");
    table(doc! {"locale": "de@collation=phonebook"}, "ad < äd < af");
    table(
        doc! {"locale": "de@collation=phonebook", "strength": 1},
        "ad < ae = ä < af",
    );
    table(doc! {"locale": "es"}, "ch < ci < cz < d");
    table(
        doc! {"locale": "es@collation=traditional"},
        "ci < cz < ch < d",
    );
    table(doc! {"locale": "tr", "strength": 1}, "ı = I < i = İ");
    table(doc! {"locale": "lt"}, "i < y < j");
    table(doc! {"locale": "zh"}, "阿 < 八 < 中");
    table(doc! {"locale": "zh@collation=stroke"}, "八 < 中 < 阿");
    table(doc! {"locale": "ja"}, "あ = ア < い");
    table(doc! {"locale": "ja", "strength": 4}, "あ < ア < い");
    table(doc! {"locale": "ru"}, "е < ё < ж");
}

#[test]
fn text_compares_as_if_normalized() {
    for normalization in [false, true] {
        table(
            doc! {"locale": "en", "strength": 5, "normalization": normalization},
            "e\u{301} = é < f",
        );
    }
}

#[test]
fn documents_are_filled_in_and_shown_whole() {
    let shown = |spec: DocBuf| Collation::parse(spec.as_raw()).unwrap().unwrap().to_doc();
    let plain = |locale: &str| {
        doc! {"locale": locale, "caseLevel": false, "caseFirst": "off", "strength": 3,
        "numericOrdering": false, "alternate": "non-ignorable", "maxVariable": "punct",
        "normalization": false, "backwards": false, "version": "57.1"}
    };
    assert_eq!(shown(doc! {"locale": "en"}), plain("en"));
    assert_eq!(shown(plain("en")), plain("en"));
    assert_eq!(
        shown(doc! {"strength": 2.0, "locale": "fr_CA", "alternate": "shifted"}),
        doc! {"locale": "fr_CA", "caseLevel": false, "caseFirst": "off", "strength": 2,
        "numericOrdering": false, "alternate": "shifted", "maxVariable": "punct",
        "normalization": false, "backwards": true, "version": "57.1"}
    );
    for (locale, field, value) in [
        ("da", "caseFirst", Value::from("upper")),
        ("mt", "caseFirst", Value::from("upper")),
        ("th", "alternate", Value::from("shifted")),
        ("th", "normalization", Value::Boolean(true)),
        ("vi", "normalization", Value::Boolean(true)),
        ("fr_CA", "backwards", Value::Boolean(true)),
        ("fr", "backwards", Value::Boolean(false)),
    ] {
        let shown = shown(doc! {"locale": locale});
        assert_eq!(
            shown.get(field).map(|v| v.to_value()),
            Some(value),
            "{locale}.{field}"
        );
    }
    let choice = |spec: DocBuf| CollationChoice::parse(spec.as_raw()).unwrap();
    assert_eq!(choice(doc! {}), CollationChoice::Unsaid);
    assert_eq!(choice(doc! {"locale": "simple"}), CollationChoice::Simple);
    assert_eq!(choice(doc! {"locale": "en"}), choice(plain("en")));
    assert_ne!(
        choice(doc! {"locale": "en"}),
        choice(doc! {"locale": "en_US"})
    );
}

#[test]
fn invalid_documents_are_refused() {
    for (spec, code, part) in [
        (doc! {"strength": 1}, 40414, "locale"),
        (doc! {"locale": 5}, 14, "locale"),
        (doc! {"locale": "en", "colour": 1}, 40415, "colour"),
        (doc! {"locale": "en", "strength": "1"}, 14, "strength"),
        (doc! {"locale": "en", "strength": 0}, 2, "strength"),
        (doc! {"locale": "en", "strength": 6}, 2, "strength"),
        (doc! {"locale": "en", "strength": 1.5}, 2, "strength"),
        (doc! {"locale": "en", "caseLevel": "yes"}, 14, "caseLevel"),
        (doc! {"locale": "en", "caseFirst": "big"}, 2, "caseFirst"),
        (doc! {"locale": "en", "alternate": "skip"}, 2, "alternate"),
        (
            doc! {"locale": "en", "maxVariable": "all"},
            2,
            "maxVariable",
        ),
        (
            doc! {"locale": "en", "numericOrdering": []},
            14,
            "numericOrdering",
        ),
        (doc! {"locale": "en", "version": "1"}, 161, "version"),
        (doc! {"locale": "simple", "strength": 9}, 2, "strength"),
        (
            doc! {"locale": "en", "strength": 2, "caseFirst": "upper"},
            2,
            "caseFirst",
        ),
        (
            doc! {"locale": "en", "strength": 1, "backwards": true},
            2,
            "backwards",
        ),
        (doc! {"locale": ""}, 2, "locale"),
        (doc! {"locale": "xx"}, 2, "'xx'"),
        (doc! {"locale": "en-US"}, 2, "'en-US'"),
        (doc! {"locale": "EN"}, 2, "'EN'"),
        (doc! {"locale": "en_us"}, 2, "'us'"),
        (doc! {"locale": "en_US_US"}, 2, "'US'"),
        (doc! {"locale": "en@x=y"}, 2, "'x=y'"),
        (doc! {"locale": "en@collation=odd"}, 2, "'odd'"),
        (doc! {"locale": "en@collation=phonebook"}, 2, "'phonebook'"),
        (doc! {"locale": "de@collation=search"}, 2, "'search'"),
    ] {
        let error = CollationChoice::parse(spec.as_raw()).unwrap_err();
        assert_eq!(error.code().0, code, "{spec}: {error}");
        assert!(error.to_string().contains(part), "{spec}: {error}");
    }
    // A conflict that comes from the locale's default is not an error.
    for spec in [
        doc! {"locale": "da", "strength": 1},
        doc! {"locale": "fr_CA", "strength": 1},
        doc! {"locale": "en_US_POSIX"},
        doc! {"locale": "zh_Hant_TW"},
        doc! {"locale": "sr_Latn"},
    ] {
        collator(spec);
    }
}

#[test]
fn sort_keys_print_as_hexadecimal() {
    let collator = collator(doc! {"locale": "en", "strength": 1});
    let bytes: String = collator
        .sort_key("Zürich 中")
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!(
        text_of_sort_key(&collator.key_text("Zürich 中")),
        format!("0x{bytes}")
    );
}

const LOCALES: &[&str] = &[
    "en",
    "da",
    "de",
    "de@collation=phonebook",
    "es@collation=traditional",
    "fr_CA",
    "el",
    "he",
    "ar",
    "hi",
    "hu",
    "ja",
    "ko",
    "lt",
    "sv",
    "th",
    "tr",
    "vi",
    "zh",
    "zh_Hant",
    "si",
    "bn",
];

/// Any valid collation document.
fn spec() -> impl Strategy<Value = DocBuf> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let case_first = proptest::sample::select(vec!["off", "upper", "lower"]);
    let locale = proptest::sample::select(LOCALES);
    (locale, 1..=5i32, flags, any::<bool>(), case_first).prop_map(
        |(locale, strength, (level, numeric, shifted, space), backwards, case_first)| {
            let case_first = if level || strength > 2 {
                case_first
            } else {
                "off"
            };
            doc! {"locale": locale, "strength": strength, "caseLevel": level,
            "numericOrdering": numeric,
            "alternate": if shifted { "shifted" } else { "non-ignorable" },
            "maxVariable": if space { "space" } else { "punct" },
            "backwards": backwards && strength > 1, "caseFirst": case_first}
        },
    )
}

/// Text of many scripts, much of it nearly equal.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "a", "A", "á", "a\u{301}", "e", "é", "ô", "ss", "ß", "ae", "æ", "ö", "o\u{308}", "ch",
            "i", "I", "ı", "İ", "n", "ñ", "0", "1", "9", "10", "007", " ", "-", ".", "'", "_",
            "\u{1}", "\u{ad}", "\u{fffe}", "\u{ffff}", "あ", "ア", "ｱ", "ー", "中", "八", "ก", "เ", "한", "\u{1100}",
            "ж", "Ж", "α", "ά", "\u{5d0}", "\u{5bc}", "\u{915}\u{94d}", "😀", "\u{10ffff}",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(crate::cases(3000))]

    #[test]
    fn sort_keys_order_as_comparison_does(spec in spec(), a in text(), b in text()) {
        let collator = collator(spec);
        let order = collator.compare(&a, &b);
        prop_assert_eq!(order, collator.compare(&b, &a).reverse());
        let (x, y) = (collator.sort_key(&a), collator.sort_key(&b));
        prop_assert!(!x.contains(&0));
        prop_assert_eq!(x.cmp(&y), order, "{:?} {:x?} / {:?} {:x?}", a, x, b, y);
        prop_assert_eq!(collator.key_text(&a).cmp(&collator.key_text(&b)), order);
    }

    #[test]
    fn comparison_is_transitive(spec in spec(), a in text(), b in text(), c in text()) {
        let collator = collator(spec);
        let mut sorted = [a, b, c];
        sorted.sort_by(|x, y| collator.sort_key(x).cmp(&collator.sort_key(y)));
        prop_assert!(collator.compare(&sorted[0], &sorted[2]).is_le());
    }

    /// Whole values: comparison with the collator, of key values without it, and of KeyStrings.
    #[test]
    fn key_values_order_as_values_do(spec in spec(), a in value(), b in value(), x in text(), y in text()) {
        let collator = collator(spec);
        let with_text = |v: Value, t: &str| Value::Document(doc! {"a": t, "b": [Value::from(t), v]});
        for (a, b) in [(a.clone(), b.clone()), (with_text(a.clone(), &x), with_text(b, &y)), (with_text(a.clone(), &x), with_text(a, &y))] {
            let order = compare_values_with(a.as_raw(), b.as_raw(), Some(&collator));
            let (ka, kb) = (collator.key_value(a.as_raw()), collator.key_value(b.as_raw()));
            prop_assert_eq!(compare_values(ka.as_raw(), kb.as_raw()), order);
            for directions in [Directions::ascending(), Directions::from_signs([-1])] {
                let key = |v: &Value, collator: Option<&Collator>| {
                    let mut builder = KeyStringBuilder::new(directions);
                    builder.append_with(v.as_raw(), collator);
                    builder.finish()
                };
                let found = key(&a, Some(&collator)).0.cmp(&key(&b, Some(&collator)).0);
                let expected = if directions.is_descending(0) { order.reverse() } else { order };
                prop_assert_eq!(found, expected);
                prop_assert_eq!(key(&a, Some(&collator)), key(&ka, None));
            }
        }
    }
}
