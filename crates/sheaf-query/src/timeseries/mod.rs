//! Time series: measurements grouped in buckets.
//!
//! ```text
//!   {t, sensor: "a", temp: 20.5}  ─┐              bucket: up to 1000 measurements of one meta value
//!   {t, sensor: "a", temp: 20.7}  ─┼─> push ──>   {_id, control: {min, max, count}, meta: "a",
//!   {t, sensor: "a", temp: 20.6}  ─┘               data: {t: .., temp: ..}}   one column per field
//!                                                       │
//!        measurements <── read (requested columns only) ──┘  if predicate says that some may match
//! ```
//!
//! This module defines buckets, and is independent of where they are stored.

pub mod bucket;
pub mod column;
pub mod extremes;
pub mod options;
pub mod predicate;
pub mod reader;
pub mod restore;

pub use bucket::{Bucket, normalized_meta};
pub use options::{Granularity, TimeseriesOptions};
pub use predicate::{BucketPredicate, Translated};
pub use reader::BucketReader;

/// The field of a bucket with its meta value.
pub const META: &str = "meta";
/// The field of a bucket with its extremes and counts.
pub const CONTROL: &str = "control";
/// The field of a bucket with its columns.
pub const DATA: &str = "data";
/// Maximum number of measurements in a bucket.
pub const BUCKET_COUNT_MAX: usize = 1000;
/// Size in bytes at which a bucket is full.
pub const BUCKET_BYTES_MAX: usize = 125 * 1024;
/// A bucket with fewer measurements may exceed [`BUCKET_BYTES_MAX`].
pub const BUCKET_COUNT_MIN: usize = 10;
/// Maximum size in bytes of a bucket with few measurements.
pub const BUCKET_BYTES_LIMIT: usize = 12 * 1024 * 1024;
