//! From a canonical query and the collection's indexes to candidate plans.
//!
//! A pure function: [`plan`] reads no data and asks no clock, so its whole
//! behaviour is visible in golden scripts. It returns every solution worth
//! trying; the executor above runs them side by side and keeps the best.

pub mod bounds;
pub mod bounds_checker;
pub mod index_entry;
pub mod solution;
