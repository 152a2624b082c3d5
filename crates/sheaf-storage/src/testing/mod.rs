//! Tools for tests of engines and of code that uses them; compiled with the feature `testing`.
//!
//! ```text
//!   checked.rs   an engine that wraps another one and asserts the contract of every call
//!   fault/       a simulated disk that fails, crashes, and loses or tears unsynced writes
//! ```

pub mod checked;
pub mod fault;
