//! IXSCAN: record ids in key order, within bounds.
//!
//! [`IndexCursor`](super::index_cursor::IndexCursor) does the scan itself. This stage adds what
//! follows once a key is within bounds: the filter that the key alone decides, and deduplication of
//! records on a multikey index.

use std::sync::Arc;

use sheaf_bson::error_code::Error;
use sheaf_bson::{DocBuf, DocBuilder, doc};
use sheaf_query::matcher::MatchExpression;
use sheaf_query::planner::solution::IndexScanNode;
use sheaf_query::planner::statistics::{KEY_COST, SEEK_COST};

use super::index_cursor::IndexCursor;
use super::key_document::KeyDocument;
use super::{
    BuildContext, Member, PlanStage, RecordIdSet, StageDescription, StageState, WorkContext,
    WorkCounts,
};

/// See the module.
pub struct IndexScan {
    cursor: IndexCursor,
    filter: Option<Arc<MatchExpression>>,
    key_document: KeyDocument,
    seen: Option<RecordIdSet>,
    /// See [`IndexScanNode::skips`].
    skips: usize,
    keep_key: bool,
    done: bool,
    dups_tested: u64,
    dups_dropped: u64,
}

impl IndexScan {
    /// `keep_key`: a stage above reads values from the key.
    pub fn new(cx: &BuildContext, scan: &IndexScanNode, keep_key: bool) -> Result<Self, Error> {
        Ok(IndexScan {
            cursor: IndexCursor::new(cx, scan)?,
            filter: scan.filter.clone(),
            key_document: KeyDocument::default(),
            seen: scan.dedup.then(RecordIdSet::default),
            skips: scan.skips,
            keep_key,
            done: false,
            dups_tested: 0,
            dups_dropped: 0,
        })
    }
}

impl IndexScan {
    fn plan_fields(&self) -> DocBuf {
        let fields = self.cursor.plan_fields();
        if self.skips == 0 {
            return fields;
        }
        let mut out = DocBuilder::from_doc(fields.as_raw());
        out.begin_document("skipScan");
        out.append("prefixFields", self.skips as i32);
        out.end();
        out.finish()
    }
}

impl PlanStage for IndexScan {
    fn work(&mut self, cx: &mut WorkContext<'_>) -> Result<StageState, Error> {
        if self.done {
            return Ok(StageState::Eof);
        }
        let seeks = self.cursor.seeks();
        let found = self.cursor.advance()?;
        cx.cost += match self.cursor.seeks() == seeks {
            true => KEY_COST,
            false => SEEK_COST,
        };
        match found {
            None => {
                self.done = true;
                return Ok(StageState::Eof);
            }
            Some(false) => return Ok(StageState::NeedTime),
            Some(true) => {}
        }
        let record_id = self.cursor.record_id();
        if let Some(seen) = &mut self.seen {
            self.dups_tested += 1;
            if !seen.insert(&record_id) {
                self.dups_dropped += 1;
                return Ok(StageState::NeedTime);
            }
        }
        if let Some(filter) = &self.filter {
            let key = self.cursor.decode_into(&mut self.key_document)?;
            if !filter.matches(key)? {
                return Ok(StageState::NeedTime);
            }
        }
        // All fields are written: the rest of a default would be dropped for each key.
        Ok(StageState::Advanced(Member {
            record_id: Some(record_id),
            doc: None,
            key: self.keep_key.then(|| self.cursor.key()),
            sort_key: None,
        }))
    }

    fn is_eof(&self) -> bool {
        self.done
    }

    fn describe(&self) -> StageDescription {
        StageDescription {
            stage: "IXSCAN",
            filter: self.filter.as_ref().map(|f| f.serialize()),
            plan_fields: self.plan_fields(),
            exec_fields: doc! {
                "keysExamined": self.cursor.keys_examined() as i64,
                "seeks": self.cursor.seeks() as i64,
                "dupsTested": self.dups_tested as i64,
                "dupsDropped": self.dups_dropped as i64,
            },
            keys_examined: self.cursor.keys_examined(),
            seeks: self.cursor.seeks(),
            summary: Some(self.cursor.summary("IXSCAN")),
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
