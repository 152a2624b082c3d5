//! Untrusted queries: any bytes as filters, sorts and projections.

use sheaf_bson::{DocBuilder, RawDoc, ValidateOptions, validate};
use sheaf_query::canonical::{CanonicalQuery, FindSpec};
use sheaf_query::matcher::{MatchDetails, ParseContext, parse};
use sheaf_query::shape;
use sheaf_query::sort::SortKeyGenerator;

/// The input is two consecutive documents: a query `{filter, sort, projection}` and a document to
/// run it on. Parsing may reject the query. An accepted filter must have the same result after it
/// was normalized, and after it was serialized and parsed again.
pub fn query(data: &[u8]) {
    let Ok((query, rest)) = RawDoc::parse_prefix(data) else {
        return;
    };
    if validate(query.as_bytes(), &ValidateOptions::default()).is_err() {
        return;
    }
    let doc = match validate(rest, &ValidateOptions::default()) {
        Ok(()) => RawDoc::parse(rest).unwrap_or(RawDoc::EMPTY),
        Err(_) => RawDoc::EMPTY,
    };
    let part = |name| query.get(name).and_then(|value| value.as_document());
    filter(part("filter").unwrap_or(query), doc);
    let spec = FindSpec {
        filter: part("filter"),
        sort: part("sort"),
        projection: part("projection"),
        ..FindSpec::default()
    };
    let Ok(canonical) = CanonicalQuery::with_context(spec, &ParseContext::default()) else {
        return;
    };
    assert_eq!(shape::shape_hash(&canonical).len(), 8);
    if let Some(sort) = &canonical.sort {
        let mut key = Vec::new();
        let _ = SortKeyGenerator::new(sort).key_of_document(doc, &mut key);
    }
    if let Some(projection) = &canonical.projection {
        let details = MatchDetails {
            array_index: Some(0),
        };
        let mut out = DocBuilder::new();
        if projection
            .apply(
                doc,
                Some(&details),
                sheaf_query::projection::Metadata {
                    record_id: Some(&sheaf_bson::RecordId::new(1)),
                    ..Default::default()
                },
                &mut out,
            )
            .is_ok()
        {
            let out = out.finish();
            let deep = ValidateOptions { depth_max: 200 };
            validate(out.as_bytes(), &deep).expect("a projection returns a valid document");
        }
    }
}

fn filter(filter: RawDoc<'_>, doc: RawDoc<'_>) {
    let context = ParseContext::default();
    let Ok(raw) = parse(filter, &context) else {
        return;
    };
    let Ok(wanted) = raw.matches(doc) else {
        return;
    };
    let normal = raw.normalize();
    let printed = normal.serialize();
    let Ok(found) = normal.matches(doc) else {
        return;
    };
    assert_eq!(
        found, wanted,
        "{filter:?} normalises to {printed:?}: {doc:?}"
    );
    // The serialized form may be nested deeper than the original, and exceed the limit.
    if let Ok(again) = parse(printed.as_raw(), &context) {
        assert_eq!(
            again.matches(doc).ok(),
            Some(wanted),
            "{printed:?}: {doc:?}"
        );
    }
}
