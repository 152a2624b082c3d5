//! SKIP: drops its first `skip` results.

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;

use super::{Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct Skip {
    skip: u64,
    left: u64,
    child: Node,
}

impl Skip {
    /// Drops the first `skip` results of `child`.
    pub fn new(skip: u64, child: Node) -> Self {
        Skip {
            skip,
            left: skip,
            child,
        }
    }
}

impl PlanStage for Skip {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let state = self.child.work(cx)?;
        if matches!(state, StageState::Advanced(_)) && self.left > 0 {
            self.left -= 1;
            return Ok(StageState::NeedTime);
        }
        Ok(state)
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "SKIP",
            plan_fields: doc! {"skipAmount": self.skip as i64},
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
