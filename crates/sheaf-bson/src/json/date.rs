//! ISO 8601 dates as text, to and from milliseconds.
//!
//! Days count from 0000-03-01, so that a leap day is the last day of its year: 400 years have
//! 146097 days, and from March on the month lengths repeat 31 30 31 30 31, 153 days in total.

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;
const DAYS_IN_ERA: i64 = 146_097;
const MS_IN_DAY: i64 = 86_400_000;

/// Year, month (1..) and day (1..) of a day counted from 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH;
    let era = shifted.div_euclid(DAYS_IN_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_IN_ERA);
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_IN_ERA + day_of_era - EPOCH
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    days_from_civil(next_year, next, 1) - days_from_civil(year, month, 1)
}

/// `1970-01-01T00:00:00Z`, with milliseconds if they are not zero. `None` outside the years 1970 to
/// 9999, for which relaxed JSON writes a number.
pub fn format(millis: i64) -> Option<String> {
    const END: i64 = 253_402_300_800_000;
    if !(0..END).contains(&millis) {
        return None;
    }
    let (year, month, day) = civil_from_days(millis / MS_IN_DAY);
    let (seconds, ms) = (millis % MS_IN_DAY / 1000, millis % 1000);
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = if ms > 0 {
        format!(".{ms:03}")
    } else {
        String::new()
    };
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}{fraction}Z"
    ))
}

/// Milliseconds since 1970 of `2020-02-29`, `2020-02-29T10:00:00.5Z`, `...+01:00`. The year has
/// four digits; digits below the millisecond are dropped.
pub fn parse(text: &str) -> Option<i64> {
    let mut rest = text;
    let year = number(&mut rest, 4)?;
    let month = after(&mut rest, '-').and_then(|()| number(&mut rest, 2))?;
    let day = after(&mut rest, '-').and_then(|()| number(&mut rest, 2))?;
    if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    let mut millis = days_from_civil(year, month, day) * MS_IN_DAY;
    if rest.is_empty() {
        return Some(millis);
    }
    after(&mut rest, 'T').or_else(|| after(&mut rest, ' '))?;
    let hour = number(&mut rest, 2)?;
    let minute = after(&mut rest, ':').and_then(|()| number(&mut rest, 2))?;
    let second = match after(&mut rest, ':') {
        Some(()) => number(&mut rest, 2)?,
        None => 0,
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    millis += ((hour * 60 + minute) * 60 + second) * 1000;
    if after(&mut rest, '.').is_some() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let kept: i64 = rest[..digits.min(3)].parse().ok()?;
        millis += kept * 10i64.pow(3 - digits.min(3) as u32);
        rest = &rest[digits..];
    }
    Some(millis - offset(rest)? * 60_000)
}

/// Minutes east of Greenwich: nothing or `Z`, `+hh:mm`, `-hhmm`, `+hh`.
fn offset(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone == "Z" {
        return Some(0);
    }
    let mut rest = zone.get(1..)?;
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = number(&mut rest, 2)?;
    let _ = after(&mut rest, ':');
    let minutes = if rest.is_empty() {
        0
    } else {
        number(&mut rest, 2)?
    };
    (rest.is_empty() && hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
}

fn number(rest: &mut &str, digits: usize) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(digits)?;
    if !head.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    *rest = tail;
    head.parse().ok()
}

fn after(rest: &mut &str, c: char) -> Option<()> {
    *rest = rest.strip_prefix(c)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn dates_there_and_back() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("2000-02-29T12:34:56Z", 951_827_696_000),
            ("2012-12-24T12:15:30.501Z", 1_356_351_330_501),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Some(millis), "{text}");
            assert_eq!(format(millis).as_deref(), Some(text));
        }
        for day in (0..2_900_000).step_by(101) {
            let millis = day * 86_400_000 + day;
            assert_eq!(parse(&format(millis).unwrap()), Some(millis));
        }
    }

    #[test]
    fn forms_of_dates() {
        assert_eq!(parse("2020-02-29"), parse("2020-02-29T00:00:00Z"));
        assert_eq!(parse("2020-02-29T10:00"), parse("2020-02-29T10:00:00.000Z"));
        assert_eq!(
            parse("2020-02-29T10:00:00+01:30"),
            parse("2020-02-29T08:30:00Z")
        );
        assert_eq!(
            parse("2020-02-29T10:00:00-0130"),
            parse("2020-02-29T11:30:00Z")
        );
        assert_eq!(parse("1969-12-31T23:59:59.9999Z"), Some(-1));
        assert_eq!(parse("0001-01-01T00:00:00Z"), Some(-62_135_596_800_000));
        for bad in [
            "",
            "2020",
            "2020-13-01",
            "2021-02-29",
            "2020-01-01T24:00:00Z",
            "2020-01-01T00:00:00.Z",
            "2020-01-01T00:00:00Zx",
            "20200-1-01",
            "2020-01-01T00:00:00+1",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!((format(-1), format(i64::MAX)), (None, None));
    }
}
