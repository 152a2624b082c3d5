//! Time zones: `"Europe/Berlin"`, `"UTC"`, `"+05:30"`, `"-0330"`, `"+02"`.
//!
//! The rules come from the IANA database that is compiled into the program, so that results do not
//! depend on the machine. It covers the years -9999 to 9999; dates beyond use the offset at its
//! ends.

use std::cell::RefCell;

use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use sheaf_bson::RawValue;
use sheaf_bson::error_code::Result;

use super::super::eval::{EvalContext, EvalValue};
use super::super::operator::{Operator, all_constant, is_absent};
use super::super::{Expression, location};

/// Converts between instants and local time.
#[derive(Debug, Clone)]
pub(crate) enum Zone {
    /// A fixed offset from UTC in milliseconds, positive if ahead.
    Fixed(i64),
    /// The rules of a place.
    Named(TimeZone),
}

/// The range of seconds since 1970 that jiff supports.
const SECONDS_MIN: i64 = -377_705_023_201;
const SECONDS_MAX: i64 = 253_402_207_200;

thread_local! {
    /// The most recently used zone: most pipelines use only one.
    static LAST: RefCell<Option<(String, Zone)>> = const { RefCell::new(None) };
}

impl Zone {
    /// UTC.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// The zone with this name or offset; `None` if it does not exist. Names are case-sensitive.
    /// `Z` is not a zone name: it is only valid at the end of a text that contains a date.
    pub(crate) fn find(name: &str) -> Option<Zone> {
        if name == "Z" {
            return None;
        }
        if let Some(zone) = offset(name) {
            return Some(Zone::Fixed(zone));
        }
        let known = LAST.with_borrow(|last| match last {
            Some((known, zone)) if known == name => Some(zone.clone()),
            _ => None,
        });
        if known.is_some() {
            return known;
        }
        // `TimeZone::get` ignores case, so compare the name.
        let found = TimeZone::get(name).ok()?;
        if found.iana_name() != Some(name) {
            return None;
        }
        let zone = Zone::Named(found);
        LAST.set(Some((name.to_owned(), zone.clone())));
        Some(zone)
    }

    /// Whether local time equals UTC at all times.
    pub(crate) fn is_utc(&self) -> bool {
        match self {
            Zone::Fixed(offset) => *offset == 0,
            Zone::Named(zone) => zone.iana_name().is_some_and(|name| {
                matches!(
                    name,
                    "UTC" | "Etc/UTC" | "GMT" | "Etc/GMT" | "Etc/UCT" | "UCT" | "Zulu" | "Etc/Zulu"
                )
            }),
        }
    }

    /// Offset of local time from UTC at an instant, in milliseconds, positive if ahead.
    pub(crate) fn offset_at(&self, millis: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                let seconds = millis.div_euclid(1000).clamp(SECONDS_MIN, SECONDS_MAX);
                match jiff::Timestamp::from_second(seconds) {
                    Ok(at) => in_millis(zone.to_offset(at)),
                    Err(_) => 0,
                }
            }
        }
    }

    /// Local time, as milliseconds since 1970 on the local clock. Saturates.
    pub(crate) fn to_local(&self, millis: i64) -> i64 {
        millis.saturating_add(self.offset_at(millis))
    }

    /// The instant at which the local clock shows `local`; `None` if it is out of range. For a time
    /// that the clock repeats, the first of the two instants. A time that the clock skips is
    /// converted with the offset before the change, so the local clock shows a time later by the
    /// length of the gap.
    pub(crate) fn to_utc(&self, local: i64) -> Option<i64> {
        let offset = match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                // Stay two days inside the range, so that no offset leads out of it.
                let seconds = local
                    .div_euclid(1000)
                    .clamp(SECONDS_MIN + 200_000, SECONDS_MAX - 200_000);
                let civil = jiff::Timestamp::from_second(seconds)
                    .map(|at| Offset::UTC.to_datetime(at))
                    .ok()?;
                match zone.to_ambiguous_timestamp(civil).offset() {
                    AmbiguousOffset::Unambiguous { offset } => in_millis(offset),
                    AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => {
                        in_millis(before)
                    }
                }
            }
        };
        local.checked_sub(offset)
    }
}

fn in_millis(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * 1000
}

/// Parses `+hh`, `+hhmm`, `+hh:mm`, `Z`, `UTC` or `GMT` to milliseconds.
pub(crate) fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "UTC" | "GMT") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let rest = &text[1..];
    let (hours, minutes) = match (rest.len(), rest.split_once(':')) {
        (2, None) => (rest, "00"),
        (4, None) => rest.split_at_checked(2)?,
        (5, Some((hours, minutes))) if hours.len() == 2 => (hours, minutes),
        _ => return None,
    };
    if !hours
        .bytes()
        .chain(minutes.bytes())
        .all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (hours * 60 + minutes) * 60_000)
}

/// The zone named by an operand: UTC if it is absent, `None` for null and missing. Errors: 40517
/// for a value that is not a string, 40485 for an unknown zone.
pub(crate) fn operand<'e>(
    operator: &'static Operator,
    arg: &'e Expression,
    ctx: EvalContext<'e>,
) -> Result<Option<Zone>> {
    if is_absent(arg) {
        return Ok(Some(Zone::UTC));
    }
    zone_of(operator, &arg.evaluate(ctx)?)
}

/// Checks the zone `args[at]` when the call is parsed, if it is constant and another operand is
/// not: a call of constants is evaluated as a whole. Errors: as [`operand`].
pub(crate) fn check_constant(
    operator: &'static Operator,
    args: &[Expression],
    at: usize,
) -> Result<()> {
    match args[at].as_constant() {
        Some(value) if !is_absent(&args[at]) && !all_constant(args) => {
            zone_of(operator, &value.into()).map(drop)
        }
        _ => Ok(()),
    }
}

fn zone_of(operator: &'static Operator, value: &EvalValue<'_>) -> Result<Option<Zone>> {
    match value.non_null() {
        None => Ok(None),
        Some(RawValue::String(name)) => match Zone::find(name) {
            Some(zone) => Ok(Some(zone)),
            None => Err(location(
                40485,
                format!(
                    "{} unrecognized time zone identifier: \"{name}\"",
                    operator.name
                ),
            )),
        },
        Some(other) => Err(operator.error(
            40517,
            format_args!(
                "requires 'timezone' to evaluate to a string, not {}",
                other.type_name()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets() {
        for (text, minutes) in [
            ("+00", Some(0)),
            ("-05", Some(-300)),
            ("+0530", Some(330)),
            ("+05:45", Some(345)),
            ("-03:30", Some(-210)),
            ("Z", Some(0)),
            ("UTC", Some(0)),
            ("GMT", Some(0)),
            ("+5", None),
            ("+5:30", None),
            ("+05:3", None),
            ("+05-30", None),
            ("05:30", None),
            ("", None),
            ("+", None),
            ("+é1", None),
            ("+1é", None),
        ] {
            assert_eq!(offset(text).map(|ms| ms / 60_000), minutes, "{text}");
        }
    }

    #[test]
    fn the_bundled_rules() {
        let new_york = Zone::find("America/New_York").unwrap();
        let hours = |zone: &Zone, millis: i64| zone.offset_at(millis) / 3_600_000;
        // 2024-01-15 and 2024-07-15, noon.
        assert_eq!(hours(&new_york, 1_705_320_000_000), -5);
        assert_eq!(hours(&new_york, 1_721_044_800_000), -4);
        // 2024-03-10T02:30 was skipped: 03:30 EDT, 07:30 UTC.
        let local = 1_710_037_800_000;
        assert_eq!(new_york.to_utc(local), Some(local + 5 * 3_600_000));
        // 2024-11-03T01:30 occurred twice: the first is EDT.
        let local = 1_730_597_400_000;
        assert_eq!(new_york.to_utc(local), Some(local + 4 * 3_600_000));
        assert_eq!(hours(&new_york, i64::MAX), -5);
        new_york.offset_at(i64::MIN);
        // At the ends of the range: a result or `None`, and no panic.
        assert!(new_york.to_utc(i64::MIN).is_some());
        assert_eq!(new_york.to_utc(i64::MAX), None);
        for unknown in [
            "Mars/Olympus",
            "america/new_york",
            "AMERICA/NEW_YORK",
            "utc",
            "Z",
            "z",
        ] {
            assert!(Zone::find(unknown).is_none(), "{unknown}");
        }
        assert!(Zone::find("UTC").unwrap().is_utc() && Zone::find("Etc/UTC").unwrap().is_utc());
        assert!(!Zone::find("Europe/London").unwrap().is_utc());
    }
}
