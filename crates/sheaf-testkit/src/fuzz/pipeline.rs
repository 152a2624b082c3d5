//! Untrusted pipelines, expressions, updates, schemas and buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuilder, RawDoc, RawValue, ValidateOptions, validate};
use sheaf_query::expression::projection_exec::evaluate_root;
use sheaf_query::expression::{VariableScope, parse};
use sheaf_query::interrupt::{self, Interrupt};
use sheaf_query::matcher::ParseContext;
use sheaf_query::pipeline::environment::Isolated;
use sheaf_query::pipeline::{Documents, Pipeline, PipelineExec};
use sheaf_query::query_shape;
use sheaf_query::schema::JsonSchema;
use sheaf_query::timeseries::TimeseriesOptions;
use sheaf_query::timeseries::restore::restored;
use sheaf_query::update::{ApplyContext, Outcome, UpdateDriver};

/// Results past this many are not read: a short pipeline may return millions.
const RESULTS_MAX: usize = 1000;

/// An operation that is interrupted after a number of checks.
struct Checks(AtomicU32);

impl Interrupt for Checks {
    fn check(&self) -> Result<()> {
        match self.0.fetch_add(1, Ordering::Relaxed) < 2000 {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::INTERRUPTED, "interrupted")),
        }
    }
}

/// The input is two consecutive documents: one with any of `pipeline`, `expr`, `update`, `schema`,
/// and `timeseries` with `bucket`, and a document to run them on. Each may be rejected; what is
/// accepted runs without a panic, and what it returns is valid BSON. A shape has a hash.
pub fn pipeline(data: &[u8]) {
    let Ok((asked, rest)) = RawDoc::parse_prefix(data) else {
        return;
    };
    if validate(asked.as_bytes(), &ValidateOptions::default()).is_err() {
        return;
    }
    let doc = match validate(rest, &ValidateOptions::default()) {
        Ok(()) => RawDoc::parse(rest).unwrap_or(RawDoc::EMPTY),
        Err(_) => RawDoc::EMPTY,
    };
    let _entered = interrupt::enter(Arc::new(Checks(AtomicU32::new(0))));
    if let Some(shape) = query_shape::of_command(asked, "db") {
        is_valid(shape.as_raw());
        assert_eq!(query_shape::hash(shape.as_raw()).len(), 64);
    }
    let nested = |name| asked.get(name).and_then(|value| value.as_document());
    if let Some(stages) = asked.get("pipeline").and_then(|value| value.as_array()) {
        if let Ok(parsed) = Pipeline::parse(stages, &ParseContext::default()) {
            run(&parsed, doc);
        }
    }
    if let Some(expr) = asked.get("expr") {
        evaluate(expr, doc);
    }
    if let Some(update) = asked.get("update") {
        apply(update, asked, doc);
    }
    if let Some(schema) = nested("schema") {
        let _ = JsonSchema::parse(schema, &|| Ok(()));
    }
    if let (Some(options), Some(bucket)) = (nested("timeseries"), nested("bucket")) {
        restore(options, bucket);
    }
}

fn run(parsed: &Pipeline, doc: RawDoc<'_>) {
    for stage in parsed.serialize() {
        is_valid(stage.as_raw());
    }
    let mut source = Documents::from(vec![doc.to_buf(), doc.to_buf()]);
    let mut exec = PipelineExec::new(&parsed.stages);
    for _ in 0..RESULTS_MAX {
        match exec.next(&mut source, &Isolated) {
            Ok(Some(result)) => is_valid(result.as_raw()),
            Ok(None) | Err(_) => break,
        }
    }
}

fn evaluate(spec: RawValue<'_>, doc: RawDoc<'_>) {
    let mut wrapped = DocBuilder::new();
    wrapped.append("v", spec);
    let wrapped = wrapped.finish();
    let Ok(expression) = parse(
        RawValue::Document(wrapped.as_raw()),
        &VariableScope::default(),
    ) else {
        return;
    };
    if let Ok(value) = evaluate_root(&expression, doc) {
        is_valid(value.as_raw());
    }
}

fn apply(update: RawValue<'_>, asked: RawDoc<'_>, doc: RawDoc<'_>) {
    let filters = asked.get("arrayFilters").and_then(|value| value.as_array());
    let Ok(driver) = UpdateDriver::parse(update, filters, &VariableScope::default()) else {
        return;
    };
    let context = ApplyContext {
        matched_array_index: Some(0),
        ..Default::default()
    };
    if let Ok(Outcome::Changed { doc, .. }) = driver.apply(doc, &context) {
        is_valid(doc.as_raw());
    }
}

fn restore(options: RawDoc<'_>, bucket: RawDoc<'_>) {
    let Ok(options) = TimeseriesOptions::parse(options) else {
        return;
    };
    // What is accepted is accepted again, as it is stored.
    if let Ok(bucket) = restored(bucket, &options) {
        let stored = bucket.to_doc();
        is_valid(stored.as_raw());
        restored(stored.as_raw(), &options).expect("a stored bucket can be restored");
    }
}

fn is_valid(doc: RawDoc<'_>) {
    let deep = ValidateOptions { depth_max: 250 };
    validate(doc.as_bytes(), &deep).expect("the result is a valid document");
}
