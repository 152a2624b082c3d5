//! Properties of projections.

use proptest::prelude::*;
use sheaf_bson::{DocBuf, DocBuilder, ValidateOptions, validate};
use sheaf_query::matcher::ParseContext;
use sheaf_query::projection::{Kind, Projection};
use sheaf_testkit::generate_query::{document, projection};

fn apply(spec: &DocBuf, doc: &DocBuf) -> DocBuf {
    let projection = Projection::parse(spec.as_raw(), &ParseContext::default())
        .unwrap_or_else(|e| panic!("{spec:?}: {e}"));
    let mut out = DocBuilder::new();
    projection
        .apply(doc.as_raw(), None, Default::default(), &mut out)
        .unwrap();
    out.finish()
}

proptest! {
    #![proptest_config(super::cases(400))]

    /// The result of a projection is a valid document, in the order of the original, and projection
    /// is idempotent.
    #[test]
    fn projecting_twice(spec in projection(), doc in document()) {
        let once = apply(&spec, &doc);
        prop_assert!(validate(once.as_bytes(), &ValidateOptions::default()).is_ok());
        prop_assert_eq!(&apply(&spec, &once), &once);
        let mut names = doc.iter().map(|e| e.key().to_owned());
        for element in once.iter() {
            prop_assert!(names.any(|name| name == element.key()), "{:?}", once);
        }
    }

    /// An inclusion only reads the paths that are its dependencies.
    #[test]
    fn inclusions_read_what_they_say(spec in projection(), doc in document(), other in document()) {
        let parsed = Projection::parse(spec.as_raw(), &ParseContext::default()).unwrap();
        let Some(reads) = parsed.dependencies() else {
            prop_assert_eq!(parsed.kind(), Kind::Exclusion);
            return Ok(());
        };
        let mut mixed = DocBuilder::new();
        for element in doc.iter().filter(|e| !reads.is_independent_of(e.key())) {
            mixed.append_raw_element(element);
        }
        for element in other.iter().filter(|e| reads.is_independent_of(e.key())) {
            mixed.append_raw_element(element);
        }
        prop_assert_eq!(apply(&spec, &mixed.finish()), apply(&spec, &doc));
    }

    /// Each top-level field is kept by exactly one of the inclusion and the exclusion of the same
    /// names.
    #[test]
    fn inclusion_and_exclusion_share_out(doc in document()) {
        let kept = apply(&sheaf_bson::doc! {"a": 1, "b": 1, "_id": 1}, &doc);
        let rest = apply(&sheaf_bson::doc! {"a": 0, "b": 0, "_id": 0}, &doc);
        for element in doc.iter() {
            let name = element.key();
            prop_assert!(kept.get(name).is_some() != rest.get(name).is_some());
            let found = kept.get_element(name).or(rest.get_element(name));
            prop_assert_eq!(found.map(|e| e.as_bytes()), Some(element.as_bytes()));
        }
        prop_assert_eq!(kept.iter().count() + rest.iter().count(), doc.iter().count());
    }
}
