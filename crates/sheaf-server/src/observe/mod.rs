//! What operators can observe of operations: counters, slow-operation lines, the profiler.
//!
//! Every command passes through [`finished`] once. Text is built only for operations that are
//! logged or profiled.

mod entry;
mod finished;
mod metrics;
pub mod profiler;
mod shown;
mod stage_counters;

use sheaf_db::usage::{LatencyKind, TopKind};

pub use finished::Finished;
pub use metrics::{Metrics, OPCOUNTERS};
pub use profiler::{ProfileFilter, ProfileSettings, Profiler};
pub use shown::shown;

use crate::command_facts::{CountsAs, Kind};
use crate::log::{Component, Log, Severity};
use crate::op_report::WriteReport;
use crate::query_stats::{Recording, Work};

/// Counts, logs and profiles a command.
pub fn finished(finished: &Finished<'_>, metrics: &Metrics, profiler: &Profiler, log: &Log) {
    metrics.count(finished);
    count_usage(finished);
    if let Some(recording) = &finished.report.query_stats {
        record_query(finished, recording);
    }
    let settings = profiler.settings(finished.db);
    let slow = settings.logs(finished.elapsed, || entry::profile_entry(finished, None));
    if slow || log.enabled(Severity::Debug(1), Component::Command) {
        let severity = if slow {
            Severity::Info
        } else {
            Severity::Debug(1)
        };
        log.line(severity, Component::Command, 51803, "Slow query", |attr| {
            entry::command_attributes(finished, log, attr);
        });
    }
    let writes_logged = log.enabled(Severity::Debug(1), Component::Write);
    for write in &finished.report.writes {
        let slow = || {
            settings.logs(write.elapsed, || {
                entry::profile_entry(finished, Some(write))
            })
        };
        if write.kind != "insert" && (writes_logged || slow()) {
            let severity = if writes_logged {
                Severity::Debug(1)
            } else {
                Severity::Info
            };
            log.line(severity, Component::Write, 51803, "Slow query", |attr| {
                entry::write_attributes(finished, write, log, attr);
            });
        }
    }
    if !finished.report.is_unprofiled {
        profiler.record(finished, &settings);
    }
}

/// Adds a command of a query, or a getMore, to what `$queryStats` shows. A getMore that fails ends
/// its query; a query that fails at once is not recorded.
fn record_query(finished: &Finished<'_>, recording: &Recording) {
    if finished.error.is_some() && finished.command.counts_as != CountsAs::GetMore {
        return recording.fail();
    }
    let (report, counts) = (finished.report, finished.op.counters().counts());
    recording.add(&Work {
        micros: u64::try_from(finished.elapsed.as_micros()).unwrap_or(u64::MAX),
        docs_returned: report.n_returned.unwrap_or(0),
        keys_examined: counts.keys_examined,
        docs_examined: counts.docs_examined,
        has_sort_stage: report.plan.has_sort_stage(),
        used_disk: report.used_disk,
        from_multi_planner: report.plan.multi_planned,
        from_plan_cache: report.plan.from_cache,
    });
}

/// Counts a command for `top` and `$collStats`, in the usage of its collections.
fn count_usage(finished: &Finished<'_>) {
    let catalog = finished.database.catalog();
    let kind = match finished.command.kind {
        Kind::Read => LatencyKind::Reads,
        Kind::Write => LatencyKind::Writes,
        _ => LatencyKind::Commands,
    };
    if let Some(namespace) = &finished.report.namespace
        && let Some(usage) = catalog.usage(namespace)
    {
        usage.count_operation(kind, finished.elapsed);
        let top = match finished.command.counts_as {
            CountsAs::Query => TopKind::Queries,
            CountsAs::GetMore => TopKind::GetMore,
            CountsAs::Insert => TopKind::Insert,
            // Each statement counts.
            CountsAs::Update | CountsAs::Delete if !finished.report.writes.is_empty() => {
                for write in &finished.report.writes {
                    usage.count_top(top_of(write), write.elapsed);
                }
                return;
            }
            CountsAs::Update => TopKind::Update,
            CountsAs::Delete => TopKind::Remove,
            CountsAs::Parts | CountsAs::Command => TopKind::Commands {
                writes: matches!(finished.command.kind, Kind::Write | Kind::Admin),
            },
        };
        usage.count_top(top, finished.elapsed);
    } else if finished.command.counts_as == CountsAs::Parts {
        for write in &finished.report.writes {
            if let Some(namespace) = &write.namespace
                && let Some(usage) = catalog.usage(namespace)
            {
                usage.count_operation(kind, write.elapsed);
                usage.count_top(top_of(write), write.elapsed);
            }
        }
    }
}

fn top_of(write: &WriteReport) -> TopKind {
    match write.kind {
        "insert" => TopKind::Insert,
        "update" => TopKind::Update,
        _ => TopKind::Remove,
    }
}
