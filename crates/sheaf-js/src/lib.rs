//! Server-side JavaScript: QuickJS as the [`Engine`] of `sheaf-query`.
//!
//! ```text
//!   QuickJs ── operation ──> Environment      one for each operation that runs scripts
//!                              │ first script
//!                              ▼
//!                            a runtime with one context: language, prelude.js, nothing else
//!                              ▲ to_js      │ from_js
//!                             BSON         BSON
//! ```
//!
//! A runtime has a memory limit and a stack limit, and checks regularly whether the current
//! operation was interrupted. It has no access to files, sockets or other operations; its only
//! clock is `Date`.
//!
//! Invariant: every BSON value that a script returns unchanged returns with its exact type and
//! bits, except a 32-bit integer outside of a document or array, which becomes a double as in
//! MongoDB.

#![forbid(unsafe_code)]

use std::sync::Arc;

use sheaf_query::javascript::{Engine, JavaScript, Limits, StoredFunctions};

mod environment;
mod failure;
mod from_js;
mod machine;
mod origin;
#[cfg(test)]
mod tests;
mod to_js;
mod world;

use environment::Environment;

/// QuickJS.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuickJs;

impl Engine for QuickJs {
    fn name(&self) -> &'static str {
        "quickjs"
    }

    fn operation(&self, limits: Limits, stored: Box<dyn StoredFunctions>) -> Arc<dyn JavaScript> {
        Arc::new(Environment::new(limits, stored))
    }
}
