//! Retryable writes: what a statement did is remembered with what it wrote, so that asking again does nothing twice.
//!
//! ```text
//!   insert, txnNumber 7, stmtId 0..3 ── unit of work ─┬─ documents, index keys
//!                                                     └─ config.transactions {_id: lsid, txnNum: 7, statements}
//!   (the answer is lost)
//!   insert, txnNumber 7, stmtId 0..3 ── remembered ──> the same answer, nothing written
//! ```
//!
//! The row is written by the unit that writes the documents: either both are there after a crash or neither. A
//! statement that changed nothing is not remembered: done again it is done later, as if the first had not come.
//!
//! Invariant: rows of a session are written by one statement at a time; the session sees to that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sheaf_bson::path::FieldPath;
use sheaf_bson::{
    DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, RecordId, Result, Value,
};

use crate::catalog::namespace::Namespace;
use crate::database::Db;
use crate::find::{self, QueryOptions, ResultSource};
use crate::index::modified::Modified;
use crate::modify::{self, DeleteReport, DeleteStatement};
use crate::op_context::OpContext;
use crate::statement::StatementContext;
use crate::system_names::TRANSACTIONS_NAMESPACE;
use crate::write::unit::WriteUnit;

/// What sessions remember: one for each session that writes with transaction numbers.
pub struct SessionRow {
    lsid: DocBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    number: i64,
    /// The transaction of this number was committed.
    committed: bool,
    /// Statements of which there is no more to say than that they inserted a document: first to last.
    inserts: BTreeMap<i32, i32>,
    /// What the others answered.
    outcomes: BTreeMap<i32, DocBuf>,
    /// The row as it is stored.
    stored: Option<(RecordId, DocBuf)>,
    /// What an upsert under way answers when it inserts.
    upserting: Option<DocBuf>,
    /// Ids of the statements under way; the first is that of the document at 0, or of the only statement.
    current: Vec<i32>,
}

/// What a unit of work is to remember when it commits.
#[derive(Debug, Clone)]
pub(crate) enum Remembered {
    /// A document was inserted.
    Insert(i32),
    /// A statement did this.
    Outcome(i32, DocBuf),
    /// The transaction was committed.
    Committed,
}

impl SessionRow {
    /// What is stored of a session; the collection is created if it is not there.
    /// Errors: `DataCorruptionDetected` for a row that cannot be read: as if it did not exist, a retried write
    /// would run twice. The engine's.
    pub fn load(db: &Arc<Db>, op: &OpContext, lsid: RawDoc<'_>) -> Result<Arc<SessionRow>> {
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        if db.catalog().collection(&ns).is_none() {
            // Not through `op`: it may be a statement of a transaction.
            db.ensure_collection(&StatementContext::new(), &ns)?;
        }
        let mut state = State {
            number: -1,
            ..State::default()
        };
        let mut filter = DocBuilder::new();
        filter.append("_id", RawValue::Document(lsid));
        let filter = filter.finish();
        let spec = sheaf_query::canonical::FindSpec {
            filter: Some(filter.as_raw()),
            show_record_id: true,
            ..Default::default()
        };
        let query = Arc::new(sheaf_query::canonical::CanonicalQuery::new(spec)?);
        let view = db.read_view(&ns)?;
        let mut found = find::find(&view, op, query, &QueryOptions::default())?;
        if let Some(doc) = found.next(op)? {
            let read = state.read(doc.as_raw());
            read.map_err(|e| match &view.collection {
                Some(collection) => collection.report_damage(e),
                None => e,
            })?;
        }
        Ok(Arc::new(SessionRow {
            lsid: lsid.to_buf(),
            state: Mutex::new(state),
        }))
    }

    /// The newest transaction number, -1 when there was none.
    pub fn number(&self) -> i64 {
        self.state.lock().number
    }

    /// Whether the transaction of the newest number was committed.
    pub fn is_committed(&self) -> bool {
        self.state.lock().committed
    }

    /// Begins a newer number: what was remembered of the older ones is forgotten with its first write.
    pub fn advance(&self, number: i64) {
        let mut state = self.state.lock();
        if number > state.number {
            let stored = state.stored.take();
            *state = State {
                number,
                stored,
                ..State::default()
            };
        }
    }

    /// What a statement did, if it was carried out before: `{n: 1}` and more.
    pub fn outcome(&self, statement: i32) -> Option<DocBuf> {
        let state = self.state.lock();
        if let Some(outcome) = state.outcomes.get(&statement) {
            return Some(outcome.clone());
        }
        let (_, last) = state.inserts.range(..=statement).next_back()?;
        (statement <= *last).then(|| {
            let mut out = DocBuilder::new();
            out.append("n", 1);
            out.finish()
        })
    }

    /// Says which statements the writes to come are.
    pub fn set_current(&self, statements: Vec<i32>) {
        self.state.lock().current = statements;
    }

    /// Says what the insert to come answers: it is the end of an upsert.
    pub(crate) fn set_upserting(&self, outcome: Option<DocBuf>) {
        self.state.lock().upserting = outcome;
    }

    fn remembered_insert(&self, at: usize) -> Option<Remembered> {
        let state = self.state.lock();
        let statement = *state.current.get(at)?;
        Some(match &state.upserting {
            Some(outcome) => Remembered::Outcome(statement, outcome.clone()),
            None => Remembered::Insert(statement),
        })
    }

    /// The statement of the document at this place.
    pub(crate) fn current(&self, at: usize) -> Option<i32> {
        self.state.lock().current.get(at).copied()
    }

    /// The row with what a unit is about to commit.
    fn row_with(&self, remembered: &[Remembered]) -> (DocBuf, Option<(RecordId, DocBuf)>) {
        let state = self.state.lock();
        let mut next = State {
            number: state.number,
            committed: state.committed,
            inserts: state.inserts.clone(),
            outcomes: state.outcomes.clone(),
            ..State::default()
        };
        next.remember(remembered);
        (next.write(&self.lsid), state.stored.clone())
    }

    fn committed(&self, remembered: &[Remembered], stored: (RecordId, DocBuf)) {
        let mut state = self.state.lock();
        state.remember(remembered);
        state.stored = Some(stored);
    }
}

impl State {
    fn remember(&mut self, remembered: &[Remembered]) {
        for one in remembered {
            match one {
                Remembered::Insert(statement) => self.insert(*statement),
                Remembered::Outcome(statement, outcome) => {
                    self.outcomes.insert(*statement, outcome.clone());
                }
                Remembered::Committed => self.committed = true,
            }
        }
    }

    fn insert(&mut self, statement: i32) {
        if let Some((_, last)) = self.inserts.range_mut(..=statement).next_back()
            && i64::from(*last) + 1 >= i64::from(statement)
        {
            *last = (*last).max(statement);
            return;
        }
        self.inserts.insert(statement, statement);
    }

    fn write(&self, lsid: &DocBuf) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append_bson("_id", lsid);
        out.append("txnNum", self.number);
        out.append("lastWriteDate", DateTime::now());
        if self.committed {
            out.append("state", "committed");
        }
        out.begin_array("inserts");
        for (first, last) in &self.inserts {
            out.push_begin_document();
            out.append("first", *first);
            out.append("last", *last);
            out.end();
        }
        out.end();
        out.begin_array("outcomes");
        for (statement, outcome) in &self.outcomes {
            out.push_begin_document();
            out.append("stmtId", *statement);
            out.append_bson("did", outcome);
            out.end();
        }
        out.end();
        out.finish()
    }

    /// Takes up a stored row.
    /// Errors: `DataCorruptionDetected` when a field is missing or of another type.
    fn read(&mut self, doc: RawDoc<'_>) -> Result<()> {
        self.number = integer(doc, "txnNum").ok_or_else(|| unreadable(doc, "txnNum"))?;
        self.committed = match doc.get("state") {
            None => false,
            Some(RawValue::String("committed")) => true,
            Some(_) => return Err(unreadable(doc, "state")),
        };
        for range in documents(doc, "inserts")? {
            let (first, last) = (statement(range, "first"), statement(range, "last"));
            match (first, last) {
                (Some(first), Some(last)) if first <= last => self.inserts.insert(first, last),
                _ => return Err(unreadable(doc, "inserts")),
            };
        }
        for one in documents(doc, "outcomes")? {
            match (statement(one, "stmtId"), one.get("did")) {
                (Some(id), Some(RawValue::Document(did))) => {
                    self.outcomes.insert(id, did.to_buf());
                }
                _ => return Err(unreadable(doc, "outcomes")),
            }
        }
        let mut row = DocBuilder::new();
        for element in doc.iter().filter(|element| element.key() != "$recordId") {
            row.append(element.key(), element.value());
        }
        let id = integer(doc, "$recordId").ok_or_else(|| unreadable(doc, "$recordId"))?;
        self.stored = Some((RecordId::new(id), row.finish()));
        Ok(())
    }
}

fn integer(doc: RawDoc<'_>, name: &str) -> Option<i64> {
    doc.get(name)?.as_i64_exact()
}

fn statement(doc: RawDoc<'_>, name: &str) -> Option<i32> {
    i32::try_from(integer(doc, name)?).ok()
}

/// The elements of an array of documents.
fn documents<'r>(row: RawDoc<'r>, name: &str) -> Result<Vec<RawDoc<'r>>> {
    let array = row.get(name).and_then(|value| value.as_array());
    let elements = array.ok_or_else(|| unreadable(row, name))?.iter();
    elements
        .map(|element| element.as_document().ok_or_else(|| unreadable(row, name)))
        .collect()
}

#[cold]
fn unreadable(row: RawDoc<'_>, field: &str) -> Error {
    let id = row.get("_id").map_or_else(String::new, |id| id.to_string());
    Error::new(
        ErrorCode::DATA_CORRUPTION_DETECTED,
        format!("the row of session {id} cannot be read: field '{field}'"),
    )
}

impl Db {
    /// Forgets the sessions that have written nothing since: how many. A session that is not gone writes its row
    /// anew with its next write.
    /// Errors: `Interrupted`, the engine's.
    pub fn forget_sessions(
        self: &Arc<Self>,
        op: &StatementContext,
        since: DateTime,
    ) -> Result<u64> {
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        if self.catalog().collection(&ns).is_none() {
            return Ok(0);
        }
        let mut filter = DocBuilder::new();
        filter.begin_document("lastWriteDate");
        filter.append("$lt", since);
        filter.end();
        let filter = filter.finish();
        let statement = DeleteStatement {
            spec: sheaf_query::canonical::FindSpec {
                filter: Some(filter.as_raw()),
                ..Default::default()
            },
            multi: true,
            return_document: Default::default(),
            projection: None,
        };
        let mut report = DeleteReport::default();
        let options = QueryOptions::default();
        modify::delete(self, op, &ns, &statement, &options, &mut report)?;
        Ok(report.result.deleted)
    }
}

impl WriteUnit {
    /// Has the unit remember, when it commits, what the document at `at` of its statement's documents did.
    pub(crate) fn remember_insert(&mut self, op: &StatementContext, at: usize) {
        if let Some(insert) = op.session_row().and_then(|row| row.remembered_insert(at)) {
            self.remembered.push(insert);
        }
    }

    /// Has the unit remember, when it commits, what its statement did.
    pub(crate) fn remember_outcome(
        &mut self,
        op: &StatementContext,
        outcome: impl FnOnce() -> DocBuf,
    ) {
        if let Some(statement) = op.session_row().and_then(|row| row.current(0)) {
            self.remembered
                .push(Remembered::Outcome(statement, outcome()));
        }
    }

    /// Puts what the unit has to remember into its session's row. What is given back is told to the session
    /// after the commit.
    pub(crate) fn put_session_row(&mut self, op: &StatementContext) -> Result<Option<RowWritten>> {
        let remembered = std::mem::take(&mut self.remembered);
        let Some(row) = op.session_row().filter(|_| !remembered.is_empty()) else {
            return Ok(None);
        };
        let ns = Namespace::parse(TRANSACTIONS_NAMESPACE)?;
        let Some(slot) = self.open(op, &ns, None)? else {
            return Err(Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("{TRANSACTIONS_NAMESPACE} was dropped while a session was writing"),
            ));
        };
        let (doc, stored) = row.row_with(&remembered);
        // The row is none of the documents that the statement counts.
        let stats = self.stats;
        let id = match stored {
            Some((id, old)) if self.document(slot, &id)?.is_some() => {
                let unchanged = |_: &FieldPath| false;
                let modified = Modified::Paths(&unchanged);
                // No base: the row is not locked.
                let new = doc.as_bytes().to_vec().into();
                self.update(op, slot, &id, old.as_raw(), None, &new, modified)?;
                id
            }
            _ => self.insert(op, slot, doc.as_raw())?,
        };
        self.stats = stats;
        Ok(Some(RowWritten {
            row: row.clone(),
            remembered,
            stored: (id, doc),
        }))
    }
}

/// A session's row, in a unit that is about to commit.
pub(crate) struct RowWritten {
    row: Arc<SessionRow>,
    remembered: Vec<Remembered>,
    stored: (RecordId, DocBuf),
}

impl RowWritten {
    /// The unit has committed.
    pub(crate) fn committed(self) {
        self.row.committed(&self.remembered, self.stored);
    }
}

/// What an update of one document did.
pub(crate) fn update_outcome(modified: bool, returned: Option<&DocBuf>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("n", 1);
    out.append("nModified", i32::from(modified));
    if let Some(returned) = returned {
        out.append_bson("value", returned);
    }
    out.finish()
}

/// What an upsert that inserted did.
pub(crate) fn upsert_outcome(id: &Value, returned: Option<&DocBuf>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("n", 1);
    out.append("nModified", 0);
    out.append_value("upserted", id);
    if let Some(returned) = returned {
        out.append_bson("value", returned);
    }
    out.finish()
}

impl fmt::Debug for SessionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRow")
            .field("lsid", &self.lsid)
            .finish_non_exhaustive()
    }
}
