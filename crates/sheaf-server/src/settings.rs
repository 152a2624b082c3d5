//! How a server runs. Read at start; settings that can change later are in [`crate::parameters`].

use std::path::PathBuf;
use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_query::javascript::Engine;
use sheaf_wire::CompressorSet;

/// How a server runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where and how data is stored.
    pub storage: Storage,
    /// The profiler's state at start.
    pub profiling: Profiling,
    /// Clients must log in, and do what their roles allow.
    pub authorization: bool,
    /// Refuse queries that would scan a whole collection.
    pub no_table_scan: bool,
    /// The JavaScript engine; `None` if the program has none.
    pub javascript: Option<Arc<dyn Engine>>,
    /// `--replSet`.
    pub replica_set: Option<String>,
    /// `--oplogSize`, in bytes.
    pub oplog_bytes: Option<u64>,
    /// `--setParameter`, in the order given; names and values unchecked.
    pub parameters: Vec<(String, String)>,
    /// The port that clients connect to, for replies that name it.
    pub port: u16,
    /// `bind_ip`'s entries: addresses, names, `*`, paths of unix sockets.
    pub bind: Vec<String>,
    /// Compressors offered to clients, most preferred first.
    pub compressors: CompressorSet,
    /// The command line, the program's name first.
    pub arguments: Vec<String>,
    /// The given options, as `getCmdLineOpts.parsed` shows them.
    pub parsed: DocBuf,
}

/// Where and how data is stored.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The data folder.
    pub db_path: PathBuf,
    /// The folder was given; otherwise it is the default and may be created.
    pub db_path_given: bool,
    /// The engine's name; `None` for the default.
    pub engine: Option<String>,
    /// Bytes of memory for cached data; `None` for the default.
    pub cache_bytes: Option<u64>,
    /// Milliseconds between two flushes of the log.
    pub journal_commit_interval_ms: u64,
    /// Seconds between two checkpoints; 0 for none.
    pub sync_period_secs: f64,
    /// What to do with the data files instead of serving.
    pub maintenance: Option<Maintenance>,
}

/// Work on the data files while no server runs on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Report damage.
    Verify,
    /// Save the readable data into new files.
    Repair,
}

/// The profiler's state at start.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiling {
    /// 0 off, 1 slow operations, 2 all.
    pub level: u8,
    /// Milliseconds from which an operation is slow.
    pub slow_ms: i64,
    /// Share of slow operations that is logged, 0 to 1.
    pub sample_rate: f64,
    /// A query in JSON: operations that match it are logged and profiled, in place of slow ones.
    pub filter: Option<String>,
}

impl Settings {
    /// The defaults, with data in this folder.
    pub fn in_folder(db_path: impl Into<PathBuf>) -> Settings {
        Settings {
            storage: Storage {
                db_path: db_path.into(),
                db_path_given: true,
                engine: None,
                cache_bytes: None,
                journal_commit_interval_ms: 100,
                sync_period_secs: 60.0,
                maintenance: None,
            },
            profiling: Profiling {
                level: 0,
                slow_ms: 100,
                sample_rate: 1.0,
                filter: None,
            },
            authorization: false,
            no_table_scan: false,
            javascript: None,
            replica_set: None,
            oplog_bytes: None,
            parameters: Vec::new(),
            port: 27017,
            bind: Vec::new(),
            compressors: CompressorSet::NONE,
            arguments: Vec::new(),
            parsed: DocBuf::new(),
        }
    }
}
