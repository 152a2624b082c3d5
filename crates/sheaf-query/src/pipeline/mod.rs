//! Aggregation pipelines: parsed, optimised, split, run.
//!
//! ```text
//!   [$match, $sort, $limit, $unwind, $group, $project, $sort]
//!    ╰───── CursorPrefix ─╯  ╰────────── PipelineExec ─────╯
//!    what the find layer does     documents pushed from stage to stage
//!    with indexes
//! ```
//!
//! Stages that are not in [`parse::TABLE`] are refused by name (40324).

use std::sync::Arc;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DocBuf, DocBuilder, RawArray, RawDoc, RawValue, Value};

use crate::expression::Expression;
use crate::expression::projection_exec::ProjectionExec;
use crate::matcher::{MatchExpression, ParseContext};
use crate::sort::SortPattern;

pub mod accumulator;
mod exec;
pub mod group;
mod optimize;
mod parse;
mod sorter;
pub mod unwind;

pub use exec::{DocSource, Documents, PipelineExec};
pub use group::Group;
pub use optimize::{CursorPrefix, DistinctLike, DistinctTake, OptimizedPipeline};
pub use unwind::Unwind;

/// The most stages a pipeline may have.
pub const STAGES_MAX: usize = 1000;
/// What a blocking stage may hold, in bytes.
pub const BLOCKING_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A parsed pipeline.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Where documents come from.
    pub source: PipelineSource,
    /// What is done with them, in order.
    pub stages: Vec<Stage>,
}

/// Where a pipeline's documents come from.
#[derive(Debug, Clone)]
pub enum PipelineSource {
    /// The collection's documents.
    Collection,
    /// `$collStats`: one document of figures, made by the caller. The stage's specification.
    CollStats(DocBuf),
}

/// One stage.
#[derive(Debug, Clone)]
pub enum Stage {
    /// `$match`.
    Match {
        /// As written; `{$and: [...]}` of several that were merged.
        spec: DocBuf,
        /// Normalised.
        filter: Arc<MatchExpression>,
    },
    /// `$sort`.
    Sort {
        /// By what.
        pattern: SortPattern,
        /// How many of the first are enough; `None` is all.
        limit: Option<u64>,
    },
    /// `$skip`.
    Skip(u64),
    /// `$limit`; at least 1.
    Limit(u64),
    /// `$project`, `$addFields`, `$set`, `$unset`.
    Project {
        /// The name it was written with.
        name: &'static str,
        /// As written.
        spec: Value,
        /// What it does.
        projection: Arc<ProjectionExec>,
    },
    /// `$replaceRoot`, `$replaceWith`.
    ReplaceRoot {
        /// As written, `{newRoot: ...}`.
        spec: DocBuf,
        /// Gives a document.
        expression: Arc<Expression>,
    },
    /// `$group`.
    Group(Arc<Group>),
    /// `$unwind`.
    Unwind(Unwind),
}

/// Every stage, for lists of what there is.
pub fn stage_names() -> impl Iterator<Item = &'static str> {
    parse::TABLE
        .iter()
        .map(|(name, _)| *name)
        .chain(["$collStats"])
}

/// Every accumulator of `$group`, for lists of what there is.
pub fn accumulator_names() -> impl Iterator<Item = &'static str> {
    accumulator::TABLE
        .iter()
        .map(|(name, _)| *name)
        .chain(["$count"])
}

impl Pipeline {
    /// Parses the array of stages.
    ///
    /// Errors: TypeMismatch for an element that is no document, 40323 for one that has not
    /// exactly one field, 40324 for an unknown stage, 7749501 for too many, and what stages refuse.
    pub fn parse(stages: RawArray<'_>, context: &ParseContext) -> Result<Pipeline> {
        let mut pipeline = Pipeline {
            source: PipelineSource::Collection,
            stages: Vec::new(),
        };
        for (position, stage) in stages.iter().enumerate() {
            if position == STAGES_MAX {
                return Err(Error::new(
                    ErrorCode(7749501),
                    format!("a pipeline must not have more than {STAGES_MAX} stages"),
                ));
            }
            let RawValue::Document(stage) = stage else {
                return Err(Error::new(
                    ErrorCode::TYPE_MISMATCH,
                    format!(
                        "each element of a pipeline must be an object, not {}",
                        stage.type_name()
                    ),
                ));
            };
            parse::stage(stage, position, &mut pipeline, context)?;
        }
        Ok(pipeline)
    }

    /// Whether every stage turns one document into one, so that the pipeline can be an update.
    /// The name of the first that does not, otherwise.
    pub fn first_stage_not_for_updates(&self) -> Option<&'static str> {
        if let PipelineSource::CollStats(_) = self.source {
            return Some("$collStats");
        }
        self.stages
            .iter()
            .find(|stage| !matches!(stage, Stage::Project { .. } | Stage::ReplaceRoot { .. }))
            .map(Stage::name)
    }

    /// Passes one document through stages that turn one into one; others are passed over.
    /// Errors: those of expressions.
    pub fn transform(&self, doc: RawDoc<'_>) -> Result<DocBuf> {
        let mut current = doc.to_buf();
        for stage in &self.stages {
            if let Some(next) = stage.transform(current.as_raw())? {
                current = next;
            }
        }
        Ok(current)
    }

    /// The stages as documents, for explain.
    pub fn serialize(&self) -> Vec<DocBuf> {
        let source = match &self.source {
            PipelineSource::Collection => None,
            PipelineSource::CollStats(spec) => {
                let mut out = DocBuilder::new();
                out.append("$collStats", spec);
                Some(out.finish())
            }
        };
        source
            .into_iter()
            .chain(self.stages.iter().map(Stage::serialize))
            .collect()
    }
}

impl Stage {
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
        }
    }

    /// The stage as a document, for explain.
    pub fn serialize(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        match self {
            Stage::Match { spec, .. } => {
                out.append("$match", spec);
            }
            Stage::Sort { pattern, limit } => {
                let mut sort_key = DocBuilder::new();
                sort_key.append("sortKey", &pattern.serialize());
                if let Some(limit) = limit {
                    sort_key.append("limit", i64::try_from(*limit).unwrap_or(i64::MAX));
                }
                out.append("$sort", &sort_key.finish());
            }
            Stage::Skip(n) | Stage::Limit(n) => {
                out.append(self.name(), i64::try_from(*n).unwrap_or(i64::MAX));
            }
            Stage::Project { name, spec, .. } => {
                out.append(name, spec);
            }
            Stage::ReplaceRoot { spec, .. } => {
                out.append("$replaceRoot", spec);
            }
            Stage::Group(group) => {
                out.append("$group", &group.spec);
            }
            Stage::Unwind(unwind) => {
                out.append("$unwind", &unwind.serialize());
            }
        }
        out.finish()
    }

    /// The one document that one becomes; `None` for stages that are not like that.
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
