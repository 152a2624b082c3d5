//! Limits of pipelines.

/// Maximum number of stages of a pipeline.
pub const STAGES_MAX: usize = 1000;
/// Maximum nesting depth of sub-pipelines.
pub const SUB_PIPELINE_DEPTH_MAX: usize = 20;
/// Memory limit of a blocking stage, in bytes.
pub const BLOCKING_BYTES_MAX: usize = 100 * 1024 * 1024;
