//! Ends what clients left: transactions, cursors, sessions, old oplog entries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::{DateTime, Error};
use sheaf_db::{OpContext, StatementContext};

use super::{STACK_BYTES, spawn_with_stack};
use crate::log::Component;
use crate::parameters::Parameter;
use crate::server::Server;

/// How often transactions that are open for too long are looked for.
const TRANSACTION_SWEEP: Duration = Duration::from_millis(200);
/// How long a cursor must not have been asked for to give up what it holds of the engine's memory.
const CURSOR_REST: Duration = Duration::from_millis(200);

/// Sessions that nobody uses for so long end.
const SESSION_TIMEOUT: Duration =
    Duration::from_secs(60 * crate::command::hello::SESSION_TIMEOUT_MINUTES as u64);

/// How often idle cursors are looked for.
const CURSOR_SWEEP: Duration = Duration::from_secs(4);

/// How often stored sessions that are gone are looked for.
const SESSION_FORGETTING: Duration = Duration::from_secs(300);

/// What is stored of sessions goes when they have not written for as long as a session lives.
fn forget_sessions(server: &Server) {
    let since = DateTime(DateTime::now().0 - SESSION_TIMEOUT.as_millis() as i64);
    if let Err(error) = server.db.forget_sessions(&StatementContext::new(), since) {
        server.log.warning(
            Component::Storage,
            9_000_042,
            "Sessions that are gone were not forgotten",
            |attr| {
                attr.append("error", error.message());
            },
        );
    }
}

/// Aborts transactions older than `transactionLifetimeLimitSeconds`, and has cursors rest that nobody asks for.
pub(super) fn sweep_transactions(server: &Arc<Server>) -> Result<(), Error> {
    let server = Arc::downgrade(server);
    spawn_with_stack("transaction sweep", STACK_BYTES, move || {
        crate::log::set_context("abortExpiredTransactions");
        loop {
            std::thread::sleep(TRANSACTION_SWEEP);
            let Some(server) = server.upgrade() else {
                return;
            };
            let seconds = server
                .parameters
                .int(Parameter::TransactionLifetimeLimitSeconds);
            let limit = Duration::from_secs(seconds.unsigned_abs());
            let aborted = server.sessions.expire_transactions(limit);
            server.cursors.rest_idle(CURSOR_REST);
            if aborted > 0 {
                server.log.info(
                    Component::Transaction,
                    20707,
                    "Aborted transactions that were open for too long",
                    |attr| {
                        attr.append("count", aborted as i64);
                    },
                );
            }
        }
    })
}

/// Closes cursors that nobody has asked for longer than `cursorTimeoutMillis`.
pub(super) fn sweep_cursors(server: &Arc<Server>) -> Result<(), Error> {
    let server = Arc::downgrade(server);
    spawn_with_stack("cursor sweep", STACK_BYTES, move || {
        crate::log::set_context("clientcursormon");
        let mut forgotten = Instant::now();
        loop {
            std::thread::sleep(CURSOR_SWEEP);
            let Some(server) = server.upgrade() else {
                return;
            };
            let millis = server.parameters.int(Parameter::CursorTimeoutMillis);
            let limit = Duration::from_millis(millis.unsigned_abs());
            let closed = server.cursors.expire(limit);
            let ended = server.sessions.expire(SESSION_TIMEOUT);
            server.close_cursors_of(&ended);
            server.snapshots.expire();
            if forgotten.elapsed() > SESSION_FORGETTING {
                forgotten = Instant::now();
                forget_sessions(&server);
            }
            if let Err(error) = server.db.trim_oplog(&OpContext::new()) {
                server.log.warning(
                    Component::Storage,
                    9_000_034,
                    "The oplog was not trimmed",
                    |attr| {
                        attr.append("error", error.message());
                    },
                );
            }
            if closed > 0 {
                server
                    .log
                    .info(Component::Query, 20529, "Cursor timed out", |attr| {
                        attr.append("count", closed as i64);
                    });
            }
        }
    })
}
