//! LIMIT: ends after `limit` results without another call to its child.

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;

use super::{Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct Limit {
    limit: u64,
    left: u64,
    child: Node,
}

impl Limit {
    /// `limit` is at least 1.
    pub fn new(limit: u64, child: Node) -> Self {
        Limit {
            limit,
            left: limit,
            child,
        }
    }
}

impl PlanStage for Limit {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.left == 0 {
            return Ok(StageState::Eof);
        }
        let state = self.child.work(cx)?;
        if matches!(state, StageState::Advanced(_)) {
            self.left -= 1;
        }
        Ok(state)
    }

    fn is_eof(&self) -> bool {
        self.left == 0 || self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "LIMIT",
            plan_fields: doc! {"limitAmount": self.limit as i64},
            children: vec![self.child.stats()],
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        self.child.add_counts(counts);
    }

    fn suspend(&mut self) {
        self.child.suspend();
    }
}
