//! A bucket to which measurements are added, and its representation as a document.
//!
//! ```text
//!   {_id: ObjectId(its start in seconds, then random bytes),
//!    control: {version: 2,                           3 when a measurement came out of order
//!              min: {t: its start, temp: 20.5, ...},
//!              max: {t: ..., temp: 20.7, ...},
//!              count: 3},
//!    meta: "a",                                      absent if measurements have none
//!    data: {t: <column>, temp: <column>}}            see `column`
//! ```
//!
//! Invariant: `control.min` of the time field is the bucket's start. All measurements are at or
//! after it, and less than a span later.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{DateTime, DocBuf, DocBuilder, ObjectId, RawDoc, RawElement, RawValue, Value};

use super::column::{COLUMN_SUBTYPE, ColumnWriter, as_column};
use super::extremes::Extremes;
use super::options::TimeseriesOptions;
use super::{
    BUCKET_BYTES_LIMIT, BUCKET_BYTES_MAX, BUCKET_COUNT_MAX, BUCKET_COUNT_MIN, CONTROL, DATA, META,
};

/// Version of a bucket with measurements in time order.
const VERSION_SORTED: i32 = 2;
/// Version of a bucket with measurements in insertion order.
const VERSION_UNSORTED: i32 = 3;

pub(super) fn damaged(what: &str) -> Error {
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("a time-series bucket is damaged: {what}; run validate on the collection"),
    )
}

/// A bucket in memory.
#[derive(Debug, Clone)]
pub struct Bucket {
    id: ObjectId,
    meta: Option<Value>,
    start: DateTime,
    latest: DateTime,
    sorted: bool,
    closed: bool,
    count: usize,
    min: Extremes,
    max: Extremes,
    columns: Vec<(Box<str>, ColumnWriter)>,
    time_field: Box<str>,
}

impl Bucket {
    /// An empty bucket for measurements with this meta value, the first of them at `time`. The
    /// seconds of the new `id` are replaced by the bucket's start.
    pub fn new(
        options: &TimeseriesOptions,
        meta: Option<Value>,
        time: DateTime,
        id: ObjectId,
    ) -> Bucket {
        let start = options.rounded(time);
        let mut min = Extremes::least();
        min.set(&options.time_field, Value::DateTime(start));
        Bucket {
            id: id_at(start, id),
            meta,
            start,
            latest: DateTime::MIN,
            sorted: true,
            closed: false,
            count: 0,
            min,
            max: Extremes::greatest(),
            columns: Vec::new(),
            time_field: options.time_field.clone(),
        }
    }

    /// The same bucket without its measurements.
    pub fn emptied(&self) -> Bucket {
        let mut min = Extremes::least();
        min.set(&self.time_field, Value::DateTime(self.start));
        Bucket {
            latest: DateTime::MIN,
            sorted: true,
            count: 0,
            min,
            max: Extremes::greatest(),
            columns: Vec::new(),
            meta: self.meta.clone(),
            time_field: self.time_field.clone(),
            ..*self
        }
    }

    /// Opens a stored bucket to add measurements. Errors: `DataCorruptionDetected`.
    pub fn open(doc: RawDoc<'_>, options: &TimeseriesOptions) -> Result<Bucket> {
        let inner = |within: RawDoc<'_>, field: &str| match within.get(field) {
            Some(RawValue::Document(found)) => Ok(found.to_buf()),
            _ => Err(damaged(&format!("it has no {field}"))),
        };
        let control = inner(doc, CONTROL)?;
        let Some(RawValue::ObjectId(id)) = doc.get("_id") else {
            return Err(damaged("its _id is not an ObjectId"));
        };
        let (min, max) = (
            inner(control.as_raw(), "min")?,
            inner(control.as_raw(), "max")?,
        );
        let time = |side: &DocBuf| match side.get(&options.time_field) {
            Some(RawValue::DateTime(time)) => Ok(time),
            _ => Err(damaged("its control has no times")),
        };
        let data = inner(doc, DATA)?;
        let mut columns = Vec::new();
        let mut count = 0;
        for element in data.as_raw() {
            let column = open_column(&element)?;
            if element.key() == &*options.time_field {
                count = column.rows();
            }
            columns.push((element.key().into(), column));
        }
        Ok(Bucket {
            id,
            meta: doc.get(META).map(|value| value.to_value()),
            start: time(&min)?,
            latest: time(&max)?,
            sorted: control.get("version").and_then(|v| v.as_i64_exact())
                == Some(i64::from(VERSION_SORTED)),
            closed: control.get("closed").is_some_and(|v| v.is_truthy()),
            count,
            min: Extremes::least().with(min.as_raw()),
            max: Extremes::greatest().with(max.as_raw()),
            columns,
            time_field: options.time_field.clone(),
        })
    }

    /// Replaces the meta value.
    pub(super) fn set_meta(&mut self, meta: Option<Value>) {
        self.meta = meta;
    }

    /// The `_id` of the bucket.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The meta value; `None` if measurements have none.
    pub fn meta(&self) -> Option<&Value> {
        self.meta.as_ref()
    }

    /// The start of the bucket: no measurement is earlier.
    pub fn start(&self) -> DateTime {
        self.start
    }

    /// Number of measurements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for another measurement.
    pub fn has_room(&self) -> bool {
        !self.closed
            && self.count < BUCKET_COUNT_MAX
            && (self.count < BUCKET_COUNT_MIN || self.data_bytes() < BUCKET_BYTES_MAX)
    }

    /// Whether a measurement with this time and size in bytes fits into the bucket.
    pub fn takes(&self, options: &TimeseriesOptions, time: DateTime, bytes: usize) -> bool {
        let whole = self.data_bytes().saturating_add(bytes);
        let limit = match self.count {
            0 => usize::MAX,
            count if count < BUCKET_COUNT_MIN => BUCKET_BYTES_LIMIT,
            _ => BUCKET_BYTES_MAX,
        };
        !self.closed
            && self.count < BUCKET_COUNT_MAX
            && whole <= limit
            && time >= self.start
            && time.millis() < self.start.millis().saturating_add(options.span_millis())
    }

    fn data_bytes(&self) -> usize {
        self.columns
            .iter()
            .map(|(_, column)| column.len_bytes())
            .sum()
    }

    /// Adds a measurement. Its meta field is ignored.
    pub fn push(&mut self, measurement: RawDoc<'_>, time: DateTime, options: &TimeseriesOptions) {
        let meta_field = options.meta_field.as_deref();
        let row = self.count;
        let mut hint = 0;
        for element in measurement {
            let key = element.key();
            if Some(key) == meta_field {
                continue;
            }
            let at = match self.columns.get(hint) {
                Some((name, _)) if **name == *key => hint,
                _ => match self.columns.iter().position(|(name, _)| **name == *key) {
                    Some(at) => at,
                    None => {
                        self.columns.push((key.into(), ColumnWriter::default()));
                        self.columns.len() - 1
                    }
                },
            };
            let column = &mut self.columns[at].1;
            // If two fields have the same name, the first one is used, as in every field lookup.
            if column.rows() > row {
                continue;
            }
            column.pad(row);
            column.push(element);
            if key != &*self.time_field {
                self.min.add(key, element.value(), at);
            }
            self.max.add(key, element.value(), at);
            hint = at + 1;
        }
        self.sorted &= time >= self.latest;
        self.latest = self.latest.max(time);
        self.count += 1;
    }

    /// The bucket as stored.
    pub fn to_doc(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("_id", self.id);
        out.begin_document(CONTROL);
        out.append(
            "version",
            if self.sorted {
                VERSION_SORTED
            } else {
                VERSION_UNSORTED
            },
        );
        out.begin_document("min");
        self.min.write(&mut out);
        out.end();
        out.begin_document("max");
        self.max.write(&mut out);
        out.end();
        out.append("count", self.count as i32);
        if self.closed {
            out.append("closed", true);
        }
        out.end();
        if let Some(meta) = &self.meta {
            out.append_value(META, meta);
        }
        out.begin_document(DATA);
        for (name, column) in &self.columns {
            out.append(
                name,
                RawValue::Binary {
                    subtype: COLUMN_SUBTYPE,
                    bytes: column.as_bytes(),
                },
            );
        }
        out.end();
        out.finish()
    }
}

/// Opens a column; also accepts the uncompressed form `{"0": value, "2": value}`.
pub(super) fn open_column(element: &RawElement<'_>) -> Result<ColumnWriter> {
    match element.value() {
        RawValue::Document(rows) => {
            let mut column = ColumnWriter::default();
            for row in rows {
                let at: usize = row
                    .key()
                    .parse()
                    .ok()
                    .filter(|at| *at < 1 << 20 && *at >= column.rows())
                    .ok_or_else(|| damaged("a row of a column has no number"))?;
                column.pad(at);
                column.push(row);
            }
            Ok(column)
        }
        value => match as_column(value) {
            Some(bytes) => ColumnWriter::open(bytes),
            None => Err(damaged("a column is of an unknown form")),
        },
    }
}

/// The id with the seconds of a time; times before 1970 or after 2106 are clamped.
fn id_at(time: DateTime, id: ObjectId) -> ObjectId {
    let mut bytes = id.0;
    bytes[..4].copy_from_slice(&id_seconds(time.millis()).to_be_bytes());
    ObjectId(bytes)
}

/// The seconds in the `_id` of a bucket that starts at this time. Monotonic in the time.
pub fn id_seconds(millis: i64) -> u32 {
    u32::try_from(millis.div_euclid(1000).max(0)).unwrap_or(u32::MAX)
}

/// A canonical form of a meta value: values that denote the same series have the same bytes. Sorts
/// the fields of documents by name, also inside arrays.
pub fn normalized_meta(meta: RawValue<'_>) -> Value {
    fn is_sorted(value: RawValue<'_>) -> bool {
        match value {
            RawValue::Document(doc) => {
                doc.iter().is_sorted_by(|a, b| a.key() <= b.key())
                    && doc.iter().all(|e| is_sorted(e.value()))
            }
            RawValue::Array(array) => array.iter().all(is_sorted),
            _ => true,
        }
    }
    fn append(key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
        match value {
            RawValue::Document(doc) => {
                out.begin_document(key);
                append_sorted(doc, out);
                out.end();
            }
            RawValue::Array(array) => {
                out.begin_array(key);
                for element in array.elements() {
                    append(element.key(), element.value(), out);
                }
                out.end();
            }
            value => {
                out.append(key, value);
            }
        }
    }
    fn append_sorted(doc: RawDoc<'_>, out: &mut DocBuilder) {
        let mut fields: Vec<RawElement<'_>> = doc.iter().collect();
        fields.sort_by(|a, b| a.key().cmp(b.key()));
        for field in fields {
            append(field.key(), field.value(), out);
        }
    }
    if is_sorted(meta) {
        return meta.to_value();
    }
    let mut out = DocBuilder::new();
    append(META, meta, &mut out);
    let doc = out.finish();
    doc.get(META).map_or(Value::Null, |value| value.to_value())
}

#[cfg(test)]
mod tests {
    use sheaf_bson::doc;
    use sheaf_bson::json::shell;

    use super::*;

    fn options() -> TimeseriesOptions {
        TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap()
    }

    #[test]
    fn meta_in_the_order_of_names() {
        for (meta, normal) in [
            (doc! {"m": {"b": 1, "a": 2}}, "{ a: 2, b: 1 }"),
            (
                doc! {"m": {"b": {"y": 1, "x": [{"d": 1, "c": 2}]}, "a": 2}},
                "{ a: 2, b: { x: [ { c: 2, d: 1 } ], y: 1 } }",
            ),
            (doc! {"m": [3, 1]}, "[ 3, 1 ]"),
            (doc! {"m": "x"}, "\"x\""),
        ] {
            let value = normalized_meta(meta.get("m").unwrap());
            assert_eq!(shell(value.as_raw()), normal);
        }
    }

    #[test]
    fn limits() {
        let options = options();
        let time = DateTime(1_700_000_000_000);
        let mut bucket = Bucket::new(&options, None, time, ObjectId::new());
        let start = 1_699_999_980_000;
        assert_eq!(bucket.start().millis(), start);
        assert_eq!(bucket.id().seconds(), (start / 1000) as u32);
        for (at, takes) in [
            (start - 1, false),
            (start, true),
            (start + 3_599_999, true),
            (start + 3_600_000, false),
        ] {
            assert_eq!(bucket.takes(&options, DateTime(at), 50), takes, "{at}");
        }
        for n in 0..1000 {
            assert!(bucket.takes(&options, time, 50));
            let doc = doc! {"t": time, "n": n};
            bucket.push(doc.as_raw(), time, &options);
        }
        assert!(!bucket.takes(&options, time, 50));
        assert!(!bucket.has_room());
    }

    #[test]
    fn large_measurements_make_small_buckets() {
        let options = options();
        let time = DateTime(1_700_000_000_000);
        let mut bucket = Bucket::new(&options, None, time, ObjectId::new());
        for n in 0..10 {
            let big = doc! {"t": time, "n": n, "text": format!("{n}").repeat(20_000)};
            assert!(bucket.takes(&options, time, big.len_bytes()), "{n}");
            bucket.push(big.as_raw(), time, &options);
        }
        assert!(!bucket.takes(&options, time, 20_000));
    }

    #[test]
    fn what_is_stored_goes_on_as_it_was() {
        let options = options();
        let time = |n: i64| DateTime(1_700_000_000_000 + n * 1000);
        let measurement = |n: i64| match n % 3 {
            0 => doc! {"t": time(n), "m": "a", "x": n as f64 / 10.0},
            1 => doc! {"m": "a", "t": time(n), "y": {"z": n}},
            _ => doc! {"t": time(-n), "x": n, "y": null},
        };
        let when = |doc: &DocBuf| options.time_of(doc.as_raw()).unwrap();
        let meta = Some(Value::String("a".into()));
        let mut whole = Bucket::new(&options, meta, time(0), ObjectId::new());
        let mut parts = whole.clone();
        for n in 0..30 {
            let doc = measurement(n);
            whole.push(doc.as_raw(), when(&doc), &options);
            parts.push(doc.as_raw(), when(&doc), &options);
            parts = Bucket::open(parts.to_doc().as_raw(), &options).unwrap();
            assert_eq!(parts.to_doc(), whole.to_doc());
        }
        let stored = whole.to_doc();
        let control = stored.get("control").unwrap().as_document().unwrap();
        assert_eq!(control.get("version"), Some(RawValue::Int32(3)));
        assert_eq!(control.get("count"), Some(RawValue::Int32(30)));
    }
}
