//! Bodies of fuzz targets, as plain functions: the fuzzer under `fuzz/` calls
//! them with bytes it has grown, ordinary tests with mutated examples.
//!
//! A body returns if the bytes are harmless, refused or accepted, and panics
//! if a promise is broken.

mod bson;
#[cfg(feature = "wire")]
mod frames;
mod keystring;
mod mutate;
#[cfg(feature = "query")]
mod query;

pub use bson::{bson, json};
#[cfg(feature = "wire")]
pub use frames::frames;
pub use keystring::keystring;
pub use mutate::{Random, mutate};
#[cfg(feature = "query")]
pub use query::query;
