//! The profiler: which operations are slow, and `system.profile`.
//!
//! Settings are per database; a database without its own uses the server's
//! (`--profile`, `--slowms`). `system.profile` is a capped collection of a
//! megabyte; who wants to keep more drops it and makes a larger one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc};
use sheaf_db::{CollectionOptions, Db, Namespace, OpContext, StatementContext};
use sheaf_query::matcher::{self, MatchExpression};

use super::entry;
use super::finished::Finished;

/// What `system.profile` keeps, unless its user has made it otherwise.
const PROFILE_BYTES: u64 = 1024 * 1024;
/// How long the profiler waits for room to write before it gives up an entry.
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
    /// Log and (at level 1) profile what matches, however slow or fast it was.
    pub filter: Option<Arc<ProfileFilter>>,
}

/// A condition on the documents of `system.profile`.
#[derive(Debug)]
pub struct ProfileFilter {
    filter: DocBuf,
    expression: MatchExpression,
}

impl ProfileFilter {
    /// Errors: it is no query.
    pub fn parse(filter: RawDoc<'_>) -> Result<Arc<ProfileFilter>, Error> {
        Ok(Arc::new(ProfileFilter {
            filter: filter.to_buf(),
            expression: matcher::parse(filter, &matcher::ParseContext::default())?,
        }))
    }

    /// As it was given.
    pub fn as_doc(&self) -> &DocBuf {
        &self.filter
    }

    /// An error of an expression is no match.
    fn matches(&self, entry: &DocBuf) -> bool {
        self.expression.matches(entry.as_raw()).unwrap_or(false)
    }
}

impl ProfileSettings {
    /// Whether an operation of this length, of which this would be the entry, belongs in the log.
    pub fn logs(&self, elapsed: Duration, entry: impl FnOnce() -> DocBuf) -> bool {
        if let Some(filter) = &self.filter {
            return filter.matches(&entry());
        }
        // As long as slow_ms is the limit, not longer; below zero, everything is.
        let slow =
            i128::try_from(elapsed.as_millis()).unwrap_or(i128::MAX) >= i128::from(self.slow_ms);
        slow && self.sampled()
    }

    /// Whether it belongs in `system.profile`.
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
        // The low bits of the clock are chance enough for a sample.
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

    /// The settings in force for a database.
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

    /// Whether anything of a database may come to be profiled.
    pub fn is_on(&self, db: &str) -> bool {
        match self.databases.read().get(db) {
            Some(settings) => settings.level > 0,
            None => self.default.read().level > 0,
        }
    }

    /// Changes a database's level and filter, and the limits of all (as MongoDB does).
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

    /// `system.profile` is not dropped while it is written.
    pub fn check_droppable(&self, db: &str) -> Result<(), Error> {
        if self.settings(db).level == 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "turn off profiling before dropping system.profile collection",
        ))
    }

    /// Writes what has ended into `system.profile` of the databases concerned. An entry that cannot be
    /// written is lost: profiling never fails an operation.
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
        let Ok(namespace) = Namespace::new(db_name, "system.profile") else {
            return;
        };
        if finished.report.namespace.as_ref() == Some(&namespace) {
            return;
        }
        let db = finished.database;
        let op = StatementContext::from(OpContext::new().with_max_time(WRITE_LIMIT));
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        // What cannot be made or written now is made or written the next time.
        if ensure(db, &op, &namespace).is_ok() {
            let _ = db.insert(&op, &namespace, &docs, true);
        }
    }
}

/// Makes `system.profile`, unless it is there, as large as its user likes it.
fn ensure(db: &Db, op: &StatementContext, namespace: &Namespace) -> Result<(), Error> {
    if db.catalog().collection(namespace).is_some() {
        return Ok(());
    }
    let options = CollectionOptions::capped_at(PROFILE_BYTES);
    match db.create_collection(op, namespace, options) {
        Err(error) if error.code() != ErrorCode::NAMESPACE_EXISTS => Err(error),
        _ => Ok(()),
    }
}
