//! Tailable cursors: a find on a capped collection that continues when new records arrive.
//!
//! ```text
//!   find ──> records 1 .. 7, then nothing      the cursor stays open, after record 7
//!   getMore ─ wait for a commit of an insert ─ new snapshot ─ record 7 still there? ─┬─ yes: 8, 9 ..
//!                                                                                    └─ no: CappedPositionLost
//! ```
//!
//! Records of a capped collection become visible in the order of their ids
//! ([`crate::write::capped`]), so a reader that continues after the last record it saw misses none.
//! Entries of the oplog become visible in any order: it is read only up to the time before the
//! first invisible entry.
//!
//! A cursor that found no record at all is dead, as in MongoDB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sheaf_bson::{DocBuilder, Error, ErrorCode, RecordId, Result};
use sheaf_query::canonical::{CanonicalQuery, FindSpec, Hint};
use sheaf_query::matcher::MatchDetails;
use sheaf_query::projection::Metadata;

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;
use crate::collection::Collection;
use crate::database::Db;
use crate::exec::{Doc, WorkCounts};
use crate::find::canonicalize;
use crate::op_context::OpContext;
use crate::planning::PlanDigest;
use crate::records::RecordCursor;
use crate::result_source::ResultSource;
use crate::statement::StatementContext;

/// Interval at which a wait checks whether the operation was killed or the collection dropped.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// A tailable find in execution.
pub struct Tailable {
    db: Arc<Db>,
    ns: Namespace,
    uuid: Uuid,
    query: CanonicalQuery,
    awaits_data: bool,
    /// Open during a batch; the second element is the last record that may be returned.
    scan: Option<(RecordCursor, RecordId)>,
    /// The last record read.
    last: Option<RecordId>,
    /// Number of commits with inserts before the scan began.
    commits: u64,
    skip: u64,
    left: Option<u64>,
    /// The end was reached without any record to continue from.
    found_nothing: bool,
    docs_examined: u64,
}

/// Starts a tailable find. `None` if the collection does not exist: the cursor is dead.
/// Errors: `BadValue` for a collection that is not capped, and for a sort; those of the query.
pub fn find(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    spec: FindSpec<'_>,
    awaits_data: bool,
) -> Result<Option<Tailable>> {
    let view = db.view(op, ns)?;
    let query = canonicalize(&view, spec)?;
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    if collection.options().capped().is_none() {
        return Err(Error::bad_value(format!(
            "error processing query: ns={ns}: tailable cursor requested on non capped collection"
        )));
    }
    if query.sort.is_some() || matches!(query.hint, Some(Hint::Natural(-1))) {
        return Err(Error::bad_value(
            "cannot use tailable option with a sort other than {$natural: 1}",
        ));
    }
    if query.min.is_some() || query.max.is_some() || query.return_key {
        return Err(Error::bad_value(
            "a tailable cursor does not use an index: leave min, max and returnKey out",
        ));
    }
    collection.usage().count_collection_scan();
    Ok(Some(Tailable {
        db: db.clone(),
        ns: ns.clone(),
        uuid: collection.uuid(),
        awaits_data,
        scan: None,
        last: None,
        commits: 0,
        skip: query.skip,
        left: query.limit,
        found_nothing: false,
        docs_examined: 0,
        query,
    }))
}

impl Tailable {
    /// The collection, if it is still the one the cursor was opened on.
    fn collection(&self) -> Result<Arc<Collection>> {
        let catalog = self.db.catalog();
        match catalog.collection(&self.ns) {
            Some(collection) if collection.uuid() == self.uuid => Ok(collection.clone()),
            _ => Err(Error::new(
                ErrorCode::QUERY_PLAN_KILLED,
                format!("collection dropped or renamed: {}", self.ns),
            )),
        }
    }

    /// Opens a scan of the current records after the last one read.
    fn open(&mut self) -> Result<bool> {
        let collection = self.collection()?;
        let (mut until, is_oplog) = (RecordId::MAX, self.ns.is_oplog());
        if is_oplog {
            until = RecordId::new(self.db.oplog().visible().as_u64() as i64);
        }
        // Read before the snapshot: a commit in between is visible, and costs one futile wait.
        self.commits = collection.state.capped.commits();
        let view = self.db.read_view(&self.ns)?;
        let mut cursor = RecordCursor::new(&view.snapshot, &collection)?;
        let on = match &self.last {
            None => cursor.first()?,
            Some(last) => {
                if !(cursor.seek(last)? && cursor.record_id()? == *last) {
                    return Err(Error::new(
                        ErrorCode::CAPPED_POSITION_LOST,
                        format!(
                            "CollectionScan died due to position in capped collection being deleted. \
                             Last seen record id: RecordId({last})"
                        ),
                    ));
                }
                cursor.next()?
            }
        };
        self.scan = Some((cursor, until));
        Ok(on)
    }

    fn result(&self, cursor: &RecordCursor, details: &MatchDetails) -> Result<Doc> {
        let id = cursor.record_id()?;
        let doc = cursor.document()?;
        if let Some(projection) = &self.query.projection {
            let mut out = DocBuilder::new();
            let meta = Metadata {
                record_id: Some(&id),
                ..Metadata::default()
            };
            projection.apply(doc, Some(details), meta, &mut out)?;
            return Ok(Doc::Owned(out.finish_into()));
        }
        if self.query.show_record_id {
            let mut out = DocBuilder::from_doc(doc);
            out.append("$recordId", id.as_raw());
            return Ok(Doc::Owned(out.finish_into()));
        }
        Ok(Doc::Shared(cursor.value_bytes()))
    }
}

impl ResultSource for Tailable {
    fn next(&mut self, op: &OpContext) -> Result<Option<Doc>> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let mut on = match &mut self.scan {
            Some((cursor, _)) => cursor.next()?,
            None => self.open()?,
        };
        loop {
            op.check_interrupt()?;
            let Some((cursor, until)) = self.scan.as_mut().filter(|_| on) else {
                break;
            };
            let id = cursor.record_id()?;
            if id > *until {
                break;
            }
            debug_assert!(
                self.last.as_ref().is_none_or(|last| *last < id),
                "records ascend"
            );
            self.last = Some(id);
            self.docs_examined += 1;
            let doc = cursor.document()?;
            let mut details = MatchDetails::default();
            if self.query.filter.matches_with_details(doc, &mut details)? {
                match self.skip {
                    0 => {
                        if let Some(left) = &mut self.left {
                            *left -= 1;
                        }
                        let Some((cursor, _)) = &self.scan else { break };
                        return self.result(cursor, &details).map(Some);
                    }
                    _ => self.skip -= 1,
                }
            }
            on = match &mut self.scan {
                Some((cursor, _)) => cursor.next()?,
                None => false,
            };
        }
        self.scan = None;
        self.found_nothing = self.last.is_none();
        Ok(None)
    }

    fn is_exhausted(&self) -> bool {
        self.found_nothing || self.left == Some(0)
    }

    fn is_tailable(&self) -> bool {
        true
    }

    fn awaits_data(&self) -> bool {
        self.awaits_data
    }

    fn await_more(&mut self, op: &OpContext, limit: Duration) -> Result<bool> {
        if !self.awaits_data {
            return Ok(false);
        }
        let until = Instant::now() + limit;
        loop {
            op.check_interrupt_now()?;
            let collection = self.collection()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let slice = left.min(WAIT_SLICE);
            let more = match (self.ns.is_oplog(), &self.last) {
                (true, Some(last)) => {
                    let seen = last.number().unwrap_or(0) as u64;
                    let seen = sheaf_bson::Timestamp::from_u64(seen);
                    self.db.oplog().wait_after(op, seen, slice)?
                }
                _ => collection.state.capped.wait(self.commits, slice),
            };
            if more {
                return Ok(true);
            }
        }
    }

    fn batch_ended(&mut self) {
        // The next batch continues here, on a new snapshot.
        self.scan = None;
    }

    fn counts(&self) -> WorkCounts {
        WorkCounts {
            docs_examined: self.docs_examined,
            ..WorkCounts::default()
        }
    }

    fn plan(&self) -> PlanDigest {
        PlanDigest::collection_scan()
    }
}
