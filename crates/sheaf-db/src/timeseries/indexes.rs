//! Translates indexes of time-series collections: the definition users see (left) and the one on
//! buckets (right).
//!
//! ```text
//!   {sensor: 1}          {meta: 1}
//!   {"sensor.room": 1}   {"meta.room": 1}
//!   {t: 1}               {"control.min.t": 1, "control.max.t": 1}
//!   {t: -1}              {"control.max.t": -1, "control.min.t": -1}
//!   {temp: 1}            {"control.min.temp": 1, "control.max.temp": 1}
//! ```

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, Result};
use sheaf_query::canonical::Hint;
use sheaf_query::matcher::MatchExpression;
use sheaf_query::timeseries::{META, TimeseriesOptions};

use crate::index::definition::{IndexSpec, cannot_create};
use crate::index::partial_filter::PartialFilter;

const MIN: &str = "control.min.";
const MAX: &str = "control.max.";

/// Translates an index on measurements to the index on buckets. Errors: `CannotCreateIndex`,
/// 7246201; `InvalidOptions` for a unique index, and for a TTL index that is not on the time or not
/// restricted to some series.
pub fn on_buckets(spec: &IndexSpec, options: &TimeseriesOptions) -> Result<IndexSpec> {
    if spec.unique || spec.prepare_unique {
        return Err(invalid(format!(
            "Unique indexes are not supported on time-series collections: {}",
            spec.name
        )));
    }
    if spec.sparse
        && !spec
            .key
            .iter()
            .all(|field| is_on_meta(field.key(), options))
    {
        return Err(invalid(format!(
            "Sparse indexes on time-series collections are only supported on the metaField: {}",
            spec.name
        )));
    }
    let mut translated = spec.clone();
    translated.key = key_on_buckets(spec.key.as_raw(), options)?;
    let filter = match &spec.partial_filter {
        Some(filter) => {
            let parsed = PartialFilter::parse(filter.as_raw(), spec.collator().cloned())?;
            Some(parsed.expression().clone())
        }
        None => None,
    };
    if spec.expire_after_seconds.is_some() {
        check_expiring(spec, filter.as_deref(), options)?;
    }
    if let Some(filter) = filter {
        // Only the part of the filter that buckets can decide; without one, the index has all
        // buckets.
        let on_buckets = options.series().weaker(&filter);
        translated.partial_filter = on_buckets.map(|filter| filter.serialize());
        translated.original_filter = spec.partial_filter.clone();
    }
    Ok(translated)
}

fn is_on_meta(path: &str, options: &TimeseriesOptions) -> bool {
    let meta = options.meta_field.as_deref();
    meta.is_some_and(|meta| path.split('.').next() == Some(meta))
}

/// A bucket expires as a whole, by its time and its series.
/// Errors: `InvalidOptions`.
fn check_expiring(
    spec: &IndexSpec,
    filter: Option<&MatchExpression>,
    options: &TimeseriesOptions,
) -> Result<()> {
    let mut fields = spec.key.iter();
    let on_time = fields
        .next()
        .is_some_and(|f| f.key() == &*options.time_field);
    if !on_time || fields.next().is_some() {
        return Err(invalid(format!(
            "TTL indexes on time-series collections are only supported on '{}'",
            options.time_field
        )));
    }
    if filter
        .and_then(|filter| options.series().on_meta(filter))
        .is_none()
    {
        return Err(invalid(
            "TTL indexes on time-series collections require a partialFilterExpression on the metaField",
        ));
    }
    Ok(())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_OPTIONS, message.into())
}

/// A hint on measurements as one on buckets. Names are the same on both.
pub fn hint_on_buckets(hint: Hint, options: &TimeseriesOptions) -> Hint {
    match &hint {
        Hint::KeyPattern(key) => match key_on_buckets(key.as_raw(), options) {
            Ok(key) => Hint::KeyPattern(key),
            // No index has this key, which the planner reports.
            Err(_) => hint,
        },
        Hint::Name(_) | Hint::Natural(_) => hint,
    }
}

/// Translates a key pattern on measurements to one on buckets.
/// Errors: `CannotCreateIndex`, 7246201 for a wildcard on measurements.
pub fn key_on_buckets(key: RawDoc<'_>, options: &TimeseriesOptions) -> Result<DocBuf> {
    let mut out = DocBuilder::new();
    for field in key {
        let path = field.key();
        if let Some(meta) = options.meta_field.as_deref()
            && let Some(rest) = path.strip_prefix(meta)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            out.append(format!("{META}{rest}"), field.value());
            continue;
        }
        let descending = match field.value().as_f64() {
            Some(direction) if field.value().is_number() => direction < 0.0,
            _ => {
                return Err(cannot_create(format!(
                    "the index type {} is only supported on the metaField of a time-series collection, \
                     not on '{path}'",
                    sheaf_bson::json::shell(field.value())
                )));
            }
        };
        if path.split('.').any(|part| part == "$**") {
            return Err(Error::new(
                ErrorCode(7246201),
                "a wildcard index of a time-series collection must be on its metaField",
            ));
        }
        let sides = match descending {
            true => [MAX, MIN],
            false => [MIN, MAX],
        };
        for side in sides {
            out.append(format!("{side}{path}"), field.value());
        }
    }
    Ok(out.finish())
}

/// Translates an index on buckets to the one on measurements, as `listIndexes` shows it. `None` if
/// no index on measurements translates to it, such as the index on `_id`.
pub fn on_measurements(spec: &IndexSpec, options: &TimeseriesOptions) -> Option<DocBuf> {
    let key = key_on_measurements(spec.key.as_raw(), options)?;
    let shown = spec.to_doc();
    let mut out = DocBuilder::new();
    for element in shown.iter() {
        match element.key() {
            "key" => out.append_bson("key", &key),
            "originalSpec" | "partialFilterExpression" => continue,
            _ => out.append_raw_element(element),
        };
    }
    if let Some(filter) = &spec.original_filter {
        out.append_bson("partialFilterExpression", filter);
    }
    Some(out.finish())
}

fn key_on_measurements(key: RawDoc<'_>, options: &TimeseriesOptions) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    let mut fields = key.iter();
    while let Some(field) = fields.next() {
        if let Some(rest) = field.key().strip_prefix(META)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            let meta = options.meta_field.as_deref()?;
            out.append(format!("{meta}{rest}"), field.value());
            continue;
        }
        let (path, other) = match (field.key().strip_prefix(MIN), field.key().strip_prefix(MAX)) {
            (Some(path), _) => (path, MAX),
            (_, Some(path)) => (path, MIN),
            _ => return None,
        };
        let same = |next: &RawElement<'_>| {
            next.key().strip_prefix(other) == Some(path) && next.value() == field.value()
        };
        fields.next().filter(same)?;
        out.append(path, field.value());
    }
    Some(out.finish())
}

#[cfg(test)]
mod tests {
    use sheaf_bson::doc;
    use sheaf_bson::json::shell_doc;

    use super::*;

    #[test]
    fn there_and_back() {
        let options =
            TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap();
        for (key, on_buckets) in [
            (doc! {"m": 1}, "{ meta: 1 }"),
            (doc! {"m.a.b": -1}, "{ meta.a.b: -1 }"),
            (doc! {"t": 1}, "{ control.min.t: 1, control.max.t: 1 }"),
            (doc! {"t": -1}, "{ control.max.t: -1, control.min.t: -1 }"),
            (
                doc! {"m.x": 1, "t": -1, "temp.c": 1},
                "{ meta.x: 1, control.max.t: -1, control.min.t: -1, control.min.temp.c: 1, \
                 control.max.temp.c: 1 }",
            ),
            (doc! {"m": "hashed"}, "{ meta: \"hashed\" }"),
            (doc! {"mm": 1}, "{ control.min.mm: 1, control.max.mm: 1 }"),
        ] {
            let there = key_on_buckets(key.as_raw(), &options).unwrap();
            assert_eq!(shell_doc(there.as_raw()), on_buckets);
            assert_eq!(key_on_measurements(there.as_raw(), &options), Some(key));
        }
        assert!(key_on_buckets(doc! {"x": "hashed"}.as_raw(), &options).is_err());
        assert!(key_on_buckets(doc! {"$**": 1}.as_raw(), &options).is_err());
        let wildcard = key_on_buckets(doc! {"$**": 1}.as_raw(), &options).unwrap_err();
        assert_eq!(wildcard.code().0, 7246201);
        for other in [doc! {"_id": 1}, doc! {"control.min.t": 1}] {
            assert_eq!(key_on_measurements(other.as_raw(), &options), None);
        }
    }

    #[test]
    fn properties() {
        let options =
            TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap();
        let translated = |spec: DocBuf| on_buckets(&IndexSpec::parse(spec.as_raw())?, &options);
        let on_meta = doc! {
            "v": 2, "key": {"t": 1}, "name": "x", "expireAfterSeconds": 60,
            "partialFilterExpression": {"m.room": 5},
        };
        let index = translated(on_meta.clone()).unwrap();
        assert_eq!(
            shell_doc(index.partial_filter.as_ref().unwrap().as_raw()),
            "{ meta.room: { $eq: 5 } }"
        );
        // Parsing the catalog row yields the same index, and users see the definition that they
        // gave.
        let again = IndexSpec::parse(index.to_doc().as_raw()).unwrap();
        assert_eq!(again, index);
        let shown = on_measurements(&again, &options).unwrap();
        assert_eq!(
            IndexSpec::parse(shown.as_raw()).unwrap(),
            IndexSpec::parse(on_meta.as_raw()).unwrap()
        );
        // Buckets cannot decide this filter, so the index has all of them.
        let on_measurement = doc! {
            "key": {"x": 1}, "name": "x", "partialFilterExpression": {"x": {"$gt": 5}},
        };
        let index = translated(on_measurement).unwrap();
        assert_eq!(index.partial_filter, None);
        assert!(index.original_filter.is_some());
        assert!(
            translated(doc! {"key": {"m.a": 1}, "name": "x", "sparse": true})
                .unwrap()
                .sparse
        );
        for refused in [
            doc! {"key": {"x": 1}, "name": "x", "unique": true},
            doc! {"key": {"m": 1, "x": 1}, "name": "x", "sparse": true},
            doc! {"key": {"t": 1}, "name": "x", "expireAfterSeconds": 60},
            doc! {
                "key": {"x": 1}, "name": "x", "expireAfterSeconds": 60,
                "partialFilterExpression": {"m": 5},
            },
            doc! {
                "key": {"t": 1}, "name": "x", "expireAfterSeconds": 60,
                "partialFilterExpression": {"x": 5},
            },
        ] {
            let error = translated(refused.clone()).unwrap_err();
            assert_eq!(error.code(), ErrorCode::INVALID_OPTIONS, "{refused}");
        }
    }

    #[test]
    fn hints() {
        let options =
            TimeseriesOptions::parse(doc! {"timeField": "t", "metaField": "m"}.as_raw()).unwrap();
        let on_buckets = doc! {"meta": 1, "control.min.t": 1, "control.max.t": 1};
        assert_eq!(
            hint_on_buckets(Hint::KeyPattern(doc! {"m": 1, "t": 1}), &options),
            Hint::KeyPattern(on_buckets)
        );
        let name = Hint::Name("m_1".to_owned());
        assert_eq!(hint_on_buckets(name.clone(), &options), name);
    }
}
