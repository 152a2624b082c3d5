//! Runs the scripts in `testdata/projection`.

use sheaf_bson::json::{shell_doc, typed_doc};
use sheaf_bson::{DocBuilder, RawValue, doc};

use super::*;
use crate::matcher::{self, MatchDetails, ParseContext};
use crate::script::{self, read, read_prefix};

fn parsed(spec: &DocBuf) -> Projection {
    Projection::parse(spec.as_raw(), &ParseContext::default())
        .unwrap_or_else(|e| panic!("{spec:?}: {e}"))
}

fn apply(
    projection: &Projection,
    doc: &DocBuf,
    details: Option<&MatchDetails>,
) -> Result<DocBuf, sheaf_bson::Error> {
    let mut out = DocBuilder::new();
    let record_id = projection
        .needs_record_id()
        .then_some(sheaf_bson::RecordId::new(77));
    let meta = Metadata {
        record_id: record_id.as_ref(),
        ..Default::default()
    };
    projection.apply(doc.as_raw(), details, meta, &mut out)?;
    Ok(out.finish())
}

#[test]
fn application() {
    script::run("projection/apply.txt", |block| {
        let (spec, rest) = read_prefix(&block.rest);
        let projection = parsed(&spec);
        let filter = rest.strip_prefix("filter ").map(|filter| {
            let filter = read(filter);
            matcher::parse(filter.as_raw(), &ParseContext::default())
                .unwrap()
                .normalize()
        });
        assert_eq!(filter.is_some(), projection.needs_match_details());
        for row in &block.answer {
            let (doc, want) = read_prefix(row.trim_start());
            let want = want.strip_prefix("-> ").expect("an arrow");
            let details = filter.as_ref().map(|filter| {
                let mut details = MatchDetails::default();
                assert_eq!(
                    filter.matches_with_details(doc.as_raw(), &mut details),
                    Ok(true),
                    "{row}"
                );
                details
            });
            let got = match apply(&projection, &doc, details.as_ref()) {
                Ok(doc) => typed_doc(doc.as_raw()),
                Err(e) => format!("error {}", e.code().0),
            };
            let want = match want.starts_with('{') {
                true => typed_doc(read(want).as_raw()),
                false => want.to_owned(),
            };
            assert_eq!(got, want, "{} {row}", block.rest);
        }
        None
    });
}

#[test]
fn refusals() {
    script::run("projection/refuse.txt", |block| {
        let spec = read(&block.rest);
        let error = match Projection::parse(spec.as_raw(), &ParseContext::default()) {
            Ok(_) => panic!("{} is accepted", block.rest),
            Err(e) => e,
        };
        Some(vec![format!("{} {}", error.code().0, error.message())])
    });
}

#[test]
fn analysis() {
    script::run("projection/analysis.txt", |block| {
        let spec = read(&block.rest);
        let projection = parsed(&spec);
        assert_eq!(*projection.transform_by(), spec);
        let mut words = Vec::new();
        let mut say = |yes: bool, word: &str| {
            if yes {
                words.push(word.to_owned());
            }
        };
        say(projection.simple(), "simple");
        say(projection.is_plain_inclusion(), "plain");
        say(projection.needs_match_details(), "details");
        say(projection.needs_record_id(), "recordId");
        say(projection.has_computed(), "computed");
        words.push(match projection.required_paths() {
            None => "reads everything".to_owned(),
            Some(paths) => format!(
                "reads [{}]",
                paths
                    .iter()
                    .map(|p| p.dotted())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        });
        Some(vec![words.join("; ")])
    });
}

#[test]
fn kept_paths() {
    let keeps = |spec: DocBuf, path: &str| parsed(&spec).keeps_path(path);
    assert!(keeps(doc! {"a": 1}, "a"));
    assert!(keeps(doc! {"a": 1}, "a.b"));
    assert!(keeps(doc! {"a": 1}, "_id"));
    assert!(!keeps(doc! {"a": 1}, "b"));
    assert!(!keeps(doc! {"a.b": 1}, "a"));
    assert!(!keeps(doc! {"a": {"$slice": 1}, "b": 1}, "a"));
    assert!(keeps(doc! {"a": 0}, "b"));
    assert!(!keeps(doc! {"a.b": 0}, "a"));
    assert!(!keeps(doc! {"a.b": 0}, "a.b.c"));
    assert!(keeps(doc! {"a.b": 0}, "a.c"));
    assert!(!keeps(doc! {"a.$": 1}, "a"));
}

#[test]
fn kept_orders() {
    let keeps = |spec: DocBuf, path: &str| {
        parsed(&spec).keeps_order_by(&sheaf_bson::path::FieldPath::parse(path).unwrap())
    };
    assert!(keeps(doc! {"a": 1}, "a"));
    assert!(keeps(doc! {"a": 1}, "a.b"));
    // {a: [{b: 4}, 0]} sorts by null, {a: [{b: 4}]} by 4.
    assert!(!keeps(doc! {"a.b": 1}, "a.b"));
    assert!(!keeps(doc! {"a.b": 1}, "a.b.c"));
    assert!(keeps(doc! {"a.b": 0}, "a.c"));
    assert!(!keeps(doc! {"a.b": 0}, "a.b"));
}

#[test]
fn record_id_at_the_end() {
    let projection = parsed(&doc! {"a": 1}).with_record_id();
    let got = apply(&projection, &doc! {"_id": 1, "a": 2, "b": 3}, None).unwrap();
    assert_eq!(got, doc! {"_id": 1, "a": 2, "$recordId": 77i64});
}

#[test]
fn covered() {
    let covered = |spec: DocBuf, key: &[(&str, i32)]| {
        let projection = parsed(&spec);
        assert!(projection.is_plain_inclusion());
        let mut out = DocBuilder::new();
        let key = key
            .iter()
            .map(|(path, value)| (*path, RawValue::Int32(*value)));
        projection.apply_covered(key, None, &mut out);
        shell_doc(out.finish().as_raw())
    };
    let key = [("e", 1), ("s", 2), ("r", 3)];
    assert_eq!(
        covered(doc! {"r": 1, "e": 1, "_id": 0}, &key),
        "{ e: 1, r: 3 }"
    );
    let key = [("a.b", 1), ("c", 2), ("a.d.e", 3), ("a.d.f", 4), ("_id", 5)];
    assert_eq!(
        covered(doc! {"a": 1}, &key),
        "{ a: { b: 1, d: { e: 3, f: 4 } }, _id: 5 }"
    );
    assert_eq!(
        covered(doc! {"a.d.f": 1, "c": 1, "_id": 0}, &key),
        "{ c: 2, a: { d: { f: 4 } } }"
    );
}
