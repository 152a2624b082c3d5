//! Runs the scripts in `testdata/sort`.

use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{RawValue, doc};

use super::*;
use crate::planner::index_entry::{IndexEntry, IndexField, IndexKind};
use crate::script::{self, read, read_prefix};

fn pattern(spec: &DocBuf) -> SortPattern {
    match SortSpec::parse(spec.as_raw()) {
        Ok(SortSpec::Pattern(pattern)) => pattern,
        other => panic!("{spec:?}: {other:?}"),
    }
}

fn key(keys: &mut SortKeyGenerator, doc: &DocBuf) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    keys.key_of_document(doc.as_raw(), &mut out)?;
    Ok(out)
}

/// Compares every pair of rows: the order of rows is the order of keys, both as bytes and as
/// values.
#[test]
fn keys_in_order() {
    script::run("sort/keys.txt", |block| {
        let (spec, rest) = read_prefix(&block.rest);
        let pattern = pattern(&spec);
        assert_eq!(pattern.serialize(), spec);
        let mut keys = SortKeyGenerator::new(&pattern);
        if let Some((word, doc)) = rest.split_once(' ') {
            let answer = key(&mut keys, &read(doc));
            match (word, answer) {
                ("accepts", Ok(_)) => {}
                ("refuses", Err(e)) => assert_eq!(e.code().0, 2),
                (word, answer) => panic!("{word} {doc}: {answer:?}"),
            }
            return None;
        }
        let mut rank = 0;
        let mut rows: Vec<(usize, DocBuf)> = Vec::new();
        for row in &block.answer {
            let equal = row.starts_with('=');
            rank += usize::from(!equal);
            rows.push((rank, read(row[1..].trim())));
        }
        for (rank_a, a) in &rows {
            for (rank_b, b) in &rows {
                let (key_a, key_b) = (key(&mut keys, a).unwrap(), key(&mut keys, b).unwrap());
                assert_eq!(
                    key_a.cmp(&key_b),
                    rank_a.cmp(rank_b),
                    "{}: {a:?} and {b:?}",
                    block.rest
                );
                let values_a = keys.values(a.as_raw()).unwrap();
                let values_b = keys.values(b.as_raw()).unwrap();
                assert_eq!(pattern.compare(&values_a, &values_b), rank_a.cmp(rank_b));
                assert_eq!(keys.key_of_values(values_a), key_a);
            }
        }
        None
    });
}

#[test]
fn refusals() {
    script::run("sort/refuse.txt", |block| {
        let spec = read(&block.rest);
        let error = match SortSpec::parse(spec.as_raw()) {
            Ok(spec) => panic!("{} is accepted: {spec:?}", block.rest),
            Err(e) => e,
        };
        Some(vec![format!("{} {}", error.code().0, error.message())])
    });
}

#[test]
fn other_specs() {
    let parse = |spec: DocBuf| SortSpec::parse(spec.as_raw()).unwrap();
    assert_eq!(parse(doc! {}), SortSpec::None);
    assert_eq!(parse(doc! {"$natural": -1}), SortSpec::Natural(-1));
    assert_eq!(pattern(&doc! {"a": 1.0, "b": -1i64}).parts.len(), 2);
    let mut many = DocBuilder::new();
    for i in 0..33 {
        many.append(format!("f{i}"), 1);
    }
    let error = SortSpec::parse(many.finish().as_raw()).unwrap_err();
    assert_eq!(error.code(), ErrorCode(13103));
    // The fraction of a direction is ignored.
    let SortSpec::Pattern(cut) = parse(doc! {"a": 1.9, "b": -1.5}) else {
        panic!("a pattern")
    };
    assert!(cut.parts[0].ascending && !cut.parts[1].ascending);
}

/// The sort key extracted from an index key equals that of the document.
#[test]
fn index_keys() {
    let fields = [("a", 1i8), ("b", -1), ("c", 1), ("d", -1)];
    let field = |(path, direction): &(&str, i8)| IndexField {
        path: Arc::new(FieldPath::parse(path).unwrap()),
        direction: *direction,
    };
    let index = Arc::new(IndexEntry {
        name: "i".into(),
        ident: 1,
        key_pattern: doc! {},
        fields: fields.iter().map(field).collect(),
        kind: IndexKind::Btree,
        clustered: false,
        multikey: false,
        multikey_paths: vec![Vec::new(); 4],
        unique: false,
        sparse: false,
        partial_filter: None,
        partial_filter_spec: None,
        collator: None,
        hidden: false,
        version: 2,
    });
    let doc = doc! {"a": 5, "b": "text", "d": 2.5};
    let mut builder =
        KeyStringBuilder::new(Directions::from_signs(fields.iter().map(|f| f.1.into())));
    for (path, _) in fields {
        builder.append(doc.get(path).unwrap_or(RawValue::Null));
    }
    builder.append_record_id(&sheaf_bson::RecordId::new(9));
    let index_key = builder.as_bytes().to_vec();
    for spec in [
        doc! {"a": 1},
        doc! {"b": 1, "a": -1},
        doc! {"d": 1, "c": -1, "b": -1},
        doc! {"c": 1, "d": -1},
    ] {
        let mut keys = SortKeyGenerator::new(&pattern(&spec));
        let mut out = Vec::new();
        keys.key_of_index_key(&index, &index_key, &mut out).unwrap();
        assert_eq!(out, key(&mut keys, &doc).unwrap(), "{spec:?}");
    }
    let mut keys = SortKeyGenerator::new(&pattern(&doc! {"e": 1}));
    assert!(
        keys.key_of_index_key(&index, &index_key, &mut Vec::new())
            .is_err()
    );
    let mut keys = SortKeyGenerator::new(&pattern(&doc! {"d": 1}));
    assert!(keys.key_of_index_key(&index, &[], &mut Vec::new()).is_err());
}
