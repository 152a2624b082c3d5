//! The profiler: which operations are slow, and `system.profile`.
//!
//! Settings are per database; a database without its own uses the server's (`--profile`,
//! `--slowms`). `system.profile` is a capped collection of one megabyte; to keep more, drop it and
//! create a larger one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::system_names::PROFILE;
use sheaf_db::{CollectionOptions, Db, Namespace, OpContext, StatementContext};
use sheaf_query::matcher::{self, MatchExpression};

use super::entry;
use super::finished::Finished;
use crate::command_facts::Kind;

/// Size of `system.profile`, unless a user created it with another one.
const PROFILE_BYTES: u64 = 1024 * 1024;
/// Time limit for writing an entry, after which it is lost.
const WRITE_LIMIT: Duration = Duration::from_secs(1);

/// What is logged and what is profiled.
#[derive(Debug, Clone)]
pub struct ProfileSettings {
    /// 0 nothing, 1 slow operations, 2 everything.
    pub level: u8,
    /// Milliseconds from which an operation is slow.
    pub slow_ms: i64,
    /// Share of slow operations that is logged and profiled.
    pub sample_rate: f64,
    /// Log and (at level 1) profile the operations that match, regardless of their duration.
    pub filter: Option<Arc<ProfileFilter>>,
}

/// A condition on the documents of `system.profile`.
#[derive(Debug)]
pub struct ProfileFilter {
    filter: DocBuf,
    expression: MatchExpression,
}

impl ProfileFilter {
    /// Errors: the filter is not a query.
    pub fn parse(filter: RawDoc<'_>) -> Result<Arc<ProfileFilter>, Error> {
        Ok(Arc::new(ProfileFilter {
            filter: normalized(filter),
            expression: matcher::parse(filter, &matcher::ParseContext::default())?,
        }))
    }

    /// The filter as given.
    pub fn as_doc(&self) -> &DocBuf {
        &self.filter
    }

    /// An expression that fails does not match.
    fn matches(&self, entry: &DocBuf) -> bool {
        self.expression.matches(entry.as_raw()).unwrap_or(false)
    }
}

/// The filter as replies show it: an equality in full, as in MongoDB.
fn normalized(filter: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in filter.iter() {
        let is_plain = !element.key().starts_with('$')
            && !matches!(
                element.value(),
                RawValue::Document(_) | RawValue::Regex { .. }
            );
        match is_plain {
            true => {
                out.begin_document(element.key());
                out.append("$eq", element.value()).end();
            }
            false => {
                out.append_raw_element(element);
            }
        }
    }
    out.finish()
}

impl ProfileSettings {
    /// Whether an operation of this duration is logged. `entry` builds its profile document, which
    /// the filter matches.
    pub fn logs(&self, elapsed: Duration, entry: impl FnOnce() -> DocBuf) -> bool {
        if let Some(filter) = &self.filter {
            return filter.matches(&entry());
        }
        // An operation of exactly `slow_ms` is slow; with a negative limit every operation is.
        let slow =
            i128::try_from(elapsed.as_millis()).unwrap_or(i128::MAX) >= i128::from(self.slow_ms);
        slow && self.sampled()
    }

    /// Whether the operation is written to `system.profile`.
    pub fn profiles(&self, elapsed: Duration, entry: impl FnOnce() -> DocBuf) -> bool {
        match self.level {
            0 => false,
            1 => self.logs(elapsed, entry),
            _ => true,
        }
    }

    fn sampled(&self) -> bool {
        if self.sample_rate >= 1.0 {
            return true;
        }
        // The low bits of the clock are random enough for a sample.
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.subsec_nanos());
        f64::from(nanos.wrapping_mul(2_654_435_761) >> 8) / f64::from(1u32 << 24) < self.sample_rate
    }
}

/// Settings of all databases, and the writer of `system.profile`.
pub struct Profiler {
    default: RwLock<ProfileSettings>,
    databases: RwLock<HashMap<String, ProfileSettings>>,
}

impl Profiler {
    /// A profiler with the server's settings.
    pub fn new(default: ProfileSettings) -> Self {
        Profiler {
            default: RwLock::new(default),
            databases: RwLock::default(),
        }
    }

    /// The settings in effect for a database.
    pub fn settings(&self, db: &str) -> ProfileSettings {
        if let Some(settings) = self.databases.read().get(db) {
            return settings.clone();
        }
        self.default.read().clone()
    }

    /// The filter of databases without one of their own.
    pub fn default_filter(&self) -> Option<Arc<ProfileFilter>> {
        self.default.read().filter.clone()
    }

    /// Whether operations on this database may be profiled.
    pub fn is_on(&self, db: &str) -> bool {
        match self.databases.read().get(db) {
            Some(settings) => settings.level > 0,
            None => self.default.read().level > 0,
        }
    }

    /// Changes a database's level and filter, and, as in MongoDB, `slow_ms` and `sample_rate` of
    /// all databases.
    pub fn set(&self, db: &str, settings: ProfileSettings) {
        {
            let mut default = self.default.write();
            default.slow_ms = settings.slow_ms;
            default.sample_rate = settings.sample_rate;
        }
        let mut databases = self.databases.write();
        for other in databases.values_mut() {
            other.slow_ms = settings.slow_ms;
            other.sample_rate = settings.sample_rate;
        }
        databases.insert(db.to_owned(), settings);
    }

    /// Checks that `system.profile` can be dropped.
    /// Errors: `IllegalOperation` while the profiler writes to it.
    pub fn check_droppable(&self, db: &str) -> Result<(), Error> {
        if self.settings(db).level == 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "turn off profiling before dropping system.profile collection",
        ))
    }

    /// Writes a finished command to `system.profile` of the databases concerned. An entry that
    /// cannot be written is lost: profiling never fails an operation.
    pub(super) fn record(&self, finished: &Finished<'_>, own: &ProfileSettings) {
        let writes = &finished.report.writes;
        if writes.is_empty() {
            let entry = || entry::profile_entry(finished, None);
            if own.profiles(finished.elapsed, entry) {
                self.write(finished, finished.db, &[entry()]);
            }
            return;
        }
        let mut entries: Vec<(&str, DocBuf)> = Vec::new();
        for write in writes {
            let db = write.namespace.as_ref().map_or(finished.db, |ns| ns.db());
            let other = (db != finished.db).then(|| self.settings(db));
            let settings = other.as_ref().unwrap_or(own);
            let entry = || entry::profile_entry(finished, Some(write));
            if settings.profiles(write.elapsed, entry) {
                entries.push((db, entry()));
            }
        }
        while let Some(&(db, _)) = entries.first() {
            let (of_db, rest): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|(other, _)| *other == db);
            let docs: Vec<DocBuf> = of_db.into_iter().map(|(_, doc)| doc).collect();
            self.write(finished, db, &docs);
            entries = rest;
        }
    }

    fn write(&self, finished: &Finished<'_>, db_name: &str, docs: &[DocBuf]) {
        let Ok(namespace) = Namespace::new(db_name, PROFILE) else {
            return;
        };
        // A write to it would record itself without end.
        let is_own = finished.report.namespace.as_ref() == Some(&namespace);
        if is_own && finished.command.kind != Kind::Read {
            return;
        }
        let db = finished.database;
        let op = StatementContext::from(OpContext::new().with_max_time(WRITE_LIMIT));
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        // After a failure these entries are lost; the next ones try again.
        if ensure(db, &op, &namespace).is_ok() {
            let _ = db.insert(&op, &namespace, &docs, true);
        }
    }
}

/// Creates `system.profile` unless it exists, perhaps with the size that a user chose.
pub fn ensure(db: &Db, op: &StatementContext, namespace: &Namespace) -> Result<(), Error> {
    if db.catalog().collection(namespace).is_some() {
        return Ok(());
    }
    let options = CollectionOptions::capped_at(PROFILE_BYTES);
    match db.create_collection(op, namespace, options) {
        Err(error) if error.code() != ErrorCode::NAMESPACE_EXISTS => Err(error),
        _ => Ok(()),
    }
}
