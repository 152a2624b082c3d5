//! `$graphLookup`: what can be reached from each document by following references.
//!
//! ```text
//!   frontier {startWith}
//!      ╰─ probe connectToField in frontier ─> documents not met before   depth 0
//!            ╰─ frontier := their connectFromField values not met before
//!                  ╰─ probe ...                                          depth 1, 2 ... maxDepth
//! ```
//!
//! Breadth first, so a document's depth is the least number of steps to it. A
//! document is met once (by `_id`), a value looked for once: cycles end.

use std::collections::HashSet;
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::{ArrayBuilder, Collator, DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::{self, Expression, field_path, location};
use crate::matcher::{self, Dependencies, ParseContext};
use crate::pipeline::Stage;
use crate::pipeline::environment::{
    Environment, ForeignCounts, ForeignCursor, ForeignName, JoinRequest,
};
use crate::pipeline::stage::{ParsedStage, Passes, PipelineStage, Pushed, StageContext, StageExec};
use crate::pipeline::unwind::{Unwind, with_value};

use super::sub_pipeline::{collection_name, visit_values};

const NAME: &str = "$graphLookup";
/// What a search may hold: documents found, values looked for.
const MEMORY_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Values looked for by one probe.
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
/// Errors: FailedToParse for what is missing or of a wrong type (40327 for no object, 40100 to 40105
/// where MongoDB numbers them), those of paths, of the expression and of the filter.
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
            out.begin_document("unwinding");
            out.append("preserveNullAndEmptyArrays", unwind.preserves());
            if let Some(index) = unwind.index_path() {
                out.append("includeArrayIndex", &index);
            }
            out.end();
        }
        Value::Document(out.finish())
    }

    fn add_dependencies(&self, found: &mut Dependencies) -> Passes {
        self.start_with.add_dependencies(found);
        Passes::Documents
    }

    fn preserves(&self, path: &str) -> bool {
        let mut reads = Dependencies::default();
        reads.insert(path);
        let index = self.unwind.as_ref().and_then(Unwind::index_path);
        reads.is_independent_of(&self.as_path.join("."))
            && index.is_none_or(|index| reads.is_independent_of(&index))
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
        Box::new(GraphExec {
            graph: self.clone(),
            cursor: None,
            pending: None,
            counts: ForeignCounts::default(),
        })
    }
}

struct GraphExec {
    graph: GraphLookup,
    cursor: Option<ForeignCursor>,
    pending: Option<Pending>,
    counts: ForeignCounts,
}

/// A document whose search has ended and is being unwound.
struct Pending {
    doc: DocBuf,
    found: std::vec::IntoIter<DocBuf>,
    given: i64,
}

/// One search.
struct Search {
    found: Vec<DocBuf>,
    met: HashSet<Box<[u8]>>,
    looked_for: HashSet<Box<[u8]>>,
    frontier: Vec<Value>,
    key: KeyStringBuilder,
    bytes: usize,
}

impl Search {
    /// The bytes by which a value is known, text by a collation or (`None`) as it is.
    fn key_of(&mut self, value: RawValue<'_>, collator: Option<&Collator>) -> Box<[u8]> {
        self.key.reset();
        self.key.append_with(value, collator);
        self.key.as_bytes().into()
    }

    /// Adds a value to look for, unless it was looked for before.
    fn look_for(&mut self, value: RawValue<'_>, collator: Option<&Collator>) {
        let key = self.key_of(value, collator);
        if !self.looked_for.contains(&key) {
            self.bytes += 2 * key.len() + 96;
            self.looked_for.insert(key);
            self.frontier.push(value.to_value());
        }
    }

    fn check_memory(&self, limit: usize) -> Result<()> {
        if self.bytes > limit {
            return Err(location(
                40099,
                format!(
                    "$graphLookup reached maximum memory consumption of {limit} bytes; restrict the search by maxDepth or restrictSearchWithMatch"
                ),
            ));
        }
        Ok(())
    }
}

impl GraphExec {
    fn search(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Vec<DocBuf>> {
        let graph = &self.graph;
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => {
                let request = JoinRequest {
                    from: &graph.from,
                    path: &graph.connect_to,
                    filter: &graph.restrict,
                    pipeline: None,
                    context: &graph.context,
                };
                self.cursor.insert(env.open_join(&request)?)
            }
        };
        let limit = MEMORY_BYTES_MAX;
        let mut search = Search {
            found: Vec::new(),
            met: HashSet::new(),
            looked_for: HashSet::new(),
            frontier: Vec::new(),
            key: KeyStringBuilder::new(Directions::default()),
            bytes: 0,
        };
        let collator = graph.context.collator().map(|c| &**c);
        let start = graph.start_with.evaluate_on(doc)?;
        match start.as_raw() {
            None => {}
            Some(RawValue::Array(values)) => {
                values.iter().for_each(|v| search.look_for(v, collator));
            }
            Some(value) => search.look_for(value, collator),
        }
        let mut depth = 0;
        while !search.frontier.is_empty() {
            let frontier = std::mem::take(&mut search.frontier);
            for some in frontier.chunks(PROBE_VALUES_MAX) {
                let values: Vec<RawValue<'_>> = some.iter().map(Value::as_raw).collect();
                env.probe(cursor, &values)?;
                while let Some(found) = env.advance(cursor)? {
                    env.check_interrupt()?;
                    let id = search.key_of(found.get("_id").unwrap_or(RawValue::Null), None);
                    if search.met.contains(&id) {
                        continue;
                    }
                    search.bytes += id.len() + 64 + found.len_bytes();
                    search.met.insert(id);
                    // Past the last depth nothing is followed.
                    if graph.max_depth.is_none_or(|max| depth < max) {
                        visit_values(found, &graph.connect_from, &mut |v| {
                            search.look_for(v, collator);
                        });
                    }
                    search.check_memory(limit)?;
                    search.found.push(match &graph.depth_field {
                        None => found.to_buf(),
                        Some(path) => with_value(found, path, Some(RawValue::Int64(depth as i64))),
                    });
                }
            }
            depth += 1;
        }
        Ok(search.found)
    }
}

impl StageExec for GraphExec {
    fn push(&mut self, doc: RawDoc<'_>, env: &dyn Environment) -> Result<Pushed> {
        let found = self.search(doc, env)?;
        if self.graph.unwind.is_some() {
            self.pending = Some(Pending {
                doc: doc.to_buf(),
                found: found.into_iter(),
                given: 0,
            });
            return Ok(Pushed::Pending);
        }
        let mut all = ArrayBuilder::new();
        for found in &found {
            all.push_document_bytes(found.as_bytes());
        }
        let all = all.finish();
        let value = Some(RawValue::Array(all.as_raw()));
        Ok(Pushed::One(with_value(doc, &self.graph.as_path, value)))
    }

    fn next(&mut self, _: &dyn Environment) -> Result<Option<DocBuf>> {
        let (Some(pending), Some(unwind)) = (&mut self.pending, &self.graph.unwind) else {
            return Ok(None);
        };
        let doc = pending.doc.as_raw();
        let found = pending.found.next();
        if found.is_none() && (pending.given > 0 || !unwind.preserves()) {
            self.pending = None;
            return Ok(None);
        }
        let value = found
            .as_ref()
            .map(|found| RawValue::Document(found.as_raw()));
        let mut out = with_value(doc, &self.graph.as_path, value);
        if let Some(index) = unwind.index_parts() {
            let at = match &found {
                Some(_) => RawValue::Int64(pending.given),
                None => RawValue::Null,
            };
            out = with_value(out.as_raw(), index, Some(at));
        }
        pending.given += 1;
        Ok(Some(out))
    }

    fn end(&mut self, env: &dyn Environment) -> Result<()> {
        if let Some(cursor) = self.cursor.take() {
            self.counts.add(&env.foreign_counts(&cursor));
        }
        Ok(())
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.counts.append(out);
    }
}
