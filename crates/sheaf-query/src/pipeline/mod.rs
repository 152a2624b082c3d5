//! Aggregation pipelines: parsed, optimised, split, run.
//!
//! ```text
//!   [$match, $sort, $limit, $unwind, $group, $project, $sort]
//!    ╰───── CursorPrefix ─╯  ╰────────── PipelineExec ─────╯
//!    what the find layer does     documents pushed from stage to stage
//!    with indexes
//! ```
//!
//! Stages that are not in [`parse::TABLE`] are rejected by name (40324).

use std::sync::Arc;

use sheaf_bson::error_code::Result;
use sheaf_bson::{ArrayBuf, DocBuf, DocBuilder, RawDoc, RawValue, Value};

use crate::expression::Expression;
use crate::expression::projection_exec::ProjectionExec;
use crate::matcher::MatchExpression;
use crate::sort::SortPattern;

pub mod accumulator;
mod doc_queue;
pub mod environment;
mod exec;
pub mod group;
pub mod limits;
mod operand;
mod optimize;
mod parse;
mod place;
pub mod score;
mod sorter;
mod sources;
pub mod stage;
pub mod stages;
pub mod unwind;

pub use environment::{Environment, Isolated};
pub use exec::{DocSource, Documents, PipelineExec};
pub use group::Group;
pub use optimize::{CursorPrefix, DistinctLike, DistinctTake, OptimizedPipeline};
pub use parse::stage_names;
pub use place::{PipelinePlace, PipelineTarget};
pub use stage::{ParsedStage, PipelineStage, StageContext};
pub use stages::window::functions::window_function_names;
pub use unwind::Unwind;

use self::stages::merge::Merge;
use self::stages::out::Out;
use self::stages::vector_search::{self, VectorSearch};

/// A parsed pipeline.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    /// The source of the documents.
    pub source: PipelineSource,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// The last stage, if it writes the results to a collection.
    pub sink: Option<PipelineSink>,
}

/// The source of a pipeline's documents.
#[derive(Debug, Clone, Default)]
pub enum PipelineSource {
    /// The collection's documents.
    #[default]
    Collection,
    /// The caller generates the documents of the first stage, by its name (`$collStats`,
    /// `$indexStats`, ...).
    Generated {
        /// `$name`.
        name: &'static str,
        /// The stage's operand. `sources.rs` checks it at parse time, or the caller when it
        /// generates the documents.
        spec: DocBuf,
    },
    /// `$documents`: literal documents.
    Documents(Arc<[DocBuf]>),
    /// `$vectorSearch`: the documents that the search returns.
    VectorSearch {
        /// The search.
        search: Arc<VectorSearch>,
        /// Whether each document must carry its score ([`score`]).
        with_score: bool,
    },
}

/// A last stage that writes the results to a collection; the caller executes it.
#[derive(Debug, Clone)]
pub enum PipelineSink {
    /// `$out`.
    Out(Arc<Out>),
    /// `$merge`.
    Merge(Arc<Merge>),
}

impl PipelineSink {
    /// `$name`.
    pub fn name(&self) -> &'static str {
        match self {
            PipelineSink::Out(_) => "$out",
            PipelineSink::Merge(_) => "$merge",
        }
    }

    /// What stands behind its name, for explain.
    pub fn operand(&self) -> Value {
        match self {
            PipelineSink::Out(out) => out.operand(None),
            PipelineSink::Merge(merge) => merge.operand(None),
        }
    }

    /// The stage with the full name of its target; `database` is that of the pipeline.
    pub fn resolved(&self, database: &str) -> DocBuf {
        let operand = match self {
            PipelineSink::Out(out) => out.operand(Some(database)),
            PipelineSink::Merge(merge) => merge.operand(Some(database)),
        };
        let mut stage = DocBuilder::new();
        stage.append_value(self.name(), &operand);
        stage.finish()
    }
}

/// One stage.
#[derive(Debug, Clone)]
pub enum Stage {
    /// `$match`.
    Match {
        /// The filter as specified by the user; `{$and: [...]}` if several stages were merged.
        spec: DocBuf,
        /// Normalised.
        filter: Arc<MatchExpression>,
    },
    /// `$sort`.
    Sort {
        /// The sort order.
        pattern: SortPattern,
        /// Number of documents to return; `None` returns all.
        limit: Option<u64>,
        /// The fields to buffer: those that later stages read. `None` buffers whole documents.
        keeps: Option<Arc<ProjectionExec>>,
    },
    /// `$skip`.
    Skip(u64),
    /// `$limit`; at least 1.
    Limit(u64),
    /// `$project`, `$addFields`, `$set`, `$unset`.
    Project {
        /// The name under which the user wrote it.
        name: &'static str,
        /// The operand as specified by the user.
        spec: Value,
        /// The parsed projection.
        projection: Arc<ProjectionExec>,
    },
    /// `$replaceRoot`, `$replaceWith`.
    ReplaceRoot {
        /// The operand in the form `{newRoot: ...}`.
        spec: DocBuf,
        /// Evaluates to a document.
        expression: Arc<Expression>,
    },
    /// `$group`.
    Group(Arc<Group>),
    /// `$unwind`.
    Unwind(Unwind),
    /// Every other stage.
    Other(Arc<dyn PipelineStage>),
}

/// The names of all accumulators of `$group`, for generated documentation.
pub fn accumulator_names() -> impl Iterator<Item = &'static str> {
    accumulator::TABLE
        .iter()
        .map(|(name, _)| *name)
        .chain(["$count", "$accumulator"])
}

impl Pipeline {
    /// The name of the first stage that is not allowed in an update, because it does not convert
    /// one document to exactly one; `None` if there is no such stage.
    pub fn first_stage_not_for_updates(&self) -> Option<&'static str> {
        match &self.source {
            PipelineSource::Collection => {}
            PipelineSource::Generated { name, .. } => return Some(name),
            PipelineSource::Documents(_) => return Some("$documents"),
            PipelineSource::VectorSearch { .. } => return Some(vector_search::NAME),
        }
        self.stages
            .iter()
            .find(|stage| !matches!(stage, Stage::Project { .. } | Stage::ReplaceRoot { .. }))
            .map(Stage::name)
            .or(self.sink.as_ref().map(PipelineSink::name))
    }

    /// Applies the stages that convert one document to one; ignores other stages. Errors: those of
    /// expressions.
    pub fn transform(&self, doc: RawDoc<'_>) -> Result<DocBuf> {
        let mut current = doc.to_buf();
        for stage in &self.stages {
            if let Some(next) = stage.transform(current.as_raw())? {
                current = next;
            }
        }
        Ok(current)
    }

    /// Names of other collections that the stages and their sub-pipelines read.
    pub fn foreign_collections(&self) -> Vec<String> {
        let mut found = Vec::new();
        for stage in &self.stages {
            stage.for_each_foreign(&mut |name| {
                if !found.iter().any(|known| known == name) {
                    found.push(name.to_owned());
                }
            });
        }
        found
    }

    /// The stages as documents, for explain.
    pub fn serialize(&self) -> Vec<DocBuf> {
        let mut out = Vec::new();
        let mut say = |name: &str, operand: RawValue<'_>| {
            let mut stage = DocBuilder::new();
            stage.append(name, operand);
            out.push(stage.finish());
        };
        match &self.source {
            PipelineSource::Collection => {}
            PipelineSource::Generated { name, spec } => {
                say(name, RawValue::Document(spec.as_raw()));
            }
            PipelineSource::Documents(docs) => {
                let docs =
                    ArrayBuf::from_values(docs.iter().map(|d| RawValue::Document(d.as_raw())));
                say("$documents", RawValue::Array(docs.as_raw()));
            }
            PipelineSource::VectorSearch { search, .. } => {
                say(
                    vector_search::NAME,
                    RawValue::Document(search.spec.as_raw()),
                );
            }
        }
        for stage in &self.stages {
            say(stage.name(), stage.operand().as_raw());
        }
        if let Some(sink) = &self.sink {
            say(sink.name(), sink.operand().as_raw());
        }
        out
    }
}

impl Stage {
    /// A `$sort` of all documents.
    pub(super) fn sort(pattern: SortPattern) -> Stage {
        Stage::Sort {
            pattern,
            limit: None,
            keeps: None,
        }
    }

    /// `$name`.
    pub fn name(&self) -> &'static str {
        match self {
            Stage::Match { .. } => "$match",
            Stage::Sort { .. } => "$sort",
            Stage::Skip(_) => "$skip",
            Stage::Limit(_) => "$limit",
            Stage::Project { name, .. } => name,
            Stage::ReplaceRoot { .. } => "$replaceRoot",
            Stage::Group(_) => "$group",
            Stage::Unwind(_) => "$unwind",
            Stage::Other(stage) => stage.name(),
        }
    }

    pub(super) fn for_each_foreign(&self, visit: &mut dyn FnMut(&str)) {
        if let Stage::Other(stage) = self {
            stage.for_each_foreign(visit);
        }
    }

    /// What stands behind its name, for explain.
    pub fn operand(&self) -> Value {
        match self {
            Stage::Match { spec, .. } => Value::Document(spec.clone()),
            Stage::Sort { pattern, limit, .. } => {
                let mut sort_key = DocBuilder::new();
                sort_key.append("sortKey", &pattern.serialize());
                if let Some(limit) = limit {
                    sort_key.append("limit", i64::try_from(*limit).unwrap_or(i64::MAX));
                }
                Value::Document(sort_key.finish())
            }
            Stage::Skip(n) | Stage::Limit(n) => Value::Int64(i64::try_from(*n).unwrap_or(i64::MAX)),
            Stage::Project { spec, .. } => spec.clone(),
            Stage::ReplaceRoot { spec, .. } => Value::Document(spec.clone()),
            Stage::Group(group) => Value::Document(group.spec.clone()),
            Stage::Unwind(unwind) => Value::Document(unwind.serialize()),
            Stage::Other(stage) => stage.operand(),
        }
    }

    /// The stage as a document, for explain.
    pub fn serialize(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append(self.name(), &self.operand());
        out.finish()
    }

    /// The converted document; `None` for stages that do not convert one document to exactly one.
    fn transform(&self, doc: RawDoc<'_>) -> Result<Option<DocBuf>> {
        match self {
            Stage::Project { projection, .. } => projection.apply(doc).map(Some),
            Stage::ReplaceRoot { expression, .. } => {
                crate::expression::projection_exec::evaluate_root(expression, doc).map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
