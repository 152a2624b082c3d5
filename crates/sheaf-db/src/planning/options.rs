//! Options for planning and executing a query, and what planner and executor derive from them.
//!
//! Each default is defined once: here, in [`PlannerOptions::DEFAULT`] and in
//! [`CachePolicy::DEFAULT`]. The table of server parameters refers to them.

use std::path::Path;
use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_query::canonical::CanonicalQuery;
use sheaf_query::planner::statistics::{PRUNING_RECORDS_MIN, Statistics};
use sheaf_query::planner::{PlannerOptions, PlannerParams};

use super::indexes::{PlanningIndexes, Restriction};
use super::plan_cache::CachePolicy;
use super::query_settings::QuerySettings;
use super::statistics::ViewStatistics;
use crate::catalog::ReadView;
use crate::exec::BuildContext;
use crate::exec::multi_plan::TrialBudget;
use crate::exec::sort::SpillOptions;

/// Default of `internalQueryMaxBlockingSortMemoryUsageBytes`.
pub const SORT_MEMORY_BYTES_MAX: usize = 100 << 20;
/// Default of `internalQueryPlanEvaluationWorks`.
pub const EVALUATION_WORKS: u64 = 10_000;
/// Default of `internalQueryPlanEvaluationCollFraction`.
pub const EVALUATION_COLLECTION_FRACTION: f64 = 0.3;
/// Default of `internalQueryPlanEvaluationMaxResults`.
pub const EVALUATION_RESULTS_MAX: usize = 101;

/// Options for planning and executing queries: server parameters and command options.
#[derive(Debug, Clone)]
pub struct QueryOptions {
    /// Blocking stages may write temporary files.
    pub allow_disk_use: bool,
    /// Maximum memory of a blocking stage, in bytes.
    pub sort_memory_bytes_max: usize,
    /// Directory of temporary files; `None` for the system's.
    pub temp_dir: Option<Arc<Path>>,
    /// Limits and switches of the planner.
    pub planner: PlannerOptions,
    /// `internalQueryPlanEvaluationWorks`.
    pub evaluation_works: u64,
    /// `internalQueryPlanEvaluationCollFraction`.
    pub evaluation_collection_fraction: f64,
    /// `internalQueryPlanEvaluationMaxResults`.
    pub evaluation_results_max: usize,
    /// `internalQueryPlanOrChildrenIndependently`: a rooted `$or` is planned branch by branch.
    pub or_children_independently: bool,
    /// `plannerExtensions`: plans beyond MongoDB's, and multi-planning by cost.
    pub planner_extensions: bool,
    /// Minimum number of records for pruning candidates before multi-planning.
    pub pruning_records_min: u64,
    /// Limits of the plan cache.
    pub plan_cache: CachePolicy,
    /// The settings of the command's shape.
    pub settings: Option<Arc<QuerySettings>>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            allow_disk_use: true,
            sort_memory_bytes_max: SORT_MEMORY_BYTES_MAX,
            temp_dir: None,
            planner: PlannerOptions::DEFAULT,
            evaluation_works: EVALUATION_WORKS,
            evaluation_collection_fraction: EVALUATION_COLLECTION_FRACTION,
            evaluation_results_max: EVALUATION_RESULTS_MAX,
            or_children_independently: true,
            planner_extensions: true,
            pruning_records_min: PRUNING_RECORDS_MIN,
            plan_cache: CachePolicy::DEFAULT,
            settings: None,
        }
    }
}

impl QueryOptions {
    /// Parameters of the planner.
    pub(crate) fn params<'v>(
        &self,
        indexes: &'v PlanningIndexes<'_>,
        statistics: Option<&'v dyn Statistics>,
    ) -> PlannerParams<'v> {
        let mut params = PlannerParams {
            statistics,
            ignore_hint: indexes.restriction != Restriction::Nothing,
            options: self.planner,
            ..PlannerParams::new(indexes)
        };
        if let Restriction::Settings(hints) = indexes.restriction {
            match hints.scan {
                Some(direction) => params.scan_direction = direction,
                None => params.options.no_table_scan = true,
            }
        }
        params
    }

    /// Statistics for the planner; `None` without the extensions or a collection.
    pub(crate) fn statistics<'v>(
        &self,
        view: &'v ReadView,
    ) -> Result<Option<ViewStatistics<'v>>, Error> {
        match self.planner_extensions {
            true => ViewStatistics::new(view),
            false => Ok(None),
        }
    }

    /// The context of a plan's stages; `timed` measures every step.
    pub(crate) fn build_context(
        &self,
        view: &ReadView,
        query: &Arc<CanonicalQuery>,
        timed: bool,
    ) -> BuildContext {
        BuildContext {
            snapshot: view.snapshot.clone(),
            collection: view.collection.clone(),
            query: query.clone(),
            spill: SpillOptions {
                memory_bytes_max: self.sort_memory_bytes_max,
                allow_disk_use: self.allow_disk_use,
                dir: self.temp_dir.clone(),
            },
            timed,
        }
    }

    /// Budget of the trial that picks among a query's candidates.
    pub(crate) fn trial_budget(
        &self,
        view: &ReadView,
        query: &CanonicalQuery,
    ) -> Result<TrialBudget, Error> {
        let records = view.record_count()?;
        let fraction = (records as f64 * self.evaluation_collection_fraction) as u64;
        let wanted = query
            .limit
            .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(TrialBudget {
            works_max: self.evaluation_works.max(fraction),
            results_max: self.evaluation_results_max.min(wanted),
            by_cost: self.planner_extensions,
        })
    }
}
