//! Properties of sort keys.

use std::ops::ControlFlow;

use proptest::prelude::*;
use sheaf_bson::path::{FieldPath, LeafArrayBehavior, for_each_value};
use sheaf_bson::{DocBuf, RawValue, compare_values};
use sheaf_query::sort::{SortKeyGenerator, SortPattern, SortSpec};
use sheaf_testkit::generate_query::{document, path, sort};

fn pattern(spec: &DocBuf) -> SortPattern {
    match SortSpec::parse(spec.as_raw()) {
        Ok(SortSpec::Pattern(pattern)) => pattern,
        other => panic!("{spec:?}: {other:?}"),
    }
}

/// A simple model of the sort key of one field: the first or last of all values of the path, with
/// arrays replaced by their elements.
fn plain(doc: &DocBuf, path: &FieldPath, ascending: bool) -> Vec<u8> {
    let mut values: Vec<RawValue<'_>> = Vec::new();
    let _ = for_each_value(doc.as_raw(), path, LeafArrayBehavior::NoTraverse, |item| {
        match item.value() {
            None => values.push(RawValue::Null),
            Some(RawValue::Array(array)) if array.is_empty() => values.push(RawValue::Undefined),
            Some(RawValue::Array(array)) => values.extend(array.iter()),
            Some(value) => values.push(value),
        }
        ControlFlow::<()>::Continue(())
    });
    // Elements that are not documents, and empty arrays, lack the field.
    missing_below(RawValue::Document(doc.as_raw()), path, 0, &mut values);
    values.sort_by(|a, b| compare_values(*a, *b));
    let chosen = if ascending {
        values.first()
    } else {
        values.last()
    };
    let mut builder = sheaf_bson::keystring::KeyStringBuilder::default();
    builder.append_directed(*chosen.expect("a value"), !ascending);
    builder.as_bytes().to_vec()
}

/// Adds null for every array element on the path at which the path cannot be resolved further.
fn missing_below<'a>(
    value: RawValue<'a>,
    path: &FieldPath,
    at: usize,
    found: &mut Vec<RawValue<'a>>,
) {
    let (Some(part), RawValue::Document(doc)) = (path.part(at), value) else {
        return;
    };
    match doc.get(part) {
        Some(RawValue::Array(array)) if at + 1 < path.len() => {
            if array.is_empty() {
                found.push(RawValue::Null);
            }
            for element in array.iter() {
                match element {
                    RawValue::Document(_) => missing_below(element, path, at + 1, found),
                    _ => found.push(RawValue::Null),
                }
            }
        }
        Some(inner) => missing_below(inner, path, at + 1, found),
        None => {}
    }
}

proptest! {
    #![proptest_config(super::cases(400))]

    #[test]
    fn one_field_sorts_by_its_extreme(path in path(false), ascending in any::<bool>(), doc in document()) {
        let direction = if ascending { 1 } else { -1 };
        let pattern = pattern(&sheaf_bson::doc! {&path: direction});
        let mut key = Vec::new();
        SortKeyGenerator::new(&pattern).key_of_document(doc.as_raw(), &mut key).unwrap();
        let path = FieldPath::parse(&path).unwrap();
        prop_assert_eq!(key, plain(&doc, &path, ascending));
    }

    /// Bytes and values have the same order; both reject parallel arrays.
    #[test]
    fn bytes_order_as_values(spec in sort(true), a in document(), b in document()) {
        let pattern = pattern(&spec);
        let mut keys = SortKeyGenerator::new(&pattern);
        let (mut key_a, mut key_b) = (Vec::new(), Vec::new());
        let made = keys.key_of_document(a.as_raw(), &mut key_a).is_ok()
            & keys.key_of_document(b.as_raw(), &mut key_b).is_ok();
        let values = (keys.values(a.as_raw()), keys.values(b.as_raw()));
        prop_assert_eq!(made, values.0.is_ok() && values.1.is_ok());
        if let (Ok(a), Ok(b)) = values {
            prop_assert_eq!(key_a.cmp(&key_b), pattern.compare(&a, &b));
        }
    }
}
