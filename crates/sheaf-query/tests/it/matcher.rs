//! Properties of filters.

use proptest::prelude::*;
use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value, doc};
use sheaf_query::matcher::{MatchDetails, MatchExpression, ParseContext, parse};
use sheaf_query::projection::Projection;
use sheaf_testkit::generate_query::{document, filter, filter_without_positions, path, scalar};

fn parsed(filter: &DocBuf) -> MatchExpression {
    parse(filter.as_raw(), &ParseContext::default())
        .unwrap_or_else(|e| panic!("{filter:?} is refused: {e}"))
}

fn matches(filter: &DocBuf, doc: &DocBuf) -> bool {
    parsed(filter).normalize().matches(doc.as_raw()).unwrap()
}

proptest! {
    #![proptest_config(super::cases(400))]

    /// Normalising a filter, or printing and parsing it, does not change its results.
    #[test]
    fn forms_agree(filter in filter(), docs in prop::collection::vec(document(), 1..6)) {
        let raw = parsed(&filter);
        let normal = raw.clone().normalize();
        let printed = normal.serialize();
        let reparsed = parsed(&printed).normalize();
        prop_assert_eq!(&reparsed.serialize(), &printed);
        prop_assert_eq!(&normal.clone().normalize().serialize(), &printed);
        for doc in &docs {
            let wanted = raw.matches(doc.as_raw());
            prop_assert_eq!(&normal.matches(doc.as_raw()), &wanted, "{:?}", doc);
            prop_assert_eq!(&reparsed.matches(doc.as_raw()), &wanted, "{:?}", doc);
            let mut details = MatchDetails::default();
            let found = normal.matches_with_details(doc.as_raw(), &mut details);
            prop_assert_eq!(&found, &wanted, "{:?}", doc);
        }
    }

    /// The normal form does not depend on the order of conditions.
    #[test]
    fn order_does_not_matter(filters in prop::collection::vec(filter(), 2..4)) {
        let reversed: Vec<&DocBuf> = filters.iter().rev().collect();
        for operator in ["$and", "$or", "$nor"] {
            let one = parsed(&doc! {operator: filters}).normalize().serialize();
            let other = parsed(&doc! {operator: reversed}).normalize().serialize();
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn logic(f in filter(), g in filter(), doc in document()) {
        let (in_f, in_g) = (matches(&f, &doc), matches(&g, &doc));
        let both: [&DocBuf; 2] = [&f, &g];
        prop_assert_eq!(matches(&doc! {"$and": both}, &doc), in_f && in_g);
        prop_assert_eq!(matches(&doc! {"$or": both}, &doc), in_f || in_g);
        prop_assert_eq!(matches(&doc! {"$nor": both}, &doc), !in_f && !in_g);
        prop_assert_eq!(matches(&doc! {"$nor": [doc! {"$nor": [f]}]}, &doc), in_f);
    }

    /// Equivalences between operators.
    #[test]
    fn operators(
        path in path(true),
        values in prop::collection::vec(scalar(), 0..4),
        doc in document(),
    ) {
        let one = |op: &str, v: &Value| matches(&doc! {&path: {op: v}}, &doc);
        let any = values.iter().any(|v| one("$eq", v));
        prop_assert_eq!(matches(&doc! {&path: {"$in": values}}, &doc), any);
        prop_assert_eq!(matches(&doc! {&path: {"$nin": values}}, &doc), !any);
        let all = !values.is_empty() && values.iter().all(|v| one("$eq", v));
        prop_assert_eq!(matches(&doc! {&path: {"$all": values}}, &doc), all);
        for v in &values {
            prop_assert_eq!(one("$ne", v), !one("$eq", v));
            let extreme = matches!(v, Value::MinKey | Value::MaxKey);
            if !extreme {
                prop_assert_eq!(one("$gte", v), one("$gt", v) || one("$eq", v));
                prop_assert_eq!(one("$lte", v), one("$lt", v) || one("$eq", v));
            }
            prop_assert!(!one("$eq", v) || one("$gte", v) && one("$lte", v));
        }
    }

    /// A document that matches an $elemMatch on values also matches the operator alone.
    #[test]
    fn elem_match_is_stricter(path in path(true), v in scalar(), doc in document()) {
        for op in ["$eq", "$gt", "$gte", "$lt", "$lte"] {
            // The operator alone does not traverse an element that a position selects.
            if path.contains(['0', '1', '2']) {
                continue;
            }
            let strict = matches(&doc! {&path: {"$elemMatch": {op: v}}}, &doc);
            let alone = matches(&doc! {&path: {op: v}}, &doc);
            prop_assert!(!strict || alone);
        }
    }

    /// Fields that a filter does not read cannot change its result.
    #[test]
    fn dependencies_are_all(filter in filter(), doc in document(), other in document()) {
        let expression = parsed(&filter).normalize();
        let reads = expression.dependencies();
        let mut mixed = DocBuilder::new();
        let read = |key: &str| !reads.is_independent_of(key);
        for element in doc.iter().filter(|e| read(e.key())) {
            mixed.append_raw_element(element);
        }
        for element in other.iter().filter(|e| !read(e.key())) {
            mixed.append_raw_element(element);
        }
        let mixed = mixed.finish();
        prop_assert_eq!(
            expression.matches(doc.as_raw()),
            expression.matches(mixed.as_raw()),
            "{:?} {:?}", reads, mixed
        );
    }

    /// The paths that a filter reads suffice to evaluate it.
    #[test]
    fn dependencies_suffice(filter in filter_without_positions(), doc in document()) {
        let expression = parsed(&filter).normalize();
        let reads = expression.dependencies();
        let mut spec = DocBuilder::new();
        for path in &reads.paths {
            spec.append(path, 1);
        }
        spec.append("_id", 1);
        let spec = spec.finish();
        let projection = Projection::parse(spec.as_raw(), &ParseContext::default()).unwrap();
        let mut out = DocBuilder::new();
        projection.apply(doc.as_raw(), None, Default::default(), &mut out).unwrap();
        let projected = out.finish();
        prop_assert_eq!(
            expression.matches(doc.as_raw()),
            expression.matches(projected.as_raw()),
            "{:?}", projected
        );
    }

    /// The matching element in the match details exists, and matches by itself.
    #[test]
    fn details_name_an_element(v in scalar(), doc in document()) {
        for op in ["$eq", "$gt", "$lte"] {
            let filter = doc! {"a": {op: v}};
            let expression = parsed(&filter).normalize();
            let mut details = MatchDetails::default();
            if !expression.matches_with_details(doc.as_raw(), &mut details).unwrap() {
                continue;
            }
            match (doc.get("a"), details.array_index) {
                (Some(RawValue::Array(array)), Some(index)) => {
                    let element = array.get(index as usize).expect("an element");
                    let alone = doc! {"a": [element]};
                    prop_assert!(expression.matches(alone.as_raw()).unwrap());
                    // It is the first matching element.
                    for before in array.iter().take(index as usize) {
                        let element = doc! {"a": {"$elemMatch": {op: v}}};
                        let earlier = matches(&element, &doc! {"a": [before]});
                        prop_assert!(!earlier);
                    }
                }
                (_, None) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
