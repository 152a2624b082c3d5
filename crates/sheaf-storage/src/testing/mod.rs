//! Tools for tests of engines and of what is built on them; compiled with the feature `testing`.
//!
//! ```text
//!   checked.rs   an engine around another one: asserts the contract of every call
//!   fault/       a simulated disk that fails, crashes, and loses or tears what was not synced
//! ```

pub mod checked;
pub mod fault;
