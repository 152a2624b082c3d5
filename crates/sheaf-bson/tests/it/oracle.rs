//! Compares our reader and builder with the `bson` crate.

use bson::Bson;
use proptest::prelude::*;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use sheaf_testkit::generate::document;

/// Rebuilds a document with our builder from what the other crate parsed.
fn rebuild(doc: &bson::Document) -> DocBuf {
    let mut builder = DocBuilder::new();
    for (key, value) in doc {
        append(&mut builder, Some(key), value);
    }
    builder.finish()
}

fn append(builder: &mut DocBuilder, key: Option<&str>, value: &Bson) {
    let put = |builder: &mut DocBuilder, value: RawValue<'_>| {
        match key {
            Some(key) => builder.append(key, value),
            None => builder.push(value),
        };
    };
    match value {
        Bson::Double(x) => put(builder, RawValue::Double(*x)),
        Bson::String(s) => put(builder, RawValue::String(s)),
        Bson::Document(d) => put(builder, RawValue::Document(rebuild(d).as_raw())),
        Bson::Array(values) => {
            match key {
                Some(key) => builder.begin_array(key),
                None => builder.push_begin_array(),
            };
            values.iter().for_each(|v| append(builder, None, v));
            builder.end();
        }
        Bson::Boolean(b) => put(builder, RawValue::Boolean(*b)),
        Bson::Null => put(builder, RawValue::Null),
        Bson::RegularExpression(r) => {
            put(
                builder,
                RawValue::Regex {
                    pattern: r.pattern.as_str(),
                    options: r.options.as_str(),
                },
            );
        }
        Bson::JavaScriptCode(code) => put(builder, RawValue::JavaScript(code)),
        Bson::JavaScriptCodeWithScope(c) => {
            let scope = rebuild(&c.scope);
            put(
                builder,
                RawValue::JavaScriptWithScope {
                    code: &c.code,
                    scope: scope.as_raw(),
                },
            );
        }
        Bson::Int32(n) => put(builder, RawValue::Int32(*n)),
        Bson::Int64(n) => put(builder, RawValue::Int64(*n)),
        Bson::Timestamp(t) => {
            put(
                builder,
                RawValue::Timestamp(sheaf_bson::Timestamp::new(t.time, t.increment)),
            );
        }
        Bson::Binary(b) => {
            put(
                builder,
                RawValue::Binary {
                    subtype: b.subtype.into(),
                    bytes: &b.bytes,
                },
            );
        }
        Bson::ObjectId(id) => put(
            builder,
            RawValue::ObjectId(sheaf_bson::ObjectId(id.bytes())),
        ),
        Bson::DateTime(t) => {
            put(
                builder,
                RawValue::DateTime(sheaf_bson::DateTime(t.timestamp_millis())),
            );
        }
        Bson::Symbol(s) => put(builder, RawValue::Symbol(s)),
        Bson::Decimal128(d) => put(
            builder,
            RawValue::Decimal128(sheaf_bson::Decimal128(d.bytes())),
        ),
        Bson::Undefined => put(builder, RawValue::Undefined),
        Bson::MaxKey => put(builder, RawValue::MaxKey),
        Bson::MinKey => put(builder, RawValue::MinKey),
        // Its fields are private, and `comparable` excludes it.
        Bson::DbPointer(_) => unreachable!("filtered out"),
    }
}

/// Whether the other crate carries the document faithfully. It does not carry pointers (their
/// fields cannot be read), the old binary subtype (it drops the inner length), options of regular
/// expressions (it sorts them), and repeated field names.
fn comparable(doc: RawDoc<'_>) -> bool {
    let value = |value: RawValue<'_>| match value {
        RawValue::DbPointer { .. } => false,
        RawValue::Binary { subtype, .. } => subtype != 2,
        RawValue::Regex { options, .. } => options.chars().is_sorted(),
        RawValue::Document(d) => comparable(d),
        RawValue::Array(a) => comparable(a.as_doc()),
        RawValue::JavaScriptWithScope { scope, .. } => comparable(scope),
        _ => true,
    };
    let mut keys: Vec<&str> = doc.iter().map(|e| e.key()).collect();
    keys.sort_unstable();
    let distinct = keys.windows(2).all(|w| w[0] != w[1]);
    distinct && doc.iter().all(|e| value(e.value()))
}

proptest! {
    #![proptest_config(crate::cases(1000))]

    #[test]
    fn both_readers_agree(doc in document()) {
        if comparable(doc.as_raw()) {
            let theirs = bson::Document::from_reader(doc.as_bytes()).unwrap();
            prop_assert_eq!(rebuild(&theirs), doc);
        }
    }
}
