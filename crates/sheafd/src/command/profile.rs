//! `profile`: reads or sets the profiler's level.

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use super::fields;

/// Runs it. A level outside 0 to 2 (-1 by custom) only reads.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "profile";
    let level = fields::integer(NAME, &cx.first()?)?;
    let was = cx.server.profiler.settings(cx.db);
    let mut now = was.clone();
    for element in cx.arguments() {
        match element.key() {
            "slowms" => now.slow_ms = fields::integer(NAME, &element)?,
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
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    if let level @ 0..=2 = level {
        sheaf_db::check_database_name(cx.db)?;
        now.level = level as u8;
    }
    cx.server.profiler.set(cx.db, now);
    out.append("was", i32::from(was.level));
    out.append("slowms", was.slow_ms as i32);
    out.append("sampleRate", was.sample_rate);
    Ok(())
}
