//! Projections: parsed once, analysed for the planner, applied to raw bytes.

use sheaf_bson::DocBuf;

/// What a find keeps of each document.
#[derive(Debug, Clone)]
pub struct Projection {
    spec: DocBuf,
}

impl Projection {
    /// As the user gave it; explain's `transformBy`.
    pub fn transform_by(&self) -> &DocBuf {
        &self.spec
    }
}
