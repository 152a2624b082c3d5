//! Tests that the work of an operator grows linearly, or as `n log n`, with client input.
//!
//! Each case runs with `n` and with `4 n` elements, and compares the number of steps that loops
//! count ([`interrupt::step`], [`interrupt::count`]), not time. Four times as many elements cost 4
//! times as many steps, or 4.6 times with a sort; a nested loop costs 16 times as many.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuilder, DateTime, DocBuf, DocBuilder, RawValue, Value, doc};

use crate::canonical::{CanonicalQuery, FindSpec};
use crate::expression::VariableScope;
use crate::interrupt::{self, Interrupt};
use crate::matcher::ParseContext;
use crate::pipeline::{Documents, Isolated, Pipeline, PipelineExec};
use crate::planner::tests::script::index_of;
use crate::planner::{PlannerParams, plan};
use crate::projection::Projection;
use crate::update::diff::diff_of_paths;
use crate::update::{ApplyContext, Outcome, UpdateDriver};

const FEW: usize = 10_000;
const MANY: usize = 40_000;
/// `4 * log(40,000) / log(10,000)`, plus a margin for buffers that double.
const GROWTH_MAX: f64 = 5.0;

fn context() -> ParseContext {
    ParseContext {
        variables: VariableScope::new(DateTime(0)),
    }
}

/// `{<operator>: {f0: value, f1: value, ...}}` with names from `name`.
fn fields(n: usize, name: impl Fn(usize) -> String, value: impl Fn(usize) -> Value) -> DocBuf {
    let mut out = DocBuilder::new();
    for i in 0..n {
        out.append(name(i), &value(i));
    }
    out.finish()
}

fn field_name(i: usize) -> String {
    format!("f{i}")
}

/// `{f0: 1, f1: 1, ...}`
fn wide(n: usize) -> DocBuf {
    fields(n, field_name, |_| Value::Int32(1))
}

/// `{a: [{v: 0}, {v: 1}, ...]}`
fn long(n: usize) -> DocBuf {
    let mut array = ArrayBuilder::new();
    for i in 0..n {
        array.push(doc! {"v": i as i32}.as_raw());
    }
    let mut out = DocBuilder::new();
    out.append("a", RawValue::Array(array.finish().as_raw()));
    out.finish()
}

fn operator(name: &str, operand: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append(name, operand);
    out.finish()
}

/// Parses and applies an update, and computes the difference for the oplog.
fn update(operators: &DocBuf, filters: Option<&DocBuf>, doc: &DocBuf) -> Result<()> {
    let mut list = ArrayBuilder::new();
    filters.iter().for_each(|filter| {
        list.push(filter.as_raw());
    });
    let list = list.finish();
    let scope = VariableScope::new(DateTime(0));
    let update = RawValue::Document(operators.as_raw());
    let driver = UpdateDriver::parse(update, filters.map(|_| list.as_raw()), &scope)?;
    match driver.apply(doc.as_raw(), &ApplyContext::default())? {
        Outcome::NoChange => panic!("nothing changed"),
        Outcome::Changed { doc: new, modified } => {
            assert!(modified.may_affect_dotted("a") || modified.may_affect_dotted("f1"));
            diff_of_paths(doc.as_raw(), new.as_raw(), &modified);
        }
    }
    Ok(())
}

fn project(spec: &DocBuf, doc: &DocBuf) -> Result<()> {
    let projection = Projection::parse(spec.as_raw(), &context())?;
    let mut out = DocBuilder::new();
    projection.apply(doc.as_raw(), None, Default::default(), &mut out)?;
    projection.dependencies();
    Ok(())
}

fn pipeline(stage: &str, operand: &DocBuf, doc: &DocBuf) -> Result<()> {
    let mut stages = ArrayBuilder::new();
    stages.push(operator(stage, operand).as_raw());
    stages.push(doc! {"$match": {"f1": 1}}.as_raw());
    stages.push(doc! {"$group": {"_id": "$f1"}}.as_raw());
    let stages = Pipeline::parse(stages.finish().as_raw(), &context())?;
    PipelineExec::new(&stages.stages).next(&mut Documents::from(vec![doc.clone()]), &Isolated)?;
    let rest = stages.optimize().rest;
    PipelineExec::new(&rest.stages).next(&mut Documents::from(vec![doc.clone()]), &Isolated)?;
    Ok(())
}

fn planned(filter: &DocBuf) -> Result<()> {
    let query = CanonicalQuery::with_context(
        FindSpec {
            filter: Some(filter.as_raw()),
            ..FindSpec::default()
        },
        &context(),
    )?;
    let indexes = [Arc::new(index_of(doc! {"a": 1}))];
    plan(&query, &PlannerParams::new(&indexes)).map(|_| ())
}

/// `{<logical>: [predicate(0), predicate(1), ...]}`
fn logical(name: &str, n: usize, predicate: impl Fn(i32) -> DocBuf) -> DocBuf {
    let mut parts = ArrayBuilder::new();
    for i in 0..n {
        parts.push(predicate(i as i32).as_raw());
    }
    let mut out = DocBuilder::new();
    out.append(name, RawValue::Array(parts.finish().as_raw()));
    out.finish()
}

type Case = (&'static str, fn(usize) -> Box<dyn Fn() -> Result<()>>);

/// Inputs of which a client can send many elements. Building the input is not counted.
const CASES: &[Case] = &[
    ("$set of every element", |n| {
        let (doc, set) = (long(n), doc! {"$set": {"a.$[].v": -1}});
        Box::new(move || update(&set, None, &doc))
    }),
    ("$set of filtered elements", |n| {
        let (doc, set) = (long(n), doc! {"$set": {"a.$[x].v": -1}});
        let filter = doc! {"x.v": {"$gte": 5}};
        Box::new(move || update(&set, Some(&filter), &doc))
    }),
    ("$set of many positions", |n| {
        let doc = long(n);
        let set = operator(
            "$set",
            &fields(n, |i| format!("a.{i}.v"), |_| Value::Int32(-1)),
        );
        Box::new(move || update(&set, None, &doc))
    }),
    ("$set of many fields", |n| {
        let doc = wide(n);
        let set = operator("$set", &fields(n, field_name, |_| Value::Int32(-1)));
        Box::new(move || update(&set, None, &doc))
    }),
    ("$set of many fields, last first", |n| {
        let doc = wide(n);
        let set = fields(n, |i| field_name(n - 1 - i), |_| Value::Int32(-1));
        let set = operator("$set", &set);
        Box::new(move || update(&set, None, &doc))
    }),
    ("$set of many missing fields", |n| {
        let set = operator("$set", &fields(n, field_name, |_| Value::Int32(-1)));
        Box::new(move || update(&set, None, &doc! {"x": 1}))
    }),
    ("$set of many missing fields below one", |n| {
        let set = fields(n, |i| format!("a.{}", field_name(i)), |_| Value::Int32(-1));
        let set = operator("$set", &set);
        Box::new(move || update(&set, None, &doc! {"x": 1}))
    }),
    ("$unset of many fields", |n| {
        let (doc, unset) = (wide(n), operator("$unset", &wide(n)));
        Box::new(move || update(&unset, None, &doc))
    }),
    ("$rename of many fields", |n| {
        let doc = wide(n);
        let to = fields(n, field_name, |i| Value::String(format!("g{i}").into()));
        let rename = operator("$rename", &to);
        Box::new(move || update(&rename, None, &doc))
    }),
    ("inclusion of many fields", |n| {
        let (spec, doc) = (wide(n), wide(n));
        Box::new(move || project(&spec, &doc))
    }),
    ("exclusion of many fields", |n| {
        let (spec, doc) = (fields(n, field_name, |_| Value::Int32(0)), wide(n));
        Box::new(move || project(&spec, &doc))
    }),
    ("inclusion of many fields below one", |n| {
        let spec = fields(n, |i| format!("a.{}", field_name(i)), |_| Value::Int32(1));
        let doc = operator("a", &wide(n));
        Box::new(move || project(&spec, &doc))
    }),
    ("many computed fields of a projection", |n| {
        let spec = fields(n, field_name, |i| {
            Value::String(format!("${}", field_name(i % 3)).into())
        });
        Box::new(move || project(&spec, &wide(3)))
    }),
    ("$elemMatch of many fields", |n| {
        let condition = Value::Document(doc! {"$elemMatch": {"$gte": 1}});
        let spec = fields(n, field_name, |_| condition.clone());
        let doc = fields(n, field_name, |_| Value::from(vec![1, 2]));
        Box::new(move || project(&spec, &doc))
    }),
    ("$project of many fields", |n| {
        let (spec, doc) = (wide(n), wide(n));
        Box::new(move || pipeline("$project", &spec, &doc))
    }),
    ("$project that drops many fields", |n| {
        let spec = fields(n, |i| format!("g{i}"), |_| Value::Int32(0));
        Box::new(move || pipeline("$project", &spec, &wide(n)))
    }),
    ("$addFields of many fields", |n| {
        let spec = fields(n, field_name, |i| {
            Value::String(format!("${}", field_name(i % 3)).into())
        });
        Box::new(move || pipeline("$addFields", &spec, &wide(n)))
    }),
    ("$filter by $in of many constants", |n| {
        let range = || doc! {"$range": [0, n as i32]};
        let cond = doc! {"$in": vec![Value::from("$$this"), Value::Document(range())]};
        let filter = doc! {"$filter": {"input": range(), "cond": cond}};
        let spec = doc! {"f1": {"$size": filter}};
        Box::new(move || pipeline("$project", &spec, &doc! {}))
    }),
    ("$group with many accumulators", |n| {
        let mut spec = DocBuilder::new();
        spec.append("_id", RawValue::Null);
        for i in 0..n {
            spec.append(field_name(i), &doc! {"$sum": format!("${}", field_name(i))});
        }
        let spec = spec.finish();
        Box::new(move || pipeline("$group", &spec, &doc! {"f1": 1}))
    }),
    ("many $ne over an index", |n| {
        let filter = logical("$and", n, |i| doc! {"a": {"$ne": i}});
        Box::new(move || planned(&filter))
    }),
    ("many $nin over an index", |n| {
        let filter = logical("$and", n, |i| doc! {"a": {"$nin": [i, i + 100_000]}});
        Box::new(move || planned(&filter))
    }),
];

#[test]
fn work_does_not_grow_faster_than_its_input() {
    for (name, case) in CASES {
        let work = |n: usize| {
            let run = case(n);
            let before = interrupt::steps();
            run().unwrap_or_else(|e| panic!("{name}: {e}"));
            interrupt::steps() - before
        };
        let (few, many) = (work(FEW), work(MANY));
        assert!(
            few as usize >= FEW / 2,
            "{name}: only {few} steps are counted"
        );
        let growth = many as f64 / few as f64;
        assert!(growth <= GROWTH_MAX, "{name}: {few} steps, then {many}");
    }
}

/// Reports the operation as killed after this number of checks.
struct KilledAfter(std::sync::atomic::AtomicU32);

impl Interrupt for KilledAfter {
    fn check(&self) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        match self
            .0
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
        {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(
                ErrorCode::INTERRUPTED,
                "operation was interrupted",
            )),
        }
    }
}

/// An update of many elements can be interrupted between two of them.
#[test]
fn long_updates_can_be_interrupted() {
    for (name, case) in CASES.iter().filter(|(name, _)| name.starts_with("$set")) {
        let run = case(FEW);
        let _entered = interrupt::enter(Arc::new(KilledAfter(3.into())));
        let error = run().expect_err(name);
        assert_eq!(error.code(), ErrorCode::INTERRUPTED, "{name}");
    }
}
