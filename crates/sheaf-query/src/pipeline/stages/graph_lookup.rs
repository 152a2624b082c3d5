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
//! document is met once (by `_id`), a value looked for once: cycles end. What a
//! value found is kept, within limits, for the searches of later documents.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::keystring::{Directions, KeyStringBuilder};
use sheaf_bson::path::array_index;
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
/// What is kept of earlier searches.
const KNOWN_BYTES_MAX: usize = 32 * 1024 * 1024;
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
            graph: Arc::new(self.clone()),
            cursor: None,
            keys: Keys {
                collator: self.context.collator().cloned(),
                key: KeyStringBuilder::new(Directions::default()),
            },
            known: Known::new(&self.connect_to),
            pending: None,
            counts: ForeignCounts::default(),
        })
    }
}

struct GraphExec {
    graph: Arc<GraphLookup>,
    cursor: Option<ForeignCursor>,
    keys: Keys,
    known: Known,
    pending: Option<Pending>,
    counts: ForeignCounts,
}

/// A document whose search has ended and is being unwound.
struct Pending {
    doc: DocBuf,
    found: std::vec::IntoIter<DocBuf>,
    given: i64,
}

/// The bytes by which a value is known.
type Key = Arc<[u8]>;

struct Keys {
    collator: Option<Arc<Collator>>,
    key: KeyStringBuilder,
}

impl Keys {
    /// Of a value that is looked for: text by the collation.
    fn of(&mut self, value: RawValue<'_>) -> Key {
        self.key.reset();
        self.key.append_with(value, self.collator.as_deref());
        self.key.as_bytes().into()
    }

    /// Of an `_id`.
    fn of_id(&mut self, value: RawValue<'_>) -> Key {
        self.key.reset();
        self.key.append(value);
        self.key.as_bytes().into()
    }
}

/// A document of the other collection, with what searches ask of it.
struct Node {
    doc: DocBuf,
    id: Key,
    /// What it refers to.
    next: Box<[(Key, Value)]>,
}

impl Node {
    fn new(graph: &GraphLookup, keys: &mut Keys, doc: RawDoc<'_>) -> Node {
        let mut next = Vec::new();
        visit_values(doc, &graph.connect_from, &mut |value| {
            next.push((keys.of(value), value.to_value()));
        });
        Node {
            doc: doc.to_buf(),
            id: keys.of_id(doc.get("_id").unwrap_or(RawValue::Null)),
            next: next.into(),
        }
    }

    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let next = self.next.iter().map(|(key, _)| 2 * key.len() + 80);
        self.doc.len_bytes() + self.id.len() + 160 + next.sum::<usize>()
    }
}

/// What earlier searches found by a value: paths through a graph meet.
struct Known {
    /// `connectToField` in parts; `None` where a document does not show which value found it.
    path: Option<Box<[Box<str>]>>,
    nodes: HashMap<Key, Vec<Arc<Node>>>,
    bytes: usize,
}

impl Known {
    fn new(connect_to: &str) -> Known {
        let path = connect_to
            .split('.')
            .map(Box::from)
            .collect::<Box<[Box<str>]>>();
        // A number may pick an element of an array, which a filter sees and also passes by.
        let has_position = path.iter().any(|part| array_index(part).is_some());
        Known {
            path: (!has_position).then_some(path),
            nodes: HashMap::new(),
            bytes: 0,
        }
    }

    /// Keeps what these values found, while there is room.
    fn keep(&mut self, keys: &mut Keys, looked_for: &[(Key, Value)], found: &[Arc<Node>]) {
        let Some(path) = &self.path else {
            return;
        };
        let is_plain = |value: &Value| {
            !matches!(
                value,
                Value::Null | Value::Undefined | Value::Array(_) | Value::Regex { .. }
            )
        };
        if !looked_for.iter().all(|(_, value)| is_plain(value)) {
            return;
        }
        let nodes = found.iter().map(|node| node.bytes());
        let bytes = looked_for
            .iter()
            .map(|(key, _)| key.len() + 96)
            .sum::<usize>()
            + nodes.sum::<usize>();
        if self.bytes + bytes > KNOWN_BYTES_MAX {
            return;
        }
        self.bytes += bytes;
        for (key, _) in looked_for {
            self.nodes.insert(key.clone(), Vec::new());
        }
        let asked = looked_for.len();
        for node in found {
            if let ([(only, _)], 1) = (looked_for, asked) {
                self.nodes
                    .entry(only.clone())
                    .or_default()
                    .push(node.clone());
                continue;
            }
            let mut by: Vec<Key> = Vec::new();
            visit_values(node.doc.as_raw(), path, &mut |value| {
                let key = keys.of(value);
                if !by.contains(&key) && looked_for.iter().any(|(k, _)| *k == key) {
                    by.push(key);
                }
            });
            for key in by {
                self.nodes.entry(key).or_default().push(node.clone());
            }
        }
    }
}

/// Keys that were met. Most searches are short: a few keys are compared, many are hashed.
#[derive(Default)]
struct Seen {
    few: Vec<Key>,
    many: HashSet<Key>,
}

/// So many keys are few.
const FEW: usize = 16;

impl Seen {
    /// Whether it is new.
    fn insert(&mut self, key: &Key) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(key.clone());
        }
        if self.few.contains(key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key.clone());
            return true;
        }
        self.many.extend(self.few.drain(..));
        self.many.insert(key.clone())
    }
}

/// One search.
#[derive(Default)]
struct Search {
    found: Vec<DocBuf>,
    met: Seen,
    looked_for: Seen,
    frontier: Vec<(Key, Value)>,
    bytes: usize,
}

impl Search {
    /// Adds a value to look for, unless it was looked for before.
    fn look_for(&mut self, key: &Key, value: impl FnOnce() -> Value) {
        if self.looked_for.insert(key) {
            self.bytes += 2 * key.len() + 96;
            self.frontier.push((key.clone(), value()));
        }
    }

    /// Takes a document that was reached, unless it was before.
    /// Errors: the memory that a search may take (40099).
    fn meet(&mut self, graph: &GraphLookup, node: &Node, depth: u64) -> Result<()> {
        if !self.met.insert(&node.id) {
            return Ok(());
        }
        self.bytes += node.id.len() + 64 + node.doc.len_bytes();
        // Past the last depth nothing is followed.
        if graph.max_depth.is_none_or(|max| depth < max) {
            for (key, value) in &node.next {
                self.look_for(key, || value.clone());
            }
        }
        self.check_memory(MEMORY_BYTES_MAX)?;
        self.found.push(match &graph.depth_field {
            None => node.doc.clone(),
            Some(path) => {
                let depth = Some(RawValue::Int64(depth as i64));
                with_value(node.doc.as_raw(), path, depth)
            }
        });
        Ok(())
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
        let graph = self.graph.clone();
        let mut search = Search::default();
        let start = graph.start_with.evaluate_on(doc)?;
        let mut begin = |value: RawValue<'_>| {
            let key = self.keys.of(value);
            search.look_for(&key, || value.to_value());
        };
        match start.as_raw() {
            None => {}
            Some(RawValue::Array(values)) => values.iter().for_each(begin),
            Some(value) => begin(value),
        }
        let mut depth = 0;
        while !search.frontier.is_empty() {
            let frontier = std::mem::take(&mut search.frontier);
            for some in frontier.chunks(PROBE_VALUES_MAX) {
                let mut unknown = Vec::new();
                for (key, value) in some {
                    env.check_interrupt()?;
                    match self.known.nodes.get(key) {
                        Some(nodes) => nodes
                            .iter()
                            .try_for_each(|node| search.meet(&graph, node, depth))?,
                        None => unknown.push((key.clone(), value.clone())),
                    }
                }
                if !unknown.is_empty() {
                    self.probe(&graph, unknown, depth, &mut search, env)?;
                }
            }
            depth += 1;
        }
        Ok(search.found)
    }

    /// Reads what has one of these values.
    fn probe(
        &mut self,
        graph: &GraphLookup,
        looked_for: Vec<(Key, Value)>,
        depth: u64,
        search: &mut Search,
        env: &dyn Environment,
    ) -> Result<()> {
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
        let values: Vec<RawValue<'_>> = looked_for.iter().map(|(_, v)| v.as_raw()).collect();
        env.probe(cursor, &values)?;
        let mut found = Vec::new();
        let (mut bytes, mut keep) = (0, true);
        while let Some(doc) = env.advance(cursor)? {
            env.check_interrupt()?;
            let node = Arc::new(Node::new(graph, &mut self.keys, doc));
            search.meet(graph, &node, depth)?;
            bytes += node.bytes();
            keep &= self.known.bytes + bytes <= KNOWN_BYTES_MAX;
            if keep {
                found.push(node);
            }
        }
        if keep {
            self.known.keep(&mut self.keys, &looked_for, &found);
        }
        Ok(())
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

    fn rest(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.rest();
        }
    }

    fn append_stats(&self, out: &mut DocBuilder) {
        self.counts.append(out);
    }
}
