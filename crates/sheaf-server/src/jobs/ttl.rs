//! Deletes documents that have expired.
//!
//! Every `ttlMonitorSleepSecs` seconds it makes a pass over all TTL indexes ([`sheaf_db::ttl`]),
//! unless `ttlMonitorEnabled` is off.

use std::time::Duration;

use sheaf_bson::{DateTime, Error};
use sheaf_db::StatementContext;

use super::schedule::{Job, Next};
use crate::log::Component;
use crate::parameters::Parameter;
use crate::server::Server;

pub(super) fn job() -> Job<Server> {
    Job {
        name: "TTLMonitor",
        is_long: true,
        period,
        run: Box::new(|server| {
            if server.parameters.bool(Parameter::TtlMonitorEnabled)
                && let Some(_writing) = server.write_gate.enter_background()
            {
                pass(server);
            }
            Next::Period
        }),
    }
}

fn period(server: &Server) -> Option<Duration> {
    let seconds = server.parameters.int(Parameter::TtlMonitorSleepSecs);
    Some(Duration::from_secs(seconds.unsigned_abs()))
}

fn pass(server: &Server) {
    let mut failed = |index: &str, error: &Error| {
        server.log.warning(
            Component::Index,
            5_400_703,
            "Error running TTL job on collection",
            |attr| {
                attr.append("index", index);
                attr.append("error", server.log.client_text(error.message()));
            },
        );
    };
    let counters = &server.ttl;
    let done = server.jobs.pass(|op| {
        let now = DateTime::now();
        let statement = StatementContext::from(op.clone());
        server.db.ttl_pass(&statement, now, counters, &mut failed)
    });
    if let Err(error) = done {
        failed("", &error);
    }
}
