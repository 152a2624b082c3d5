//! Ends abandoned transactions, cursors and sessions, and trims the oplog.

use std::time::{Duration, Instant};

use sheaf_bson::DateTime;
use sheaf_db::{OpContext, StatementContext};

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::parameters::Parameter;
use crate::server::Server;
use crate::session::SESSION_TIMEOUT_MINUTES;

/// How often transactions and cursors are checked while there are any.
const TRANSACTION_PERIOD: Duration = Duration::from_millis(200);
/// How often it is checked whether there are any.
const TRANSACTION_PERIOD_IDLE: Duration = Duration::from_millis(500);
/// How long a cursor must be idle before it releases the engine's memory that it pins.
const CURSOR_SUSPEND: Duration = Duration::from_millis(200);

/// Sessions that are unused for this long end.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60 * SESSION_TIMEOUT_MINUTES as u64);

/// How often idle cursors and sessions are closed.
const CURSOR_PERIOD: Duration = Duration::from_secs(4);

/// How often expired session records are deleted.
const SESSION_RECORDS_PERIOD: Duration = Duration::from_secs(300);

/// Aborts transactions older than `transactionLifetimeLimitSeconds`, and suspends idle cursors.
pub(super) fn transactions() -> Job<Server> {
    Job {
        name: "abortExpiredTransactions",
        is_long: false,
        period: |_| Some(TRANSACTION_PERIOD_IDLE),
        run: Box::new(sweep_transactions),
    }
}

fn sweep_transactions(server: &Server) -> Next {
    let seconds = server
        .parameters
        .int(Parameter::TransactionLifetimeLimitSeconds);
    let limit = Duration::from_secs(seconds.unsigned_abs());
    let aborted = server.sessions.expire_transactions(limit);
    server.cursors.suspend_idle(CURSOR_SUSPEND);
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
    let (cursors, ..) = server.cursors.open_counts();
    match cursors > 0 || server.sessions.has_open_transactions() {
        true => Next::After(TRANSACTION_PERIOD),
        false => Next::Period,
    }
}

/// Closes cursors that have been idle for longer than `cursorTimeoutMillis`, ends unused sessions,
/// trims the oplog. On a worker, since some of it deletes documents.
pub(super) fn cursors() -> Job<Server> {
    let mut records_checked = Instant::now();
    Job {
        name: "clientcursormon",
        is_long: true,
        period: |_| Some(CURSOR_PERIOD),
        run: Box::new(move |server| {
            expire_cursors(server);
            let ended = server.sessions.expire(SESSION_TIMEOUT);
            server.close_cursors_of(&ended);
            let window = server
                .parameters
                .int(Parameter::MinSnapshotHistoryWindowInSeconds);
            let history = server.db.snapshot_history();
            history.set_window_seconds(window.unsigned_abs());
            history.expire();
            if let Some(_writing) = server.write_gate.enter_background() {
                if records_checked.elapsed() > SESSION_RECORDS_PERIOD {
                    records_checked = Instant::now();
                    delete_session_records(server);
                }
                trim_oplog(server);
            }
            Next::Period
        }),
    }
}

fn expire_cursors(server: &Server) {
    let millis = server.parameters.int(Parameter::CursorTimeoutMillis);
    let limit = Duration::from_millis(millis.unsigned_abs());
    let closed = server.cursors.expire(limit);
    if closed > 0 {
        server
            .log
            .info(Component::Query, 20529, "Cursor timed out", |attr| {
                attr.append("count", closed as i64);
            });
    }
}

/// Deletes the records of sessions that have not written for as long as a session lives.
fn delete_session_records(server: &Server) {
    let since = DateTime(DateTime::now().0 - SESSION_TIMEOUT.as_millis() as i64);
    if let Err(error) = server.db.forget_sessions(&StatementContext::new(), since) {
        server.log.warning(
            Component::Storage,
            events::SESSION_RECORDS_KEPT,
            "Could not delete expired session records",
            |attr| {
                attr.append("error", error.message());
            },
        );
    }
}

fn trim_oplog(server: &Server) {
    if let Err(error) = server.db.trim_oplog(&OpContext::new()) {
        server.log.warning(
            Component::Storage,
            events::OPLOG_NOT_TRIMMED,
            "Could not trim the oplog",
            |attr| {
                attr.append("error", error.message());
            },
        );
    }
}
