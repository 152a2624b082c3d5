//! FETCH: reads the record a key points to, and applies the part of the filter that the index could
//! not decide.

use std::sync::Arc;

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::matcher::MatchExpression;
use sheaf_query::planner::statistics::FETCH_COST;

use super::{Doc, Node, PlanStage, StageDescription, StageState, WorkContext, WorkCounts};
use crate::records::RecordReader;

/// See the module.
pub struct Fetch {
    records: RecordReader,
    filter: Option<Arc<MatchExpression>>,
    child: Node,
    docs_examined: u64,
    already_has_obj: u64,
}

impl Fetch {
    /// Reads records through `records` and keeps documents that match `filter`.
    pub fn new(records: RecordReader, filter: Option<Arc<MatchExpression>>, child: Node) -> Self {
        Fetch {
            records,
            filter,
            child,
            docs_examined: 0,
            already_has_obj: 0,
        }
    }
}

impl PlanStage for Fetch {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        let mut member = match self.child.work(cx)? {
            StageState::Advanced(member) => member,
            other => return Ok(other),
        };
        if member.doc.is_some() {
            self.already_has_obj += 1;
        } else if let Some(id) = &member.record_id {
            self.docs_examined += 1;
            cx.cost += FETCH_COST;
            // Index and record come from one snapshot, so the record exists unless one of them is
            // damaged.
            let index = || self.child.stats().plan_summary();
            let bytes = self.records.get_indexed(id, index)?;
            member.doc = Some(Doc::Shared(bytes));
        }
        if let (Some(filter), Some(doc)) = (&self.filter, &member.doc)
            && !filter.matches(doc.as_raw())?
        {
            return Ok(StageState::NeedTime);
        }
        Ok(StageState::Advanced(member))
    }

    fn is_eof(&self) -> bool {
        self.child.is_eof()
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "FETCH",
            filter: self.filter.as_ref().map(|f| f.serialize()),
            exec_fields: doc! {
                "docsExamined": self.docs_examined as i64,
                "alreadyHasObj": self.already_has_obj as i64,
            },
            docs_examined: self.docs_examined,
            is_fetch: true,
            children: vec![self.child.stats()],
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.docs_examined += self.docs_examined;
        self.child.add_counts(counts);
    }

    fn suspend(&mut self) {
        self.child.suspend();
    }
}
