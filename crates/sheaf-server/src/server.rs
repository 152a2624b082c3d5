//! The server: state that all connections share.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use sheaf_bson::{Error, ErrorCode, ObjectId};
use sheaf_db::Db;
use sheaf_db::QueryOptions;
use sheaf_db::ttl::TtlCounters;
use sheaf_wire::CompressorSet;

use crate::access::Users;
use crate::auto_compact::AutoCompact;
use crate::cluster_parameters::ClusterParameters;
use crate::control::Control;
use crate::fail_points::FailPoints;
use crate::feature_compatibility::FeatureCompatibility;
use crate::jobs::Jobs;
use crate::log::{Component, Log, events};
use crate::observe::{Metrics, Profiler};
use crate::parameters::{Parameter, Parameters};
use crate::query_settings::QuerySettingsTable;
use crate::query_stats::QueryStats;
use crate::repl::ReplicaSet;
use crate::rw_concern_defaults::RwConcernDefaults;
use crate::session::cursors::CursorTable;
use crate::session::logical::{SessionId, SessionTable, session_id};
use crate::session::operations::OperationTable;
use crate::settings::Settings;
use crate::traffic::Traffic;
use crate::write_gate::WriteGate;

/// State that all connections share.
pub struct Server {
    /// The database.
    pub db: Arc<Db>,
    /// The log.
    pub log: Arc<Log>,
    /// The options in effect.
    pub settings: Arc<Settings>,
    /// The program that holds the server.
    pub control: Arc<dyn Control>,
    /// Counts of the connections that reach the server.
    pub traffic: Arc<dyn Traffic>,
    /// The replica set whose only member is this server.
    pub repl: Option<ReplicaSet>,
    /// The concerns of reads and writes that specify none.
    pub rw_concern: RwLock<RwConcernDefaults>,
    /// Parameters of the whole cluster.
    pub cluster_parameters: ClusterParameters,
    /// Settings of query shapes.
    pub query_settings: QuerySettingsTable,
    /// Statistics of queries by shape.
    pub query_stats: Arc<QueryStats>,
    /// The feature compatibility version.
    pub feature_compatibility: FeatureCompatibility,
    /// Fail points of tests.
    pub fail_points: FailPoints,
    /// Blocks writes.
    pub write_gate: WriteGate,
    /// Compaction in the background.
    pub auto_compact: AutoCompact,
    /// The stored users.
    pub users: Users,
    /// Logical sessions and their transactions.
    pub sessions: SessionTable,
    /// Open cursors.
    pub cursors: CursorTable,
    /// Operations in progress.
    pub operations: OperationTable,
    /// The values of all server parameters.
    pub parameters: Parameters,
    /// Operation counters of serverStatus.
    pub metrics: Metrics,
    /// Counters of the TTL job.
    pub ttl: TtlCounters,
    /// Background jobs.
    pub jobs: Jobs<Server>,
    /// Profiling levels and system.profile.
    pub profiler: Profiler,
    /// Compressors offered to clients.
    pub compressors: CompressorSet,
    /// Identifies this run of the server (`topologyVersion`).
    pub process_id: ObjectId,
    /// When the process began serving.
    pub started: Instant,
}

impl Server {
    /// Query options, from the server's parameters and the command's `allowDiskUse`.
    pub fn query_options(&self, allow_disk_use: Option<bool>) -> QueryOptions {
        self.parameters.query_options(&self.db, allow_disk_use)
    }

    /// Passes parameters on to the components that keep a copy.
    pub fn parameters_changed(&self) -> Result<(), Error> {
        let megabytes = self
            .parameters
            .int(Parameter::MaxIndexBuildMemoryUsageMegabytes);
        self.db
            .set_index_build_memory_mb(megabytes.unsigned_abs())?;
        let bytes = |parameter| self.parameters.int(parameter).unsigned_abs();
        self.db.transaction_memory().set_max(
            bytes(Parameter::TransactionMemoryMaxBytes),
            bytes(Parameter::TransactionMemoryTotalMaxBytes),
        );
        let kilobytes = self.parameters.int(Parameter::MaxLogSizeKb);
        self.log
            .set_attribute_bytes_max(usize::try_from(kilobytes).unwrap_or(10) * 1024);
        let redacts = self.parameters.bool(Parameter::RedactClientLogData);
        self.log.set_redacts(redacts);
        self.jobs.periods_changed();
        Ok(())
    }

    /// Logs that this member of a replica set takes writes, by the event that tools wait for.
    pub fn log_primary(&self) {
        if self.repl.as_ref().is_none_or(|set| set.config().is_none()) {
            return;
        }
        self.log.info(
            Component::Replication,
            21331,
            "Transition to primary complete; database writes are now permitted",
            |attr| {
                attr.append("term", sheaf_db::oplog::Term::FIRST.0);
            },
        );
    }

    /// Size of the file system that holds the data, and how much of it is used.
    pub fn file_system(&self) -> (u64, u64) {
        crate::host::file_system(&self.settings.storage.db_path).unwrap_or((0, 0))
    }

    /// Closes the cursors of sessions that have ended.
    pub fn close_cursors_of(&self, ended: &[SessionId]) {
        if ended.is_empty() {
            return;
        }
        self.cursors.kill_where(|_, lsid| {
            let id = lsid.and_then(|lsid| session_id(lsid.as_raw()));
            id.is_some_and(|id| ended.contains(&id))
        });
    }

    /// Interrupts every operation, including those that begin later, and aborts open transactions:
    /// the server is about to stop.
    pub fn interrupt(&self) {
        self.operations.kill_all(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        self.sessions.abort_all(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        self.jobs.stop();
    }

    /// Closes the database once no client is left. Returns whether it closed cleanly.
    pub fn close(&self) -> bool {
        self.cursors.kill_where(|_, _| true);
        self.jobs.stop_and_wait();
        let closed = self.db.close();
        if let Err(error) = &closed {
            self.log.error(
                Component::Storage,
                events::NOT_CLOSED_CLEANLY,
                "The database did not close cleanly",
                |attr| {
                    attr.append("error", error.message());
                },
            );
        }
        closed.is_ok()
    }
}
