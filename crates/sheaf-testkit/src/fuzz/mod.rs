//! Bodies of fuzz targets, as plain functions. The targets in `fuzz/` call them with bytes from the
//! fuzzer, ordinary tests with mutated examples.
//!
//! A body returns whether the bytes were accepted or rejected, and panics if a guarantee is
//! violated.

mod bson;
#[cfg(feature = "wire")]
mod frames;
#[cfg(feature = "query")]
mod javascript;
mod keystring;
mod mutate;
#[cfg(feature = "query")]
mod pipeline;
#[cfg(feature = "query")]
mod query;

pub use bson::{bson, json};
#[cfg(feature = "wire")]
pub use frames::frames;
#[cfg(feature = "query")]
pub use javascript::{javascript, names_are_unique};
pub use keystring::keystring;
pub use mutate::{Random, mutate};
#[cfg(feature = "query")]
pub use pipeline::pipeline;
#[cfg(feature = "query")]
pub use query::query;
