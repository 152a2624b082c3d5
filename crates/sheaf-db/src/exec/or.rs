//! OR: one child after the other, every record once.

use std::sync::Arc;

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::matcher::MatchExpression;

use super::{Node, PlanStage, RecordIdSet, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct Or {
    children: Vec<Node>,
    current: usize,
    dedup: bool,
    filter: Option<Arc<MatchExpression>>,
    seen: RecordIdSet,
    dups_tested: u64,
    dups_dropped: u64,
}

impl Or {
    /// `filter` is applied to members that have a document.
    pub fn new(children: Vec<Node>, dedup: bool, filter: Option<Arc<MatchExpression>>) -> Self {
        Or {
            children,
            current: 0,
            dedup,
            filter,
            seen: RecordIdSet::default(),
            dups_tested: 0,
            dups_dropped: 0,
        }
    }
}

impl PlanStage for Or {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let Some(child) = self.children.get_mut(self.current) else {
            return Ok(StageState::Eof);
        };
        let member = match child.work(cx)? {
            StageState::Advanced(member) => member,
            StageState::NeedTime => return Ok(StageState::NeedTime),
            StageState::Eof => {
                self.current += 1;
                return Ok(if self.current == self.children.len() {
                    StageState::Eof
                } else {
                    StageState::NeedTime
                });
            }
        };
        if self.dedup
            && let Some(id) = &member.record_id
        {
            self.dups_tested += 1;
            if !self.seen.insert(id) {
                self.dups_dropped += 1;
                return Ok(StageState::NeedTime);
            }
        }
        if let (Some(filter), Some(doc)) = (&self.filter, &member.doc)
            && !filter.matches(doc.as_raw())?
        {
            return Ok(StageState::NeedTime);
        }
        Ok(StageState::Advanced(member))
    }

    fn is_eof(&self) -> bool {
        self.current == self.children.len()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "OR",
            filter: self.filter.as_ref().map(|f| f.serialize()),
            exec_fields: doc! {
                "dupsTested": self.dups_tested as i64,
                "dupsDropped": self.dups_dropped as i64,
            },
            children: self.children.iter().map(Node::stats).collect(),
            many: true,
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        for child in &self.children {
            child.add_counts(counts);
        }
    }

    fn rest(&mut self) {
        self.children.iter_mut().for_each(Node::rest);
    }
}
