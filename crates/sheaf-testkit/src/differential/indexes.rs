//! The indexes of a round: key patterns and options.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{DocBuf, doc};

use crate::generate_query::sort;

/// An index: ordinary or compound, sometimes with options, or wildcard, or hashed.
pub(super) fn index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    let options = select(vec![
        doc! {"sparse": true},
        doc! {"unique": true},
        doc! {"unique": true, "sparse": true},
        doc! {"hidden": true},
        doc! {"partialFilterExpression": {"b": {"$exists": true}}},
        doc! {"partialFilterExpression": {"a": {"$gt": 1}}},
        doc! {"partialFilterExpression": {"c": {"$type": "number"}}},
        doc! {"partialFilterExpression": {"d": 1, "a": {"$lte": 3}}},
    ]);
    let usual = select(vec![
        doc! {"a": 1},
        doc! {"a": -1},
        doc! {"a": 1, "b": 1},
        doc! {"a": 1, "b": -1},
        doc! {"a.b": 1},
        doc! {"a.b": 1, "a.c": 1},
        doc! {"a.b": 1, "a.c": -1, "b": 1},
        doc! {"b": 1, "c": 1, "d": 1},
        doc! {"c": 1, "b": 1},
        doc! {"c": 1},
        doc! {"d": 1, "a.b": -1},
        doc! {"b": 1, "c": -1},
        doc! {"d": 1, "_id": -1},
        doc! {"a.0": 1},
    ]);
    let pattern = prop_oneof![4 => usual, 1 => sort(false)];
    let ordered = (pattern, option::weighted(0.25, options))
        .prop_map(|(pattern, options)| (pattern, options.unwrap_or_default()));
    prop_oneof![5 => ordered, 1 => wildcard_index(), 1 => hashed_index()]
}

pub(super) fn wildcard_index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    select(vec![
        (doc! {"$**": 1}, doc! {}),
        (doc! {"$**": 1}, doc! {}),
        (
            doc! {"$**": -1},
            doc! {"wildcardProjection": {"_id": 1, "b": 0}},
        ),
        (
            doc! {"$**": 1},
            doc! {"wildcardProjection": {"a.b": 1, "c": 1}},
        ),
        (doc! {"$**": 1}, doc! {"wildcardProjection": {"a.b": 0}}),
        (
            doc! {"$**": 1},
            doc! {"partialFilterExpression": {"b": {"$gte": 1}}},
        ),
        (doc! {"a.$**": 1}, doc! {}),
        (doc! {"a.b.$**": 1}, doc! {}),
        (doc! {"b": 1, "a.$**": 1}, doc! {}),
        (
            doc! {"b": 1, "$**": 1},
            doc! {"wildcardProjection": {"b": 0}},
        ),
        (doc! {"d": -1, "a.$**": -1, "b": 1}, doc! {}),
        (doc! {"c.$**": 1, "d": -1}, doc! {}),
    ])
}

pub(super) fn hashed_index() -> impl Strategy<Value = (DocBuf, DocBuf)> {
    select(vec![
        (doc! {"a": "hashed"}, doc! {}),
        (doc! {"b": "hashed"}, doc! {}),
        (doc! {"d": "hashed"}, doc! {}),
        (doc! {"a.b": "hashed"}, doc! {}),
        (doc! {"d": "hashed"}, doc! {"sparse": true}),
        (
            doc! {"b": "hashed"},
            doc! {"partialFilterExpression": {"d": {"$exists": true}}},
        ),
        (doc! {"d": 1, "b": "hashed"}, doc! {}),
        (doc! {"b": "hashed", "d": -1}, doc! {}),
        (doc! {"d": 1, "b": "hashed", "c": 1}, doc! {}),
    ])
}
