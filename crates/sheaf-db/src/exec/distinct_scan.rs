//! DISTINCT_SCAN: one key for each distinct prefix; after a key it seeks past
//! everything that begins with the same values.

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::planner::solution::IndexScanNode;

use super::index_cursor::IndexCursor;
use super::{
    BuildContext, Member, PlanStage, StageDescription, StageState, WorkContext, WorkCounts,
};

/// See the module.
pub struct DistinctScan {
    cursor: IndexCursor,
    fields: usize,
    done: bool,
}

impl DistinctScan {
    /// One key for each combination of the first `fields` fields.
    pub fn new(cx: &BuildContext, scan: &IndexScanNode, fields: usize) -> Result<Self, Error> {
        Ok(DistinctScan {
            cursor: IndexCursor::checked(cx, scan)?,
            fields,
            done: false,
        })
    }
}

impl PlanStage for DistinctScan {
    fn work(&mut self, _: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.done {
            return Ok(StageState::Eof);
        }
        match self.cursor.advance()? {
            None => {
                self.done = true;
                Ok(StageState::Eof)
            }
            Some(false) => Ok(StageState::NeedTime),
            Some(true) => {
                let member = Member {
                    record_id: Some(self.cursor.record_id()),
                    key: Some(self.cursor.key()),
                    ..Default::default()
                };
                self.cursor.skip_prefix(self.fields);
                Ok(StageState::Advanced(member))
            }
        }
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "DISTINCT_SCAN",
            plan_fields: self.cursor.plan_fields(),
            exec_fields: doc! {
                "keysExamined": self.cursor.keys_examined() as i64,
                "seeks": self.cursor.seeks() as i64,
            },
            keys_examined: self.cursor.keys_examined(),
            seeks: self.cursor.seeks(),
            summary: Some(self.cursor.summary("DISTINCT_SCAN")),
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.keys_examined += self.cursor.keys_examined();
    }
}
