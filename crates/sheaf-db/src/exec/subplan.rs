//! SUBPLAN: marks in explain that the plan below was chosen branch by branch; passes results
//! through.

use sheaf_bson::error_code::Error;

use super::{Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct Subplan {
    child: Node,
}

impl Subplan {
    /// Wraps the plan of a rooted `$or`.
    pub fn new(child: Node) -> Self {
        Subplan { child }
    }
}

impl PlanStage for Subplan {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        self.child.work(cx)
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "SUBPLAN",
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
