//! Query settings: what `setQuerySettings` stores for the shape of a find, an aggregate or a
//! distinct.
//!
//! ```text
//!   command ──> any settings at all? ── no ──> nothing more: one atomic load
//!                    └── yes ──> hash of its shape ──> settings ─┬─ reject: refused
//!                                                                └─ index hints: QueryOptions
//! ```
//!
//! All settings are one document of `config.clusterParameters`, as in MongoDB, with a cache in
//! memory that every command reads.

mod parse;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::planning::QuerySettings;
use sheaf_db::planning::index_filters::FilteredIndex;
use sheaf_db::planning::query_settings::IndexHints;
use sheaf_db::timeseries::indexes::key_on_buckets;
use sheaf_db::{Db, Namespace, StatementContext};
use sheaf_query::query_shape;

use crate::log::{Component, Log, events};
use crate::repl::store_document;
use crate::stored::read_document;

pub use parse::{check, merged};

const NAMESPACE: &str = "config.clusterParameters";
const ID: &str = "querySettings";
const ENTRIES: &str = "settingsArray";

/// The settings of one shape.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The hash of the shape.
    pub hash: String,
    /// The settings.
    pub settings: Arc<QuerySettings>,
    /// A command of the shape, with `$db`.
    pub representative: DocBuf,
}

impl Entry {
    /// Appends the fields that the command and the stage `$querySettings` show.
    pub fn append(&self, out: &mut DocBuilder) {
        out.append("queryShapeHash", self.hash.as_str());
        out.append("settings", self.settings.shown.as_raw());
        out.append("representativeQuery", self.representative.as_raw());
    }

    /// The shape of the representative command.
    pub fn shape(&self) -> Option<DocBuf> {
        let representative = self.representative.as_raw();
        let db = representative.get("$db").and_then(|db| db.as_str())?;
        query_shape::of_command(representative, db)
    }

    fn read(doc: RawDoc<'_>) -> Result<Entry, Error> {
        let wrong = || Error::bad_value("a stored element of querySettings is malformed");
        let document = |name| doc.get(name).and_then(|value| value.as_document());
        let hash = doc.get("queryShapeHash").and_then(|hash| hash.as_str());
        let settings = document("settings").ok_or_else(wrong)?;
        Ok(Entry {
            hash: hash.ok_or_else(wrong)?.to_owned(),
            settings: Arc::new(parse::parsed(settings)?),
            representative: document("representativeQuery").ok_or_else(wrong)?.to_buf(),
        })
    }
}

type Entries = BTreeMap<String, Entry>;

/// The settings of all shapes.
#[derive(Debug)]
pub struct QuerySettingsTable {
    /// Number of entries. Almost always 0, and then a command computes no shape.
    count: AtomicUsize,
    /// By hash.
    entries: RwLock<Entries>,
    /// Held during a change.
    changing: Mutex<()>,
}

impl QuerySettingsTable {
    /// Reads the stored settings. Entries that this server did not write are skipped and logged.
    /// Errors: those of reading.
    pub fn read(db: &Db, log: &Log) -> Result<QuerySettingsTable, Error> {
        let mut entries = Entries::new();
        if let Some(stored) = read_document(db, NAMESPACE, ID)?
            && let Some(RawValue::Array(array)) = stored.get(ENTRIES)
        {
            for doc in array.iter().filter_map(|element| element.as_document()) {
                match Entry::read(doc) {
                    Ok(entry) => drop(entries.insert(entry.hash.clone(), entry)),
                    Err(error) => log.warning(
                        Component::Query,
                        events::QUERY_SETTINGS_MALFORMED,
                        "Stored query settings were ignored because they are malformed",
                        |attr| {
                            attr.append("error", error.message());
                        },
                    ),
                }
            }
        }
        Ok(QuerySettingsTable {
            count: AtomicUsize::new(entries.len()),
            entries: RwLock::new(entries),
            changing: Mutex::default(),
        })
    }

    /// The settings of a command on database `db`. Hot path: called by every find, aggregate and
    /// distinct.
    #[inline]
    pub fn of(&self, server_db: &Db, command: RawDoc<'_>, db: &str) -> Option<Arc<QuerySettings>> {
        match self.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.find(server_db, command, db),
        }
    }

    #[cold]
    fn find(&self, server_db: &Db, command: RawDoc<'_>, db: &str) -> Option<Arc<QuerySettings>> {
        let hash = query_shape::hash_of_command(command, db)?;
        let settings = self.entries.read().get(&hash)?.settings.clone();
        Some(on_buckets(server_db, settings))
    }

    /// The entry with this hash.
    pub fn get(&self, hash: &str) -> Option<Entry> {
        self.entries.read().get(hash).cloned()
    }

    /// All entries, ordered by hash.
    pub fn all(&self) -> Vec<Entry> {
        self.entries.read().values().cloned().collect()
    }

    /// Changes the entry with this hash to what `change` returns, stores all and waits until they
    /// are durable; `None` removes it.
    /// Errors: those of `change`; `BSONObjectTooLarge` if the settings exceed a document.
    pub fn change(
        &self,
        db: &Arc<Db>,
        op: &StatementContext,
        hash: &str,
        change: impl FnOnce(Option<&Entry>) -> Result<Option<Entry>, Error>,
    ) -> Result<Option<Entry>, Error> {
        let _one = self.changing.lock();
        let mut entries = self.entries.read().clone();
        let changed = change(entries.get(hash))?;
        let had = match &changed {
            Some(entry) => entries.insert(hash.to_owned(), entry.clone()),
            None => entries.remove(hash),
        };
        if had.is_some() || changed.is_some() {
            store(db, op, &entries)?;
            let mut current = self.entries.write();
            self.count.store(entries.len(), Ordering::Relaxed);
            *current = entries;
        }
        Ok(changed)
    }
}

fn store(db: &Arc<Db>, op: &StatementContext, entries: &Entries) -> Result<(), Error> {
    let mut doc = DocBuilder::new();
    doc.append("_id", ID);
    doc.append("clusterParameterTime", db.next_timestamp());
    doc.begin_array(ENTRIES);
    for entry in entries.values() {
        doc.push_begin_document();
        entry.append(&mut doc);
        doc.end();
    }
    doc.end();
    store_document(db, op, &Namespace::parse(NAMESPACE)?, &doc.finish())?;
    db.sync()
}

/// The settings as they apply to stored collections: hints for a time-series collection become
/// hints for its buckets.
fn on_buckets(db: &Db, settings: Arc<QuerySettings>) -> Arc<QuerySettings> {
    let catalog = db.catalog();
    let is_series = |hints: &IndexHints| catalog.timeseries(&hints.ns).is_some();
    if !settings.index_hints.iter().any(is_series) {
        return settings;
    }
    let mut settings = QuerySettings::clone(&settings);
    for hints in &mut settings.index_hints {
        let Some(series) = catalog.timeseries(&hints.ns) else {
            continue;
        };
        hints.ns = series.buckets.ns().clone();
        for index in &mut hints.indexes {
            if let FilteredIndex::KeyPattern(key) = index
                // No index has a key that cannot be one on buckets.
                && let Ok(stored) = key_on_buckets(key.as_raw(), &series.options)
            {
                *key = stored;
            }
        }
    }
    Arc::new(settings)
}

/// Refuses a command whose settings say so.
/// Errors: `QueryRejectedBySettings`.
pub fn admit(settings: Option<&QuerySettings>) -> Result<(), Error> {
    match settings.is_some_and(|settings| settings.rejects) {
        true => Err(Error::new(
            ErrorCode::QUERY_REJECTED_BY_SETTINGS,
            "Query rejected by admin query settings",
        )),
        false => Ok(()),
    }
}
