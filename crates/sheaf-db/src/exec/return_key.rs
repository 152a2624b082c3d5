//! RETURN_KEY: the index key a document was found by, instead of the document.

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuilder, doc};

use super::key_document::append_flat_key;
use super::{Doc, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct ReturnKey {
    child: Node,
}

impl ReturnKey {
    /// A child without keys (a collection scan) produces empty documents, as MongoDB does.
    pub fn new(child: Node) -> Self {
        ReturnKey { child }
    }
}

impl PlanStage for ReturnKey {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let mut member = match self.child.work(cx)? {
            StageState::Advanced(member) => member,
            other => return Ok(other),
        };
        let mut out = DocBuilder::new();
        if let Some(key) = member.key.take() {
            append_flat_key(&key, &mut out)?;
        }
        member.doc = Some(Doc::Owned(out.finish_into()));
        Ok(StageState::Advanced(member))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "RETURN_KEY",
            plan_fields: doc! {},
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
