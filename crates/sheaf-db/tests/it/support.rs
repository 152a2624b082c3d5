//! A database to test, on either engine, and helpers for what tests do to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, RecordId, Result};
use sheaf_db::collection::Collection;
use sheaf_db::index::definition::{IndexSpec, default_index_name};
use sheaf_db::record_key::record_id_of;
use sheaf_db::validate::{ValidateReport, validate};
use sheaf_db::write::delete::{DeleteResult, DocumentDelete};
use sheaf_db::write::update::{Applied, DocumentUpdate, ModifiedBy, UpdateResult};
use sheaf_db::write::{MatchedRecord, RecordSource};
use sheaf_db::{Db, DbOptions, Events, Namespace, OpContext, StatementContext};
use sheaf_storage::StorageEngine;
use sheaf_storage::registry::{self, Location};
use sheaf_storage::testing::checked::CheckedEngine;

/// The engines that every test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    Memory,
    Redb,
    Sheaf,
}

pub const ENGINES: [EngineKind; 3] = [EngineKind::Memory, EngineKind::Redb, EngineKind::Sheaf];

/// Runs a test on every engine, wrapped so that its contract is checked.
pub fn on_every_engine(test: impl Fn(TestDb)) {
    for kind in ENGINES {
        test(TestDb::new(kind, Events::default()));
    }
}

/// A database, its engine and its folder.
pub struct TestDb {
    pub db: Arc<Db>,
    pub kind: EngineKind,
    pub op: StatementContext,
    engine: Arc<CheckedEngine>,
    dir: tempfile::TempDir,
}

impl TestDb {
    pub fn new(kind: EngineKind, events: Events) -> TestDb {
        let dir = tempfile::tempdir().unwrap();
        let engine = open_engine(kind, dir.path());
        let db = Db::open(engine.clone(), options(dir.path().join("_tmp"), events)).unwrap();
        TestDb {
            db,
            kind,
            op: StatementContext::new(),
            engine,
            dir,
        }
    }

    /// Closes the database (the memory engine stays as it is) and opens it again.
    pub fn reopen(&mut self) {
        if self.kind != EngineKind::Memory {
            self.db.close().unwrap();
            self.engine = open_engine(self.kind, self.dir.path());
        }
        self.reopen_after_crash(Events::default());
    }

    /// Opens the engine's current content as if the server had died: the old database is dropped
    /// without a close.
    pub fn reopen_after_crash(&mut self, events: Events) {
        let options = options(self.dir.path().join("_tmp"), events);
        self.db = Db::open(self.engine.clone(), options).unwrap();
    }

    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub fn engine(&self) -> Arc<dyn StorageEngine> {
        self.engine.clone()
    }

    /// Asserts that no storage cursor holds anything but its position.
    pub fn assert_all_suspended(&self) {
        assert_eq!(
            self.engine.active_cursors(),
            0,
            "cursors that are not suspended"
        );
    }

    pub fn collection(&self, name: &str) -> Arc<Collection> {
        match self.db.catalog().collection(&ns(name)) {
            Some(collection) => collection.clone(),
            None => panic!("no collection {name}"),
        }
    }

    /// Inserts one document; the code of the error if it is refused.
    pub fn insert(&self, name: &str, doc: DocBuf) -> Result<()> {
        let inserted = self.db.insert_one(&self.op, &ns(name), doc.as_raw());
        inserted.map(|_| ())
    }

    pub fn insert_all(&self, name: &str, docs: &[DocBuf]) {
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        let result = self.db.insert(&self.op, &ns(name), &docs, true).unwrap();
        assert_eq!(result.inserted as usize, docs.len(), "{:?}", result.errors);
    }

    /// All documents, in order of insertion.
    pub fn documents(&self, name: &str) -> Vec<DocBuf> {
        let mut found = Vec::new();
        scan(&self.db, &ns(name), |_, doc| found.push(doc.to_buf()));
        found
    }

    pub fn records(&self, name: &str) -> Vec<(RecordId, DocBuf)> {
        let mut found = Vec::new();
        scan(&self.db, &ns(name), |id, doc| {
            found.push((id, doc.to_buf()))
        });
        found
    }

    /// Updates the matching documents, and returns the result and its cost.
    pub fn update(
        &self,
        name: &str,
        matches: impl Fn(RawDoc<'_>) -> bool,
        change: impl Fn(RawDoc<'_>) -> DocBuf,
        multi: bool,
    ) -> (UpdateResult, Result<()>) {
        let mut update = Change {
            matches: &matches,
            change: &change,
        };
        let mut result = UpdateResult::default();
        let collection = self.collection(name);
        let mut source = source(&self.db, &ns(name), &matches);
        let done = self.db.update_records(
            &self.op,
            &collection,
            &mut source,
            &mut update,
            multi,
            &mut result,
        );
        (result, done)
    }

    pub fn delete(
        &self,
        name: &str,
        matches: impl Fn(RawDoc<'_>) -> bool,
        multi: bool,
    ) -> DeleteResult {
        let mut delete = Remove { matches: &matches };
        let mut result = DeleteResult::default();
        let collection = self.collection(name);
        let mut source = source(&self.db, &ns(name), &matches);
        self.db
            .delete_records(
                &self.op,
                &collection,
                &mut source,
                &mut delete,
                multi,
                &mut result,
            )
            .unwrap();
        result
    }

    pub fn create_index(&self, name: &str, key: DocBuf, options: DocBuf) -> Result<()> {
        let spec = index_spec(key, options);
        let created = self.db.create_indexes(&self.op, &ns(name), &[spec]);
        created.map(|_| ())
    }

    pub fn validate(&self, name: &str) -> ValidateReport {
        let view = self.db.read_view(&ns(name)).unwrap();
        validate(&self.op, &view).unwrap()
    }

    /// Checks that every index equals one rebuilt from the documents.
    pub fn assert_valid(&self, name: &str) {
        let report = self.validate(name);
        assert!(report.is_valid(), "{report:#?}");
        let size = self.db.collection_size(&ns(name)).unwrap();
        let documents = self.documents(name);
        assert_eq!(size.count as usize, documents.len());
        let bytes: usize = documents.iter().map(DocBuf::len_bytes).sum();
        assert_eq!(size.data_bytes as usize, bytes);
    }

    /// The keys of an index in its order, decoded.
    pub fn keys(&self, name: &str, index: &str) -> Vec<String> {
        let view = self.db.read_view(&ns(name)).unwrap();
        let collection = view.collection.clone().unwrap();
        let index = collection.index_by_name(index).unwrap();
        let mut cursor = view.snapshot.cursor(index.table()).unwrap();
        let mut found = Vec::new();
        let mut on = cursor.seek_first().unwrap();
        while on {
            let (_, key_len) = sheaf_bson::keystring::decode_record_id(cursor.key()).unwrap();
            let values = index
                .encoder()
                .decode(&cursor.key()[..key_len], cursor.value())
                .unwrap();
            found.push(values.to_string());
            on = cursor.next().unwrap();
        }
        found
    }
}

pub fn open_engine(kind: EngineKind, folder: &Path) -> Arc<CheckedEngine> {
    let in_folder = |engine| Location::Folder {
        path: folder.into(),
        engine,
    };
    let location = match kind {
        EngineKind::Memory => Location::Memory,
        EngineKind::Redb => in_folder(registry::EngineKind::Redb),
        EngineKind::Sheaf => in_folder(registry::EngineKind::LogTree),
    };
    // Small, so that generations fill and are written to the tree.
    let options = registry::Options {
        cache_bytes: 8 << 20,
        write_buffer_bytes: Some(256 << 10),
        reserve_bytes: 0,
        ..registry::Options::default()
    };
    let engine = registry::open(&location, options).unwrap();
    Arc::new(CheckedEngine::new(engine))
}

fn options(temp_dir: PathBuf, events: Events) -> DbOptions {
    DbOptions {
        temp_dir: Some(temp_dir),
        events,
        ..DbOptions::default()
    }
}

pub fn ns(collection: &str) -> Namespace {
    Namespace::new("test", collection).unwrap()
}

pub fn index_spec(key: DocBuf, options: DocBuf) -> IndexSpec {
    let mut spec = DocBuilder::from_doc(options.as_raw());
    spec.append("key", RawValue::Document(key.as_raw()));
    if options.get("name").is_none() {
        spec.append("name", default_index_name(key.as_raw()).as_str());
    }
    IndexSpec::parse(spec.finish().as_raw()).unwrap()
}

fn scan(db: &Db, ns: &Namespace, mut each: impl FnMut(RecordId, RawDoc<'_>)) {
    let view = db.read_view(ns).unwrap();
    let Some(collection) = &view.collection else {
        return;
    };
    let mut cursor = view.snapshot.cursor(collection.table()).unwrap();
    let mut on = cursor.seek_first().unwrap();
    while on {
        let id = record_id_of(cursor.key()).unwrap();
        each(id, RawDoc::parse(cursor.value()).unwrap());
        on = cursor.next().unwrap();
    }
}

/// The simplest plan: a collection scan on a new snapshot.
pub fn source(
    db: &Db,
    ns: &Namespace,
    matches: &dyn Fn(RawDoc<'_>) -> bool,
) -> impl RecordSource + use<> {
    let mut found = Vec::new();
    scan(db, ns, |id, doc| {
        if matches(doc) {
            found.push(MatchedRecord {
                id,
                document: doc.as_bytes().to_vec().into(),
            });
        }
    });
    let mut found = found.into_iter();
    move |_: &OpContext| Ok(found.next())
}

/// An update made of two functions. It does not report to the write path what it changes.
pub struct Change<'a> {
    pub matches: &'a dyn Fn(RawDoc<'_>) -> bool,
    pub change: &'a dyn Fn(RawDoc<'_>) -> DocBuf,
}

impl DocumentUpdate for Change<'_> {
    fn apply(&mut self, doc: RawDoc<'_>, recheck: bool) -> Result<Applied> {
        if recheck && !(self.matches)(doc) {
            return Ok(Applied::NoMatch);
        }
        let document = (self.change)(doc);
        if document.as_bytes() == doc.as_bytes() {
            return Ok(Applied::Unchanged);
        }
        Ok(Applied::Changed {
            document: document.into_vec().into(),
            modified: ModifiedBy::Everything,
        })
    }
}

pub struct Remove<'a> {
    pub matches: &'a dyn Fn(RawDoc<'_>) -> bool,
}

impl DocumentDelete for Remove<'_> {
    fn still_matches(&mut self, doc: RawDoc<'_>) -> Result<bool> {
        Ok((self.matches)(doc))
    }
}

/// The document with one field set (added at the end when it is missing).
pub fn with_field<'v>(doc: RawDoc<'_>, name: &str, value: impl Into<RawValue<'v>>) -> DocBuf {
    let value = value.into();
    let mut out = DocBuilder::new();
    let mut set = false;
    for element in doc {
        if element.key() == name {
            out.append(name, value);
            set = true;
        } else {
            out.append_raw_element(element);
        }
    }
    if !set {
        out.append(name, value);
    }
    out.finish()
}

pub fn code(result: Result<impl std::fmt::Debug>) -> i32 {
    match result {
        Ok(value) => panic!("no error: {value:?}"),
        Err(error) => error.code().0,
    }
}
