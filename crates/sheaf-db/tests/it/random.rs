//! Properties: after any writes, in any order, every index equals one rebuilt from the documents.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value, compare_values, doc};
use sheaf_db::Events;

use crate::support::{EngineKind, TestDb, ns, with_field};

/// One write.
#[derive(Debug, Clone)]
enum Write {
    Insert(i32, DocBuf),
    Set(i32, &'static str, Value),
    SetAll(&'static str, Value),
    Delete(i32),
    DeleteAll(&'static str, Value),
    CreateIndex(usize),
    DropIndex(usize),
    Reopen,
}

const FIELDS: [&str; 4] = ["a", "b", "c", "d"];

pub fn index(number: usize) -> (DocBuf, DocBuf) {
    [
        (doc! {"a": 1}, doc! {}),
        (doc! {"a": -1, "b": 1}, doc! {}),
        (doc! {"a.x": 1, "b": -1}, doc! {}),
        (doc! {"b": 1}, doc! {"sparse": true}),
        (doc! {"a.x.y": 1, "a.z": 1}, doc! {}),
        (
            doc! {"c": 1},
            doc! {"partialFilterExpression": {"a": {"$gt": 1}}},
        ),
        (doc! {"d": 1}, doc! {"unique": true, "sparse": true}),
        (doc! {"a.0": 1, "c": 1}, doc! {}),
    ][number]
        .clone()
}
pub const INDEXES: usize = 8;

pub fn name(number: usize) -> String {
    sheaf_db::index::definition::default_index_name(index(number).0.as_raw())
}

pub fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0..4i32).prop_map(Value::from),
        1 => (0..4i32).prop_map(|n| Value::from(f64::from(n))),
        1 => Just(Value::from(f64::NAN)),
        1 => (0..4i64).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => "[ab\u{0}]{0,2}".prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
    ]
}

pub fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        let array = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let names = prop_oneof![Just("x"), Just("y"), Just("z")];
        let fields = proptest::collection::vec((names, inner), 0..3);
        let document = fields.prop_map(|fields| {
            let mut out = DocBuilder::new();
            let fields: BTreeMap<_, _> = fields.into_iter().collect();
            for (name, value) in &fields {
                out.append_value(name, value);
            }
            Value::Document(out.finish())
        });
        prop_oneof![1 => array, 1 => document]
    })
}

pub fn document() -> impl Strategy<Value = DocBuf> {
    let field = || proptest::option::weighted(0.7, value());
    (field(), field(), field(), field()).prop_map(|(a, b, c, d)| {
        let mut out = DocBuilder::new();
        for (name, value) in FIELDS.iter().zip([a, b, c, d]) {
            if let Some(value) = value {
                out.append_value(name, &value);
            }
        }
        out.finish()
    })
}

fn write() -> impl Strategy<Value = Write> {
    let id = || 0..20i32;
    let field = || proptest::sample::select(FIELDS.to_vec());
    prop_oneof![
        8 => (id(), document()).prop_map(|(id, doc)| Write::Insert(id, doc)),
        6 => (id(), field(), value()).prop_map(|(id, field, value)| Write::Set(id, field, value)),
        2 => (field(), value()).prop_map(|(field, value)| Write::SetAll(field, value)),
        3 => id().prop_map(Write::Delete),
        1 => (field(), scalar()).prop_map(|(field, value)| Write::DeleteAll(field, value)),
        2 => (0..INDEXES).prop_map(Write::CreateIndex),
        1 => (0..INDEXES).prop_map(Write::DropIndex),
        1 => Just(Write::Reopen),
    ]
}

/// Carries out a write on the database, and applies to the model what the database reports.
fn carry_out(t: &mut TestDb, model: &mut BTreeMap<i32, DocBuf>, write: &Write) {
    let id_of = |doc: RawDoc<'_>| match doc.get("_id") {
        Some(RawValue::Int32(id)) => id,
        other => panic!("{other:?}"),
    };
    match write {
        Write::Insert(id, doc) => {
            let mut out = DocBuilder::new();
            out.append("_id", *id);
            out.extend(doc.as_raw());
            let doc = out.finish();
            match t.insert("c", doc.clone()) {
                Ok(()) => assert!(model.insert(*id, doc).is_none()),
                Err(error) => assert!(refusal(&error, model.contains_key(id)), "{error}"),
            }
        }
        Write::Set(id, field, value) => set(t, model, |own| own == *id, field, value),
        Write::SetAll(field, value) => set(t, model, |_| true, field, value),
        Write::Delete(id) => {
            if !t.db.catalog().databases().any(|_| true) {
                return;
            }
            let deleted = t.delete("c", |doc| id_of(doc) == *id, false).deleted;
            assert_eq!(deleted == 1, model.remove(id).is_some());
        }
        Write::DeleteAll(field, value) => {
            if !t.db.catalog().databases().any(|_| true) {
                return;
            }
            let equal = |doc: RawDoc<'_>| {
                let own = doc.get(field).unwrap_or(RawValue::Null);
                compare_values(own, value.as_raw()).is_eq()
            };
            let deleted = t.delete("c", equal, true).deleted;
            let before = model.len();
            model.retain(|_, doc| !equal(doc.as_raw()));
            assert_eq!(deleted as usize, before - model.len());
        }
        Write::CreateIndex(number) => {
            let (key, options) = index(*number);
            if let Err(error) = t.create_index("c", key, options) {
                assert!(refusal(&error, true), "{error}");
            }
        }
        Write::DropIndex(number) => {
            let name = name(*number);
            let selector = sheaf_db::IndexSelector::Names(vec![&name]);
            if let Err(error) = t.db.drop_indexes(&t.op, &ns("c"), &selector) {
                assert!(matches!(error.code().0, 26 | 27), "{error}");
            }
        }
        Write::Reopen => t.reopen(),
    }
}

fn set(
    t: &TestDb,
    model: &mut BTreeMap<i32, DocBuf>,
    wanted: impl Fn(i32) -> bool,
    field: &str,
    value: &Value,
) {
    if t.db.catalog().collection(&ns("c")).is_none() {
        return;
    }
    let matches =
        |doc: RawDoc<'_>| matches!(doc.get("_id"), Some(RawValue::Int32(id)) if wanted(id));
    let change = |doc: RawDoc<'_>| with_field(doc, field, value.as_raw());
    let (result, done) = t.update("c", matches, change, true);
    if let Err(error) = &done {
        assert!(refusal(error, true), "{error}");
    }
    // In order of insertion, up to the number matched.
    let mut left = result.matched;
    for (_, doc) in t.records("c") {
        let Some(RawValue::Int32(id)) = doc.get("_id") else {
            panic!("{doc}");
        };
        if wanted(id) && left > 0 {
            left -= 1;
            let own = model.get_mut(&id).unwrap();
            *own = change(own.as_raw());
        }
    }
}

/// Errors that a write may report with these indexes.
fn refusal(error: &sheaf_bson::Error, duplicates: bool) -> bool {
    match error.code().0 {
        11000 => duplicates || error.message().contains("d_1"),
        171 | 16746 => true,
        _ => false,
    }
}

fn run(kind: EngineKind, cases: u32) {
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let writes = proptest::collection::vec(write(), 1..60);
    runner
        .run(&writes, |writes| {
            let mut t = TestDb::new(kind, Events::default());
            let mut model = BTreeMap::new();
            for write in &writes {
                carry_out(&mut t, &mut model, write);
            }
            let mut documents = t.documents("c");
            documents.sort_by_key(|doc| doc.get("_id").and_then(|v| v.as_i64_exact()));
            let expected: Vec<DocBuf> = model.into_values().collect();
            prop_assert_eq!(documents, expected);
            t.assert_valid("c");
            Ok(())
        })
        .unwrap();
}

#[test]
fn indexes_follow_any_writes_in_memory() {
    run(EngineKind::Memory, 200);
}

#[test]
fn indexes_follow_any_writes_on_redb() {
    run(EngineKind::Redb, 12);
}

#[test]
fn indexes_follow_any_writes_on_logtree() {
    run(EngineKind::Sheaf, 24);
}
