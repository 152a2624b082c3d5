//! `$lookup`: joins each document with documents of another collection.
//!
//! ```text
//!   equality      {from, localField, foreignField, as}      a join on a path: probes of one plan
//!   pipeline      {from, let, pipeline, as}                 a pipeline per document; cached if it
//!                                                           is the same for all; prepared once if
//!                                                           only its first filter differs
//!   both          {from, localField, foreignField, let, pipeline, as}
//! ```
//!
//! A following `$unwind` of `as` is absorbed: matches are then returned one by one, without
//! building an array.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::json::shell;
use sheaf_bson::{ArrayBuf, ArrayBuilder, DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value};

use crate::expression::{field_path, location};
use crate::matcher::{self, Dependencies, MatchExpression, ParseContext};
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignName, ForeignRequest, JoinRequest,
    PreparedRequest,
};
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::pipeline::unwind::{Unwind, add_written, is_independent_of_written, with_value};
use crate::pipeline::{Pipeline, Stage};

use super::sub_pipeline::{SubPipeline, collection_name, visit_values};

const NAME: &str = "$lookup";
/// Maximum size of the cached results of an uncorrelated pipeline, in bytes.
const CACHE_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Maximum size of the matches of one document, in bytes.
const JOINED_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A parsed `$lookup`.
#[derive(Debug, Clone)]
pub struct Lookup {
    from: ForeignName,
    equality: Option<Equality>,
    pipeline: Option<Arc<SubPipeline>>,
    as_path: Box<[Box<str>]>,
    /// Conditions on the joined documents, from a `$match` after an absorbed `$unwind`.
    filter: DocBuf,
    unwind: Option<Unwind>,
    context: Arc<ParseContext>,
}

#[derive(Debug, Clone)]
struct Equality {
    local: Box<[Box<str>]>,
    foreign: Box<str>,
}

/// Parses the operand.
///
/// Errors: FailedToParse for a field that is missing or has a wrong type, 51047 for stages that are
/// not allowed in a sub-pipeline.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(failed(format!(
            "the specification of $lookup must be an object, not {}",
            value.type_name()
        )));
    };
    let (mut from, mut as_path, mut local, mut foreign) = (None, None, None, None);
    let (mut let_spec, mut pipeline): (Option<RawDoc<'_>>, Option<RawArray<'_>>) = (None, None);
    for element in spec {
        let name = element.key();
        match (name, element.value()) {
            ("from", RawValue::Document(other)) => {
                return Err(failed(format!(
                    "$lookup 'from' must be the name of a collection; another database cannot be named: {}",
                    shell(other)
                )));
            }
            ("from", value) => from = Some(collection_name(NAME, "from", value)?),
            ("let", RawValue::Document(vars)) => let_spec = Some(vars),
            ("let", other) => {
                return Err(failed(format!(
                    "$lookup argument 'let' must be an object, not {}",
                    other.type_name()
                )));
            }
            ("pipeline", RawValue::Array(stages)) => pipeline = Some(stages),
            ("pipeline", other) => {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!(
                        "'pipeline' option must be specified as an array, not {}",
                        other.type_name()
                    ),
                ));
            }
            ("as", RawValue::String(path)) => as_path = Some(field_path::split(path)?),
            ("localField", RawValue::String(path)) => local = Some(field_path::split(path)?),
            ("foreignField", RawValue::String(path)) => {
                field_path::split(path)?;
                foreign = Some(Box::from(path));
            }
            ("as" | "localField" | "foreignField", other) => {
                return Err(failed(format!(
                    "$lookup argument '{name}' must be a string, not {}",
                    other.type_name()
                )));
            }
            _ => return Err(failed(format!("unknown argument to $lookup: {name}"))),
        }
    }
    let as_path = as_path.ok_or_else(|| failed("must specify 'as' field for a $lookup"))?;
    let equality = match (local, foreign) {
        (Some(local), Some(foreign)) => Some(Equality { local, foreign }),
        (None, None) if pipeline.is_some() => None,
        (None, None) => {
            return Err(failed(
                "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
            ));
        }
        _ => {
            return Err(failed(
                "$lookup requires both or neither of 'localField' and 'foreignField' to be specified",
            ));
        }
    };
    if let_spec.is_some() && pipeline.is_none() {
        return Err(failed(
            "$lookup with a 'let' argument must also specify 'pipeline'",
        ));
    }
    let pipeline = pipeline
        .map(|stages| SubPipeline::parse(stages, let_spec, NAME, context))
        .transpose()?;
    let makes_documents = pipeline.as_ref().is_some_and(SubPipeline::makes_documents);
    let from = match from {
        None if makes_documents && equality.is_none() => Box::default(),
        None => {
            return Err(failed(
                "must specify 'from' field for a $lookup, unless its pipeline begins with $documents",
            ));
        }
        Some(_) if makes_documents => {
            return Err(failed(
                "$lookup with a pipeline that begins with $documents must not have a 'from' field",
            ));
        }
        Some(from) => from,
    };
    Ok(ParsedStage::of(Lookup {
        from: ForeignName {
            db: None,
            collection: from,
        },
        equality,
        pipeline: pipeline.map(Arc::new),
        as_path,
        filter: DocBuf::new(),
        unwind: None,
        context: Arc::new(context.parse.clone()),
    }))
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

impl Lookup {
    /// The absorbed filter on the results of the pipeline; `None` without a pipeline or a filter.
    fn filter_of_results(&self) -> Option<Arc<MatchExpression>> {
        if self.pipeline.is_none() || self.filter.is_empty() {
            return None;
        }
        // It was parsed before as a separate stage, so parsing cannot fail.
        let filter = matcher::parse(self.filter.as_raw(), &self.context).ok()?;
        Some(Arc::new(filter.normalize()))
    }

    fn as_dotted(&self) -> String {
        self.as_path.join(".")
    }
}

impl PipelineStage for Lookup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        let mut out = DocBuilder::new();
        if !self.from.collection.is_empty() {
            out.append("from", &*self.from.collection);
        }
        out.append("as", &self.as_dotted());
        if let Some(equality) = &self.equality {
            out.append("localField", &equality.local.join("."));
            out.append("foreignField", &*equality.foreign);
        }
        if let Some(pipeline) = &self.pipeline {
            out.append("let", pipeline.let_spec());
            out.append("pipeline", pipeline.text());
        }
        if let Some(unwind) = &self.unwind {
            unwind.append_absorbed(&mut out);
        }
        if !self.filter.is_empty() {
            out.append("matching", &self.filter);
        }
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        if let Some(equality) = &self.equality {
            found.insert(&equality.local.join("."));
        }
        if let Some(pipeline) = &self.pipeline {
            pipeline.add_dependencies(found);
        }
        add_written(found, &self.as_path);
        if let Some(index) = self.unwind.as_ref().and_then(Unwind::index_parts) {
            add_written(found, index);
        }
        Passes::Documents
    }

    /// Condition: it reads neither `as` nor the path of the positions of an absorbed `$unwind`.
    fn lets_through(&self, reads: &Dependencies) -> bool {
        let index = self.unwind.as_ref().and_then(Unwind::index_parts);
        is_independent_of_written(reads, &self.as_path)
            && index.is_none_or(|index| is_independent_of_written(reads, index))
    }

    fn is_one_to_one(&self) -> bool {
        self.unwind.is_none()
    }

    fn absorb(&self, next: &Stage) -> Option<Vec<Stage>> {
        match next {
            Stage::Unwind(unwind) if self.unwind.is_none() && unwind.path() == self.as_dotted() => {
                let mut together = self.clone();
                together.unwind = Some(unwind.clone());
                Some(vec![Stage::Other(Arc::new(together))])
            }
            // Conditions on the joined documents select matches, unless documents without matches
            // are preserved or positions are included.
            Stage::Match { spec, .. } => {
                let unwind = self.unwind.as_ref()?;
                if unwind.preserves() || unwind.index_path().is_some() {
                    return None;
                }
                let inner = below(spec.as_raw(), &format!("{}.", self.as_dotted()))?;
                let mut together = self.clone();
                together.filter = matcher::conjunction(&self.filter, &inner);
                Some(vec![Stage::Other(Arc::new(together))])
            }
            _ => None,
        }
    }

    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        if !self.from.collection.is_empty() {
            visit(&self.from.collection);
        }
        if let Some(pipeline) = &self.pipeline {
            pipeline.for_each_foreign(visit);
        }
    }

    fn start(&self) -> Box<dyn StageExec> {
        Box::new(LookupExec {
            lookup: Arc::new(self.clone()),
            cursor: Cursor::None,
            cached: Cache::Open,
            unprepared: false,
            pending: None,
            counts: ForeignCounts::default(),
            no_filter: DocBuf::new(),
            filter: self.filter_of_results(),
        })
    }
}

/// The filter with `prefix` removed from its paths; `None` if it reads other paths.
fn below(spec: RawDoc<'_>, prefix: &str) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    for element in spec {
        match (element.key(), element.value()) {
            ("$and", RawValue::Array(parts)) => {
                out.begin_array("$and");
                for part in parts {
                    let part = below(part.as_document()?, prefix)?;
                    out.push_document_bytes(part.as_bytes());
                }
                out.end();
            }
            (path, value) => {
                let path = path.strip_prefix(prefix)?;
                // A number may have been an array position; in a joined document it is a field
                // name.
                if path.is_empty() || sheaf_bson::path::array_index(path).is_some() {
                    return None;
                }
                out.append(path, value);
            }
        }
    }
    Some(out.finish())
}

struct LookupExec {
    lookup: Arc<Lookup>,
    cursor: Cursor,
    cached: Cache,
    /// Whether the environment does not prepare this pipeline.
    unprepared: bool,
    pending: Option<Pending>,
    counts: ForeignCounts,
    no_filter: DocBuf,
    /// A filter on the results of the pipeline.
    filter: Option<Arc<MatchExpression>>,
}

enum Cursor {
    None,
    /// A join, probed for each document.
    Join(ForeignCursor),
    /// A prepared pipeline, rerun for each document.
    Prepared(ForeignCursor),
    /// A pipeline for one document.
    Once(ForeignCursor),
    /// The results of an uncorrelated pipeline, and the offset of the next element.
    Cached(Arc<ArrayBuf>, usize),
}

/// The cached results of an uncorrelated pipeline.
enum Cache {
    /// Not run yet.
    Open,
    Kept(Arc<ArrayBuf>),
    /// The results exceed the size limit.
    TooLarge,
}

/// A document whose matches are being unwound.
struct Pending {
    doc: DocBuf,
    given: i64,
}

impl LookupExec {
    /// Starts reading the matches of a document.
    fn begin(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        self.finish_once(env);
        let lookup = &self.lookup;
        let correlated = lookup.pipeline.as_ref().is_some_and(|p| p.is_correlated());
        if let (Some(equality), false) = (&lookup.equality, correlated) {
            if !matches!(self.cursor, Cursor::Join(_)) {
                let pipeline = lookup.pipeline.as_ref().map(|p| p.declared());
                let request = JoinRequest {
                    from: &lookup.from,
                    path: &equality.foreign,
                    filter: if pipeline.is_some() {
                        // The filter applies to the results of the pipeline.
                        &self.no_filter
                    } else {
                        &lookup.filter
                    },
                    pipeline,
                    context: &lookup.context,
                };
                self.cursor = Cursor::Join(env.open_join(&request)?);
            }
            let Cursor::Join(cursor) = &mut self.cursor else {
                return Ok(());
            };
            return env.probe(cursor, &local_values(doc, &equality.local));
        }
        if let Cache::Kept(array) = &self.cached {
            self.cursor = Cursor::Cached(array.clone(), 4);
            return Ok(());
        }
        let Some(sub) = &lookup.pipeline else {
            return Ok(());
        };
        if let Some(prepared) = sub.prepared().filter(|_| !self.unprepared) {
            if !matches!(self.cursor, Cursor::Prepared(_)) {
                let request = PreparedRequest {
                    from: &lookup.from,
                    pipeline: prepared,
                    context: sub.context(),
                };
                match env.open_prepared(&request)? {
                    Some(cursor) => self.cursor = Cursor::Prepared(cursor),
                    None => self.unprepared = true,
                }
            }
            if let Cursor::Prepared(cursor) = &mut self.cursor {
                let equality = lookup.equality.as_ref().map(|equality| {
                    equality_filter(&equality.foreign, &local_values(doc, &equality.local))
                });
                return env.rerun(cursor, equality.as_ref(), sub.bind_variables(doc)?);
            }
        }
        let (bound, context) = sub.bind(doc)?;
        let pipeline = match &lookup.equality {
            None => bound,
            Some(equality) => {
                let values = local_values(doc, &equality.local);
                let spec = equality_filter(&equality.foreign, &values);
                let filter = matcher::parse(spec.as_raw(), &Default::default())?.normalize();
                let mut pipeline = Pipeline::clone(&bound);
                let first = Stage::Match {
                    spec,
                    filter: Arc::new(filter),
                };
                pipeline.stages.insert(0, first);
                Arc::new(pipeline)
            }
        };
        let request = ForeignRequest {
            from: &lookup.from,
            pipeline: &pipeline,
            context: &context,
        };
        let mut cursor = env.open(&request)?;
        if sub.is_correlated() || matches!(self.cached, Cache::TooLarge) {
            self.cursor = Cursor::Once(cursor);
            return Ok(());
        }
        let mut kept = ArrayBuilder::new();
        while let Some(doc) = env.advance(&mut cursor)? {
            env.check_interrupt()?;
            kept.push_document_bytes(doc.as_bytes());
            if kept.current_len() > CACHE_BYTES_MAX {
                self.counts.add(&env.foreign_counts(&cursor));
                self.cached = Cache::TooLarge;
                self.cursor = Cursor::Once(env.open(&request)?);
                return Ok(());
            }
        }
        self.counts.add(&env.foreign_counts(&cursor));
        let kept = Arc::new(kept.finish());
        self.cached = Cache::Kept(kept.clone());
        self.cursor = Cursor::Cached(kept, 4);
        Ok(())
    }

    /// Records the counts of an exhausted cursor and drops it.
    fn finish_once(&mut self, env: &dyn Environment) {
        if let Cursor::Once(cursor) = &self.cursor {
            self.counts.add(&env.foreign_counts(cursor));
            self.cursor = Cursor::None;
        }
    }

    /// The next match of the current document.
    fn next_match(&mut self, env: &dyn Environment) -> Result<Option<RawDoc<'_>>> {
        match &mut self.cursor {
            Cursor::None => Ok(None),
            Cursor::Join(cursor) | Cursor::Prepared(cursor) | Cursor::Once(cursor) => {
                env.check_interrupt()?;
                env.advance(cursor)
            }
            Cursor::Cached(array, at) => {
                let rest = array.as_bytes().get(*at..).unwrap_or(&[]);
                let Some(element) = sheaf_bson::RawElement::parse_prefix(rest) else {
                    return Ok(None);
                };
                *at += element.as_bytes().len();
                Ok(element.value().as_document())
            }
        }
    }

    /// All matches as an array, the value of `as`.
    fn collect(&mut self, env: &dyn Environment) -> Result<ArrayBuf> {
        let mut found = ArrayBuilder::new();
        while let Some(doc) = self.next_match(env)? {
            found.push_document_bytes(doc.as_bytes());
            if found.current_len() > JOINED_BYTES_MAX {
                return Err(location(
                    4568,
                    format!(
                        "the documents of '{}' that match in a $lookup are more than {JOINED_BYTES_MAX} bytes together; unwind them directly behind the $lookup, or join fewer",
                        self.lookup.from.collection
                    ),
                ));
            }
        }
        Ok(found.finish())
    }

    /// The next output of the document whose matches are unwound.
    fn step(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(None);
        };
        let lookup = self.lookup.clone();
        let Some(unwind) = &lookup.unwind else {
            return Ok(None);
        };
        let as_path = &lookup.as_path;
        let filter = self.filter.clone();
        let index = unwind.index_parts();
        while let Some(found) = self.next_match(env)? {
            if let Some(filter) = &filter
                && !filter.matches(found)?
            {
                continue;
            }
            let value = Some(RawValue::Document(found));
            let mut out = with_value(pending.doc.as_raw(), as_path, value);
            if let Some(index) = index {
                let at = Some(RawValue::Int64(pending.given));
                out = with_value(out.as_raw(), index, at);
            }
            pending.given += 1;
            self.pending = Some(pending);
            return Ok(Some(out));
        }
        if pending.given > 0 || !unwind.preserves() {
            return Ok(None);
        }
        let mut out = without_matches(pending.doc.as_raw(), as_path);
        if let Some(index) = index {
            out = with_value(out.as_raw(), index, Some(RawValue::Null));
        }
        Ok(Some(out))
    }
}

impl StageExec for LookupExec {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        self.begin(doc, env)?;
        if self.lookup.unwind.is_some() {
            self.pending = Some(Pending {
                doc: doc.to_buf(),
                given: 0,
            });
            return Ok(Pushed::Pending);
        }
        let found = self.collect(env)?;
        let value = RawValue::Array(found.as_raw());
        Ok(Pushed::One(with_value(
            doc,
            &self.lookup.as_path,
            Some(value),
        )))
    }

    fn next(&mut self, env: &dyn Environment) -> Result<Option<DocBuf>> {
        self.step(env)
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        self.finish_once(env);
        if let Cursor::Join(cursor) | Cursor::Prepared(cursor) = &self.cursor {
            let counts = env.foreign_counts(cursor);
            self.counts.add(&counts);
            self.cursor = Cursor::None;
        }
        Ok(())
    }

    fn rest(&mut self) {
        if let Cursor::Join(cursor) | Cursor::Prepared(cursor) | Cursor::Once(cursor) =
            &mut self.cursor
        {
            cursor.rest();
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.counts.append(out);
    }
}

/// The document that `$unwind` preserves if the array at `path` is empty. Documents on a dotted
/// path that were created for the array are kept.
pub(super) fn without_matches(doc: RawDoc<'_>, path: &[Box<str>]) -> DocBuf {
    let empty = ArrayBuf::new();
    let made = with_value(doc, path, Some(RawValue::Array(empty.as_raw())));
    with_value(made.as_raw(), path, None)
}

/// The values at the local path to look up: null if missing; the elements of an array individually.
pub(super) fn local_values<'d>(doc: RawDoc<'d>, path: &[Box<str>]) -> Vec<RawValue<'d>> {
    let mut values = Vec::new();
    visit_values(doc, path, &mut |value| values.push(value));
    if values.is_empty() {
        values.push(RawValue::Null);
    }
    values
}

/// The filter for documents whose `path` has one of the values.
pub fn equality_filter(path: &str, values: &[RawValue<'_>]) -> DocBuf {
    let mut out = DocBuilder::new();
    let equals = |out: &mut DocBuilder, value: RawValue<'_>| {
        out.begin_document(path);
        out.append("$eq", value);
        out.end();
    };
    match values {
        [only] => equals(&mut out, *only),
        // `$in` would treat a regular expression as a pattern.
        _ if values.iter().any(|v| matches!(v, RawValue::Regex { .. })) => {
            out.begin_array("$or");
            for value in values {
                out.push_begin_document();
                equals(&mut out, *value);
                out.end();
            }
            out.end();
        }
        _ => {
            out.begin_document(path);
            out.begin_array("$in");
            for value in values {
                out.push(*value);
            }
            out.end();
            out.end();
        }
    }
    out.finish()
}
