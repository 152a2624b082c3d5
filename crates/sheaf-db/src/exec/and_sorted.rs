//! AND_SORTED: the records that all children return, for children that return them in record order.
//!
//! One child sets a target; the others advance to it in turn; a child that overshoots sets the next
//! target.

use sheaf_bson::DocBuilder;
use sheaf_bson::RecordId;
use sheaf_bson::error_code::{Error, ErrorCode};

use super::{Member, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};

/// See the module.
pub struct AndSorted {
    children: Vec<Node>,
    /// Per child: how often another child overshot its target.
    failed: Vec<u64>,
    target: Option<RecordId>,
    target_child: usize,
    /// Children that have not reached the target yet, the next one last.
    lagging: Vec<usize>,
    done: bool,
}

impl AndSorted {
    /// Every child must return record ids in ascending order.
    pub fn new(children: Vec<Node>) -> Self {
        AndSorted {
            failed: vec![0; children.len()],
            children,
            target: None,
            target_child: 0,
            lagging: Vec::new(),
            done: false,
        }
    }

    fn aim(&mut self, target: RecordId, child: usize) {
        self.target = Some(target);
        self.target_child = child;
        self.lagging = (0..self.children.len())
            .rev()
            .filter(|other| *other != child)
            .collect();
    }
}

impl PlanStage for AndSorted {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.done {
            return Ok(StageState::Eof);
        }
        let child = self.lagging.last().copied().unwrap_or(0);
        let member = match self.children[child].work(cx)? {
            StageState::Advanced(member) => member,
            StageState::NeedTime => return Ok(StageState::NeedTime),
            StageState::Eof => {
                self.done = true;
                return Ok(StageState::Eof);
            }
        };
        let id = member.record_id.ok_or_else(no_record)?;
        let Some(target) = self.target.as_ref() else {
            self.aim(id, child);
            return Ok(StageState::NeedTime);
        };
        if id < *target {
            return Ok(StageState::NeedTime);
        }
        if id > *target {
            self.failed[self.target_child] += 1;
            self.aim(id, child);
            return Ok(StageState::NeedTime);
        }
        debug_assert_ne!(
            child, self.target_child,
            "the child that set the target is on it"
        );
        self.lagging.pop();
        if !self.lagging.is_empty() {
            return Ok(StageState::NeedTime);
        }
        self.target = None;
        Ok(StageState::Advanced(Member {
            record_id: Some(id),
            ..Default::default()
        }))
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        let mut exec = DocBuilder::new();
        for (child, failed) in self.failed.iter().enumerate() {
            exec.append(format!("failedAnd_{child}"), *failed as i64);
        }
        StageDescription {
            stage: "AND_SORTED",
            exec_fields: exec.finish(),
            is_intersection: true,
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

    fn suspend(&mut self) {
        self.children.iter_mut().for_each(Node::suspend);
    }
}

pub(super) fn no_record() -> Error {
    Error::new(
        ErrorCode::INTERNAL_ERROR,
        "an intersection needs record ids",
    )
}
