//! The naive model: documents in a list, and what queries over it give, said as
//! plainly as possible.
//!
//! ```text
//!   filter      every document is asked          model::matches
//!   sort        all tuples of sort values        model::sort_key
//!   projection  a tree of names                  model::project
//!   distinct    values at the end of a path      model::distinct
//!   update      one path, one operator           model::update
//! ```
//!
//! It is slow, has no indexes, and shares nothing with the server's own
//! matcher, sorter and updater but the reading of BSON and the order of values
//! ([`sheaf_bson::compare_values_with`]), which have tests of their own. Where both
//! say the same, one of them would have to be wrong in the other's way.

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
