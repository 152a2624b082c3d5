//! Stages that implement [`PipelineStage`](super::stage::PipelineStage), one file each. See
//! [`stage`](super::stage) for how to add one.

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
