//! Time series: measurements gathered in buckets.
//!
//! ```text
//!   {t, sensor: "a", temp: 20.5}  ─┐                bucket: up to 1000 measurements of one meta value
//!   {t, sensor: "a", temp: 20.7}  ─┼─> push ──>     {_id, control: {min, max, count}, meta: "a",
//!   {t, sensor: "a", temp: 20.6}  ─┘                 data: {t: .., temp: ..}}   one column a field
//!                                                          │
//!        measurements <── read (only columns asked for) <──┘  if predicate says that some may match
//! ```
//!
//! This module knows what a bucket is and nothing of where it is stored.

pub mod bucket;
pub mod column;
pub mod extremes;
pub mod options;
pub mod predicate;
pub mod reader;

pub use bucket::{Bucket, normalized_meta};
pub use options::{Granularity, TimeseriesOptions};
pub use predicate::{BucketPredicate, Translated};
pub use reader::BucketReader;

/// What a bucket's meta value is called in the bucket.
pub const META: &str = "meta";
/// Where the extremes and counts of a bucket are.
pub const CONTROL: &str = "control";
/// Where a bucket's columns are.
pub const DATA: &str = "data";
/// The measurements of a full bucket.
pub const BUCKET_COUNT_MAX: usize = 1000;
/// The bytes of a full bucket.
pub const BUCKET_BYTES_MAX: usize = 125 * 1024;
/// With fewer measurements a bucket may be larger than [`BUCKET_BYTES_MAX`].
pub const BUCKET_COUNT_MIN: usize = 10;
/// The bytes of a bucket with few measurements.
pub const BUCKET_BYTES_LIMIT: usize = 12 * 1024 * 1024;
