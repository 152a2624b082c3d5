//! The places where a stage is allowed: in which pipeline, and over which target.

use sheaf_bson::error_code::{Error, ErrorCode, Result};

use crate::expression::location;

use super::sources::{self, Needs};

/// The place of a pipeline; some stages are not allowed in some places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelinePlace {
    /// The pipeline of a command.
    Command,
    /// Within the stage with this name: `$lookup`, `$unionWith`, `$facet`.
    Within(&'static str),
}

/// What a pipeline runs over, which determines the allowed first stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipelineTarget {
    /// A collection or view.
    Collection,
    /// The collection `config.system.sessions`.
    Sessions,
    /// A database: `{aggregate: 1}`.
    Database,
    /// The database `admin`.
    Admin,
}

impl PipelineTarget {
    /// Whether the target is a database.
    pub(super) fn is_database(self) -> bool {
        matches!(self, PipelineTarget::Database | PipelineTarget::Admin)
    }
}

/// Stages that are not allowed within `$facet`, nor in pipelines nested in it.
const NOT_IN_FACET: &[&str] = &[
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$documents",
    "$facet",
    "$geoNear",
    "$listCatalog",
    "$listSampledQueries",
    "$merge",
    "$out",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// The context of a stage that decides whether it is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pipeline: PipelinePlace,
    pub(super) in_facet: bool,
    /// `None` if unknown: a view, or the pipeline of an update.
    pub(super) target: Option<PipelineTarget>,
}

impl Place {
    /// Checks that the stage may be here, regardless of its position in the pipeline.
    ///
    /// Errors: InvalidNamespace (and 9621301) for a stage that does not run over this target, 40600
    /// within `$facet`, 51047 and 40573 within `$lookup`, 31441 within `$unionWith`.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        self.check_target(name)?;
        let within = match self.pipeline {
            PipelinePlace::Command => return Ok(()),
            PipelinePlace::Within(within) => within,
        };
        let refused = |code: i32| {
            location(
                code,
                format!("{name} is not allowed within a {within}'s sub-pipeline"),
            )
        };
        let not_in_facet = NOT_IN_FACET.contains(&name) || sources::find(name).is_some();
        match (within, name) {
            ("$facet", _) if not_in_facet => Err(not_within_facet(name)),
            ("$lookup" | "$unionWith", "$changeStream") => Err(refused(40573)),
            ("$lookup", "$vectorSearch" | "$listSearchIndexes" | "$out" | "$merge") => {
                Err(refused(51047))
            }
            ("$unionWith", "$out" | "$merge") => Err(refused(31441)),
            // `$documents` is allowed in a pipeline that is nested in a facet.
            _ if self.in_facet && not_in_facet && name != "$documents" => {
                Err(not_within_facet(name))
            }
            _ => Ok(()),
        }
    }

    fn check_target(&self, name: &str) -> Result<()> {
        use PipelineTarget::{Admin, Collection, Database, Sessions};
        let Some(target) = self.target else {
            return Ok(());
        };
        let needs = sources::find(name).map(|source| source.needs);
        let message = match (needs, target) {
            (Some(Needs::Admin), Collection | Sessions | Database) => {
                format!("{name} must be run against the 'admin' database with {{aggregate: 1}}")
            }
            (Some(Needs::Database), Collection | Sessions) => {
                format!(
                    "{name} must be run against the database with {{aggregate: 1}}, not a collection"
                )
            }
            (Some(Needs::Sessions), Collection | Database | Admin) => {
                format!("{name} may only be run against config.system.sessions")
            }
            _ => return Ok(()),
        };
        let code = match name {
            sources::LIST_CLUSTER_CATALOG => ErrorCode(9621301),
            _ => ErrorCode::INVALID_NAMESPACE,
        };
        Err(Error::new(code, message))
    }
}

fn not_within_facet(name: &str) -> Error {
    location(
        40600,
        format!("{name} is not allowed to be used within a $facet stage"),
    )
}
