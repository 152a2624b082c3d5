//! The semantics of queries, and the planner that enumerates plans for them.
//!
//! This crate is pure: it has no storage, no sessions and no clock. It parses filters, sorts,
//! projections, updates and pipelines to typed, normalised forms, and computes candidate plans.
//! Code that reads data is in `sheaf-db`.
//!
//! ```text
//! filter ──parse──> MatchExpression ──normalize──> CanonicalQuery ─┐
//!                                                                  ├─> planner ─> [QuerySolution]
//!                              catalog ──────────> [IndexEntry] ───┘
//! ```

#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod canonical;
pub mod dependencies;
pub mod expression;
pub mod interrupt;
pub mod javascript;
pub mod key_table;
mod location;
pub mod matcher;
pub mod metadata;
pub mod pipeline;
pub mod planner;
pub mod projection;
pub mod query_shape;
pub mod regex;
pub mod schema;
pub mod shape;
pub mod sort;
pub mod timeseries;
pub mod update;
pub mod validation;
pub mod vector;

#[cfg(test)]
mod growth;
#[cfg(test)]
mod random;
#[cfg(test)]
mod script;
