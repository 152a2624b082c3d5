//! Validates buckets that a client inserts directly, for example when restoring a dump of a bucket
//! collection.
//!
//! Queries rely on the `control` of a bucket, which a client may set to anything. The bucket is
//! therefore decoded and encoded again: extremes, count and columns are computed from its
//! measurements.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{RawDoc, RawValue};

use super::bucket::id_seconds;
use super::reader::{BucketReader, Fields, TimeRange};
use super::{BUCKET_COUNT_MAX, Bucket, CONTROL, DATA, META, TimeseriesOptions, normalized_meta};

fn invalid(why: &str) -> Error {
    Error::new(
        ErrorCode::DOCUMENT_VALIDATION_FAILURE,
        format!("Document failed validation: not a bucket of this time-series collection: {why}"),
    )
}

/// The bucket that a document describes. Errors: `DocumentValidationFailure` for a document that is
/// not a bucket of a collection with these options, or whose columns cannot be decoded.
pub fn restored(doc: RawDoc<'_>, options: &TimeseriesOptions) -> Result<Bucket> {
    check_fields(doc, options)?;
    let unreadable = |e: Error| invalid(e.message());
    let given = Bucket::open(doc, options).map_err(unreadable)?;
    if id_seconds(given.start().millis()).to_be_bytes() != given.id().0[..4] {
        return Err(invalid(
            "its _id does not begin with the time in control.min",
        ));
    }
    let meta = options.meta_field.as_deref();
    let mut reader =
        BucketReader::new(&options.time_field, meta, Fields::All, TimeRange::default());
    reader.open(doc).map_err(unreadable)?;
    let mut bucket = given.emptied();
    bucket.set_meta(doc.get(META).map(normalized_meta));
    while let Some((time, measurement)) = reader.next().map_err(unreadable)? {
        if bucket.count() == BUCKET_COUNT_MAX {
            return Err(invalid("it has too many measurements"));
        }
        let millis = time.millis();
        let end = given.start().millis().saturating_add(options.span_millis());
        if millis < given.start().millis() || millis >= end {
            return Err(invalid("a measurement is not within its time span"));
        }
        bucket.push(measurement.as_raw(), time, options);
    }
    match bucket.count() {
        0 => Err(invalid("it has no measurement")),
        _ => Ok(bucket),
    }
}

fn check_fields(doc: RawDoc<'_>, options: &TimeseriesOptions) -> Result<()> {
    for field in doc.iter() {
        let fits = match (field.key(), field.value()) {
            ("_id", RawValue::ObjectId(_)) | (CONTROL | DATA, RawValue::Document(_)) => true,
            (META, _) => options.meta_field.is_some(),
            _ => false,
        };
        if !fits {
            return Err(invalid(&format!(
                "its field '{}' is unknown or of another type",
                field.key()
            )));
        }
    }
    let version = match doc.get(CONTROL) {
        Some(RawValue::Document(control)) => control.get("version"),
        _ => None,
    };
    match version.and_then(|version| version.as_i64_exact()) {
        Some(1..=3) => Ok(()),
        _ => Err(invalid("control.version is not 1, 2 or 3")),
    }
}

#[cfg(test)]
mod tests {
    use sheaf_bson::{DateTime, DocBuf, ObjectId, doc};

    use super::*;

    fn options() -> TimeseriesOptions {
        TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap()
    }

    fn bucket() -> DocBuf {
        let at = |seconds: i64| DateTime(seconds * 1000);
        let mut bucket = Bucket::new(&options(), Some("a".into()), at(7205), ObjectId([1; 12]));
        for (seconds, x) in [(7205, 3), (7210, 5)] {
            let measurement = doc! {"t": at(seconds), "x": x};
            bucket.push(measurement.as_raw(), at(seconds), &options());
        }
        bucket.to_doc()
    }

    fn with(doc: &DocBuf, field: &str, value: Option<RawValue<'_>>) -> DocBuf {
        let mut out = sheaf_bson::DocBuilder::new();
        for element in doc.iter() {
            match (element.key() == field, value) {
                (false, _) => {
                    out.append_raw_element(element);
                }
                (true, Some(value)) => {
                    out.append(field, value);
                }
                (true, None) => {}
            }
        }
        out.finish()
    }

    #[test]
    fn a_bucket_comes_back_as_it_was() {
        let dumped = bucket();
        assert_eq!(
            restored(dumped.as_raw(), &options()).unwrap().to_doc(),
            dumped
        );
    }

    #[test]
    fn measurements_decide_the_extremes() {
        let dumped = bucket();
        let control = dumped.get("control").and_then(|c| c.as_document()).unwrap();
        let min = control.get("min").and_then(|c| c.as_document()).unwrap();
        let lying = with(
            &control.to_buf(),
            "min",
            Some(RawValue::Document(
                with(&min.to_buf(), "x", Some(RawValue::Int32(100))).as_raw(),
            )),
        );
        let doc = with(&dumped, "control", Some(RawValue::Document(lying.as_raw())));
        assert_ne!(doc, dumped);
        assert_eq!(restored(doc.as_raw(), &options()).unwrap().to_doc(), dumped);
    }

    #[test]
    fn uncompressed_columns_are_read() {
        let at = |seconds: i64| DateTime(seconds * 1000);
        let doc = doc! {
            "_id": ObjectId([0, 0, 0x1c, 0x20, 1, 1, 1, 1, 1, 1, 1, 1]),
            "control": {"version": 1, "min": {"t": at(7200), "x": 3}, "max": {"t": at(7210), "x": 5}},
            "meta": "a",
            "data": {"t": {"0": at(7205), "1": at(7210)}, "x": {"0": 3, "1": 5}},
        };
        assert_eq!(
            restored(doc.as_raw(), &options()).unwrap().to_doc(),
            bucket()
        );
    }

    #[test]
    fn refused() {
        let dumped = bucket();
        let wrong = [
            doc! {},
            doc! {"_id": 1, "x": 1},
            with(&dumped, "_id", Some(RawValue::ObjectId(ObjectId([9; 12])))),
            with(&dumped, "control", None),
            with(&dumped, "data", Some(RawValue::Document(RawDoc::EMPTY))),
            with(&dumped, "data", Some(RawValue::Int32(1))),
            with(
                &dumped,
                "control",
                Some(RawValue::Document(doc! {"version": 9}.as_raw())),
            ),
        ];
        for doc in wrong {
            let error = restored(doc.as_raw(), &options()).unwrap_err();
            assert_eq!(error.code().0, 121, "{doc}: {error}");
        }
    }
}
