//! Entries of the oplog: changes as recorded by a unit of work, and as stored.
//!
//! ```text
//!   {op: "i", ns, ui, o: document, o2: {_id}, ts, t, v: 2, wall}
//!   {op: "u", ns, ui, o: {$v: 2, diff} or the new document, o2: {_id}, ...}
//!   {op: "d", ns, ui, o: {_id}, preImage, ...}       preImage: if the collection stores pre-images
//!   {op: "c", ns: "db.$cmd", ui, o: {create: ...}, ...}
//!   {op: "c", ns: "admin.$cmd", o: {applyOps: [...], partialTxn, count}, lsid, txnNumber, prevOpTime, ...}
//!   {op: "n", ns: "", o: {msg: ...}, ...}
//! ```
//!
//! The format is that of MongoDB's oplog. An entry's key is its time; entries of one unit have
//! consecutive times. A transaction is one entry, or several of at most 16 MB that `partialTxn`
//! distinguishes.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, RawDoc, RecordId};
use sheaf_query::update::diff;
use sheaf_storage::{StorageTransaction, TableId};

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;
use crate::catalog::views::ViewDefinition;
use crate::collection::Collection;
use crate::index::modified::Modified;
use crate::oplog::op_time::OpTime;
use crate::record_key::record_key;
use crate::system_names::VIEWS;

/// The field of a collMod's `o2` with the collection's options as they were.
pub(crate) const COLLECTION_OPTIONS_BEFORE: &str = "collectionOptions_old";
/// The field of a collMod's `o2` with the changed options of an index as they were.
pub(crate) const INDEX_OPTIONS_BEFORE: &str = "indexOptions_old";

/// Maximum size of a transaction's operations in one entry, in bytes.
const APPLY_OPS_BYTES_MAX: usize = 15 << 20;

/// Upper bound for the names, types and UUID of an operation in an entry, in bytes.
const APPLY_OPS_OVERHEAD_BYTES: usize = 128;

/// One change, as recorded by a unit of work.
#[derive(Debug, Clone)]
pub struct LoggedOp {
    op: char,
    ns: String,
    uuid: Option<Uuid>,
    o: DocBuf,
    o2: Option<DocBuf>,
    /// The document before the change, if the collection stores pre-images.
    pre_image: Option<DocBuf>,
}

/// The transaction or retryable write that made the changes.
#[derive(Debug, Clone)]
pub struct WriteOrigin {
    /// `lsid`, with the user's part.
    pub lsid: DocBuf,
    /// `txnNumber`.
    pub txn_number: i64,
}

impl LoggedOp {
    /// A new collection.
    pub(crate) fn collection_created(collection: &Collection) -> LoggedOp {
        let mut o = DocBuilder::new();
        o.append("create", collection.ns().collection());
        o.extend(collection.options().to_doc().as_raw());
        if let (None, Some(id_index)) = (collection.clustered(), collection.index_list().first()) {
            o.append_bson("idIndex", &id_index.spec().to_doc());
        }
        LoggedOp::command(
            collection.ns().db(),
            Some(collection.uuid()),
            o.finish(),
            None,
        )
    }

    /// An inserted document.
    pub fn insert(ns: &Namespace, uuid: Uuid, doc: RawDoc<'_>) -> LoggedOp {
        LoggedOp {
            op: 'i',
            ns: ns.as_str().to_owned(),
            uuid: Some(uuid),
            o: doc.to_buf(),
            o2: Some(document_key(doc)),
            pre_image: None,
        }
    }

    /// An updated or replaced document.
    pub fn update(
        ns: &Namespace,
        uuid: Uuid,
        old: RawDoc<'_>,
        new: RawDoc<'_>,
        modified: Modified<'_>,
    ) -> LoggedOp {
        let found = match modified {
            Modified::Everything => None,
            Modified::Operators(paths) => diff::diff_of_paths(old, new, paths),
            Modified::Pipeline(_) | Modified::Paths(_) => diff::diff(old, new),
        };
        let o = match found {
            Some(found) => {
                let mut o = DocBuilder::new();
                o.append("$v", 2);
                o.append_bson("diff", &found);
                o.finish()
            }
            None => new.to_buf(),
        };
        LoggedOp {
            op: 'u',
            ns: ns.as_str().to_owned(),
            uuid: Some(uuid),
            o,
            o2: Some(document_key(old)),
            pre_image: None,
        }
    }

    /// A deleted document.
    pub fn delete(ns: &Namespace, uuid: Uuid, old: RawDoc<'_>) -> LoggedOp {
        LoggedOp {
            op: 'd',
            ns: ns.as_str().to_owned(),
            uuid: Some(uuid),
            o: document_key(old),
            o2: None,
            pre_image: None,
        }
    }

    /// Stores the document before the change in the entry, if `keeps`.
    pub fn with_pre_image(mut self, old: RawDoc<'_>, keeps: bool) -> LoggedOp {
        self.pre_image = keeps.then(|| old.to_buf());
        self
    }

    /// A command that changed the catalog of a database.
    pub fn command(db: &str, uuid: Option<Uuid>, o: DocBuf, o2: Option<DocBuf>) -> LoggedOp {
        LoggedOp {
            op: 'c',
            ns: format!("{db}.$cmd"),
            uuid,
            o,
            o2,
            pre_image: None,
        }
    }

    /// A created or modified view: a write to `system.views`, as in MongoDB.
    pub(crate) fn put_view(view: &ViewDefinition, is_new: bool) -> LoggedOp {
        let o = view.to_doc();
        LoggedOp {
            op: if is_new { 'i' } else { 'u' },
            ns: format!("{}.{VIEWS}", view.ns().db()),
            uuid: None,
            o2: Some(document_key(o.as_raw())),
            o,
            pre_image: None,
        }
    }

    /// A dropped view.
    pub(crate) fn drop_view(ns: &Namespace) -> LoggedOp {
        let mut o = DocBuilder::new();
        o.append("_id", ns.as_str());
        LoggedOp {
            op: 'd',
            ns: format!("{}.{VIEWS}", ns.db()),
            uuid: None,
            o: o.finish(),
            o2: None,
            pre_image: None,
        }
    }

    /// Whether it concerns this server's local data, which is not replicated.
    pub(crate) fn is_local(&self) -> bool {
        self.ns.starts_with("local.")
    }

    /// Approximate size in bytes, in memory and in an entry; an upper bound for the entry.
    pub(crate) fn len_bytes(&self) -> usize {
        let doc = |doc: &Option<DocBuf>| doc.as_ref().map_or(0, |doc| doc.as_raw().len_bytes());
        self.o.as_raw().len_bytes()
            + doc(&self.o2)
            + doc(&self.pre_image)
            + self.ns.len()
            + APPLY_OPS_OVERHEAD_BYTES
    }

    /// A no-op entry.
    pub fn note(o: DocBuf) -> LoggedOp {
        LoggedOp {
            op: 'n',
            ns: String::new(),
            uuid: None,
            o,
            o2: None,
            pre_image: None,
        }
    }

    /// Appends the fields that operations of a transaction share with entries.
    fn append_to(&self, out: &mut DocBuilder) {
        out.append("op", self.op.encode_utf8(&mut [0; 4]) as &str);
        out.append("ns", self.ns.as_str());
        if let Some(uuid) = &self.uuid {
            out.append("ui", uuid.as_raw());
        }
        out.append_bson("o", &self.o);
        if let Some(o2) = &self.o2 {
            out.append_bson("o2", o2);
        }
        if let Some(image) = &self.pre_image {
            out.append_bson("preImage", image);
        }
    }
}

/// `{_id}` of a document.
pub fn document_key(doc: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    if let Some(id) = doc.get("_id") {
        out.append("_id", id);
    }
    out.finish()
}

/// Position, time and origin of the entries of one commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryWriter<'a> {
    /// The oplog's table.
    pub(crate) table: TableId,
    /// Position of the first entry; the others follow consecutively.
    pub(crate) first: OpTime,
    /// `wall`: the machine's clock at the commit.
    pub(crate) wall: DateTime,
    /// The transaction or retryable write, if the changes belong to one.
    pub(crate) origin: Option<&'a WriteOrigin>,
}

impl EntryWriter<'_> {
    /// Starts an entry with the fields that identify its origin.
    fn begin(&self) -> DocBuilder {
        let mut entry = DocBuilder::new();
        if let Some(origin) = self.origin {
            entry.append_bson("lsid", &origin.lsid);
            entry.append("txnNumber", origin.txn_number);
        }
        entry
    }

    fn append_times(&self, out: &mut DocBuilder, at: OpTime) {
        at.append_to(out);
        out.append("v", 2i64);
        out.append("wall", self.wall);
    }

    fn put(&self, unit: &mut StorageTransaction, at: OpTime, entry: DocBuf) {
        // Entry times are unique.
        let id = RecordId::new(at.ts.as_u64() as i64);
        unit.insert_new(self.table, &record_key(&id), entry.into_vec());
    }

    /// Adds an entry for each change to the unit.
    pub(crate) fn put_each(&self, unit: &mut StorageTransaction, ops: &[LoggedOp]) {
        for (n, op) in ops.iter().enumerate() {
            let at = self.first.plus(n as u64);
            let mut entry = self.begin();
            op.append_to(&mut entry);
            self.append_times(&mut entry, at);
            self.put(unit, at, entry.finish());
        }
    }

    /// Adds the entries of a transaction to its unit, each with at most `operations_max`
    /// operations.
    pub(crate) fn put_transaction(
        &self,
        unit: &mut StorageTransaction,
        ops: &[LoggedOp],
        operations_max: usize,
    ) {
        let pieces: Vec<&[LoggedOp]> = split(ops, operations_max).collect();
        let mut before = OpTime::NULL;
        for (n, piece) in pieces.iter().enumerate() {
            let at = self.first.plus(n as u64);
            let mut entry = self.begin();
            entry.append("op", "c");
            entry.append("ns", "admin.$cmd");
            entry.begin_document("o");
            entry.begin_array("applyOps");
            for op in *piece {
                entry.push_begin_document();
                op.append_to(&mut entry);
                entry.end();
            }
            entry.end();
            if n + 1 < pieces.len() {
                entry.append("partialTxn", true);
            } else if pieces.len() > 1 {
                entry.append("count", ops.len() as i64);
            }
            entry.end();
            self.append_times(&mut entry, at);
            entry.begin_document("prevOpTime");
            before.append_to(&mut entry);
            entry.end();
            self.put(unit, at, entry.finish());
            before = at;
        }
    }
}

/// Number of entries for a transaction with these operations.
pub(crate) fn entries_of_transaction(ops: &[LoggedOp], operations_max: usize) -> usize {
    split(ops, operations_max).count()
}

/// Splits operations into pieces that fit one entry each, of at most `operations_max`.
fn split(ops: &[LoggedOp], operations_max: usize) -> impl Iterator<Item = &[LoggedOp]> {
    let mut rest = ops;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fits = rest
            .iter()
            .take(operations_max)
            .take_while(|op| {
                bytes += op.len_bytes();
                bytes <= APPLY_OPS_BYTES_MAX
            })
            .count();
        let (piece, after) = rest.split_at(fits.max(1));
        rest = after;
        Some(piece)
    })
}
