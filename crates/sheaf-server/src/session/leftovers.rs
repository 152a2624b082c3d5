//! What a command leaves behind, freed when its reply is on its way.
//!
//! A pipeline may hold a hundred megabytes in a million pieces when it ends, is killed, or runs out of
//! time; to give them back takes tens of milliseconds, which its client need not wait for.
//!
//! ```text
//!   connection's thread:   command ──keep──┐
//!                          reply ──> client │
//!                          free <───────────┘
//!                          next request
//! ```
//!
//! The thread that made it frees it, before it takes the next request: so nothing is kept for longer than that
//! takes, a connection keeps what one command held and no more, and there is no queue that could grow.

use sheaf_db::ResultSource;

use super::cursors::ClientCursor;

/// What the commands of a connection have left since the last reply.
#[derive(Default)]
pub struct Leftovers {
    sources: Vec<Box<dyn ResultSource>>,
}

impl Leftovers {
    /// Keeps what gave results until the reply has been sent.
    pub fn keep(&mut self, source: Box<dyn ResultSource>) {
        self.sources.push(source);
    }

    /// As [`Leftovers::keep`], of a cursor that is closed, if one is.
    pub fn keep_cursor(&mut self, closed: Option<Box<ClientCursor>>) {
        if let Some(cursor) = closed {
            self.keep(cursor.source);
        }
    }

    /// Frees what was kept.
    pub fn free(&mut self) {
        self.sources.clear();
        self.sources.shrink_to(16);
    }
}
