//! The results of the ops of a bulkWrite: a document for each, and the totals.

use sheaf_bson::{DocBuf, DocBuilder, Error, Value};

use super::parse::Op;

/// Once error documents exceed this size, further ones have no message.
const ERRORS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Results so far, in the order of the ops.
pub struct Results {
    documents: Vec<DocBuf>,
    errors_only: bool,
    errors_bytes: usize,
    /// Ops that failed.
    pub errors: u64,
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
}

impl Results {
    /// Empty results. With `errors_only` a successful op has no document.
    pub fn new(errors_only: bool) -> Results {
        Results {
            documents: Vec::new(),
            errors_only,
            errors_bytes: 0,
            errors: 0,
            inserted: 0,
            matched: 0,
            modified: 0,
            upserted: 0,
            deleted: 0,
        }
    }

    /// Records that the insert at index `place` stored its document.
    pub fn inserted(&mut self, place: usize) {
        self.inserted += 1;
        self.succeeded(place, |out| {
            out.append("n", 1);
        });
    }

    /// Records the update at index `place`: the numbers of documents matched and modified, or the
    /// `_id` of the document that an upsert inserted.
    pub fn updated(&mut self, place: usize, matched: u64, modified: u64, upserted: Option<&Value>) {
        self.modified += modified;
        match upserted {
            Some(_) => self.upserted += 1,
            None => self.matched += matched,
        }
        self.succeeded(place, |out| {
            let n = if upserted.is_some() { 1 } else { matched };
            out.append("n", n as i32);
            out.append("nModified", modified as i32);
            if let Some(id) = upserted {
                out.begin_document("upserted");
                out.append_value("_id", id);
                out.end();
            }
        });
    }

    /// Records that the delete at index `place` removed `n` documents.
    pub fn deleted(&mut self, place: usize, n: u64) {
        self.deleted += n;
        self.succeeded(place, |out| {
            out.append("n", n as i32);
        });
    }

    fn succeeded(&mut self, place: usize, details: impl FnOnce(&mut DocBuilder)) {
        if self.errors_only {
            return;
        }
        let mut out = DocBuilder::new();
        out.append("ok", 1.0);
        out.append("idx", place as i32);
        details(&mut out);
        self.documents.push(out.finish());
    }

    /// Records that the op at index `place` failed. What it did before it failed is not counted.
    pub fn failed(&mut self, place: usize, op: &Op<'_>, error: &Error) {
        self.errors += 1;
        let mut out = DocBuilder::new();
        out.append("ok", 0.0);
        out.append("idx", place as i32);
        out.append("code", error.code().0);
        let room = self.errors_bytes < ERRORS_BYTES_MAX;
        if room && let Some(extra) = error.extra() {
            out.extend(extra.as_raw());
        }
        out.append("errmsg", if room { error.message() } else { "" });
        out.append("n", 0);
        if let Op::Update(_) = op {
            out.append("nModified", 0);
        }
        let doc = out.finish();
        self.errors_bytes += doc.as_bytes().len();
        self.documents.push(doc);
    }

    /// The totals, with their names in the reply.
    pub fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("nErrors", self.errors),
            ("nInserted", self.inserted),
            ("nMatched", self.matched),
            ("nModified", self.modified),
            ("nUpserted", self.upserted),
            ("nDeleted", self.deleted),
        ]
    }

    /// The documents of the cursor.
    pub fn into_documents(self) -> Vec<DocBuf> {
        self.documents
    }
}
