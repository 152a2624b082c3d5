//! `timeseries` and its `expireAfterSeconds`: options of collections whose documents are buckets.

use std::sync::Arc;

use sheaf_bson::fields::wrong_type;
use sheaf_bson::{DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result};
use sheaf_query::timeseries::TimeseriesOptions;

use super::CollectionOptions;

/// Name of the option.
pub(super) const NAME: &str = "timeseries";

/// Options that can be combined with `timeseries`.
const ALLOWED: &[&str] = &[
    NAME,
    "expireAfterSeconds",
    "collation",
    "storageEngine",
    "indexOptionDefaults",
];

/// Parses the operand of `timeseries`, from `create` or a catalog row.
/// Errors: `TypeMismatch`, and those of [`TimeseriesOptions::parse`].
pub(super) fn parse(value: RawValue<'_>) -> Result<Arc<TimeseriesOptions>> {
    match value {
        RawValue::Document(spec) => TimeseriesOptions::parse(spec).map(Arc::new),
        value => Err(wrong_type(NAME, value, "object")),
    }
}

/// Errors: `InvalidOptions` for an option that cannot be combined with `timeseries`.
pub(super) fn check_others(fields: RawDoc<'_>) -> Result<()> {
    let not_given = |value| {
        matches!(
            value,
            RawValue::Null | RawValue::Undefined | RawValue::Boolean(false)
        )
    };
    let mut given = fields.iter().filter(|field| !not_given(field.value()));
    match given.find(|field| !ALLOWED.contains(&field.key())) {
        None => Ok(()),
        Some(other) => Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            format!(
                "'{}' is not allowed with '{NAME}'; leave one of them out",
                other.key()
            ),
        )),
    }
}

/// Appends the option as `listCollections` shows it.
pub(super) fn append(timeseries: &TimeseriesOptions, out: &mut DocBuilder) {
    out.append_bson(NAME, &timeseries.to_doc());
}

impl CollectionOptions {
    /// The time-series options; `None` if this is not a collection of buckets.
    pub fn timeseries(&self) -> Option<&Arc<TimeseriesOptions>> {
        self.timeseries.as_ref()
    }

    /// The same options with different time-series options.
    pub(crate) fn with_timeseries(&self, timeseries: TimeseriesOptions) -> CollectionOptions {
        CollectionOptions {
            timeseries: Some(Arc::new(timeseries)),
            ..self.clone()
        }
    }
}
