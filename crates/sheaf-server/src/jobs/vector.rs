//! Rebuilds vector indexes that their collections have outgrown.
//!
//! A vector index divides its vectors into lists when it is built. Once it has many
//! more or far fewer vectors, it is rebuilt ([`sheaf_db::ddl::search_indexes`]) alongside
//! reads and writes. A check takes some microseconds per index.

use std::time::Duration;

use sheaf_bson::Error;

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::server::Server;

/// How often the indexes are checked.
const PERIOD: Duration = Duration::from_secs(1);
/// How long no index is checked after one could not be rebuilt.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);

pub(super) fn job() -> Job<Server> {
    Job {
        name: "VectorMonitor",
        is_long: true,
        period: |_| Some(PERIOD),
        run: Box::new(|server| match pass(server) {
            true => Next::After(PAUSE_AFTER_FAILURE),
            false => Next::Period,
        }),
    }
}

/// True if some index could not be rebuilt.
fn pass(server: &Server) -> bool {
    let mut any = false;
    let mut failed = |index: &str, error: &Error| {
        any = true;
        server.log.warning(
            Component::Index,
            events::VECTOR_INDEX_NOT_REBUILT,
            "Could not rebuild a vector index",
            |attr| {
                attr.append("index", index);
                attr.append("error", server.log.client_text(error.message()));
            },
        );
    };
    let done = server.jobs.pass(|op| {
        let trained = server.db.retrain_search_indexes(op, &mut failed);
        trained.map(drop)
    });
    if let Err(error) = done {
        failed("", &error);
    }
    any
}
