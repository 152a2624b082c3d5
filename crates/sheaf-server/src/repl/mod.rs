//! A replica set of one member, which `--replSet` configures.
//!
//! ```text
//!   --replSet NAME ──> uninitiated: reads and writes are refused ── replSetInitiate ──> primary
//!   restart        ──> local.system.replset has the configuration ───────────────────> primary
//! ```
//!
//! The only member is always the primary, always in the same term. Clients see a replica set:
//! `setName` in hello, times in every reply, the oplog.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use sheaf_bson::{
    DateTime, DocBuf, DocBuilder, Error, ErrorCode, ObjectId, RawDoc, RawValue, Timestamp,
};
use sheaf_db::QueryOptions;
use sheaf_db::modify::{self, UpdateReport, UpdateStatement};
use sheaf_db::oplog::{OpTime, Term};
use sheaf_db::{Db, Namespace, OpContext, StatementContext};
use sheaf_query::canonical::FindSpec;

/// The collection that stores the configuration.
const CONFIG_NAMESPACE: &str = "local.system.replset";

/// The id of the only election, in the form that drivers compare.
const ELECTION_ID: [u8; 12] = [
    0x7f,
    0xff,
    0xff,
    0xff,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    Term::FIRST.0 as u8,
];

/// The replica set whose only member is this server.
pub struct ReplicaSet {
    /// From `--replSet`.
    name: String,
    config: RwLock<Option<Arc<DocBuf>>>,
    /// Number of changes of what hello reports.
    counter: AtomicI64,
    changing: Mutex<()>,
    changed: Condvar,
}

impl ReplicaSet {
    /// Opens the set with the configuration that the data folder stores, if any.
    /// Errors: `InvalidReplicaSetConfig` if the data folder belongs to another set.
    pub fn open(db: &Arc<Db>, name: &str) -> Result<ReplicaSet, Error> {
        let stored = stored_config(db)?;
        if let Some(config) = &stored
            && config.get("_id") != Some(RawValue::String(name))
        {
            return Err(Error::new(
                ErrorCode::INVALID_REPLICA_SET_CONFIG,
                format!(
                    "the data folder belongs to the replica set {}, not to '{name}'; start with that name",
                    config
                        .get("_id")
                        .map_or_else(String::new, |id| id.to_string())
                ),
            ));
        }
        if stored.is_some() {
            db.turn_oplog_on(&OpContext::new())?;
        }
        Ok(ReplicaSet {
            name: name.to_owned(),
            config: RwLock::new(stored.map(Arc::new)),
            counter: AtomicI64::new(0),
            changing: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The configuration; `None` until the set is initiated.
    pub fn config(&self) -> Option<Arc<DocBuf>> {
        self.config.read().clone()
    }

    /// Number of changes since the start of what hello reports.
    pub fn counter(&self) -> i64 {
        self.counter.load(Ordering::Acquire)
    }

    /// Waits until the counter differs from `seen`, at most for `limit`.
    pub fn wait(&self, seen: i64, limit: Duration) {
        let mut changing = self.changing.lock();
        if self.counter() == seen {
            self.changed.wait_for(&mut changing, limit);
        }
    }

    /// The member's address in the configuration; empty if it has none.
    pub fn host(config: RawDoc<'_>) -> String {
        member(config)
            .and_then(|member| member.get("host"))
            .and_then(|host| host.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// Initiates the set. `config` may be empty; `host` is this server's address.
    ///
    /// Errors: `AlreadyInitialized`, `InvalidReplicaSetConfig`.
    pub fn initiate(
        &self,
        db: &Arc<Db>,
        op: &StatementContext,
        config: RawDoc<'_>,
        host: &str,
    ) -> Result<(), Error> {
        let _one = self.changing.lock();
        if self.config().is_some() {
            return Err(Error::new(
                ErrorCode::ALREADY_INITIALIZED,
                "already initialized",
            ));
        }
        let config = self.checked(config, host, 1)?;
        db.turn_oplog_on(op)?;
        self.store(db, op, config)?;
        db.log_note("initiating set")
    }

    /// Installs a configuration of the same set with a higher version.
    ///
    /// Errors: `NotYetInitialized`, `NewReplicaSetConfigurationIncompatible`,
    /// `InvalidReplicaSetConfig`.
    pub fn reconfigure(
        &self,
        db: &Arc<Db>,
        op: &StatementContext,
        config: RawDoc<'_>,
    ) -> Result<(), Error> {
        let _one = self.changing.lock();
        let now = self.config().ok_or_else(not_initialized)?;
        let version = |doc: RawDoc<'_>| {
            doc.get("version")
                .and_then(|v| v.as_i64_exact())
                .unwrap_or(1)
        };
        let (old, new) = (version(now.as_raw()), version(config));
        if new <= old {
            return Err(Error::new(
                ErrorCode::NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE,
                format!(
                    "version must be greater than that of the current configuration, {old}, but \
                     is {new}"
                ),
            ));
        }
        let config = self.checked(config, &Self::host(now.as_raw()), new)?;
        self.store(db, op, config)?;
        db.log_note("Reconfig set")
    }

    fn store(&self, db: &Arc<Db>, op: &StatementContext, config: DocBuf) -> Result<(), Error> {
        let ns = Namespace::parse(CONFIG_NAMESPACE)?;
        store_document(db, op, &ns, &config)?;
        db.sync()?;
        *self.config.write() = Some(Arc::new(config));
        self.counter.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        Ok(())
    }

    /// Validates a configuration and fills in the fields that it omits.
    fn checked(&self, config: RawDoc<'_>, host: &str, version: i64) -> Result<DocBuf, Error> {
        let invalid = |message: String| Error::new(ErrorCode::INVALID_REPLICA_SET_CONFIG, message);
        if let Some(id) = config.get("_id")
            && id != RawValue::String(&self.name)
        {
            return Err(invalid(format!(
                "Attempting to initiate a replica set with name {id}, but command line reports {}; rejecting",
                self.name
            )));
        }
        let mut host = host.to_owned();
        let mut member_id = 0;
        let mut priority = 1.0;
        let mut tags = DocBuf::new();
        match config.get("members") {
            None => {}
            Some(RawValue::Array(members)) => {
                let members: Vec<_> = members.iter().collect();
                let [RawValue::Document(only)] = members[..] else {
                    return Err(invalid(format!(
                        "a replica set of this version has one member, not {}",
                        members.len()
                    )));
                };
                match only.get("host") {
                    Some(RawValue::String(given)) => host = with_port(given),
                    _ => return Err(invalid("members.host must be a string".into())),
                }
                if let Some(id) = only.get("_id").and_then(|id| id.as_i64_exact()) {
                    member_id = id;
                }
                if let Some(given) = only.get("priority").and_then(|p| p.as_f64()) {
                    priority = given;
                }
                if let Some(RawValue::Document(given)) = only.get("tags") {
                    tags = given.to_buf();
                }
                let arbiter = only.get("arbiterOnly").is_some_and(|v| v.is_truthy());
                if arbiter || priority == 0.0 {
                    return Err(invalid(
                        "the one member must be electable: priority above 0, no arbiter".into(),
                    ));
                }
            }
            Some(_) => return Err(invalid("members must be an array".into())),
        }
        let set_id = match self
            .config()
            .as_deref()
            .map(DocBuf::as_raw)
            .and_then(settings)
        {
            Some(settings) => match settings.get("replicaSetId") {
                Some(RawValue::ObjectId(id)) => id,
                _ => ObjectId::new(),
            },
            None => ObjectId::new(),
        };
        let mut out = DocBuilder::new();
        out.append("_id", self.name.as_str());
        out.append("version", i32::try_from(version).unwrap_or(i32::MAX));
        out.append("term", Term::FIRST.0 as i32);
        out.begin_array("members");
        out.push_begin_document();
        out.append("_id", i32::try_from(member_id).unwrap_or(0));
        out.append("host", host.as_str());
        out.append("arbiterOnly", false);
        out.append("buildIndexes", true);
        out.append("hidden", false);
        out.append("priority", priority);
        out.append_bson("tags", &tags);
        out.append("secondaryDelaySecs", 0i64);
        out.append("votes", 1);
        out.end();
        out.end();
        out.append("protocolVersion", 1i64);
        out.append("writeConcernMajorityJournalDefault", true);
        out.begin_document("settings");
        out.append("chainingAllowed", true);
        out.append("heartbeatIntervalMillis", 2000);
        out.append("heartbeatTimeoutSecs", 10);
        out.append("electionTimeoutMillis", 10_000);
        out.append("catchUpTimeoutMillis", -1);
        out.append("catchUpTakeoverDelayMillis", 30_000);
        out.append_bson("getLastErrorModes", &DocBuf::new());
        out.append("replicaSetId", set_id);
        out.end();
        Ok(out.finish())
    }

    /// Appends the fields of hello that describe the set.
    pub fn append_hello(&self, db: &Db, out: &mut DocBuilder) {
        let Some(config) = self.config() else {
            out.append("secondary", false);
            out.append("info", "Does not have a valid replica set config");
            out.append("isreplicaset", true);
            return;
        };
        let host = Self::host(config.as_raw());
        out.begin_array("hosts");
        out.push(host.as_str());
        out.end();
        out.append("setName", self.name.as_str());
        out.append(
            "setVersion",
            config.get("version").unwrap_or(RawValue::Int32(1)),
        );
        out.append("secondary", false);
        out.append("primary", host.as_str());
        out.append("me", host.as_str());
        out.append("electionId", ObjectId(ELECTION_ID));
        let visible = db.oplog().visible();
        out.begin_document("lastWrite");
        append_optime(out, "opTime", visible);
        out.append("lastWriteDate", date_of(visible));
        append_optime(out, "majorityOpTime", visible);
        out.append("majorityWriteDate", date_of(visible));
        out.end();
    }
}

/// The error until the set is initiated.
pub fn not_initialized() -> Error {
    Error::new(
        ErrorCode::NOT_YET_INITIALIZED,
        "no replset config has been received; run rs.initiate()",
    )
}

fn settings(config: RawDoc<'_>) -> Option<RawDoc<'_>> {
    match config.get("settings") {
        Some(RawValue::Document(settings)) => Some(settings),
        _ => None,
    }
}

/// The only member of a configuration.
pub fn member(config: RawDoc<'_>) -> Option<RawDoc<'_>> {
    match config.get("members") {
        Some(RawValue::Array(members)) => match members.iter().next() {
            Some(RawValue::Document(member)) => Some(member),
            _ => None,
        },
        _ => None,
    }
}

fn with_port(host: &str) -> String {
    let bare = host
        .rsplit_once(':')
        .is_none_or(|(_, port)| port.parse::<u16>().is_err());
    if bare {
        format!("{host}:27017")
    } else {
        host.to_owned()
    }
}

/// Appends `{ts, t}`.
pub fn append_optime(out: &mut DocBuilder, name: &str, ts: Timestamp) {
    out.begin_document(name);
    let term = Term::FIRST;
    OpTime { ts, term }.append_to(out);
    out.end();
}

/// The date of a timestamp, in whole seconds.
pub fn date_of(ts: Timestamp) -> DateTime {
    DateTime(i64::from(ts.time) * 1000)
}

fn stored_config(db: &Arc<Db>) -> Result<Option<DocBuf>, Error> {
    let ns = Namespace::parse(CONFIG_NAMESPACE)?;
    first_document(db, &ns)
}

/// The first document of one of the server's own collections; `None` if there is none.
pub fn first_document(db: &Arc<Db>, ns: &Namespace) -> Result<Option<DocBuf>, Error> {
    let view = db.read_view(ns)?;
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    let mut cursor = sheaf_db::records::RecordCursor::new(&view.snapshot, collection)?;
    if !cursor.first()? {
        return Ok(None);
    }
    let doc = cursor.document()?;
    Ok(Some(doc.to_buf()))
}

/// Stores a document in one of the server's own collections: inserts it, or replaces the document
/// with its `_id`.
pub fn store_document(
    db: &Arc<Db>,
    op: &StatementContext,
    ns: &Namespace,
    doc: &DocBuf,
) -> Result<(), Error> {
    let mut filter = DocBuilder::new();
    if let Some(id) = doc.get("_id") {
        filter.append("_id", id);
    }
    let filter = filter.finish();
    let statement = UpdateStatement {
        spec: FindSpec {
            filter: Some(filter.as_raw()),
            ..Default::default()
        },
        update: RawValue::Document(doc.as_raw()),
        constants: None,
        upsert_supplied: None,
        array_filters: None,
        upsert: true,
        multi: false,
        return_document: Default::default(),
        projection: None,
    };
    let options = QueryOptions::default();
    modify::update(
        db,
        op,
        ns,
        &statement,
        &options,
        &mut UpdateReport::default(),
    )
}
