//! Bodies of fuzz targets, as plain functions: the fuzzer under `fuzz/` calls
//! them with bytes it has grown, ordinary tests with mutated examples.
//!
//! A body returns if the bytes are harmless, refused or accepted, and panics
//! if a promise is broken.

mod bson;
mod frames;
mod keystring;
mod mutate;
mod query;

pub use bson::{bson, json};
pub use frames::frames;
pub use keystring::keystring;
pub use mutate::{Random, mutate};
pub use query::query;
