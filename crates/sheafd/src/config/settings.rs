//! The options in effect, typed, with the defaults filled in.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sheaf_query::javascript::Engine;
use sheaf_server::log::{Component, Destination, LogOptions, Rotation};
use sheaf_server::settings::{Maintenance, Profiling, Storage};
use sheaf_wire::{Compressor, CompressorSet};

use super::options::Value;
use super::{ConfigError, Given, key_file, parsed, tls};
use crate::tls::TlsOptions;

/// MongoDB's default port.
const DEFAULT_PORT: u16 = 27017;

/// The default of `maxIncomingConnections`.
const DEFAULT_CONNECTIONS_MAX: usize = 65_536;

/// The default data folder.
const DEFAULT_DB_PATH: &str = "data";

/// MongoDB's storage engine: scripts that name it mean the default.
const WIRED_TIGER: &str = "wiredTiger";

/// The configuration of the process. Read once at start and never changed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses and connection limits.
    pub net: Net,
    /// The part that the command layer and the database use.
    pub server: sheaf_server::Settings,
    /// Log destination and verbosity.
    pub log: LogSettings,
    /// Run in the background (`--fork`).
    pub fork: bool,
    /// Write the process id to this file.
    pub pid_file: Option<PathBuf>,
    /// Options that were accepted and have no effect, each with the reason, for the startup log.
    pub without_effect: Vec<(String, &'static str)>,
    /// Access control was switched off explicitly.
    pub no_auth: bool,
}

/// Addresses and connection limits.
#[derive(Clone, Debug)]
pub struct Net {
    /// The TCP port; 0 lets the system choose.
    pub port: u16,
    /// The entries of `bind_ip`: addresses, host names, `*`, or paths of Unix domain sockets.
    pub bind: Vec<String>,
    /// Allow IPv6 addresses.
    pub ipv6: bool,
    /// The Unix domain socket named after the port; `None` with `--nounixsocket`.
    pub unix_socket: Option<UnixSocket>,
    /// The permission bits of every Unix domain socket.
    pub unix_permissions: u32,
    /// Maximum number of concurrent connections.
    pub connections_max: usize,
    /// Compressors that the server negotiates, most preferred first.
    pub compressors: CompressorSet,
    /// TLS on TCP connections; `None` with `--tlsMode disabled`.
    pub tls: Option<TlsOptions>,
}

/// The Unix domain socket named after the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// The folder of the socket file.
    pub prefix: PathBuf,
}

/// Log destination and verbosity.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// Destination, format and rotation.
    pub options: LogOptions,
    /// Verbosity of single components; -1 inherits.
    pub components: Vec<(Component, i8)>,
    /// Do not log connections opening and closing.
    pub quiet: bool,
}

/// The options that were given, looked up by target.
pub(super) struct Lookup<'g>(&'g [Given]);

impl<'g> Lookup<'g> {
    pub(super) fn value(&self, target: &str) -> Option<&'g Value> {
        debug_assert!(
            super::options::OPTIONS.iter().any(|o| o.target() == target),
            "unknown option {target}"
        );
        self.0
            .iter()
            .rev()
            .find(|g| g.option.target() == target)
            .map(|g| &g.value)
    }

    pub(super) fn text(&self, target: &str) -> Option<&'g str> {
        match self.value(target)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn integer(&self, target: &str) -> Option<i64> {
        match self.value(target)? {
            Value::Integer(n) => Some(*n),
            _ => None,
        }
    }

    fn number(&self, target: &str) -> Option<f64> {
        match self.value(target)? {
            Value::Number(x) => Some(*x),
            _ => None,
        }
    }

    pub(super) fn switch(&self, target: &str) -> Option<bool> {
        match self.value(target)? {
            Value::Boolean(b) => Some(*b),
            // A switch with `flag_means`, such as `--nounixsocket`.
            Value::Text(word) => Some(word == "true"),
            _ => None,
        }
    }
}

pub(super) fn assemble(
    given: &[Given],
    config: &Option<String>,
    arguments: &[String],
) -> Result<Settings, ConfigError> {
    let options = Lookup(given);
    let net = net(&options)?;
    let settings = Settings {
        server: sheaf_server::Settings {
            storage: storage(&options),
            profiling: profiling(&options),
            authorization: authorization(&options)?,
            no_table_scan: options.switch("notablescan").unwrap_or(false),
            replica_set: options.text("replication.replSetName").map(str::to_owned),
            oplog_bytes: options
                .integer("replication.oplogSizeMB")
                .and_then(|mb| u64::try_from(mb).ok())
                .map(|mb| mb << 20),
            javascript: javascript(),
            parameters: parameters(given, &options),
            port: net.port,
            bind: net.bind.clone(),
            compressors: net.compressors,
            arguments: parsed::without_secrets(arguments),
            parsed: parsed::document(given, config.as_deref()),
        },
        net,
        log: log(given, &options)?,
        fork: options.switch("processManagement.fork").unwrap_or(false),
        pid_file: options
            .text("processManagement.pidFilePath")
            .map(PathBuf::from),
        without_effect: without_effect(given, &options),
        no_auth: options.text(AUTHORIZATION) == Some("disabled"),
    };
    if settings.fork && settings.log.options.destination == Destination::Stdout {
        return Err(ConfigError::new("--fork requires --logpath"));
    }
    Ok(settings)
}

const AUTHORIZATION: &str = "security.authorization";

/// Whether access control is on: asked for, or implied by a key file.
/// Errors: the key file is wrong, or given with access control off.
fn authorization(options: &Lookup<'_>) -> Result<bool, ConfigError> {
    let given = match (options.switch("auth"), options.text(AUTHORIZATION)) {
        (Some(true), Some("disabled")) => {
            return Err(ConfigError::new(
                "--auth and --noauth are mutually exclusive",
            ));
        }
        (Some(true), _) => Some("enabled"),
        (_, given) => given,
    };
    let Some(key_file) = options.text("security.keyFile") else {
        return Ok(given == Some("enabled"));
    };
    if given == Some("disabled") {
        return Err(ConfigError::new(
            "--keyFile requires access control: remove --noauth",
        ));
    }
    key_file::check(key_file)?;
    Ok(true)
}

fn without_effect(given: &[Given], options: &Lookup<'_>) -> Vec<(String, &'static str)> {
    let option = given.iter().filter_map(|g| {
        let because = g.option.without_effect(&g.value)?;
        Some((g.option.target().to_string(), because))
    });
    let engine = given.iter().filter_map(|g| match &g.value {
        Value::Text(name) if g.option.target() == "storage.engine" && name == WIRED_TIGER => {
            Some((
                "storage.engine: wiredTiger".to_string(),
                "this server uses its own storage engine",
            ))
        }
        _ => None,
    });
    option
        .chain(engine)
        .chain(tls::without_effect(options))
        .collect()
}

/// The engine that this program was built with.
fn javascript() -> Option<Arc<dyn Engine>> {
    #[cfg(feature = "javascript")]
    return Some(Arc::new(sheaf_js::QuickJs));
    #[cfg(not(feature = "javascript"))]
    None
}

fn parameters(given: &[Given], options: &Lookup<'_>) -> Vec<(String, String)> {
    let switched = |option, parameter: &str| {
        let on = options.switch(option)?;
        Some((parameter.to_owned(), on.to_string()))
    };
    let enabled = switched("security.javascriptEnabled", "javascriptEnabled");
    let redacts = switched("security.redactClientLogData", "redactClientLogData");
    given
        .iter()
        .filter(|g| g.option.key == "setParameter")
        .filter_map(|g| match &g.value {
            Value::Text(text) => Some((g.name.clone(), text.clone())),
            _ => None,
        })
        .chain(enabled)
        .chain(redacts)
        .collect()
}

fn net(options: &Lookup<'_>) -> Result<Net, ConfigError> {
    let ipv6 = options.switch("net.ipv6").unwrap_or(false);
    let all = options.switch("net.bindIpAll").unwrap_or(false);
    let bind_ip = options.text("net.bindIp");
    if all && bind_ip.is_some() {
        return Err(ConfigError::new(
            "--bind_ip and --bind_ip_all are mutually exclusive",
        ));
    }
    let bind: Vec<String> = match (all, bind_ip) {
        (true, _) => vec!["*".to_string()],
        (false, None) => vec!["localhost".to_string()],
        (false, Some(list)) => list
            .split(',')
            .map(|entry| entry.trim().to_string())
            .filter(|entry| !entry.is_empty())
            .collect(),
    };
    if bind.is_empty() {
        return Err(ConfigError::new("--bind_ip lists no address"));
    }
    for entry in &bind {
        if !ipv6 && matches!(entry.parse(), Ok(IpAddr::V6(_))) {
            return Err(ConfigError::new(format!(
                "--bind_ip lists the IPv6 address {entry}: add --ipv6"
            )));
        }
    }
    let with_socket = options
        .switch("net.unixDomainSocket.enabled")
        .unwrap_or(true);
    let prefix = options
        .text("net.unixDomainSocket.pathPrefix")
        .unwrap_or("/tmp");
    Ok(Net {
        port: options
            .integer("net.port")
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(DEFAULT_PORT),
        bind,
        ipv6,
        unix_socket: with_socket.then(|| UnixSocket {
            prefix: PathBuf::from(prefix),
        }),
        unix_permissions: permissions(options)?,
        connections_max: options
            .integer("net.maxIncomingConnections")
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(DEFAULT_CONNECTIONS_MAX),
        compressors: compressors(options)?,
        tls: tls::options(options)?,
    })
}

fn permissions(options: &Lookup<'_>) -> Result<u32, ConfigError> {
    let Some(text) = options.text("net.unixDomainSocket.filePermissions") else {
        return Ok(0o700);
    };
    u32::from_str_radix(text.trim_start_matches("0o"), 8)
        .ok()
        .filter(|bits| *bits <= 0o777)
        .ok_or_else(|| {
            ConfigError::new(format!(
                "--filePermissions must be an octal number up to 0777, not '{text}'"
            ))
        })
}

fn compressors(options: &Lookup<'_>) -> Result<CompressorSet, ConfigError> {
    let list = match options.text("net.compression.compressors") {
        None => return Ok(CompressorSet::all()),
        Some("disabled") => return Ok(CompressorSet::NONE),
        Some(list) => list,
    };
    list.split(',')
        .map(|name| {
            Compressor::from_name(name.trim()).ok_or_else(|| {
                ConfigError::new(format!(
                    "--networkMessageCompressors: unknown compressor '{name}'; use snappy, zstd or zlib"
                ))
            })
        })
        .collect()
}

fn storage(options: &Lookup<'_>) -> Storage {
    let path = options.text("storage.dbPath");
    let gigabytes = options.number("storage.wiredTiger.engineConfig.cacheSizeGB");
    Storage {
        db_path: Path::new(path.unwrap_or(DEFAULT_DB_PATH)).to_path_buf(),
        db_path_given: path.is_some(),
        engine: options
            .text("storage.engine")
            .filter(|name| *name != WIRED_TIGER)
            .map(str::to_string),
        cache_bytes: gigabytes.map(|gb| (gb * f64::from(1 << 30)) as u64),
        journal_commit_interval_ms: options
            .integer("storage.journal.commitIntervalMs")
            .and_then(|ms| u64::try_from(ms).ok())
            .unwrap_or(100),
        sync_period_secs: options.number("storage.syncPeriodSecs").unwrap_or(60.0),
        maintenance: match (
            options.switch("storage.repair"),
            options.switch("storage.verify"),
        ) {
            (Some(true), _) => Some(Maintenance::Repair),
            (_, Some(true)) => Some(Maintenance::Verify),
            _ => None,
        },
    }
}

fn log(given: &[Given], options: &Lookup<'_>) -> Result<LogSettings, ConfigError> {
    let path = options.text("systemLog.path").map(PathBuf::from);
    let append = options.switch("systemLog.logAppend").unwrap_or(false);
    let rotation = match options.text("systemLog.logRotate") {
        Some("reopen") => Rotation::Reopen,
        _ => Rotation::Rename,
    };
    match options.text("systemLog.destination") {
        Some("syslog") => {
            return Err(ConfigError::new(
                "'systemLog.destination: syslog' is refused: this version does not log to syslog",
            ));
        }
        Some(_) if path.is_none() => {
            return Err(ConfigError::new(
                "'systemLog.destination: file' requires systemLog.path",
            ));
        }
        _ => {}
    }
    if rotation == Rotation::Reopen && !append {
        return Err(ConfigError::new("--logRotate reopen requires --logappend"));
    }
    if append && path.is_none() {
        return Err(ConfigError::new("--logappend requires --logpath"));
    }
    let verbosity = options
        .integer("systemLog.verbosity")
        .or(options.integer("systemLog.component.verbosity"))
        .unwrap_or(0);
    Ok(LogSettings {
        options: LogOptions {
            destination: match path {
                Some(path) => Destination::File { path, append },
                None => Destination::Stdout,
            },
            utc: options.text("systemLog.timeStampFormat") == Some("iso8601-utc"),
            verbosity: u8::try_from(verbosity).unwrap_or(0),
            rotation,
        },
        components: given
            .iter()
            .filter_map(|g| match g.value {
                Value::Integer(level) => Some((Component::from_name(&g.name)?, level as i8)),
                _ => None,
            })
            .filter(|(component, _)| *component != Component::Default)
            .collect(),
        quiet: options.switch("systemLog.quiet").unwrap_or(false),
    })
}

fn profiling(options: &Lookup<'_>) -> Profiling {
    Profiling {
        level: match options.text("operationProfiling.mode") {
            Some("slowOp" | "1") => 1,
            Some("all" | "2") => 2,
            _ => 0,
        },
        slow_ms: options
            .integer("operationProfiling.slowOpThresholdMs")
            .unwrap_or(100),
        sample_rate: options
            .number("operationProfiling.slowOpSampleRate")
            .unwrap_or(1.0),
        filter: options.text("operationProfiling.filter").map(str::to_owned),
    }
}
