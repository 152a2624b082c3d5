//! What a query means, and which plans could answer it.
//!
//! Pure: no storage, no sessions, no clock. Bytes of a filter, sort,
//! projection, update or pipeline go in; typed, normalised forms and candidate
//! plans come out. What reads data lives above, in `sheaf-db`.
//!
//! ```text
//! filter ──parse──> MatchExpression ──normalize──> CanonicalQuery ─┐
//!                                                                  ├─> planner ─> [QuerySolution]
//!                              catalog ──────────> [IndexEntry] ───┘
//! ```

#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod canonical;
pub mod expression;
pub mod interrupt;
pub mod key_table;
pub mod matcher;
pub mod pipeline;
pub mod planner;
pub mod projection;
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
