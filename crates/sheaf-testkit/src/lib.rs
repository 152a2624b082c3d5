//! Test support shared by the crates: generators, the naive model, differential rounds, bodies of
//! fuzz targets, and the import order inside a crate. A dev-dependency only.
//!
//! ```text
//!   generate            random values and documents, often nearly equal
//!   generate_query      random documents, filters, sorts and projections that often match
//!   generate_served     finds built for given indexes
//!   generate_beyond     projections and pipelines that the model does not implement
//!        │
//!   differential        rounds: documents, indexes, operations on them; shrinks a failing round
//!        │
//!   model               the expected results, from a list of documents and a naive matcher
//!
//!   fuzz                bodies of the targets in `fuzz/`, which ordinary tests run as well
//!   borders             checks which folder of a crate may import which
//! ```
//!
//! The crates whose tests use this one must not depend on each other through it: the parts of
//! `fuzz` that need sheaf-query or sheaf-wire require the features `query` and `wire`.

#![forbid(unsafe_code)]

pub mod borders;
pub mod differential;
pub mod fuzz;
pub mod generate;
pub mod generate_beyond;
pub mod generate_query;
pub mod generate_served;
pub mod model;
