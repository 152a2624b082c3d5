//! Untrusted documents and JSON.

use std::collections::hash_map::DefaultHasher;
use std::ops::ControlFlow;

use sheaf_bson::path::{LeafArrayBehavior, for_each_value};
use sheaf_bson::{
    DocBuilder, FieldPath, RawDoc, RawValue, ValidateOptions, compare_docs, hash_value, json,
    validate,
};

/// For any bytes: validation and reading do not panic. A document that passes validation can be
/// read without loss, rebuilds to the same bytes, and survives conversion to text and back.
pub fn bson(data: &[u8]) {
    let valid = validate(data, &ValidateOptions::default());
    let Ok(doc) = RawDoc::parse(data) else {
        assert!(
            valid.is_err(),
            "validation accepted a document with an invalid frame"
        );
        return;
    };
    read_all(doc);
    if valid.is_err() {
        return;
    }
    assert_eq!(
        rebuild(doc).as_bytes(),
        data,
        "a valid document rebuilds to its bytes"
    );
    let text = json::typed(doc);
    let back = json::parse_doc(&text).unwrap_or_else(|e| panic!("cannot parse {text}: {e}"));
    assert!(
        compare_docs(back.as_raw(), doc).is_eq(),
        "{text} parses to a different document"
    );
}

/// For any text: parsing does not panic. What it parses is valid, and prints and parses to the same
/// text.
pub fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(doc) = json::parse_doc(text) else {
        return;
    };
    let deep = ValidateOptions { depth_max: 200 };
    validate(doc.as_bytes(), &deep)
        .unwrap_or_else(|e| panic!("{text:?} parsed to an invalid document: {e}"));
    let printed = json::typed(&doc);
    let back = json::parse_doc(&printed);
    let back = back.unwrap_or_else(|e| panic!("cannot parse {printed}: {e}"));
    assert_eq!(json::typed(&back), printed);
}

/// Calls everything that reads a document, to find panics.
fn read_all(doc: RawDoc<'_>) {
    assert!(compare_docs(doc, doc).is_eq(), "a document equals itself");
    hash_value(RawValue::Document(doc), &mut DefaultHasher::new());
    assert!(doc.to_string().len() >= 2);
    json::to_relaxed(doc);
    json::to_canonical(doc);
    for dotted in ["a", "a.b", "a.0", "a.0.b", ""] {
        let Ok(path) = FieldPath::parse_lenient(dotted) else {
            continue;
        };
        let _ = for_each_value(doc, &path, LeafArrayBehavior::Traverse, |item| {
            item.value().map_or(ControlFlow::Continue(()), |_| {
                ControlFlow::<()>::Continue(())
            })
        });
    }
}

/// A copy built from decoded values, with the array keys of the original.
fn rebuild(doc: RawDoc<'_>) -> sheaf_bson::DocBuf {
    let mut builder = DocBuilder::new();
    copy(doc, &mut builder);
    builder.finish()
}

fn copy(doc: RawDoc<'_>, builder: &mut DocBuilder) {
    for element in doc {
        match element.value() {
            RawValue::Document(inner) => {
                builder.begin_document(element.key());
                copy(inner, builder);
                builder.end();
            }
            RawValue::Array(inner) => {
                builder.begin_array(element.key());
                copy(inner.as_doc(), builder);
                builder.end();
            }
            RawValue::JavaScriptWithScope { code, scope } => {
                let scope = rebuild(scope);
                let value = RawValue::JavaScriptWithScope {
                    code,
                    scope: scope.as_raw(),
                };
                builder.append(element.key(), value);
            }
            value => drop(builder.append(element.key(), value)),
        }
    }
}
