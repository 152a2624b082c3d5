//! Untrusted scripts and documents at the border of a JavaScript engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuf, DocBuilder, RawDoc, RawValue, ValidateOptions, Value, validate};
use sheaf_query::interrupt::{self, Interrupt};
use sheaf_query::javascript::{Engine, Limits, NoStoredFunctions, SourceKind};

/// An operation that is interrupted after a number of checks.
struct Checks(AtomicU32);

impl Interrupt for Checks {
    fn check(&self) -> Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) < 200 {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::INTERRUPTED, "interrupted")),
        }
    }
}

/// The input is a document, followed by the text of a function. The document must return unchanged
/// from a function that returns its argument; the text may do anything, and what it returns must be
/// valid BSON.
pub fn javascript(engine: &dyn Engine, data: &[u8]) {
    let (doc, text) = match RawDoc::parse_prefix(data) {
        Ok((doc, rest)) if validate(doc.as_bytes(), &ValidateOptions::default()).is_ok() => {
            (doc, rest)
        }
        _ => (RawDoc::EMPTY, data),
    };
    let _entered = interrupt::enter(Arc::new(Checks(AtomicU32::new(0))));
    let limits = Limits {
        heap_bytes: 16 << 20,
    };
    let environment = engine.operation(limits, Box::new(NoStoredFunctions));
    let args = ArrayBuf::from_values([RawValue::Document(doc)]);
    if names_are_unique(doc) {
        let same = environment.compile("function(d) { return d; }", SourceKind::Function);
        let same = same.expect("a function");
        match environment.call(same, None, args.as_raw()) {
            Ok(Value::Document(out)) => assert_eq!(out.as_bytes(), doc.as_bytes()),
            Ok(other) => panic!("not a document: {other:?}"),
            Err(error) => assert_eq!(error.code(), ErrorCode(17279), "{error:?}"),
        }
    }
    let text = String::from_utf8_lossy(text);
    for kind in [SourceKind::Function, SourceKind::Where] {
        let Ok(function) = environment.compile(&text, kind) else {
            continue;
        };
        let _ = environment.test(function, doc);
        if let Ok(value) = environment.call(function, None, args.as_raw()) {
            let mut out = DocBuilder::new();
            out.append_value("v", &value);
            let deep = ValidateOptions { depth_max: 200 };
            validate(out.finish().as_bytes(), &deep).expect("a script returns valid BSON");
        }
    }
}

/// Whether a script sees `doc` as it is: no document in it has two fields of one name, of which a
/// script sees only the first, and the keys of arrays, which a script does not see, are the indexes.
pub fn names_are_unique(doc: RawDoc<'_>) -> bool {
    fn of_value(value: RawValue<'_>) -> bool {
        match value {
            RawValue::Document(inner) => names_are_unique(inner),
            RawValue::JavaScriptWithScope { scope, .. } => names_are_unique(scope),
            RawValue::Array(inner) => (inner.elements().enumerate())
                .all(|(at, item)| item.key() == at.to_string() && of_value(item.value())),
            _ => true,
        }
    }
    let mut seen = std::collections::HashSet::new();
    doc.iter()
        .all(|element| seen.insert(element.key()) && of_value(element.value()))
}
