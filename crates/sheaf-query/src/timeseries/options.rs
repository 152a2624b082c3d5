//! The options of a time-series collection: `{timeField, metaField, granularity, ...}`.
//!
//! ```text
//!   granularity   a bucket spans at most   its start is rounded down to
//!   seconds       1 hour                   1 minute
//!   minutes       24 hours                 1 hour
//!   hours         30 days                  1 day
//! ```
//!
//! Alternatively, both are given in seconds, and must be equal.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::fields;
use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RawElement, RawValue, doc};

/// Maximum span of a bucket in seconds: 365 days.
const SPAN_SECONDS_MAX: i64 = 31_536_000;

/// The typical interval between the measurements of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Granularity {
    Seconds,
    Minutes,
    Hours,
}

impl Granularity {
    /// Parses a name. Errors: `BadValue`.
    pub fn parse(name: &str) -> Result<Granularity> {
        match name {
            "seconds" => Ok(Granularity::Seconds),
            "minutes" => Ok(Granularity::Minutes),
            "hours" => Ok(Granularity::Hours),
            other => Err(Error::bad_value(format!(
                "Enumeration value '{other}' for field 'timeseries.granularity' is not a valid value; \
                 known are 'seconds', 'minutes' and 'hours'"
            ))),
        }
    }

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
        }
    }

    /// Maximum span of a bucket, in seconds.
    pub fn span_seconds(self) -> i64 {
        match self {
            Granularity::Seconds => 3_600,
            Granularity::Minutes => 86_400,
            Granularity::Hours => 2_592_000,
        }
    }

    /// The interval to which a bucket's start is rounded down, in seconds.
    pub fn rounding_seconds(self) -> i64 {
        match self {
            Granularity::Seconds => 60,
            Granularity::Minutes => 3_600,
            Granularity::Hours => 86_400,
        }
    }
}

/// The options of a time-series collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeseriesOptions {
    /// The field with the date of a measurement.
    pub time_field: Box<str>,
    /// The field that identifies the series; `None` if there is only one.
    pub meta_field: Option<Box<str>>,
    /// `None` if span and rounding were given instead.
    pub granularity: Option<Granularity>,
    /// Maximum span of a bucket, in seconds.
    pub span_seconds: i64,
    /// The interval to which a bucket's start is rounded down, in seconds.
    pub rounding_seconds: i64,
}

/// The options that collMod may change, as the user gave them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucketing {
    /// `granularity`.
    pub granularity: Option<Granularity>,
    /// `bucketMaxSpanSeconds`.
    pub span_seconds: Option<i64>,
    /// `bucketRoundingSeconds`.
    pub rounding_seconds: Option<i64>,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message.into())
}

fn wrong_type(element: &RawElement<'_>, expected: &str) -> Error {
    fields::wrong_type(
        format_args!("timeseries.{}", element.key()),
        element.value(),
        expected,
    )
}

/// Null counts as not given.
fn is_absent(element: &RawElement<'_>) -> bool {
    matches!(element.value(), RawValue::Null | RawValue::Undefined)
}

fn text<'a>(element: &RawElement<'a>) -> Result<&'a str> {
    element
        .value()
        .as_str()
        .ok_or_else(|| wrong_type(element, "string"))
}

impl Bucketing {
    /// Takes an option; false if it is not one of these. Errors: `TypeMismatch`, `BadValue`.
    pub fn take(&mut self, element: &RawElement<'_>) -> Result<bool> {
        let seconds = || {
            let value = element.value();
            let seconds = match value {
                RawValue::Decimal128(_) => value.as_f64().map(f64::round_ties_even),
                value if value.is_number() => value.as_f64().map(f64::trunc),
                _ => return Err(wrong_type(element, "int")),
            };
            match seconds {
                Some(seconds) if (1.0..=SPAN_SECONDS_MAX as f64).contains(&seconds) => {
                    Ok(seconds as i64)
                }
                _ => Err(Error::bad_value(format!(
                    "BSON field '{}' must be a whole number from 1 to {SPAN_SECONDS_MAX}",
                    element.key()
                ))),
            }
        };
        let is_known = matches!(
            element.key(),
            "granularity" | "bucketMaxSpanSeconds" | "bucketRoundingSeconds"
        );
        if is_absent(element) && is_known {
            return Ok(true);
        }
        match element.key() {
            "granularity" => self.granularity = Some(Granularity::parse(text(element)?)?),
            "bucketMaxSpanSeconds" => self.span_seconds = Some(seconds()?),
            "bucketRoundingSeconds" => self.rounding_seconds = Some(seconds()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Granularity, span and rounding. Errors: `InvalidOptions` if the options are inconsistent.
    fn resolve(&self) -> Result<(Option<Granularity>, i64, i64)> {
        let of = |granularity: Granularity| {
            let (span, rounding) = (granularity.span_seconds(), granularity.rounding_seconds());
            (Some(granularity), span, rounding)
        };
        match (self.granularity, self.span_seconds, self.rounding_seconds) {
            (None, None, None) => Ok(of(Granularity::Seconds)),
            (Some(granularity), None, None) => Ok(of(granularity)),
            (Some(granularity), Some(span), None) if span == granularity.span_seconds() => {
                Ok(of(granularity))
            }
            (Some(_), _, _) => Err(invalid(
                "Timeseries 'granularity' cannot be given together with 'bucketMaxSpanSeconds' or \
                 'bucketRoundingSeconds'; specify either the former or both of the latter",
            )),
            (None, Some(span), Some(rounding)) if span == rounding => Ok((None, span, rounding)),
            (None, _, _) => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' must both be given and be \
                 equal",
            )),
        }
    }
}

impl TimeseriesOptions {
    /// Parses the `timeseries` option. Errors: `InvalidOptions`, `TypeMismatch`, `BadValue`,
    /// `IDLUnknownField`, `IDLFailedToParse`.
    pub fn parse(spec: RawDoc<'_>) -> Result<TimeseriesOptions> {
        let (mut time_field, mut meta_field) = (None, None);
        let mut bucketing = Bucketing::default();
        for element in spec {
            match element.key() {
                "timeField" => time_field = Some(text(&element)?),
                "metaField" if is_absent(&element) => {}
                "metaField" => meta_field = Some(text(&element)?),
                key => {
                    if !bucketing.take(&element)? {
                        return Err(fields::unknown_field(format_args!("timeseries.{key}")));
                    }
                }
            }
        }
        let time_field = time_field.ok_or_else(|| fields::missing_field("timeseries.timeField"))?;
        check_name("timeField", time_field)?;
        if let Some(meta) = meta_field {
            check_name("metaField", meta)?;
            if meta == "_id" {
                return Err(invalid("Cannot specify '_id' as the 'metaField'"));
            }
            if meta == time_field {
                return Err(invalid("The 'timeField' and 'metaField' must be different"));
            }
        }
        let (granularity, span_seconds, rounding_seconds) = bucketing.resolve()?;
        Ok(TimeseriesOptions {
            time_field: time_field.into(),
            meta_field: meta_field.map(Into::into),
            granularity,
            span_seconds,
            rounding_seconds,
        })
    }

    /// The options after a collMod; `None` if they do not change. Errors: `InvalidOptions` if
    /// buckets would span less than before.
    pub fn with_bucketing(&self, change: &Bucketing) -> Result<Option<TimeseriesOptions>> {
        if *change == Bucketing::default() {
            return Ok(None);
        }
        let (granularity, span_seconds, rounding_seconds) = change.resolve()?;
        if (span_seconds, rounding_seconds) == (self.span_seconds, self.rounding_seconds)
            && granularity == self.granularity
        {
            return Ok(None);
        }
        if span_seconds < self.span_seconds || rounding_seconds < self.rounding_seconds {
            return Err(invalid(
                "Invalid transition for timeseries granularity: buckets can only come to span more than \
                 they do now",
            ));
        }
        Ok(Some(TimeseriesOptions {
            granularity,
            span_seconds,
            rounding_seconds,
            ..self.clone()
        }))
    }

    /// The document shown by `listCollections` and stored in the catalog.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("timeField", &*self.time_field);
        if let Some(meta) = &self.meta_field {
            out.append("metaField", &**meta);
        }
        if let Some(granularity) = self.granularity {
            out.append("granularity", granularity.name());
        } else {
            out.append(
                "bucketRoundingSeconds",
                RawValue::int_or_long(self.rounding_seconds),
            );
        }
        out.append(
            "bucketMaxSpanSeconds",
            RawValue::int_or_long(self.span_seconds),
        );
        out.finish()
    }

    /// What every bucket is, as a filter: the validator of the bucket collection, as MongoDB shows
    /// it.
    pub fn bucket_schema(&self) -> DocBuf {
        let time = &*self.time_field;
        let extreme = doc! {
            "bsonType": "object", "required": [time], "properties": {time: {"bsonType": "date"}},
        };
        doc! {"$jsonSchema": {
            "bsonType": "object",
            "required": ["_id", "control", "data"],
            "properties": {
                "_id": {"bsonType": "objectId"},
                "control": {
                    "bsonType": "object",
                    "required": ["version", "min", "max"],
                    "properties": {
                        "version": {"bsonType": "number"},
                        "min": &extreme,
                        "max": &extreme,
                        "closed": {"bsonType": "bool"},
                        "count": {"bsonType": "number", "minimum": 1},
                    },
                    "additionalProperties": false,
                },
                "data": {"bsonType": "object"},
                "meta": {},
            },
            "additionalProperties": false,
        }}
    }

    /// The operand of `$_internalUnpackBucket`.
    pub fn unpack_spec(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("timeField", &*self.time_field);
        if let Some(meta) = &self.meta_field {
            out.append("metaField", &**meta);
        }
        out.append(
            "bucketMaxSpanSeconds",
            RawValue::int_or_long(self.span_seconds),
        );
        out.finish()
    }

    /// The start of a new bucket for a measurement at this time.
    pub fn rounded(&self, time: DateTime) -> DateTime {
        let step = self.rounding_seconds.saturating_mul(1000).max(1);
        DateTime(time.millis().saturating_sub(time.millis().rem_euclid(step)))
    }

    /// Maximum span of a bucket, in milliseconds.
    pub fn span_millis(&self) -> i64 {
        self.span_seconds.saturating_mul(1000)
    }

    /// The time of a measurement. Errors: `BadValue` if it has no date in the time field.
    pub fn time_of(&self, measurement: RawDoc<'_>) -> Result<DateTime> {
        match measurement.get(&self.time_field) {
            Some(RawValue::DateTime(time)) => Ok(time),
            _ => Err(Error::bad_value(format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                self.time_field
            ))),
        }
    }
}

fn check_name(option: &str, name: &str) -> Result<()> {
    if name.contains('.') {
        return Err(invalid(format!(
            "'{option}' must be a top-level field and not contain a '.'"
        )));
    }
    if name.contains('\0') {
        return Err(Error::bad_value(format!(
            "'{option}' cannot contain a zero byte"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sheaf_bson::doc;

    use super::*;

    #[test]
    fn spans() {
        for (spec, span, rounding) in [
            (doc! {"timeField": "t"}, 3600, 60),
            (
                doc! {"timeField": "t", "granularity": "minutes"},
                86_400,
                3600,
            ),
            (
                doc! {"timeField": "t", "granularity": "hours"},
                2_592_000,
                86_400,
            ),
            (
                doc! {"timeField": "t", "granularity": "hours", "bucketMaxSpanSeconds": 2_592_000},
                2_592_000,
                86_400,
            ),
            (
                doc! {"timeField": "t", "bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 300},
                300,
                300,
            ),
            (
                doc! {"timeField": "t", "bucketMaxSpanSeconds": 300.9, "bucketRoundingSeconds": 300},
                300,
                300,
            ),
            (
                doc! {"timeField": "", "metaField": null, "granularity": null},
                3600,
                60,
            ),
        ] {
            let options = TimeseriesOptions::parse(spec.as_raw()).unwrap();
            assert_eq!(
                (options.span_seconds, options.rounding_seconds),
                (span, rounding)
            );
            let again = TimeseriesOptions::parse(options.to_doc().as_raw()).unwrap();
            assert_eq!(again, options);
        }
    }

    #[test]
    fn refused() {
        for (spec, code) in [
            (doc! {"metaField": "m"}, 40414),
            (doc! {"timeField": 5}, 14),
            (doc! {"timeField": "a.b"}, 72),
            (doc! {"timeField": "a\0b"}, 2),
            (doc! {"timeField": "t", "metaField": "a.b"}, 72),
            (doc! {"timeField": "t", "metaField": "t"}, 72),
            (doc! {"timeField": "t", "metaField": "_id"}, 72),
            (doc! {"timeField": "t", "granularity": "days"}, 2),
            (doc! {"timeField": "t", "bucketMaxSpanSeconds": 300}, 72),
            (doc! {"timeField": "t", "bucketRoundingSeconds": 300}, 72),
            (
                doc! {"timeField": "t", "bucketMaxSpanSeconds": 300, "bucketRoundingSeconds": 60},
                72,
            ),
            (
                doc! {"timeField": "t", "bucketMaxSpanSeconds": 0, "bucketRoundingSeconds": 0},
                2,
            ),
            (
                doc! {"timeField": "t", "bucketMaxSpanSeconds": 31_536_001, "bucketRoundingSeconds": 31_536_001},
                2,
            ),
            (
                doc! {"timeField": "t", "granularity": "seconds", "bucketMaxSpanSeconds": 300},
                72,
            ),
            (doc! {"timeField": "t", "other": 1}, 40415),
        ] {
            let error = TimeseriesOptions::parse(spec.as_raw()).unwrap_err();
            assert_eq!(error.code().0, code, "{spec}: {error}");
        }
    }

    #[test]
    fn buckets_only_come_to_span_more() {
        let options = |spec: DocBuf| TimeseriesOptions::parse(spec.as_raw()).unwrap();
        let change = |spec: DocBuf| {
            let mut change = Bucketing::default();
            for element in spec.as_raw() {
                assert!(change.take(&element).unwrap());
            }
            change
        };
        let minutes = options(doc! {"timeField": "t", "granularity": "minutes"});
        let to_hours = minutes
            .with_bucketing(&change(doc! {"granularity": "hours"}))
            .unwrap();
        assert_eq!(to_hours.unwrap().span_seconds, 2_592_000);
        let same = minutes
            .with_bucketing(&change(doc! {"granularity": "minutes"}))
            .unwrap();
        assert_eq!(same, None);
        let back = minutes.with_bucketing(&change(doc! {"granularity": "seconds"}));
        assert_eq!(back.unwrap_err().code(), ErrorCode::INVALID_OPTIONS);
        let own = change(doc! {"bucketMaxSpanSeconds": 90_000, "bucketRoundingSeconds": 90_000});
        assert_eq!(
            minutes.with_bucketing(&own).unwrap().unwrap().granularity,
            None
        );
        let less = change(doc! {"bucketMaxSpanSeconds": 60, "bucketRoundingSeconds": 60});
        assert!(minutes.with_bucketing(&less).is_err());
    }

    #[test]
    fn starts_are_rounded_down() {
        let options = TimeseriesOptions::parse(doc! {"timeField": "t"}.as_raw()).unwrap();
        for (time, start) in [
            (0, 0),
            (59_999, 0),
            (60_000, 60_000),
            (-1, -60_000),
            (i64::MIN, i64::MIN),
        ] {
            assert_eq!(options.rounded(DateTime(time)).millis(), start, "{time}");
        }
    }
}
