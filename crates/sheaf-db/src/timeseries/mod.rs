//! Time-series collections: a view-like name over a collection of buckets.
//!
//! ```text
//!   weather                    a view in the catalog: [{$_internalUnpackBucket: {...}}] on
//!   system.buckets.weather     the collection of buckets: options, indexes, data
//!
//!   find, aggregate, count ──> as on a view; predicates that buckets can answer go in front
//!   insert                 ──> insert: grouped by series, one write per bucket
//!                              (catalogue: the open buckets)
//!   update, delete         ──> update, modify: bucket by bucket
//! ```
//!
//! Invariant: both names are created and dropped together. Only this module writes buckets, except
//! for those that a client inserts directly, as tools that restore dumps do, which are checked, and
//! those that it deletes, each as a whole.

pub mod catalogue;
pub mod explain;
pub mod indexes;
mod insert;
mod modify;
pub mod stats;
mod ttl;
mod update;

use sheaf_bson::{Error, ErrorCode};

use crate::catalog::namespace::Namespace;
use crate::system_names::BUCKETS_PREFIX;

pub use crate::catalog::kind::Timeseries;
pub(crate) use modify::delete;
pub use modify::refuse_find_and_update;
pub(crate) use update::update;

/// The error for a write to what would hold buckets, were there a time-series collection.
pub(crate) fn not_written_directly(ns: &Namespace) -> Error {
    Error::new(
        ErrorCode::INVALID_NAMESPACE,
        format!(
            "cannot write to {ns}, the buckets of a time-series collection: write to the collection \
             '{}'",
            &ns.collection()[BUCKETS_PREFIX.len()..]
        ),
    )
}
