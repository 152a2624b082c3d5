//! The naive model: a list of documents, and the results of queries over it, implemented as simply
//! as possible.
//!
//! ```text
//!   filter      evaluated on every document      model::matches
//!   sort        all tuples of sort values        model::sort_key
//!   projection  a tree of names                  model::project
//!   distinct    values at the end of a path      model::distinct
//!   update      one path, one operator           model::update
//! ```
//!
//! The model is slow and has no indexes. It shares with the server's matcher, sorter and updater
//! only the reading of BSON and the order of values ([`sheaf_bson::compare_values_with`]), which
//! have separate tests. If both return the same result and it is wrong, both have the same defect.

mod collation;
mod filter;
mod order;
mod paths;
mod projection;
mod results;
mod update;

pub use collation::{by_collation, compare};
pub use filter::matches;
pub use order::{SortTuple, compare_tuples, sort_key};
pub use paths::distinct;
pub use projection::project;
pub use results::{Query, check, check_in_any_field_order, matching, wanted_count};
pub use update::{Updated, update};
