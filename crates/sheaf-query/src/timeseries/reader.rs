//! Reads a bucket's measurements one at a time, as documents.
//!
//! Only the requested columns are copied and decoded. The time column always is, because it
//! determines the number of measurements.

use std::collections::BTreeSet;

use sheaf_bson::error_code::Result;
use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RawValue};

use super::bucket::{damaged, open_column};
use super::column::{ColumnCursor, as_column};
use super::{DATA, META};

/// The requested fields of measurements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fields {
    /// All fields.
    #[default]
    All,
    /// Only these fields.
    Only(BTreeSet<String>),
}

impl Fields {
    /// Whether a field is requested.
    pub fn wants(&self, field: &str) -> bool {
        match self {
            Fields::All => true,
            Fields::Only(fields) => fields.contains(field),
        }
    }
}

/// A range of times in milliseconds since 1970, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// The earliest time.
    pub from: i64,
    /// The latest time.
    pub to: i64,
}

impl Default for TimeRange {
    fn default() -> TimeRange {
        TimeRange {
            from: i64::MIN,
            to: i64::MAX,
        }
    }
}

/// Reads buckets, one at a time. Reuses its buffers for all buckets.
#[derive(Debug, Default)]
pub struct BucketReader {
    time_field: Box<str>,
    meta_field: Option<Box<str>>,
    fields: Fields,
    range: TimeRange,
    /// `{metaField: value}`.
    meta: DocBuf,
    time: Column,
    columns: Vec<Column>,
    /// Number of `columns` that the current bucket uses.
    used: usize,
    measurements: u64,
    open: bool,
}

#[derive(Debug, Default)]
struct Column {
    name: String,
    bytes: Vec<u8>,
    cursor: ColumnCursor,
}

impl Column {
    fn set(&mut self, element: &sheaf_bson::RawElement<'_>) -> Result<()> {
        self.name.clear();
        self.name.push_str(element.key());
        self.bytes.clear();
        match as_column(element.value()) {
            Some(bytes) => self.bytes.extend_from_slice(bytes),
            None => self
                .bytes
                .extend_from_slice(open_column(element)?.as_bytes()),
        }
        self.cursor = ColumnCursor::default();
        Ok(())
    }
}

impl BucketReader {
    /// A reader for the buckets of a collection.
    pub fn new(
        time_field: &str,
        meta_field: Option<&str>,
        fields: Fields,
        range: TimeRange,
    ) -> BucketReader {
        BucketReader {
            time_field: time_field.into(),
            meta_field: meta_field.map(Into::into),
            fields,
            range,
            ..BucketReader::default()
        }
    }

    /// Number of measurements read so far, from all buckets.
    pub fn measurements(&self) -> u64 {
        self.measurements
    }

    /// Opens a bucket. Errors: `DataCorruptionDetected`.
    pub fn open(&mut self, bucket: RawDoc<'_>) -> Result<()> {
        let Some(RawValue::Document(data)) = bucket.get(DATA) else {
            return Err(damaged("it has no data"));
        };
        let mut meta = DocBuilder::new();
        if let Some(field) = self.meta_field.as_deref().filter(|f| self.fields.wants(f))
            && let Some(value) = bucket.get(META)
        {
            meta.append(field, value);
        }
        self.meta = meta.finish();
        self.used = 0;
        let mut has_time = false;
        for element in data {
            if element.key() == &*self.time_field {
                self.time.set(&element)?;
                has_time = true;
            } else if self.fields.wants(element.key()) {
                if self.used == self.columns.len() {
                    self.columns.push(Column::default());
                }
                self.columns[self.used].set(&element)?;
                self.used += 1;
            }
        }
        if !has_time {
            return Err(damaged("it has no times"));
        }
        self.open = true;
        Ok(())
    }

    /// The next measurement of the bucket in the range; `None` at its end. Errors:
    /// `DataCorruptionDetected`.
    pub fn next(&mut self) -> Result<Option<(DateTime, DocBuf)>> {
        if !self.open {
            return Ok(None);
        }
        loop {
            let time = match self.time.cursor.next(&self.time.bytes)? {
                Some(RawValue::DateTime(time)) => time,
                Some(_) => return Err(damaged("a time is not a date")),
                None => {
                    self.open = false;
                    return Ok(None);
                }
            };
            self.measurements += 1;
            let columns = &mut self.columns[..self.used];
            if time.millis() < self.range.from || time.millis() > self.range.to {
                for column in columns {
                    column.cursor.next(&column.bytes)?;
                }
                continue;
            }
            let mut out = DocBuilder::with_vec(Vec::with_capacity(
                64 + self.meta.len_bytes() + 24 * columns.len(),
            ));
            if self.fields.wants(&self.time_field) {
                out.append(&self.time_field, time);
            }
            out.extend(self.meta.as_raw());
            for column in columns {
                if let Some(value) = column.cursor.next(&column.bytes)? {
                    out.append(&column.name, value);
                }
            }
            return Ok(Some((time, out.finish())));
        }
    }
}

/// Number of measurements in a bucket. Errors: `DataCorruptionDetected`.
pub fn count_of(bucket: RawDoc<'_>, time_field: &str) -> Result<u64> {
    if let Some(RawValue::Document(control)) = bucket.get(super::CONTROL)
        && let Some(count) = control.get("count").and_then(|v| v.as_i64_exact())
    {
        return Ok(count.max(0) as u64);
    }
    let mut reader = BucketReader::new(
        time_field,
        None,
        Fields::Only(BTreeSet::new()),
        TimeRange::default(),
    );
    reader.open(bucket)?;
    while reader.next()?.is_some() {}
    Ok(reader.measurements())
}

#[cfg(test)]
mod tests {
    use sheaf_bson::json::shell_doc;
    use sheaf_bson::{ObjectId, doc};

    use super::super::{Bucket, TimeseriesOptions};
    use super::*;

    fn all(reader: &mut BucketReader, bucket: &DocBuf) -> Vec<String> {
        reader.open(bucket.as_raw()).unwrap();
        let mut found = Vec::new();
        while let Some((_, doc)) = reader.next().unwrap() {
            found.push(shell_doc(doc.as_raw()));
        }
        found
    }

    #[test]
    fn fields_and_ranges() {
        let options =
            TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap();
        let mut bucket = Bucket::new(&options, Some("a".into()), DateTime(0), ObjectId::new());
        for doc in [
            doc! {"t": DateTime(1000), "m": "a", "x": 1, "y": 2},
            doc! {"t": DateTime(2000), "m": "a", "y": 3},
            doc! {"t": DateTime(3000), "m": "a", "x": 4},
        ] {
            let time = options.time_of(doc.as_raw()).unwrap();
            bucket.push(doc.as_raw(), time, &options);
        }
        let bucket = bucket.to_doc();
        let only = |names: &[&str]| Fields::Only(names.iter().map(|n| (*n).to_owned()).collect());
        let reader = |fields, range| BucketReader::new("t", Some("m"), fields, range);
        let range = TimeRange {
            from: 2000,
            to: 2500,
        };
        let mut some = reader(only(&["y"]), range);
        assert_eq!(all(&mut some, &bucket), ["{ y: 3 }"]);
        assert_eq!(some.measurements(), 3);
        let mut whole = reader(only(&["m", "x"]), TimeRange::default());
        for _ in 0..2 {
            assert_eq!(
                all(&mut whole, &bucket),
                [
                    r#"{ m: "a", x: 1 }"#,
                    r#"{ m: "a" }"#,
                    r#"{ m: "a", x: 4 }"#
                ]
            );
        }
        assert_eq!(count_of(bucket.as_raw(), "t").unwrap(), 3);
    }

    #[test]
    fn plain_columns() {
        let bucket = doc! {
            "_id": ObjectId::new(),
            "control": {"version": 1, "min": {"t": DateTime(0)}, "max": {"t": DateTime(2000)}},
            "data": {
                "t": {"0": DateTime(1000), "1": DateTime(2000)},
                "x": {"1": "b"}
            }
        };
        let mut reader = BucketReader::new("t", None, Fields::All, TimeRange::default());
        let found = all(&mut reader, &bucket);
        assert_eq!(found.len(), 2);
        assert!(found[1].ends_with(r#", x: "b" }"#), "{found:?}");
        assert_eq!(count_of(bucket.as_raw(), "t").unwrap(), 2);
        let broken = doc! {"data": {"t": {"0": DateTime(1), "x": DateTime(2)}}};
        assert!(reader.open(broken.as_raw()).is_err());
        assert!(reader.open(doc! {"data": {"t": 5}}.as_raw()).is_err());
    }
}
