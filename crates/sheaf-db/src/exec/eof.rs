//! EOF: the filter can match nothing, or the collection does not exist.

use super::{PlanStage, StageDescription, StageState, WorkContext, WorkCounts};
use sheaf_bson::error_code::Error;

/// See the module.
pub struct Eof;

impl PlanStage for Eof {
    fn work(&mut self, _: &mut WorkContext<'_>) -> Result<StageState, Error> {
        Ok(StageState::Eof)
    }

    fn is_eof(&self) -> bool {
        true
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "EOF",
            summary: Some("EOF".into()),
            ..Default::default()
        }
    }

    fn add_counts(&self, _: &mut WorkCounts) {}

    fn suspend(&mut self) {}
}
