//! Stages with a file of their own. See [`stage`](super::stage) for how one is written.

pub mod barrier;
pub mod bucket;
pub mod bucket_auto;
pub mod densify;
pub mod documents;
pub mod facet;
pub mod fill;
mod granularity;
pub mod graph_lookup;
pub mod lookup;
pub mod merge;
pub mod out;
pub mod redact;
pub mod sample;
pub mod sub_pipeline;
pub mod union_with;
pub mod unpack_bucket;
pub mod vector_search;
pub mod window;
