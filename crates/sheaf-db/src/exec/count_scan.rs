//! COUNT_SCAN: counts the keys of one contiguous range without reading a document or decoding a
//! key.

use sheaf_bson::doc;
use sheaf_bson::error_code::Error;
use sheaf_query::planner::solution::IndexScanNode;

use super::index_cursor::IndexCursor;
use super::{
    BuildContext, Member, PlanStage, RecordIdSet, StageDescription, StageState, WorkContext,
    WorkCounts,
};

/// See the module.
pub struct CountScan {
    cursor: IndexCursor,
    seen: Option<RecordIdSet>,
    done: bool,
}

impl CountScan {
    /// `scan`'s bounds are exact; on a multikey index every record counts once.
    pub fn new(cx: &BuildContext, scan: &IndexScanNode) -> Result<Self, Error> {
        Ok(CountScan {
            cursor: IndexCursor::new(cx, scan)?,
            seen: scan.index.multikey.then(RecordIdSet::default),
            done: false,
        })
    }
}

impl PlanStage for CountScan {
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
                let record_id = self.cursor.record_id();
                if let Some(seen) = &mut self.seen
                    && !seen.insert(&record_id)
                {
                    return Ok(StageState::NeedTime);
                }
                Ok(StageState::Advanced(Member {
                    record_id: Some(record_id),
                    ..Default::default()
                }))
            }
        }
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "COUNT_SCAN",
            plan_fields: self.cursor.count_fields(),
            exec_fields: doc! {"keysExamined": self.cursor.keys_examined() as i64},
            keys_examined: self.cursor.keys_examined(),
            seeks: self.cursor.seeks(),
            summary: Some(self.cursor.summary("COUNT_SCAN")),
            ..Default::default()
        }
    }

    fn add_counts(&self, counts: &mut WorkCounts) {
        counts.keys_examined += self.cursor.keys_examined();
    }

    fn suspend(&mut self) {
        self.cursor.suspend();
    }
}
