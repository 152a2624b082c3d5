//! Retryable writes: the outcome of a statement is stored with its changes, so that a retry changes
//! nothing.
//!
//! ```text
//!   insert, txnNumber 7, stmtId 0..3 ── unit of work ─┬─ documents, index keys
//!                                                     └─ config.transactions {_id: lsid, txnNum: 7, statements}
//!   (the reply is lost)
//!   insert, txnNumber 7, stmtId 0..3 ── stored outcome ──> the same reply, nothing written
//! ```
//!
//! The unit that writes the documents also writes the row: after a crash both exist, or neither.
//! The outcome of a statement that changed nothing is not stored: a retry runs later, as if the
//! first attempt had never arrived.
//!
//! Invariant: one statement at a time writes a session's row; the session ensures it.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;
use sheaf_bson::{
    DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, RecordId, Result, Value,
};

/// The stored outcomes of one session that writes with transaction numbers.
pub struct SessionRow {
    lsid: DocBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    number: i64,
    /// Whether the transaction with this number was committed.
    committed: bool,
    /// Statements that did nothing but insert one document, as ranges: first to last.
    inserts: BTreeMap<i32, i32>,
    /// Outcomes of all other statements.
    outcomes: BTreeMap<i32, DocBuf>,
    /// The row as stored.
    stored: Option<(RecordId, DocBuf)>,
    /// Outcome of the current upsert, should it insert.
    upserting: Option<DocBuf>,
    /// Ids of the current statements; the first belongs to the document at 0, or to the only
    /// statement.
    current: Vec<i32>,
}

/// What a unit of work must record in the row when it commits.
#[derive(Debug, Clone)]
pub(crate) enum Remembered {
    /// A document was inserted by this statement.
    Insert(i32),
    /// Outcome of a statement.
    Outcome(i32, DocBuf),
    /// The transaction was committed.
    Committed,
}

impl SessionRow {
    /// Parses the stored row of a session; `None` for a session without one.
    /// Errors: `DataCorruptionDetected` for a row that cannot be read.
    pub(crate) fn read(lsid: RawDoc<'_>, stored: Option<RawDoc<'_>>) -> Result<SessionRow> {
        let mut state = State {
            number: -1,
            ..State::default()
        };
        if let Some(stored) = stored {
            state.read(stored)?;
        }
        Ok(SessionRow {
            lsid: lsid.to_buf(),
            state: Mutex::new(state),
        })
    }

    /// The newest transaction number, or -1.
    pub fn number(&self) -> i64 {
        self.state.lock().number
    }

    /// Whether the transaction with the newest number was committed.
    pub fn is_committed(&self) -> bool {
        self.state.lock().committed
    }

    /// Starts a newer number. The first write with it discards the outcomes of older numbers.
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

    /// The outcome of a statement that was already executed: `{n: 1}` and further fields.
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

    /// Sets the statement ids of the writes that follow.
    pub fn set_current(&self, statements: Vec<i32>) {
        self.state.lock().current = statements;
    }

    /// Sets the outcome of the insert that follows as part of an upsert.
    pub(crate) fn set_upserting(&self, outcome: Option<DocBuf>) {
        self.state.lock().upserting = outcome;
    }

    pub(crate) fn remembered_insert(&self, at: usize) -> Option<Remembered> {
        let state = self.state.lock();
        let statement = *state.current.get(at)?;
        Some(match &state.upserting {
            Some(outcome) => Remembered::Outcome(statement, outcome.clone()),
            None => Remembered::Insert(statement),
        })
    }

    /// Statement id of the document at this position.
    pub(crate) fn current(&self, at: usize) -> Option<i32> {
        self.state.lock().current.get(at).copied()
    }

    /// The row with what a unit is about to commit, and the row as currently stored.
    pub(crate) fn row_with(
        &self,
        remembered: &[Remembered],
    ) -> (DocBuf, Option<(RecordId, DocBuf)>) {
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

    pub(crate) fn committed(&self, remembered: &[Remembered], stored: (RecordId, DocBuf)) {
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

    /// Loads a stored row.
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

/// Outcome of an update of one document.
pub(crate) fn update_outcome(modified: bool, returned: Option<&DocBuf>) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("n", 1);
    out.append("nModified", i32::from(modified));
    if let Some(returned) = returned {
        out.append_bson("value", returned);
    }
    out.finish()
}

/// Outcome of an upsert that inserted a document.
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
