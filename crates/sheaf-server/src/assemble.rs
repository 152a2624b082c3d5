//! Assembles a server; the only module that knows both its parts and the command table.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use sheaf_bson::{Error, ObjectId};
use sheaf_db::Db;
use sheaf_db::ttl::TtlCounters;

use crate::access::Users;
use crate::auto_compact::AutoCompact;
use crate::cluster_parameters::ClusterParameters;
use crate::command;
use crate::control::Control;
use crate::fail_points::FailPoints;
use crate::feature_compatibility::FeatureCompatibility;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::observe::{Metrics, ProfileFilter, ProfileSettings, Profiler};
use crate::parameters::Parameters;
use crate::query_settings::QuerySettingsTable;
use crate::repl::ReplicaSet;
use crate::rw_concern_defaults::RwConcernDefaults;
use crate::server::Server;
use crate::session::cursors::CursorTable;
use crate::session::logical::SessionTable;
use crate::session::operations::OperationTable;
use crate::settings::Settings;
use crate::traffic::Traffic;
use crate::user_write_block;
use crate::write_gate::WriteGate;

impl Server {
    /// A server over an open database. Starts no thread; see [`crate::jobs::start`].
    ///
    /// Errors: a parameter given at start is unknown or wrong.
    pub fn new(
        db: Arc<Db>,
        settings: Arc<Settings>,
        log: Arc<Log>,
        control: Arc<dyn Control>,
        traffic: Arc<dyn Traffic>,
    ) -> Result<Arc<Server>, Error> {
        let parameters = Parameters::default();
        for (name, value) in &settings.parameters {
            parameters.set(name, value.as_str().into(), true, None)?;
        }
        if settings.no_table_scan {
            parameters.set("notablescan", true.into(), true, None)?;
        }
        if let Some(bytes) = settings.oplog_bytes {
            db.oplog().set_bytes_max(bytes);
        }
        let repl = match &settings.replica_set {
            Some(name) => Some(ReplicaSet::open(&db, name)?),
            None => None,
        };
        let rw_concern = RwLock::new(RwConcernDefaults::read(&db)?);
        let cluster_parameters = ClusterParameters::read(&db)?;
        let query_settings = QuerySettingsTable::read(&db, &log)?;
        let feature_compatibility = FeatureCompatibility::read(&db)?;
        let write_gate = WriteGate::default();
        user_write_block::restore(&db, &write_gate)?;
        let users = Users::open(&db)?;
        let server = Arc::new(Server {
            db,
            users,
            cluster_parameters,
            query_settings,
            query_stats: Arc::default(),
            feature_compatibility,
            write_gate,
            fail_points: FailPoints::default(),
            auto_compact: AutoCompact::default(),
            repl,
            rw_concern,
            log,
            control,
            traffic,
            sessions: SessionTable::default(),
            cursors: CursorTable::default(),
            operations: OperationTable::default(),
            parameters,
            metrics: Metrics::new(command::rows().map(|row| &row.command)),
            ttl: TtlCounters::default(),
            jobs: Jobs::default(),
            profiler: Profiler::new(ProfileSettings {
                level: settings.profiling.level,
                slow_ms: settings.profiling.slow_ms,
                sample_rate: settings.profiling.sample_rate,
                filter: profile_filter(settings.profiling.filter.as_deref())?,
            }),
            compressors: settings.compressors,
            process_id: ObjectId::new(),
            started: Instant::now(),
            settings,
        });
        server.parameters_changed()?;
        server.log_primary();
        Ok(server)
    }
}

/// Parses the profiler's filter of the settings.
/// Errors: it is not a JSON document, or not a query.
fn profile_filter(json: Option<&str>) -> Result<Option<Arc<ProfileFilter>>, Error> {
    let Some(json) = json else {
        return Ok(None);
    };
    let wrong = |why: &str| Error::bad_value(format!("slowOpFilter '{json}' is wrong: {why}"));
    let filter = sheaf_bson::json::parse_doc(json).map_err(|e| wrong(&e.to_string()))?;
    ProfileFilter::parse(filter.as_raw())
        .map(Some)
        .map_err(|e| wrong(e.message()))
}
