//! The server: what all connections share, and what one connection keeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sheaf_bson::{DateTime, Error, ErrorCode, ObjectId};
use sheaf_db::find::QueryOptions;
use sheaf_db::{Db, OpContext};
use sheaf_wire::{CompressorSet, Message, ReplyWriter, command_error};

use crate::command::rw_concern::RwConcernDefaults;
use crate::command::{self, cluster_time};
use crate::log::{Component, Log};
use crate::memory_monitor;
use crate::net::{ConnectionHandler, Link, Next, Service};
use crate::observe::{Metrics, ProfileFilter, ProfileSettings, Profiler};
use crate::parameters::{Parameter, Parameters};
use crate::repl::ReplicaSet;
use crate::session::cursors::CursorTable;
use crate::session::disconnects;
use crate::session::leftovers::Leftovers;
use crate::session::logical::{LogicalSession, SessionId, SessionTable, session_id};
use crate::session::operations::{OperationSlot, OperationTable};
use crate::session::snapshots::SnapshotWindow;
use crate::startup::Startup;
use crate::storage_monitor;
use crate::ttl_monitor::TtlMonitor;
use crate::vector_monitor::VectorMonitor;

/// How often transactions that are open for too long are looked for.
const TRANSACTION_SWEEP: Duration = Duration::from_millis(200);
/// How long a cursor must not have been asked for to give up what it holds of the engine's memory.
const CURSOR_REST: Duration = Duration::from_millis(200);

/// Sessions that nobody uses for so long end.
const SESSION_TIMEOUT: Duration =
    Duration::from_secs(60 * crate::command::hello::SESSION_TIMEOUT_MINUTES as u64);

/// How often idle cursors are looked for.
const CURSOR_SWEEP: Duration = Duration::from_secs(4);

/// How often stored sessions that are gone are looked for.
const SESSION_FORGETTING: Duration = Duration::from_secs(300);

/// What all connections share.
pub struct Server {
    /// The database.
    pub db: Arc<Db>,
    /// Where lines go.
    pub log: Arc<Log>,
    /// Options, open connections, the way to stop.
    pub startup: Startup,
    /// The replica set that this server is the member of.
    pub repl: Option<ReplicaSet>,
    /// What reads and writes without a concern of their own have.
    pub rw_concern: RwLock<RwConcernDefaults>,
    /// Logical sessions and their transactions.
    pub sessions: SessionTable,
    /// Snapshots that reads come back to.
    pub snapshots: SnapshotWindow,
    /// Open cursors.
    pub cursors: CursorTable,
    /// Operations in progress.
    pub operations: OperationTable,
    /// What setParameter sets.
    pub parameters: Parameters,
    /// What serverStatus shows.
    pub metrics: Metrics,
    /// Deletes what has expired.
    pub ttl: TtlMonitor,
    /// The thread that builds vector indexes anew.
    pub vectors: VectorMonitor,
    /// Profiling levels and system.profile.
    pub profiler: Profiler,
    /// Compressors offered to clients.
    pub compressors: CompressorSet,
    /// Tells this run of the server from others (`topologyVersion`).
    pub process_id: ObjectId,
    /// When the process began serving.
    pub started: Instant,
}

/// What one connection keeps between its commands.
pub struct ConnectionState {
    /// Who the client is, and whether it is still there.
    pub link: Arc<Link>,
    /// The session used last.
    pub session: Option<Arc<LogicalSession>>,
    /// Shows what this connection is doing.
    pub operations: Arc<OperationSlot>,
    /// What the client said of itself in its first hello.
    pub client_metadata: Option<sheaf_bson::DocBuf>,
    /// The command under way has a session, or a cluster time: its reply tells the times.
    pub has_session: bool,
    /// Set by a command whose reply is to be followed by another without a request.
    pub exhaust: bool,
    /// The reply under way follows another of the same stream.
    pub follows: bool,
    /// What is freed when the reply has been sent.
    pub leftovers: Leftovers,
}

impl Server {
    /// A server over an open database.
    /// Errors: a parameter given at start is unknown or wrong.
    pub fn new(db: Arc<Db>, startup: &Startup) -> Result<Arc<Server>, Error> {
        let settings = &startup.settings;
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
        let server = Arc::new(Server {
            db,
            repl,
            rw_concern,
            log: startup.log.clone(),
            startup: startup.clone(),
            sessions: SessionTable::default(),
            snapshots: SnapshotWindow::default(),
            cursors: CursorTable::default(),
            operations: OperationTable::default(),
            parameters,
            metrics: Metrics::default(),
            ttl: TtlMonitor::default(),
            vectors: VectorMonitor::default(),
            profiler: Profiler::new(ProfileSettings {
                level: settings.profiling.level,
                slow_ms: settings.profiling.slow_ms,
                sample_rate: settings.profiling.sample_rate,
                filter: profile_filter(settings.profiling.filter.as_deref())?,
            }),
            compressors: settings.net.compressors,
            process_id: ObjectId::new(),
            started: Instant::now(),
        });
        server.parameters_changed()?;
        server.sweep_cursors()?;
        server.sweep_transactions()?;
        server.checkpoint_regularly()?;
        TtlMonitor::start(&server)?;
        VectorMonitor::start(&server)?;
        memory_monitor::start(&server)?;
        storage_monitor::start(&server)?;
        disconnects::watch(&server)?;
        Ok(server)
    }

    /// How queries run, by the server's parameters and the command's wish.
    pub fn query_options(&self, allow_disk_use: Option<bool>) -> QueryOptions {
        self.parameters.query_options(&self.db, allow_disk_use)
    }

    /// Hands parameters to those who keep a copy.
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
        Ok(())
    }

    /// Size of the file system that holds the data, and how much of it is used.
    pub fn file_system(&self) -> (u64, u64) {
        crate::process::file_system(&self.startup.settings.storage.db_path).unwrap_or((0, 0))
    }

    /// Every `--syncdelay` seconds the engine does its housekeeping, if anything was written.
    fn checkpoint_regularly(self: &Arc<Self>) -> Result<(), Error> {
        let seconds = self.startup.settings.storage.sync_period_secs;
        let Ok(period) = Duration::try_from_secs_f64(seconds) else {
            return Ok(());
        };
        if period.is_zero() {
            return Ok(());
        }
        let server = Arc::downgrade(self);
        spawn("checkpoint", move || {
            crate::log::set_context("checkpointer");
            let mut seen = 0;
            loop {
                std::thread::sleep(period);
                let Some(server) = server.upgrade() else {
                    return;
                };
                let engine = server.db.engine();
                let commits = engine.stats().commits;
                if commits == seen {
                    continue;
                }
                seen = commits;
                if let Err(error) = engine.checkpoint() {
                    server.log.warning(
                        Component::Storage,
                        9_000_044,
                        "A checkpoint failed",
                        |attr| {
                            attr.append("error", error.to_string().as_str());
                        },
                    );
                }
            }
        })
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

    /// What is stored of sessions goes when they have not written for as long as a session lives.
    fn forget_sessions(&self) {
        let since = DateTime(DateTime::now().0 - SESSION_TIMEOUT.as_millis() as i64);
        if let Err(error) = self.db.forget_sessions(&OpContext::new(), since) {
            self.log.warning(
                Component::Storage,
                9_000_042,
                "Sessions that are gone were not forgotten",
                |attr| {
                    attr.append("error", error.message());
                },
            );
        }
    }

    /// Aborts transactions older than `transactionLifetimeLimitSeconds`, and has cursors rest that nobody asks for.
    fn sweep_transactions(self: &Arc<Self>) -> Result<(), Error> {
        let server = Arc::downgrade(self);
        spawn("transaction sweep", move || {
            crate::log::set_context("abortExpiredTransactions");
            loop {
                std::thread::sleep(TRANSACTION_SWEEP);
                let Some(server) = server.upgrade() else {
                    return;
                };
                let seconds = server
                    .parameters
                    .int(Parameter::TransactionLifetimeLimitSeconds);
                let limit = Duration::from_secs(seconds.unsigned_abs());
                let aborted = server.sessions.expire_transactions(limit);
                server.cursors.rest_idle(CURSOR_REST);
                if aborted > 0 {
                    server.log.info(
                        Component::Transaction,
                        20707,
                        "Aborted transactions that were open for too long",
                        |attr| {
                            attr.append("count", aborted as i64);
                        },
                    );
                }
            }
        })
    }

    /// Closes cursors that nobody has asked for longer than `cursorTimeoutMillis`.
    fn sweep_cursors(self: &Arc<Self>) -> Result<(), Error> {
        let server = Arc::downgrade(self);
        spawn("cursor sweep", move || {
            crate::log::set_context("clientcursormon");
            let mut forgotten = Instant::now();
            loop {
                std::thread::sleep(CURSOR_SWEEP);
                let Some(server) = server.upgrade() else {
                    return;
                };
                let millis = server.parameters.int(Parameter::CursorTimeoutMillis);
                let limit = Duration::from_millis(millis.unsigned_abs());
                let closed = server.cursors.expire(limit);
                let ended = server.sessions.expire(SESSION_TIMEOUT);
                server.close_cursors_of(&ended);
                server.snapshots.expire();
                if forgotten.elapsed() > SESSION_FORGETTING {
                    forgotten = Instant::now();
                    server.forget_sessions();
                }
                if let Err(error) = server.db.trim_oplog(&OpContext::new()) {
                    server.log.warning(
                        Component::Storage,
                        9_000_034,
                        "The oplog was not trimmed",
                        |attr| {
                            attr.append("error", error.message());
                        },
                    );
                }
                if closed > 0 {
                    server
                        .log
                        .info(Component::Query, 20529, "Cursor timed out", |attr| {
                            attr.append("count", closed as i64);
                        });
                }
            }
        })
    }
}

/// The profiler's filter that the server is started with.
/// Errors: it is no JSON document, or no query.
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

/// A background thread of the server. Errors: the system gives none.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    spawn_with_stack(name, 256 * 1024, run)
}

/// As [`spawn`], for work on documents, which may be nested deeply.
pub(crate) fn spawn_with_stack(
    name: &str,
    bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    std::thread::Builder::new()
        .name(name.into())
        .stack_size(bytes)
        .spawn(run)
        .map(drop)
        .map_err(|e| {
            Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("cannot start a thread: {e}"),
            )
        })
}

/// The seam to the network.
pub struct CommandService(pub Arc<Server>);

struct Handler {
    server: Arc<Server>,
    state: ConnectionState,
}

impl Service for CommandService {
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        let server = self.0.clone();
        let operations = server.operations.connect(link);
        Box::new(Handler {
            server,
            state: ConnectionState {
                link: link.clone(),
                session: None,
                operations,
                client_metadata: None,
                has_session: false,
                exhaust: false,
                follows: false,
                leftovers: Leftovers::default(),
            },
        })
    }

    fn interrupt(&self) {
        self.0
            .operations
            .kill_all(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        self.0
            .sessions
            .abort_all(ErrorCode::INTERRUPTED_AT_SHUTDOWN);
        self.0.ttl.stop();
        self.0.vectors.stop();
    }

    fn close(&self) -> bool {
        let server = &self.0;
        server.cursors.kill_where(|_, _| true);
        server.ttl.stop();
        server.vectors.stop();
        let closed = server.db.close();
        if let Err(error) = &closed {
            server.log.error(
                Component::Storage,
                9_000_030,
                "The database did not close cleanly",
                |attr| {
                    attr.append("error", error.message());
                },
            );
        }
        closed.is_ok()
    }
}

impl ConnectionHandler for Handler {
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        self.state.exhaust = false;
        self.state.has_session = false;
        let mut body = reply.take_body();
        let server = &self.server;
        let done = command::dispatch(server, &mut self.state, request, &mut body);
        // To clients with sessions, and of a server that has an oplog to all.
        let timed = self.state.has_session || server.db.oplog().is_on();
        match done {
            Ok(()) => {
                if timed {
                    cluster_time::append_times(server, &mut body);
                }
                reply.put_body(body);
            }
            Err(error) => {
                drop(body);
                reply.write(|body| {
                    command_error::append(&error, body);
                    if timed {
                        cluster_time::append_times(server, body);
                    }
                });
                return Next::Reply;
            }
        }
        if self.state.exhaust {
            Next::Exhaust
        } else {
            Next::Reply
        }
    }

    fn replied(&mut self) {
        self.state.leftovers.free();
    }

    /// The next reply of a stream is what the same request is answered now.
    fn exhaust(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        self.state.follows = true;
        let next = self.handle(request, reply);
        self.state.follows = false;
        next
    }
}
