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

use sheaf_bson::{DocBuf, DocBuilder, Error, RawDoc, RawElement, Result};
use sheaf_query::timeseries::{META, TimeseriesOptions};

use crate::index::definition::{IndexSpec, cannot_create};

const MIN: &str = "control.min.";
const MAX: &str = "control.max.";

/// Translates an index on measurements to the index on buckets.
/// Errors: `CannotCreateIndex`; `InvalidOptions` for unique, TTL, sparse and partial indexes.
pub fn on_buckets(spec: &IndexSpec, options: &TimeseriesOptions) -> Result<IndexSpec> {
    let refused = |what: &str| {
        Error::new(
            sheaf_bson::ErrorCode::INVALID_OPTIONS,
            format!(
                "{what} indexes are not supported on time-series collections: {}",
                spec.name
            ),
        )
    };
    if spec.unique {
        return Err(refused("Unique"));
    }
    if spec.expire_after_seconds.is_some() {
        return Err(refused("TTL"));
    }
    if spec.sparse {
        return Err(refused("Sparse"));
    }
    if spec.partial_filter.is_some() {
        return Err(refused("Partial"));
    }
    let mut translated = spec.clone();
    translated.key = key_on_buckets(spec.key.as_raw(), options)?;
    Ok(translated)
}

/// Translates a key pattern on measurements to one on buckets.
/// Errors: `CannotCreateIndex`.
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
            return Err(cannot_create(
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
            _ => out.append_raw_element(element),
        };
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
        for other in [doc! {"_id": 1}, doc! {"control.min.t": 1}] {
            assert_eq!(key_on_measurements(other.as_raw(), &options), None);
        }
    }
}
