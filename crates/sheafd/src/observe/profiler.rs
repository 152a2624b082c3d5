//! The profiler: which operations are slow, and `system.profile`.
//!
//! Settings are per database; a database without its own uses the server's
//! (`--profile`, `--slowms`). `system.profile` keeps about a megabyte: when it
//! grows past that, its oldest documents go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use sheaf_bson::{DocBuf, Error, ErrorCode, RawDoc};
use sheaf_db::find::QueryOptions;
use sheaf_db::modify::{self, DeleteStatement};
use sheaf_db::{Db, Namespace, OpContext};
use sheaf_query::canonical::{FindSpec, Hint};

use super::{Finished, entry};

/// `system.profile` is trimmed when its documents take more than this.
const PROFILE_BYTES_MAX: u64 = 1024 * 1024;
/// How many inserts go by between two looks at its size.
const INSERTS_PER_TRIM: u64 = 64;
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
    /// Profile only what matches (unsupported so far, always `None`).
    pub filter: Option<DocBuf>,
}

impl ProfileSettings {
    /// Whether an operation of this length belongs in the log.
    pub fn is_slow(&self, elapsed: Duration) -> bool {
        // As long as slow_ms is the limit, not longer; below zero, everything is.
        let slow =
            i128::try_from(elapsed.as_millis()).unwrap_or(i128::MAX) >= i128::from(self.slow_ms);
        slow && self.sampled()
    }

    /// Whether it belongs in `system.profile`.
    pub fn wants(&self, elapsed: Duration) -> bool {
        match self.level {
            0 => false,
            1 => self.is_slow(elapsed),
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
    inserts: AtomicU64,
}

impl Profiler {
    /// A profiler with the server's settings.
    pub fn new(default: ProfileSettings) -> Self {
        Profiler {
            default: RwLock::new(default),
            databases: RwLock::default(),
            inserts: AtomicU64::new(0),
        }
    }

    /// The settings in force for a database.
    pub fn settings(&self, db: &str) -> ProfileSettings {
        if let Some(settings) = self.databases.read().get(db) {
            return settings.clone();
        }
        self.default.read().clone()
    }

    /// Changes a database's level, and the limits of all (as MongoDB does).
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

    /// Writes what has ended into `system.profile`. An entry that cannot be
    /// written is lost: profiling never fails an operation.
    pub(super) fn record(&self, finished: &Finished<'_>) {
        let Ok(namespace) = Namespace::new(finished.db, "system.profile") else {
            return;
        };
        if finished.report.namespace.as_ref() == Some(&namespace) {
            return;
        }
        let mut docs = Vec::new();
        for write in &finished.report.writes {
            docs.push(entry::profile_write(finished, write));
        }
        if docs.is_empty() {
            docs.push(entry::profile_command(finished));
        }
        let db = &finished.server.db;
        let op = OpContext::new().with_max_time(WRITE_LIMIT);
        let docs: Vec<RawDoc<'_>> = docs.iter().map(DocBuf::as_raw).collect();
        if db.insert(&op, &namespace, &docs, true).is_err() {
            return;
        }
        let inserts = self.inserts.fetch_add(1, Ordering::Relaxed);
        if inserts % INSERTS_PER_TRIM == INSERTS_PER_TRIM - 1 {
            // What is not trimmed now is trimmed the next time.
            let _ = trim(db, &op, &namespace);
        }
    }
}

fn trim(db: &Arc<Db>, op: &OpContext, namespace: &Namespace) -> Result<(), Error> {
    let size = db.collection_size(namespace)?;
    if size.data_bytes <= PROFILE_BYTES_MAX {
        return Ok(());
    }
    let excess = size.data_bytes - PROFILE_BYTES_MAX / 2;
    let oldest = DeleteStatement {
        spec: FindSpec {
            hint: Some(Hint::Natural(1)),
            limit: Some((excess / size.document_bytes_mean().max(1)).max(1)),
            ..Default::default()
        },
        multi: true,
        return_document: Default::default(),
        projection: None,
    };
    let options = QueryOptions::default();
    modify::delete(
        db,
        op,
        namespace,
        &oldest,
        &options,
        &mut Default::default(),
    )
}
