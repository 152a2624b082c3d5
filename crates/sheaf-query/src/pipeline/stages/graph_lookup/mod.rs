//! `$graphLookup`: the documents that can be reached from each document by following references.
//!
//! ```text
//!   frontier {startWith}
//!      ╰─ probe connectToField in frontier ─> documents not visited before   depth 0
//!            ╰─ frontier := their connectFromField values not looked up before
//!                  ╰─ probe ...                                          depth 1, 2 ... maxDepth
//! ```
//!
//! The search is breadth first, so the depth of a document is the minimum number of steps to it. A
//! document is visited once (by `_id`) and a value is looked up once, so cycles end. The documents
//! found for a value are cached, within limits, for the searches of later documents.

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::{self, Expression, field_path, location};
use crate::matcher::{self, Dependencies, ParseContext};
use crate::pipeline::Stage;
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignName, JoinRequest,
};
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::pipeline::unwind::{Unwind, add_written, is_independent_of_written, with_value};

use super::lookup::without_matches;
use super::sub_pipeline::collection_name;
use graph::{Found, Graph, KeyBuffer, Rules, Search};

mod graph;

const NAME: &str = "$graphLookup";
/// Maximum number of values per probe.
const PROBE_VALUES_MAX: usize = 1000;

/// A parsed `$graphLookup`.
#[derive(Debug, Clone)]
pub struct GraphLookup {
    spec: DocBuf,
    from: ForeignName,
    as_path: Box<[Box<str>]>,
    connect_from: Box<[Box<str>]>,
    connect_to: Box<str>,
    start_with: Arc<Expression>,
    max_depth: Option<u64>,
    depth_field: Option<Box<[Box<str>]>>,
    restrict: DocBuf,
    unwind: Option<Unwind>,
    context: Arc<ParseContext>,
}

/// Parses the operand.
///
/// Errors: FailedToParse for a field that is missing or has a wrong type (40327 for an operand that
/// is not an object, 40100 to 40105 where MongoDB has such codes), those of paths, of the
/// expression and of the filter.
pub fn parse(value: RawValue<'_>, context: &StageContext<'_>) -> Result<ParsedStage> {
    let RawValue::Document(spec) = value else {
        return Err(Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!(
                "the $graphLookup stage specification must be an object, but found {}",
                value.type_name()
            ),
        ));
    };
    let (mut from, mut as_path, mut connect_from, mut connect_to) = (None, None, None, None);
    let (mut start_with, mut max_depth, mut depth_field) = (None, None, None);
    let mut restrict = DocBuf::new();
    for element in spec {
        let (name, value) = (element.key(), element.value());
        match name {
            "from" => from = Some(collection_name(NAME, "from", value)?),
            "startWith" => {
                start_with = Some(expression::parse(value, &context.parse.variables)?);
            }
            "maxDepth" => {
                let depth = value.as_i64_exact().filter(|_| value.is_number());
                match depth.map(u64::try_from) {
                    None if !value.is_number() => {
                        return Err(location(
                            40100,
                            format!(
                                "maxDepth requires numeric argument, found type: {}",
                                value.type_name()
                            ),
                        ));
                    }
                    None => {
                        return Err(location(
                            40102,
                            "maxDepth could not be represented as a long long",
                        ));
                    }
                    Some(Err(_)) => {
                        return Err(location(40101, "maxDepth requires a nonnegative argument"));
                    }
                    Some(Ok(depth)) => max_depth = Some(depth),
                }
            }
            "restrictSearchWithMatch" => {
                let RawValue::Document(filter) = value else {
                    return Err(location(
                        40185,
                        format!(
                            "restrictSearchWithMatch must be an object, found {}",
                            value.type_name()
                        ),
                    ));
                };
                matcher::parse(filter, context.parse)?;
                restrict = filter.to_buf();
            }
            "as" | "connectFromField" | "connectToField" | "depthField" => {
                let RawValue::String(path) = value else {
                    return Err(location(
                        40103,
                        format!(
                            "expected string as argument for {name}, found: {}",
                            value.type_name()
                        ),
                    ));
                };
                let parts = field_path::split(path)?;
                match name {
                    "as" => as_path = Some(parts),
                    "connectFromField" => connect_from = Some(parts),
                    "connectToField" => connect_to = Some(Box::from(path)),
                    _ => depth_field = Some(parts),
                }
            }
            other => {
                return Err(location(
                    40104,
                    format!("Unknown argument to $graphLookup: {other}"),
                ));
            }
        }
    }
    let missing = || {
        location(
            40105,
            "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.",
        )
    };
    Ok(ParsedStage::of(GraphLookup {
        spec: spec.to_buf(),
        from: ForeignName {
            db: None,
            collection: from.ok_or_else(missing)?,
        },
        as_path: as_path.ok_or_else(missing)?,
        connect_from: connect_from.ok_or_else(missing)?,
        connect_to: connect_to.ok_or_else(missing)?,
        start_with: Arc::new(start_with.ok_or_else(missing)?),
        max_depth,
        depth_field,
        restrict,
        unwind: None,
        context: Arc::new(context.parse.clone()),
    }))
}

impl PipelineStage for GraphLookup {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operand(&self) -> Value {
        let mut out = DocBuilder::from_doc(self.spec.as_raw());
        if let Some(unwind) = &self.unwind {
            unwind.append_absorbed(&mut out);
        }
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        self.start_with.add_dependencies(found);
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
            Stage::Unwind(unwind)
                if self.unwind.is_none() && unwind.path() == self.as_path.join(".") =>
            {
                let mut together = self.clone();
                together.unwind = Some(unwind.clone());
                Some(vec![Stage::Other(Arc::new(together))])
            }
            _ => None,
        }
    }

    fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        visit(&self.from.collection);
    }

    fn start(&self) -> Box<dyn StageExec> {
        let rules = Rules {
            collator: self.context.collator().cloned(),
            connect_from: self.connect_from.clone(),
            connect_to: Rules::parts_of(&self.connect_to),
            max_depth: self.max_depth,
        };
        Box::new(GraphExec {
            lookup: Arc::new(self.clone()),
            cursor: None,
            graph: Graph::new(rules),
            search: Search::default(),
            buffer: KeyBuffer::default(),
            pending: None,
            counts: ForeignCounts::default(),
        })
    }
}

struct GraphExec {
    lookup: Arc<GraphLookup>,
    cursor: Option<ForeignCursor>,
    graph: Graph,
    search: Search,
    buffer: KeyBuffer,
    pending: Option<Pending>,
    counts: ForeignCounts,
}

/// A document whose search has ended and is being unwound.
struct Pending {
    doc: DocBuf,
    /// Number of found documents that have been returned.
    given: usize,
    /// Whether found documents can be appended after the fields of the document.
    appends: bool,
}

/// The name of the field, if setting the path appends a field; `None` otherwise.
fn appended<'p>(doc: RawDoc<'_>, path: &'p [Box<str>]) -> Option<&'p str> {
    match path {
        [name] if doc.get(name).is_none() => Some(name),
        _ => None,
    }
}

impl GraphExec {
    fn search(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<()> {
        let lookup = self.lookup.clone();
        let (graph, search, buffer) = (&mut self.graph, &mut self.search, &mut self.buffer);
        graph.begin(search);
        let start = lookup.start_with.evaluate_on(doc)?;
        match start.as_raw() {
            None => {}
            Some(RawValue::Array(values)) => {
                for value in values.iter() {
                    graph.look_for(value, search, buffer);
                }
            }
            Some(value) => graph.look_for(value, search, buffer),
        }
        let mut depth = 0;
        let mut frontier = Vec::new();
        while !self.search.frontier.is_empty() {
            frontier.clear();
            std::mem::swap(&mut frontier, &mut self.search.frontier);
            for some in frontier.chunks(PROBE_VALUES_MAX) {
                let mut unknown = Vec::new();
                for number in some {
                    env.check_interrupt()?;
                    let (search, buffer) = (&mut self.search, &mut self.buffer);
                    if !self.graph.recall(*number, depth, search, buffer)? {
                        unknown.push(*number);
                    }
                }
                if !unknown.is_empty() {
                    self.probe(&lookup, &unknown, depth, env)?;
                }
            }
            depth += 1;
        }
        Ok(())
    }

    /// Reads the documents that have one of these values.
    fn probe(
        &mut self,
        lookup: &GraphLookup,
        asked: &[u32],
        depth: u64,
        env: &dyn Environment,
    ) -> Result<()> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => {
                let request = JoinRequest {
                    from: &lookup.from,
                    path: &lookup.connect_to,
                    filter: &lookup.restrict,
                    pipeline: None,
                    context: &lookup.context,
                };
                self.cursor.insert(env.open_join(&request)?)
            }
        };
        env.probe(cursor, &self.graph.ask(asked))?;
        let mut nodes = Vec::new();
        while let Some(doc) = env.advance(cursor)? {
            env.check_interrupt()?;
            let (search, buffer) = (&mut self.search, &mut self.buffer);
            nodes.push(self.graph.answer(doc, depth, search, buffer)?);
        }
        self.graph.learn(asked, &nodes, &mut self.buffer);
        Ok(())
    }

    /// Appends a found document, as a field or as the next array element.
    fn append_found(&self, found: Found, name: Option<&str>, out: &mut DocBuilder) {
        let doc = self.graph.doc(found);
        let depth = Some(RawValue::Int64(found.depth as i64));
        let put = |out: &mut DocBuilder, bytes: &[u8]| match name {
            Some(name) => drop(out.append_document_bytes(name, bytes)),
            None => drop(out.push_document_bytes(bytes)),
        };
        let Some(path) = &self.lookup.depth_field else {
            return put(out, doc.as_bytes());
        };
        let Some(field) = appended(doc, path) else {
            return put(out, with_value(doc, path, depth).as_bytes());
        };
        match name {
            Some(name) => out.begin_document(name),
            None => out.push_begin_document(),
        };
        out.extend(doc);
        out.append(field, found.depth as i64);
        out.end();
    }

    /// The document with all found documents.
    fn with_all(&self, doc: RawDoc<'_>) -> DocBuf {
        let path = &self.lookup.as_path;
        let append_all = |out: &mut DocBuilder, name: &str| {
            out.begin_array(name);
            for found in &self.search.found {
                self.append_found(*found, None, out);
            }
            out.end();
        };
        if let Some(name) = appended(doc, path) {
            let mut out = DocBuilder::from_doc(doc);
            append_all(&mut out, name);
            return out.finish();
        }
        let mut all = DocBuilder::new();
        append_all(&mut all, "all");
        with_value(doc, path, all.finish().get("all"))
    }

    /// The document with one of the found documents, or with none.
    fn with_one(&self, doc: RawDoc<'_>, found: Option<Found>, appends: bool) -> DocBuf {
        let path = &self.lookup.as_path;
        let Some(found) = found else {
            return without_matches(doc, path);
        };
        if let (true, [name]) = (appends, &path[..]) {
            let bytes = doc.len_bytes() + self.graph.doc(found).len_bytes() + name.len() + 64;
            let mut out = DocBuilder::with_vec(Vec::with_capacity(bytes));
            out.extend(doc);
            self.append_found(found, Some(name), &mut out);
            return out.finish();
        }
        let mut one = DocBuilder::new();
        self.append_found(found, Some("one"), &mut one);
        with_value(doc, path, one.finish().get("one"))
    }
}

impl StageExec for GraphExec {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        self.search(doc, env)?;
        if self.lookup.unwind.is_some() {
            self.pending = Some(Pending {
                doc: doc.to_buf(),
                given: 0,
                appends: appended(doc, &self.lookup.as_path).is_some(),
            });
            return Ok(Pushed::Pending);
        }
        Ok(Pushed::One(self.with_all(doc)))
    }

    fn next(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        let (Some(pending), Some(unwind)) = (&self.pending, &self.lookup.unwind) else {
            return Ok(None);
        };
        let doc = pending.doc.as_raw();
        let found = self.search.found.get(pending.given).copied();
        if found.is_none() && (pending.given > 0 || !unwind.preserves()) {
            self.pending = None;
            return Ok(None);
        }
        let mut out = self.with_one(doc, found, pending.appends);
        if let Some(index) = unwind.index_parts() {
            let at = match &found {
                Some(_) => RawValue::Int64(pending.given as i64),
                None => RawValue::Null,
            };
            out = with_value(out.as_raw(), index, Some(at));
        }
        if let Some(pending) = &mut self.pending {
            pending.given += 1;
        }
        Ok(Some(out))
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        if let Some(cursor) = self.cursor.take() {
            self.counts.add(&env.foreign_counts(&cursor));
        }
        Ok(())
    }

    fn suspend(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.suspend();
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        // A search that exceeds its memory limit fails (40099).
        out.append("usedDisk", false);
        self.counts.append(out);
    }
}
