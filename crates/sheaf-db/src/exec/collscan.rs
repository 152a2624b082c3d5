//! COLLSCAN: every record in record order, filtered in place.
//!
//! The filter reads the storage cursor's own bytes; only a match takes a shared reference to them.

use std::sync::Arc;

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::matcher::MatchExpression;
use sheaf_query::planner::statistics::SCAN_COST;

use super::{Doc, Member, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};
use crate::records::RecordCursor;

/// See the module.
pub struct CollScan {
    cursor: RecordCursor,
    forward: bool,
    filter: Option<Arc<MatchExpression>>,
    started: bool,
    done: bool,
    docs_examined: u64,
}

impl CollScan {
    /// `direction` is 1 or -1.
    pub fn new(cursor: RecordCursor, direction: i8, filter: Option<Arc<MatchExpression>>) -> Self {
        CollScan {
            cursor,
            forward: direction >= 0,
            filter,
            started: false,
            done: false,
            docs_examined: 0,
        }
    }
}

impl PlanStage for CollScan {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.done {
            return Ok(StageState::Eof);
        }
        let found = match (self.started, self.forward) {
            (false, true) => self.cursor.first()?,
            (false, false) => self.cursor.last()?,
            (true, true) => self.cursor.next()?,
            (true, false) => self.cursor.prev()?,
        };
        self.started = true;
        if !found {
            self.done = true;
            return Ok(StageState::Eof);
        }
        self.docs_examined += 1;
        cx.cost += SCAN_COST;
        let document = self.cursor.document()?;
        if let Some(filter) = &self.filter
            && !filter.matches(document)?
        {
            return Ok(StageState::NeedTime);
        }
        Ok(StageState::Advanced(Member {
            record_id: Some(self.cursor.record_id()?),
            doc: Some(Doc::Shared(self.cursor.value_bytes())),
            key: None,
            sort_key: None,
        }))
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "COLLSCAN",
            filter: self.filter.as_ref().map(|f| f.serialize()),
            plan_fields: doc! {"direction": if self.forward { "forward" } else { "backward" }},
            exec_fields: doc! {"docsExamined": self.docs_examined as i64},
            docs_examined: self.docs_examined,
            summary: Some("COLLSCAN".into()),
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.docs_examined += self.docs_examined;
    }

    fn suspend(&mut self) {
        self.cursor.suspend();
    }
}
