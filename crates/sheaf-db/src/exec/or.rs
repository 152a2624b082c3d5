//! OR: runs its children in succession and returns every record once.
//!
//! A child that is lazy in the plan is opened when the previous child reaches its end: a batch that
//! fills up earlier opens no cursor for it. The stage's description includes children not yet
//! opened.

use std::sync::Arc;

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::matcher::MatchExpression;
use sheaf_query::planner::lazy::LazyNode;

use super::build::Opener;
use super::{
    Node, PlanStage, RecordIdSet, StageDescription, StageState, StageStats, WorkContext, WorkCounts,
};

/// See the module.
pub struct Or {
    children: Vec<Child>,
    /// Opens waiting children.
    opener: Opener,
    current: usize,
    dedup: bool,
    filter: Option<Arc<MatchExpression>>,
    seen: RecordIdSet,
    dups_tested: u64,
    dups_dropped: u64,
}

/// One branch of the `$or`.
pub enum Child {
    /// Built.
    Open(Node),
    /// Not reached yet.
    Waiting(LazyNode),
}

impl Child {
    fn stats(&self, opener: &Opener) -> StageStats {
        match self {
            Child::Open(node) => node.stats(),
            // A child that cannot be opened has no statistics; reaching it reports the error.
            Child::Waiting(lazy) => opener.open(lazy).map(|n| n.stats()).unwrap_or_default(),
        }
    }
}

impl Or {
    /// `filter` is applied to members that have a document.
    pub fn new(
        children: Vec<Child>,
        opener: Opener,
        dedup: bool,
        filter: Option<Arc<MatchExpression>>,
    ) -> Self {
        Or {
            children,
            opener,
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
        if let Child::Waiting(lazy) = child {
            *child = Child::Open(self.opener.open(lazy)?);
        }
        let Child::Open(child) = child else {
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
            children: self
                .children
                .iter()
                .map(|c| c.stats(&self.opener))
                .collect(),
            many: true,
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        for child in &self.children {
            if let Child::Open(child) = child {
                child.add_counts(counts);
            }
        }
    }

    fn suspend(&mut self) {
        for child in &mut self.children {
            if let Child::Open(child) = child {
                child.suspend();
            }
        }
    }
}
