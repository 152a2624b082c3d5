//! `$setWindowFields`: fields computed over neighbouring documents.
//!
//! It is parsed to a sort and the stage itself, so that an index can provide the sort. A computed
//! partition is stored in a temporary field and removed again:
//!
//! ```text
//!   {$setWindowFields: {partitionBy: "$a", sortBy: {t: 1}, output: {...}}}
//!
//!   {$sort: {a: 1, t: 1}}, {$setWindowFields: ...}
//! ```
//!
//! The stage returns a document as soon as all functions know its value: a running total
//! immediately, a moving average when its window is complete, a fraction of the total at the end of
//! the partition. Waiting documents are buffered in memory, and beyond the limit in temporary
//! files. The states of the functions must fit in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{Collator, DocBuf, DocBuilder, RawDoc, RawValue, Value, doc};

use crate::expression::projection_exec::ProjectionExec;
use crate::expression::{Expression, VariableScope, location, parse as parse_expression};
use crate::matcher::Dependencies;
use crate::pipeline::Stage;
use crate::pipeline::doc_queue::DocQueue;
use crate::pipeline::environment::Environment;
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::sort::{SortPattern, SortSpec};

use functions::{FunctionSpec, Order, SharedFunction, WindowFunction};

mod by_neighbours;
mod by_place;
mod covariance;
mod deviation;
mod frame;
pub(in crate::pipeline) mod functions;
mod inputs;
mod over_window;
mod sliding;
mod sliding_sum;
#[cfg(test)]
mod tests;

const NAME: &str = "$setWindowFields";

/// The field that holds a computed partition while it is sorted by.
const PARTITION_FIELD: &str = "__internal_setWindowFields_partition_key";

/// The field that holds computed values until they are moved to their paths.
const VALUES_FIELD: &str = "__internal_setWindowFields_values";

/// A parsed `$setWindowFields`.
#[derive(Debug)]
struct SetWindowFields {
    spec: DocBuf,
    partition: Option<Expression>,
    sort: Option<SortPattern>,
    functions: Vec<SharedFunction>,
    /// The paths of their values.
    names: Arc<[Box<str>]>,
    place: Arc<Placement>,
    collator: Option<Arc<Collator>>,
}

/// How values are added to a document.
#[derive(Debug)]
enum Placement {
    /// Fields of the document itself.
    Fields(Vec<Box<str>>),
    /// Dotted paths, into documents and arrays as in `$addFields`: by way of a temporary field.
    Paths {
        set: ProjectionExec,
        clear: ProjectionExec,
    },
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

/// Parses `{partitionBy, sortBy, output}`.
/// Errors: 9 and 40415 for unknown fields, and those of functions and sorts.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(failed(format!(
            "the {NAME} stage specification must be an object, found {}",
            value.type_name()
        )));
    };
    let (mut partition_by, mut sort_by, mut output) = (None, None, None);
    for element in spec {
        match (element.key(), element.value()) {
            ("partitionBy", value) => partition_by = Some(value),
            ("sortBy", RawValue::Document(doc)) => sort_by = Some(doc),
            ("output", RawValue::Document(doc)) => output = Some(doc),
            (name @ ("sortBy" | "output"), other) => {
                let field = format_args!("{NAME}.{name}");
                return Err(fields::wrong_type(field, other, "object"));
            }
            (other, _) => {
                return Err(fields::unknown_field(format_args!("{NAME}.{other}")));
            }
        }
    }
    let Some(output) = output else {
        return Err(fields::missing_field(format_args!("{NAME}.output")));
    };
    stages(spec.to_buf(), partition_by, sort_by, output, context).map(ParsedStage::Stages)
}

fn array_partition() -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        "An expression used to partition cannot evaluate to value of type array",
    )
}

/// The stages of a `$setWindowFields` with this partition, order and output.
pub(super) fn stages(
    spec: DocBuf,
    partition_by: Option<RawValue<'_>>,
    sort_by: Option<RawDoc<'_>>,
    output: RawDoc<'_>,
    context: &StageContext<'_>,
) -> Result<Vec<Stage>> {
    let scope = &context.parse.variables;
    let collator = context.parse.collator().cloned();
    let sort = match sort_by.map(SortSpec::parse).transpose()? {
        Some(SortSpec::Pattern(pattern)) => Some(pattern.with_collator(collator.clone())),
        Some(SortSpec::Natural(_)) => {
            return Err(failed("partitions cannot be sorted by $natural"));
        }
        Some(SortSpec::None) | None => None,
    };
    let order = match &sort {
        None => None,
        Some(pattern) => Some(Order {
            pattern: pattern.clone(),
            only: only_field(pattern, scope)?,
        }),
    };
    let (mut names, mut functions) = (Vec::new(), Vec::new());
    for element in output {
        let RawValue::Document(function) = element.value() else {
            return Err(failed(format!(
                "the field '{}' of the output must be an object with a window function",
                element.key()
            )));
        };
        names.push(element.key());
        functions.push(Arc::new(FunctionSpec::parse(
            function,
            order.as_ref(),
            scope,
        )?));
    }
    let place = Arc::new(placement(&names, scope)?);
    let partition = match partition_by {
        None => None,
        Some(value) => {
            let expression = parse_expression(value, scope)?;
            match expression.as_constant() {
                Some(Some(RawValue::Array(_))) => return Err(array_partition()),
                Some(_) => None,
                None => Some(expression),
            }
        }
    };
    let mut stages = Vec::new();
    let mut sorted = DocBuilder::new();
    let (mut computed, mut path) = (false, None);
    let partition = match partition {
        None => None,
        Some(expression) => {
            let field = match &expression {
                Expression::FieldPath(field) => field.root_path().filter(|p| !p.is_empty()),
                _ => None,
            };
            let by = match &field {
                Some(_) => expression.clone(),
                None => {
                    computed = true;
                    parse_expression(RawValue::String(&format!("${PARTITION_FIELD}")), scope)?
                }
            };
            let field = field.unwrap_or_else(|| PARTITION_FIELD.to_owned());
            sorted.append(&field, 1);
            path = Some(field);
            Some(by)
        }
    };
    if computed && let Some(value) = partition_by {
        let spec = doc! {PARTITION_FIELD: value};
        stages.push(Stage::Project {
            name: "$addFields",
            projection: Arc::new(ProjectionExec::parse_add_fields(spec.as_raw(), scope)?),
            spec: Value::Document(spec),
        });
    }
    if let Some(pattern) = &sort {
        // Within a partition the partition field is constant.
        for part in pattern.parts.iter() {
            if Some(part.path.dotted()) != path.as_deref() {
                sorted.append(part.path.dotted(), if part.ascending { 1 } else { -1 });
            }
        }
    }
    if let SortSpec::Pattern(pattern) = SortSpec::parse(sorted.finish().as_raw())? {
        stages.push(Stage::sort(pattern.with_collator(collator.clone())));
    }
    stages.push(Stage::Other(Arc::new(SetWindowFields {
        spec,
        partition,
        sort,
        functions,
        names: names.iter().map(|name| Box::from(*name)).collect(),
        place,
        collator,
    })));
    if computed {
        stages.push(Stage::Project {
            name: "$unset",
            spec: Value::from(PARTITION_FIELD),
            projection: Arc::new(ProjectionExec::excluding([PARTITION_FIELD])?),
        });
    }
    Ok(stages)
}

/// The value of the sort field, if there is exactly one.
fn only_field(pattern: &SortPattern, scope: &VariableScope) -> Result<Option<Expression>> {
    match &pattern.parts[..] {
        [only] => {
            let path = format!("${}", only.path.dotted());
            parse_expression(RawValue::String(&path), scope).map(Some)
        }
        _ => Ok(None),
    }
}

fn placement(names: &[&str], scope: &VariableScope) -> Result<Placement> {
    let mut set = DocBuilder::new();
    for (at, name) in names.iter().enumerate() {
        set.append(name, format!("${VALUES_FIELD}.f{at}").as_str());
    }
    // Also checks the paths, and that no path contains another.
    let set = ProjectionExec::parse_add_fields(set.finish().as_raw(), scope)
        .map_err(|e| e.with_context(format_args!("Invalid {NAME}")))?;
    if names.iter().any(|name| name.contains('.')) {
        return Ok(Placement::Paths {
            set,
            clear: ProjectionExec::excluding([VALUES_FIELD])?,
        });
    }
    Ok(Placement::Fields(
        names.iter().map(|n| (*n).into()).collect(),
    ))
}

impl Placement {
    /// The document with these values, one per function.
    fn place(&self, doc: RawDoc<'_>, values: &[Value]) -> Result<DocBuf> {
        match self {
            Placement::Fields(names) => {
                let mut out = DocBuilder::new();
                let mut there = vec![false; names.len()];
                for element in doc {
                    match names.iter().position(|name| **name == *element.key()) {
                        Some(at) => {
                            out.append(element.key(), &values[at]);
                            there[at] = true;
                        }
                        None => {
                            out.append_raw_element(element);
                        }
                    }
                }
                for ((name, value), there) in names.iter().zip(values).zip(there) {
                    if !there {
                        out.append(name, value);
                    }
                }
                Ok(out.finish())
            }
            Placement::Paths { set, clear } => {
                let mut with = DocBuilder::from_doc(doc);
                with.begin_document(VALUES_FIELD);
                for (at, value) in values.iter().enumerate() {
                    with.append(format!("f{at}"), value);
                }
                with.end();
                let set = set.apply(with.finish().as_raw())?;
                clear.apply(set.as_raw())
            }
        }
    }
}

impl PipelineStage for SetWindowFields {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        Value::Document(self.spec.clone())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        if let Some(partition) = &self.partition {
            partition.add_dependencies(found);
        }
        if let Some(sort) = &self.sort {
            sort.paths().for_each(|path| found.insert(path));
        }
        for function in &self.functions {
            function.add_dependencies(found);
        }
        Passes::Documents
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(Running {
            partition: self.partition.clone(),
            specs: self.functions.clone(),
            place: Arc::clone(&self.place),
            collator: self.collator.clone(),
            key: None,
            functions: Vec::new(),
            ready: Vec::new(),
            docs: DocQueue::new(NAME),
            held: None,
            ending: false,
            ended: false,
            most: 0,
            names: Arc::clone(&self.names),
            most_of: vec![0; self.functions.len()],
        })
    }
}

struct Running {
    partition: Option<Expression>,
    specs: Vec<SharedFunction>,
    place: Arc<Placement>,
    collator: Option<Arc<Collator>>,
    /// The current partition, as a KeyString.
    key: Option<Vec<u8>>,
    functions: Vec<Box<dyn WindowFunction>>,
    /// Values of documents that still wait for other values.
    ready: Vec<VecDeque<Value>>,
    docs: DocQueue,
    /// The first document of the next partition, while this one is returned.
    held: Option<(Vec<u8>, DocBuf)>,
    /// All documents of the current partition have been read.
    ending: bool,
    /// The input has ended.
    ended: bool,
    /// Maximum number of bytes held so far.
    most: usize,
    /// The paths of the functions' values, and the maximum bytes that each function held.
    names: Arc<[Box<str>]>,
    most_of: Vec<usize>,
}

impl Running {
    fn key_of(&self, doc: RawDoc<'_>) -> Result<Vec<u8>> {
        let mut key = KeyStringBuilder::new(Directions::default());
        if let Some(partition) = &self.partition {
            let value = partition.evaluate_on(doc)?;
            match value.as_raw() {
                Some(RawValue::Array(_)) => {
                    return Err(array_partition());
                }
                found => {
                    let found = found.unwrap_or(RawValue::Null);
                    key.append_with(found, self.collator.as_deref());
                }
            }
        }
        Ok(key.finish().0)
    }

    fn accept(&mut self, key: Vec<u8>, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        if self.key.is_none() {
            let start = self.specs.iter().map(|spec| spec.start());
            self.functions = start.collect::<Result<_>>()?;
            self.ready = self.specs.iter().map(|_| VecDeque::new()).collect();
            self.key = Some(key);
        }
        for function in &mut self.functions {
            function.push(doc)?;
        }
        self.docs.push_back(doc.to_buf());
        let mut functions = 0;
        for (function, most) in self.functions.iter().zip(&mut self.most_of) {
            let bytes = function.bytes();
            *most = (*most).max(bytes);
            functions += bytes;
        }
        let held = functions + self.docs.bytes();
        self.most = self.most.max(held);
        let limit = env.memory_bytes_max();
        if held > limit {
            self.docs.spill(env)?;
        }
        if functions > limit {
            return Err(location(
                5643011,
                format!(
                    "{NAME} exceeded its memory limit of {limit} bytes: its functions hold {functions} bytes of values; use narrower windows or smaller partitions"
                ),
            ));
        }
        Ok(())
    }

    /// Collects the known values of every function; returns whether all know one.
    fn is_ready(&mut self) -> Result<bool> {
        let mut all = true;
        for (function, ready) in self.functions.iter_mut().zip(&mut self.ready) {
            if ready.is_empty()
                && let Some(value) = function.next()?
            {
                ready.push_back(value);
            }
            all &= !ready.is_empty();
        }
        Ok(all && !self.docs.is_empty())
    }

    fn give(&mut self) -> Result<Option<DocBuf>> {
        let Some(doc) = self.docs.pop_front()? else {
            return Ok(None);
        };
        let values = self.ready.iter_mut();
        let values: Vec<Value> = values
            .map(|ready| ready.pop_front().unwrap_or_default())
            .collect();
        self.place.place(doc.as_raw(), &values).map(Some)
    }
}

impl StageExec for Running {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        let key = self.key_of(doc)?;
        if self.key.as_ref().is_some_and(|current| *current != key) {
            self.functions.iter_mut().for_each(|f| f.end());
            self.ending = true;
            self.held = Some((key, doc.to_buf()));
            return Ok(Pushed::Pending);
        }
        self.accept(key, doc, env)?;
        Ok(match self.is_ready()? {
            true => Pushed::Pending,
            false => Pushed::Nothing,
        })
    }

    fn end(&mut self, _: &dyn Environment) -> Result<()> {
        self.functions.iter_mut().for_each(|f| f.end());
        self.ending = true;
        self.ended = true;
        Ok(())
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        loop {
            if self.is_ready()? {
                return self.give();
            }
            if !self.ending {
                return Ok(None);
            }
            // The partition is finished; the next one has its first document, or there is none.
            self.key = None;
            self.functions.clear();
            self.ready.clear();
            let Some((key, doc)) = self.held.take() else {
                return Ok(None);
            };
            self.ending = false;
            self.accept(key, doc.as_raw(), env)?;
            if self.ended {
                self.end(env)?;
            }
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        let bytes = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        out.begin_document("maxFunctionMemoryUsageBytes");
        for (name, most) in self.names.iter().zip(&self.most_of) {
            out.append(name, bytes(*most));
        }
        out.end();
        out.append("maxTotalMemoryUsageBytes", bytes(self.most));
        self.docs.append_stats(out);
    }
}
