//! Runs the scripts in `testdata/update`, and property tests on random updates.
//!
//! ```text
//!   filters [{x: 1}]            arrayFilters of the updates that follow
//!   matched 2                   the position of $, in the updates that follow
//!   update {$inc: {a: 1}}       an update, followed by documents and results
//!     {a: 1} => {a: 2} [a]      the new document, the paths that changed
//!     {a: "x"} => TypeMismatch  or the error's name
//!   refuse {$foo: {}}           the error of parsing, with its message
//!   fail {$inc: {a: 1}} {a: "x"}  the error of applying, with its message
//!   upsert {$set: {a: 1}}       an update, followed by queries and inserted documents
//!     {_id: 1} => {_id: 1, a: 1}
//! ```
//!
//! `UPDATE_EXPECT=1` rewrites the answers.

use sheaf_bson::json::typed;
use sheaf_bson::{DocBuf, ObjectId, Value};

use super::*;
use crate::matcher;
use crate::script::{self, Block, read, read_prefix};

mod properties;

/// 2023-11-14T22:13:20Z.
const NOW: DateTime = DateTime(1_700_000_000_000);

/// The settings from the lines before an update.
#[derive(Default)]
struct Setting {
    filters: Option<Value>,
    context: ApplyContext,
}

fn value(text: &str) -> Value {
    sheaf_bson::json::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

impl Setting {
    fn driver<'u>(&self, update: &'u Value) -> Result<UpdateDriver<'u>> {
        let filters = self.filters.as_ref().and_then(|f| f.as_raw().as_array());
        UpdateDriver::parse(update.as_raw(), filters, &VariableScope::new(NOW))
    }
}

fn name(e: &Error) -> String {
    e.code_name().into_owned()
}

fn applied(driver: &Result<UpdateDriver>, doc: &DocBuf, context: &ApplyContext) -> String {
    let driver = match driver {
        Ok(driver) => driver,
        Err(e) => return name(e),
    };
    match driver.apply(doc.as_raw(), context) {
        Err(e) => name(&e),
        Ok(Outcome::NoChange) => "no change".to_owned(),
        Ok(Outcome::Changed { doc: new, modified }) => {
            check_outcome(driver, doc, &new, context);
            let paths: Vec<&str> = modified.iter().collect();
            format!("{} [{}]", typed(&new), paths.join(", "))
        }
    }
}

/// Asserts for every change that the new document is valid and differs from the old one.
fn check_outcome(driver: &UpdateDriver, old: &DocBuf, new: &DocBuf, context: &ApplyContext) {
    sheaf_bson::validate::validate(new.as_bytes(), &Default::default())
        .unwrap_or_else(|e| panic!("{old:?} became invalid by {driver:?}: {e}"));
    assert!(
        old != new || driver.always_changes(),
        "{driver:?} at {context:?} reports a change and makes none"
    );
}

/// Computes the right side of rows `left => right`; keeps the left side.
fn rows(block: &Block, mut answer: impl FnMut(&DocBuf) -> String) -> Option<Vec<String>> {
    Some(
        block
            .answer
            .iter()
            .map(|line| {
                let (doc, _) = read_prefix(line.trim());
                let left = line.trim().split(" =>").next().unwrap_or("").trim();
                format!("{left} => {}", answer(&doc))
            })
            .collect(),
    )
}

fn message(e: &Error) -> Option<Vec<String>> {
    Some(vec![format!("{} {}", e.code().0, e.message())])
}

fn run(file: &str) {
    let mut setting = Setting {
        context: ApplyContext {
            now: NOW,
            timestamp: Timestamp::new(1_700_000_000, 7),
            ..ApplyContext::default()
        },
        ..Setting::default()
    };
    script::run(file, |block| match block.word.as_str() {
        "filters" => {
            setting.filters = (!block.rest.is_empty()).then(|| value(&block.rest));
            None
        }
        "matched" => {
            setting.context.matched_array_index = block.rest.parse().ok();
            None
        }
        "update" => {
            let update = value(&block.rest);
            let driver = setting.driver(&update);
            rows(block, |doc| applied(&driver, doc, &setting.context))
        }
        "upsert" => {
            let update = value(&block.rest);
            let driver = setting.driver(&update);
            rows(block, |query| upserted(&driver, query, &setting.context))
        }
        "refuse" => match setting.driver(&value(&block.rest)) {
            Err(e) => message(&e),
            Ok(driver) => Some(vec![format!("accepted as {:?}", driver.kind())]),
        },
        "fail" => {
            let (update, rest) = read_prefix(&block.rest);
            let update = value(&typed(&update));
            let driver = setting.driver(&update).unwrap();
            match driver.apply(read(rest).as_raw(), &setting.context) {
                Err(e) => message(&e),
                Ok(outcome) => Some(vec![format!("{outcome:?}")]),
            }
        }
        other => panic!("{file}: unknown word {other}"),
    });
}

fn upserted(driver: &Result<UpdateDriver>, query: &DocBuf, context: &ApplyContext) -> String {
    let driver = match driver {
        Ok(driver) => driver,
        Err(e) => return name(e),
    };
    let filter = matcher::parse(query.as_raw(), &ParseContext::default())
        .unwrap()
        .normalize();
    match driver.upsert_document(&filter, context, || ObjectId([7; 12])) {
        Ok(doc) => typed(&doc),
        Err(e) => name(&e),
    }
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(concat!("update/", stringify!($name), ".txt"));
        })*
    };
}

scripts! {
    set unset inc_mul min_max rename current_date bit push add_to_set pop pull positional
    array_filters replacement upsert paths conflicts errors pipeline edges
}

#[test]
fn a_document_may_reach_the_limit_and_not_pass_it() {
    let doc = sheaf_bson::doc! {"_id": 1i64};
    // Type, name "s", its terminator, length and terminator of the string.
    let room = DOCUMENT_BYTES_MAX - doc.len_bytes() - 8;
    let set = |bytes: usize| {
        let update = sheaf_bson::doc! {"$set": {"s": "x".repeat(bytes)}};
        let driver = UpdateDriver::parse((&update).into(), None, &VariableScope::default())?;
        driver.apply(doc.as_raw(), &ApplyContext::default())
    };
    match set(room).unwrap() {
        Outcome::Changed { doc, .. } => assert_eq!(doc.len_bytes(), DOCUMENT_BYTES_MAX),
        Outcome::NoChange => panic!("a new field is a change"),
    }
    assert_eq!(
        set(room + 1).unwrap_err().code(),
        document_rules::UPDATE_TOO_LARGE
    );
}

#[test]
fn documents_nest_no_deeper_than_the_limit() {
    let path = |levels: usize| vec!["a"; levels].join(".");
    let set = |levels: usize, value: &str| {
        let update = sheaf_bson::doc! {"$set": {path(levels): super::tests::value(value)}};
        let driver = UpdateDriver::parse((&update).into(), None, &VariableScope::default())?;
        driver.apply(RawDoc::EMPTY, &ApplyContext::default())
    };
    // The document itself is level 1.
    assert!(set(DEPTH_MAX, "1").is_ok());
    assert_eq!(
        set(DEPTH_MAX + 1, "1").unwrap_err().code(),
        ErrorCode::OVERFLOW
    );
    assert!(set(DEPTH_MAX - 1, "{b: 1}").is_ok());
    assert_eq!(
        set(DEPTH_MAX, "[]").unwrap_err().code(),
        ErrorCode::OVERFLOW
    );
}
