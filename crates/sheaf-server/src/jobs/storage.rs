//! Logs when the storage engine has stopped accepting writes, and when its checkpoints begin to
//! fail.
//!
//! A failed write or sync of its files ends all writing until the next start. Each client
//! receives the error when it writes; this job logs it once, for the operator.

use std::time::Duration;

use super::schedule::{Job, Next};
use crate::log::{Component, events};
use crate::server::Server;

const PERIOD: Duration = Duration::from_millis(500);

/// The job ends after it has logged that writing has stopped.
pub(super) fn job() -> Job<Server> {
    Job {
        name: "storage",
        is_long: false,
        period: |_| Some(PERIOD),
        run: {
            let mut was_failing = false;
            Box::new(move |server| run(server, &mut was_failing))
        },
    }
}

fn run(server: &Server, was_failing: &mut bool) -> Next {
    let stats = server.db.engine().stats();
    let failure = stats.checkpoint_failure.as_deref();
    if let Some(error) = failure.filter(|_| !*was_failing) {
        super::checkpoint::log_failure(server, error);
    }
    *was_failing = failure.is_some();
    let Some(why) = stats.refuses_writes else {
        return Next::Period;
    };
    server.log.error(
        Component::Storage,
        events::ENGINE_READ_ONLY,
        "The storage engine rejects writes; reads continue. \
         Remove the cause and restart the server",
        |attr| {
            attr.append("error", why.as_str());
        },
    );
    Next::Never
}
