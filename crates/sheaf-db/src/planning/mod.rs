//! Selects the plan for a canonical query.
//!
//! ```text
//!   indexes.rs   the indexes that the planner sees,   ─┐
//!                less those that filters or settings   │
//!                exclude                               │
//!   statistics.rs  a sample of the data               ─┼─> selector.rs ──> PlanExecutor (exec/)
//!   plan_cache/  plans that won, by query shape       ─┘        └─> digest.rs: its description
//! ```

pub mod digest;
pub mod index_filters;
pub(crate) mod indexes;
pub mod options;
pub mod plan_cache;
pub mod query_settings;
pub(crate) mod sample;
mod sample_places;
pub mod selector;
pub mod statistics;

pub use digest::PlanDigest;
pub use indexes::plan_hashes;
pub(crate) use indexes::{Restriction, express_key, indexes_of, planning_indexes};
pub use options::QueryOptions;
pub use query_settings::QuerySettings;
pub use selector::{plan, plan_from_cache, start, start_solution};
