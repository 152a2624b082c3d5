//! Documents similar enough for indexes to matter.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, Value};

use crate::generate_beyond::odd;
use crate::generate_query::scalar;

/// Mostly one of three integers, so that filters match and sorts have ties.
pub(super) fn few() -> impl Strategy<Value = Value> {
    prop_oneof![
        12 => (0i32..3).prop_map(Value::Int32),
        1 => Just(Value::Null),
        1 => select(vec!["a", "ab"]).prop_map(|s| Value::String(s.into())),
        2 => scalar(),
        2 => odd(),
    ]
}

/// The document with this `_id`.
pub(super) fn numbered(id: i32, doc: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("_id", id);
    for element in doc.iter().filter(|element| element.key() != "_id") {
        out.append_raw_element(element);
    }
    out.finish()
}

/// A document without arrays, for indexes that are not multikey.
pub(super) fn flat_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.85, few());
    (
        field(),
        field(),
        field(),
        field(),
        option::weighted(0.3, (field(), field())),
    )
        .prop_map(|(a, b, c, d, inner)| {
            let inner = inner.map(|(b, c)| fields(&[("b", b), ("c", c)]));
            let a = inner.map_or(a, |inner| Some(Value::Document(inner)));
            fields(&[("a", a), ("b", b), ("c", c), ("d", d)])
        })
}

/// A document with typical arrays: a list of sub-documents (`a`) and a list of values (`c`).
pub(super) fn table_document() -> impl Strategy<Value = DocBuf> {
    let field = || option::weighted(0.9, few());
    let line = (field(), field()).prop_map(|(b, c)| Value::Document(fields(&[("b", b), ("c", c)])));
    (
        option::weighted(0.9, vec(line, 0..4)),
        field(),
        option::weighted(0.9, vec(few(), 0..4)),
        field(),
    )
        .prop_map(|(a, b, c, d)| {
            let list = |values: Vec<Value>| Value::Array(ArrayBuf::from_values(&values));
            fields(&[("a", a.map(list)), ("b", b), ("c", c.map(list)), ("d", d)])
        })
}

pub(super) fn fields(list: &[(&str, Option<Value>)]) -> DocBuf {
    let mut out = DocBuilder::new();
    for (name, value) in list {
        if let Some(value) = value {
            out.append_value(name, value);
        }
    }
    out.finish()
}
