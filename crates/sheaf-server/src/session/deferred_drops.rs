//! Memory of a finished command, freed after its reply is sent.
//!
//! A pipeline may hold a hundred megabytes in a million pieces when it ends, is killed, or exceeds
//! its time limit. Freeing them takes tens of milliseconds, which its client need not wait for.
//!
//! ```text
//!   connection's thread:   command ──keep──┐
//!                          reply ──> client │
//!                          free <───────────┘
//!                          next request
//! ```
//!
//! The thread that ran the command frees its memory before it reads the next request. So a
//! connection keeps at most what one command held, and no queue can grow.

use sheaf_db::ResultSource;

use super::cursors::ClientCursor;

/// Result sources that a connection frees after its next reply.
#[derive(Default)]
pub struct DeferredDrops {
    sources: Vec<Box<dyn ResultSource>>,
}

impl DeferredDrops {
    /// Keeps a result source until the reply has been sent.
    pub fn keep(&mut self, source: Box<dyn ResultSource>) {
        self.sources.push(source);
    }

    /// As [`DeferredDrops::keep`], for the source of a closed cursor, if there is one.
    pub fn keep_cursor(&mut self, closed: Option<Box<ClientCursor>>) {
        if let Some(cursor) = closed {
            self.keep(cursor.source);
        }
    }

    /// Frees everything kept.
    pub fn free(&mut self) {
        self.sources.clear();
        self.sources.shrink_to(16);
    }
}
