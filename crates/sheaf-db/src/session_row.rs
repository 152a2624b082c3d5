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

use parking_lot::Mutex;
use sheaf_bson::{
    DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, RecordId, Result, Value,
};

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
    /// The row of a session as it is stored; `None` if it has none.
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

    pub(crate) fn remembered_insert(&self, at: usize) -> Option<Remembered> {
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
