//! `profile`: reads or sets the profiler's level, limits and filter.

use sheaf_bson::{DocBuilder, Error, RawValue};
use sheaf_db::Namespace;
use sheaf_db::system_names::PROFILE;

use super::context::CommandContext;
use super::fields::{self, wrong_type};
use crate::observe::{ProfileFilter, profiler};

/// The `note` in a reply that contains a filter.
const FILTER_NOTE: &str = "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.";

/// Runs the command. A level outside 0 to 2 (conventionally -1) leaves the level unchanged.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "profile";
    let level = fields::integer(NAME, &cx.first_given()?)?;
    let was = cx.server.profiler.settings(cx.db);
    let mut now = was.clone();
    let mut changed = false;
    for element in cx.arguments_as_sent() {
        changed = true;
        match element.key() {
            "slowms" if fields::is_null(&element) => {}
            "slowms" => {
                now.slow_ms = fields::integer(NAME, &element)?;
            }
            "sampleRate" if fields::is_null(&element) => {}
            "sampleRate" if !element.value().is_number() => {
                return Err(wrong_type(NAME, &element, "[double, decimal, long, int]"));
            }
            "sampleRate" => {
                let rate = element
                    .value()
                    .as_f64()
                    .filter(|rate| (0.0..=1.0).contains(rate))
                    .ok_or_else(|| {
                        Error::bad_value("'sampleRate' must be between 0.0 and 1.0 inclusive")
                    })?;
                now.sample_rate = rate;
            }
            "filter" => match element.value() {
                RawValue::Document(filter) => now.filter = Some(ProfileFilter::parse(filter)?),
                RawValue::String("unset") => now.filter = cx.server.profiler.default_filter(),
                _ => {
                    return Err(Error::bad_value(
                        "Expected an object, or the string 'unset', as the profiler's filter",
                    ));
                }
            },
            _ => cx.unknown_field(&element)?,
        }
    }
    if let level @ 0..=2 = level {
        sheaf_db::check_database_name(cx.db)?;
        now.level = level as u8;
        changed = true;
    }
    if level == 1 || level == 2 {
        profiler::ensure(&cx.server.db, &cx.op, &Namespace::new(cx.db, PROFILE)?)?;
    }
    cx.report.is_unprofiled = was.level == 0;
    if changed {
        cx.server.profiler.set(cx.db, now);
    }
    out.append("was", i32::from(was.level));
    out.append("slowms", was.slow_ms as i32);
    out.append("sampleRate", was.sample_rate);
    if let Some(filter) = &was.filter {
        out.append_bson("filter", filter.as_doc());
        out.append("note", FILTER_NOTE);
    }
    Ok(())
}
