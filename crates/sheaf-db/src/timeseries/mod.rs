//! Time-series collections: a name like a view's over a collection of buckets.
//!
//! ```text
//!   weather                    in the catalog a view: [{$_internalUnpackBucket: {...}}] on
//!   system.buckets.weather     a collection of buckets, with the options, the indexes, the data
//!
//!   find, aggregate, count ──> the view's way: what the filter says of buckets goes in front
//!   insert                 ──> insert: grouped by series, one write a bucket      (catalogue: which are open)
//!   update, delete         ──> write: bucket by bucket
//! ```
//!
//! Invariant: both names come into being and go together. Only this module writes buckets.

pub mod catalogue;
pub mod explain;
pub mod indexes;
mod insert;
mod modify;
pub mod stats;
mod ttl;
mod update;

use std::sync::Arc;

use sheaf_bson::{Error, ErrorCode, Result};
use sheaf_query::timeseries::TimeseriesOptions;

use crate::catalog::namespace::Namespace;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::collection::Collection;
use crate::system_names::BUCKETS_PREFIX;

pub(crate) use modify::delete;
pub use modify::refuse_find_and_update;
pub(crate) use update::update;

/// A time-series collection as the catalog has it.
#[derive(Debug, Clone)]
pub struct Timeseries {
    /// Its buckets.
    pub buckets: Arc<Collection>,
    /// Its options.
    pub options: Arc<TimeseriesOptions>,
}

impl CatalogSnapshot {
    /// The time-series collection of this name.
    pub fn timeseries(&self, ns: &Namespace) -> Option<Timeseries> {
        // It has a view: for most names the search ends here.
        self.view(ns)?;
        let buckets = self.collection(&ns.buckets().ok()?)?;
        Some(Timeseries {
            buckets: buckets.clone(),
            options: buckets.options().timeseries()?.clone(),
        })
    }
}

/// Errors: `InvalidNamespace` for a collection of buckets, which users do not write.
pub(crate) fn check_user_write(ns: &Namespace) -> Result<()> {
    if !ns.is_buckets() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::INVALID_NAMESPACE,
        format!(
            "cannot write to {ns}, the buckets of a time-series collection: write to the collection \
             '{}'",
            &ns.collection()[BUCKETS_PREFIX.len()..]
        ),
    ))
}
