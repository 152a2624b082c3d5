//! Runs the scripts in `testdata/matcher`.
//!
//! ```text
//!   filter {a: 1}            a filter, followed by documents that pass or do not
//!     yes {a: [1, 2]}
//!     no  {a: 2}
//!   details {a: 5}           which array element matched
//!     1 {a: [4, 5]}
//!   refuse {a: {$foo: 1}}    code and message of the error
//!   print {b: 1, a: 1}       the normalised filter
//! ```
//!
//! Every row of a `filter` is also tested with the normalised filter, the filter parsed from its
//! printed form, and its negation. `UPDATE_EXPECT=1` rewrites the answers of `refuse` and `print`;
//! rows are never rewritten.

use sheaf_bson::json::shell_doc;
use sheaf_bson::{DocBuf, doc};

use super::*;
use crate::script::{self, read};

fn parsed(filter: &DocBuf) -> MatchExpression {
    parse(filter.as_raw(), &ParseContext::default()).unwrap_or_else(|e| panic!("{filter:?}: {e}"))
}

/// The filter in all forms, which must agree.
struct Forms {
    raw: MatchExpression,
    normal: MatchExpression,
    reparsed: MatchExpression,
    negated: MatchExpression,
}

impl Forms {
    fn new(filter: &DocBuf) -> Forms {
        let raw = parsed(filter);
        let normal = raw.clone().normalize();
        let printed = normal.serialize();
        let reparsed = parsed(&printed).normalize();
        assert_eq!(
            reparsed.serialize(),
            printed,
            "{filter:?} changes when its printed form is parsed"
        );
        assert_eq!(
            normal.clone().normalize().serialize(),
            printed,
            "{filter:?} changes when normalised again"
        );
        let reprinted = parsed(&raw.serialize()).normalize().serialize();
        assert_eq!(
            reprinted, printed,
            "{filter:?} printed before it is normalised"
        );
        let negated = parsed(&doc! {"$nor": [filter]}).normalize();
        Forms {
            raw,
            normal,
            reparsed,
            negated,
        }
    }

    fn check(&self, doc: &DocBuf, want: bool) {
        let raw = doc.as_raw();
        let mut details = MatchDetails::default();
        let answers = [
            ("as written", self.raw.matches(raw)),
            ("normalised", self.normal.matches(raw)),
            ("reparsed", self.reparsed.matches(raw)),
            ("negated", self.negated.matches(raw).map(|found| !found)),
            (
                "with details",
                self.normal.matches_with_details(raw, &mut details),
            ),
        ];
        for (form, answer) in answers {
            assert_eq!(
                answer.as_ref().ok(),
                Some(&want),
                "{} {form} on {doc:?}: {answer:?}",
                shell_doc(self.normal.serialize().as_raw())
            );
        }
    }
}

fn run(name: &str) {
    script::run(&format!("matcher/{name}"), |block| {
        match block.word.as_str() {
            "filter" => {
                let forms = Forms::new(&read(&block.rest));
                for row in &block.answer {
                    match row.trim().split_once(' ') {
                        Some(("yes", doc)) => forms.check(&read(doc), true),
                        Some(("no", doc)) => forms.check(&read(doc), false),
                        _ => panic!("{name}: what is {row:?}?"),
                    }
                }
            }
            "details" => {
                let filter = parsed(&read(&block.rest)).normalize();
                for row in &block.answer {
                    let (want, doc) = row.trim().split_once(' ').expect("position and document");
                    let mut found = MatchDetails::default();
                    let matched = filter.matches_with_details(read(doc).as_raw(), &mut found);
                    assert_eq!(matched, Ok(true), "{row}");
                    assert_eq!(found.array_index, want.parse().ok(), "{row}");
                }
            }
            word => {
                let filter = read(&block.rest);
                let result = parse(filter.as_raw(), &ParseContext::default());
                return Some(vec![match (word, result) {
                    ("refuse", Err(e)) => format!("{} {}", e.code().0, e.message()),
                    ("print", Ok(e)) => shell_doc(e.normalize().serialize().as_raw()),
                    (word, result) => panic!("{name}: {word} {}: {result:?}", block.rest),
                }]);
            }
        }
        None
    });
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(concat!(stringify!($name), ".txt"));
            }
        )*

        /// Every script in the directory has a test.
        #[test]
        fn every_script_is_run() {
            let known = [$(concat!(stringify!($name), ".txt")),*];
            for entry in std::fs::read_dir(script::path("matcher")).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(known.contains(&name.as_str()), "{name}");
            }
        }
    };
}

scripts! {
    equality comparison paths logical in_list element array regex bits
    refuse print details json_schema json_schema_refused
}

#[test]
fn nesting_is_bounded() {
    let mut filter = doc! {"a": {"$exists": true}};
    for _ in 0..99 {
        filter = doc! {"$and": [filter]};
    }
    assert!(parse(filter.as_raw(), &ParseContext::default()).is_ok());
    for _ in 0..2 {
        filter = doc! {"$and": [filter]};
    }
    let e = parse(filter.as_raw(), &ParseContext::default()).unwrap_err();
    assert_eq!(e.code().0, 2, "{e}");

    let mut filter = doc! {"$gt": 1};
    for _ in 0..200 {
        filter = doc! {"$not": filter};
    }
    let filter = doc! {"a": filter};
    assert!(parse(filter.as_raw(), &ParseContext::default()).is_err());

    let long = vec!["a"; 300].join(".");
    assert!(parse(doc! {long: 1}.as_raw(), &ParseContext::default()).is_err());
}

#[test]
fn predicates_without_a_path() {
    let context = ParseContext::default();
    let predicate = parse_predicate(doc! {"$gte": 3, "$lt": 9}.as_raw(), &context).unwrap();
    let predicate = predicate.normalize();
    assert_eq!(predicate.matches_value(5.into()), Ok(true));
    assert_eq!(predicate.matches_value(9.into()), Ok(false));
    // Like an array field: different elements may satisfy the bounds.
    let array = sheaf_bson::array![1, 10];
    assert_eq!(predicate.matches_value((&array).into()), Ok(true));
    let array = sheaf_bson::array![10, 11];
    assert_eq!(predicate.matches_value((&array).into()), Ok(false));
    let array = sheaf_bson::array![1, 5];
    assert_eq!(predicate.matches_value((&array).into()), Ok(true));
    let elem = parse_predicate(doc! {"$elemMatch": {"b": 1}}.as_raw(), &context).unwrap();
    let array = sheaf_bson::array![{"b": 2}, {"b": 1}];
    let mut details = MatchDetails::default();
    assert_eq!(
        elem.matches_value_with_details((&array).into(), &mut details),
        Ok(true)
    );
    assert_eq!(details.array_index, Some(1));
}

#[test]
fn dependencies() {
    let reads = |filter: DocBuf| {
        let found = parsed(&filter).normalize().dependencies();
        (
            found.paths.into_iter().collect::<Vec<_>>().join(" "),
            found.whole_document,
        )
    };
    let plain = |paths: &str| (paths.to_owned(), false);
    assert_eq!(reads(doc! {}), plain(""));
    assert_eq!(reads(doc! {"a": 1, "b.c": {"$gt": 1}}), plain("a b.c"));
    assert_eq!(reads(doc! {"a.b": 1, "a": 1}), plain("a"));
    assert_eq!(reads(doc! {"a": {"$elemMatch": {"b": 1}}}), plain("a"));
    assert_eq!(
        reads(doc! {"$expr": {"$gt": ["$x.y", "$z"]}}),
        plain("x.y z")
    );
    assert!(reads(doc! {"$expr": {"$eq": ["$$ROOT", 1]}}).1);
    let filter = parsed(&doc! {"a.b": 1, "c": 1});
    assert!(filter.is_independent_of(["a.c", "d", "cc"]));
    assert!(!filter.is_independent_of(["a"]));
    assert!(!filter.is_independent_of(["a.b.c"]));
    assert!(!filter.is_independent_of(["x", "c.d"]));
}

#[test]
fn a_slow_pattern_is_an_error_of_the_query() {
    let filter = parsed(&doc! {"a": {"$regex": "^(a+)+$"}});
    let subject = "a".repeat(60) + "b";
    assert!(filter.matches(doc! {"a": subject}.as_raw()).is_err());
}

#[test]
fn patterns_are_counted() {
    let filter = |count: usize| {
        let mut builder = sheaf_bson::DocBuilder::new();
        builder.begin_document("a").begin_array("$in");
        for _ in 0..count {
            let (pattern, options) = ("a", "");
            builder.push(sheaf_bson::RawValue::Regex { pattern, options });
        }
        builder.end().end();
        parse(builder.finish().as_raw(), &ParseContext::default()).map(|_| ())
    };
    assert_eq!(filter(1000), Ok(()));
    assert_eq!(filter(10_001).unwrap_err().code().0, 2);
}
