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

use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::matcher::{self, Dependencies, MatchExpression, ParseContext};
use crate::pipeline::Stage;
use crate::pipeline::environment::ForeignName;
use crate::pipeline::stage::{Passes, PipelineStage, StageExec};
use crate::pipeline::unwind::{Unwind, add_written, is_independent_of_written, with_value};

use self::exec::LookupExec;
use super::sub_pipeline::{SubPipeline, visit_values};

mod exec;
mod parse;

pub use parse::parse;

const NAME: &str = "$lookup";

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
        Box::new(LookupExec::new(
            Arc::new(self.clone()),
            self.filter_of_results(),
        ))
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
