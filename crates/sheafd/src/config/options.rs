//! The table of options: MongoDB's names on the command line and in the file.
//!
//! The table lists every option of `mongod` that a user is likely to have in a
//! file or a script, including those the server does not support. An
//! unsupported option is refused with a reason, so no user assumes that a
//! switch is on when it is not.

use super::ConfigError;

/// One option.
#[derive(Debug)]
pub struct Opt {
    /// The long flag without its dashes; empty when only the file has it.
    pub flag: &'static str,
    /// The short flag.
    pub short: Option<char>,
    /// Another long flag of the same meaning.
    pub alias: Option<&'static str>,
    /// The dotted key in the file; empty when only the command line has it.
    pub key: &'static str,
    /// The type and range of its value.
    pub kind: Kind,
    /// For a switch: the value that the flag sets the key to, if not `true`.
    pub flag_means: Option<&'static str>,
    /// Whether the server supports it.
    pub standing: Standing,
    /// The value is not shown: it is a password.
    pub secret: bool,
    /// One line for `--help`.
    pub help: &'static str,
}

/// The type and range of an option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Present or not; `true` or `false` in the file.
    Switch,
    /// A whole number within these inclusive bounds.
    Integer(i64, i64),
    /// A number within these inclusive bounds.
    Number(f64, f64),
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `-v` to `-vvvvv`; a number in the file.
    Count(i64),
    /// `name=value`, repeatable; a mapping in the file.
    Parameters,
}

/// Whether the server supports an option.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// The option takes effect.
    Supported,
    /// The option has no effect, and no user is worse off for it: accepted, with a warning at
    /// startup unless the value is `usual`.
    Accepted {
        /// Completes the sentence "`option` has no effect: ...".
        because: &'static str,
        /// The value that describes what the server does anyway.
        usual: &'static str,
    },
    /// The option is an error, except with the value in `harmless`, which requests the default.
    Refused {
        /// Completes the sentence "`option` is refused: ...".
        because: &'static str,
        /// A value that means the option is off.
        harmless: Option<&'static str>,
    },
}

/// A value as given, validated against its option's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The value of a switch.
    Boolean(bool),
    /// The value of an integer or a count.
    Integer(i64),
    /// The value of a number.
    Number(f64),
    /// The value of a text, a choice, or a server parameter.
    Text(String),
}

const NO_MEMBERS: Standing = refused("a replica set has one member, which logs in to no other");
const NO_REPLICATION: Standing = refused("the oplog is trimmed by size only");
const NO_SHARDING: Standing = refused("this version does not support sharding");
const NOT_WIRED_TIGER: Standing =
    refused("it configures the WiredTiger engine, which this server does not have");

const fn refused(because: &'static str) -> Standing {
    Standing::Refused {
        because,
        harmless: None,
    }
}

const fn accepted(because: &'static str, usual: &'static str) -> Standing {
    Standing::Accepted { because, usual }
}

const fn refused_unless(because: &'static str, harmless: &'static str) -> Standing {
    Standing::Refused {
        because,
        harmless: Some(harmless),
    }
}

const fn option(
    flag: &'static str,
    key: &'static str,
    kind: Kind,
    standing: Standing,
    help: &'static str,
) -> Opt {
    Opt {
        flag,
        short: None,
        alias: None,
        key,
        kind,
        flag_means: None,
        standing,
        secret: false,
        help,
    }
}

const fn yes(flag: &'static str, key: &'static str, kind: Kind, help: &'static str) -> Opt {
    option(flag, key, kind, Standing::Supported, help)
}

const fn no(flag: &'static str, key: &'static str, kind: Kind, standing: Standing) -> Opt {
    option(flag, key, kind, standing, "")
}

const PORTS: Kind = Kind::Integer(0, 65535);
const LEVELS: Kind = Kind::Integer(0, 5);
const ANY: Kind = Kind::Text;
const AUTHORIZATION: Kind = Kind::Choice(&["enabled", "disabled"]);

/// Every option, in the order `--help` shows them.
#[rustfmt::skip]
pub static OPTIONS: &[Opt] = &[
    // General
    Opt { short: Some('f'), ..yes("config", "", Kind::Text, "YAML configuration file") },
    yes("setParameter", "setParameter", Kind::Parameters, "Set a server parameter, name=value; repeatable"),
    yes("shutdown", "", Kind::Switch, "Shut down the server that runs on --dbpath"),
    // Network
    yes("port", "net.port", PORTS, "TCP port; 0 lets the system choose [27017]"),
    yes("bind_ip", "net.bindIp", Kind::Text, "Comma-separated addresses, host names or Unix domain socket paths to listen on [localhost]"),
    yes("bind_ip_all", "net.bindIpAll", Kind::Switch, "Listen on all addresses"),
    yes("ipv6", "net.ipv6", Kind::Switch, "Allow IPv6 addresses"),
    yes("maxConns", "net.maxIncomingConnections", Kind::Integer(5, 1_000_000), "Maximum number of concurrent connections [65536]"),
    yes("networkMessageCompressors", "net.compression.compressors", Kind::Text, "Comma-separated message compressors, or 'disabled' [snappy,zstd,zlib]"),
    yes("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", Kind::Text, "Folder of the Unix domain socket [/tmp]"),
    Opt { flag_means: Some("false"), ..yes("nounixsocket", "net.unixDomainSocket.enabled", Kind::Switch, "Disable the Unix domain socket") },
    yes("filePermissions", "net.unixDomainSocket.filePermissions", Kind::Text, "Permissions of the Unix domain socket, in octal [0700]"),
    // TLS
    yes("tlsMode", "net.tls.mode", Kind::Choice(&["disabled", "allowTLS", "preferTLS", "requireTLS"]), "Use of TLS on TCP connections [disabled]"),
    yes("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Kind::Text, "PEM file of the server's certificate and private key"),
    Opt { secret: true, ..yes("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Kind::Text, "Password of an encrypted private key; asked for on a terminal if missing") },
    yes("tlsCertificateKeyFilePasswordFile", "net.tls.certificateKeyFilePasswordFile", Kind::Text, "File whose first line is that password"),
    yes("tlsCAFile", "net.tls.CAFile", Kind::Text, "PEM file of the trusted certificate authorities"),
    yes("tlsClusterCAFile", "net.tls.clusterCAFile", Kind::Text, "PEM file of the authorities for client certificates [that of --tlsCAFile]"),
    yes("tlsCRLFile", "net.tls.CRLFile", Kind::Text, "PEM file of certificate revocation lists"),
    yes("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", Kind::Switch, "Accept clients that present no certificate"),
    yes("tlsAllowInvalidCertificates", "net.tls.allowInvalidCertificates", Kind::Switch, "Accept invalid client certificates; they identify no user"),
    yes("tlsDisabledProtocols", "net.tls.disabledProtocols", Kind::Text, "Comma-separated protocols not to use: TLS1_0, TLS1_1, TLS1_2, TLS1_3"),
    yes("tlsLogVersions", "net.tls.logVersions", Kind::Text, "Comma-separated protocols whose connections are logged"),
    // Access control
    yes("auth", "", Kind::Switch, "Require clients to log in, and limit them to their roles"),
    Opt { flag_means: Some("disabled"), ..yes("noauth", "security.authorization", AUTHORIZATION, "Give every client access to everything") },
    yes("keyFile", "security.keyFile", Kind::Text, "File with the secret of the cluster's members; implies --auth"),
    // Storage
    yes("dbpath", "storage.dbPath", Kind::Text, "Data folder [./data]"),
    yes("storageEngine", "storage.engine", Kind::Text, "Storage engine: sheaf, redb or memory [the data folder's, else sheaf]"),
    yes("verify", "storage.verify", Kind::Switch, "Check all data files, report damage, and exit"),
    yes("repair", "storage.repair", Kind::Switch, "Salvage damaged data files into new ones, and exit"),
    Opt { alias: Some("cacheSizeGB"), ..yes("wiredTigerCacheSizeGB", "storage.wiredTiger.engineConfig.cacheSizeGB", Kind::Number(0.0, 10_000.0), "Memory budget for data, in GB") },
    yes("journalCommitInterval", "storage.journal.commitIntervalMs", Kind::Integer(1, 500), "Interval between log flushes, in milliseconds [100]"),
    yes("syncdelay", "storage.syncPeriodSecs", Kind::Number(0.0, 9_000_000.0), "Interval between checkpoints, in seconds [60]"),
    yes("notablescan", "", Kind::Switch, "Refuse queries that need a collection scan"),
    Opt { flag_means: Some("false"), ..yes("noscripting", "security.javascriptEnabled", Kind::Switch, "Disable server-side JavaScript") },
    // Log
    yes("logpath", "systemLog.path", Kind::Text, "Log to this file instead of standard output"),
    yes("logappend", "systemLog.logAppend", Kind::Switch, "Append to the log file instead of renaming the old one"),
    yes("logRotate", "systemLog.logRotate", Kind::Choice(&["rename", "reopen"]), "Action of log rotation [rename]"),
    yes("timeStampFormat", "systemLog.timeStampFormat", Kind::Choice(&["iso8601-local", "iso8601-utc"]), "Timestamp format of the log [iso8601-local]"),
    Opt { short: Some('v'), ..yes("verbose", "systemLog.verbosity", Kind::Count(5), "Increase log verbosity; repeatable, as in -vvv") },
    yes("redactClientLogData", "security.redactClientLogData", Kind::Switch, "Log no values that clients sent"),
    yes("quiet", "systemLog.quiet", Kind::Switch, "Do not log connections opening and closing"),
    yes("", "systemLog.destination", Kind::Choice(&["file", "syslog"]), ""),
    yes("", "systemLog.component.verbosity", LEVELS, ""),
    yes("", "systemLog.component.*.verbosity", Kind::Integer(-1, 5), ""),
    // Process
    yes("fork", "processManagement.fork", Kind::Switch, "Run in the background; requires --logpath"),
    yes("pidfilepath", "processManagement.pidFilePath", Kind::Text, "Write the process id to this file"),
    // Profiling
    yes("profile", "operationProfiling.mode", Kind::Choice(&["off", "slowOp", "all", "0", "1", "2"]), "Profiling level: 0 off, 1 slow operations, 2 all"),
    yes("slowms", "operationProfiling.slowOpThresholdMs", Kind::Integer(-1, i32::MAX as i64), "Threshold of slow operations, in milliseconds [100]"),
    yes("slowOpSampleRate", "operationProfiling.slowOpSampleRate", Kind::Number(0.0, 1.0), "Fraction of slow operations to log and profile [1]"),
    yes("slowOpFilter", "operationProfiling.filter", Kind::Text, "Log and profile the operations that match this query on profiler documents"),

    // Refused
    no("clusterAuthMode", "security.clusterAuthMode", ANY, NO_MEMBERS),
    no("transitionToAuth", "security.transitionToAuth", Kind::Switch, NO_MEMBERS),
    no("enableLocalhostAuthBypass", "", Kind::Switch, refused("it is a server parameter: use --setParameter enableLocalhostAuthBypass=false")),
    no("enableEncryption", "security.enableEncryption", Kind::Switch, refused_unless("this version does not encrypt its files", "false")),
    no("encryptionKeyFile", "security.encryptionKeyFile", ANY, refused("this version does not encrypt its files")),
    no("encryptionCipherMode", "security.encryptionCipherMode", ANY, refused("this version does not encrypt its files")),
    no("tlsCertificateSelector", "net.tls.certificateSelector", ANY, refused("there is no certificate store: use --tlsCertificateKeyFile")),
    no("tlsClusterFile", "net.tls.clusterFile", ANY, accepted("it is checked, but the server makes no connections of its own", "")),
    Opt { secret: true, ..no("tlsClusterPassword", "net.tls.clusterPassword", ANY, accepted("it is used only to check the file of --tlsClusterFile", "")) },
    no("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Kind::Switch, accepted("the server makes no connections of its own", "false")),
    no("tlsFIPSMode", "net.tls.FIPSMode", Kind::Switch, refused_unless("the cryptography library has no FIPS mode", "false")),
    no("sslMode", "net.ssl.mode", Kind::Text, refused_unless("use --tlsMode", "disabled")),
    no("sslPEMKeyFile", "net.ssl.PEMKeyFile", ANY, refused("use --tlsCertificateKeyFile")),
    no("sslCAFile", "net.ssl.CAFile", ANY, refused("use --tlsCAFile")),
    no("", "net.wireObjectCheck", Kind::Switch, refused_unless("documents are always validated on receipt", "true")),
    no("", "net.serviceExecutor", Kind::Text, refused("every connection has a dedicated thread")),
    no("listenBacklog", "net.listenBacklog", Kind::Text, refused("the backlog is fixed")),
    no("proxyPort", "net.proxyPort", Kind::Text, refused("this version does not support the proxy protocol")),
    yes("replSet", "replication.replSetName", Kind::Text, "Start as a single-member replica set with this name"),
    yes("oplogSize", "replication.oplogSizeMB", Kind::Integer(1, 1 << 30), "Maximum size of the oplog, in megabytes"),
    no("enableMajorityReadConcern", "replication.enableMajorityReadConcern", Kind::Switch, accepted("majority reads are always available", "true")),
    no("oplogMinRetentionHours", "storage.oplogMinRetentionHours", ANY, NO_REPLICATION),
    no("shardsvr", "", Kind::Switch, NO_SHARDING),
    no("configsvr", "", Kind::Switch, NO_SHARDING),
    no("", "sharding.clusterRole", ANY, NO_SHARDING),
    no("upgrade", "", Kind::Switch, refused("there is nothing to upgrade")),
    no("directoryperdb", "storage.directoryPerDB", Kind::Switch, accepted("all databases share one set of files", "false")),
    no("nojournal", "", Kind::Switch, accepted("the log is always on", "false")),
    no("journal", "storage.journal.enabled", Kind::Switch, accepted("the log is always on", "true")),
    no("wiredTigerCollectionBlockCompressor", "storage.wiredTiger.collectionConfig.blockCompressor", ANY, NOT_WIRED_TIGER),
    no("wiredTigerIndexPrefixCompression", "storage.wiredTiger.indexConfig.prefixCompression", ANY, NOT_WIRED_TIGER),
    no("wiredTigerDirectoryForIndexes", "storage.wiredTiger.engineConfig.directoryForIndexes", Kind::Switch, refused_unless("it configures the WiredTiger engine, which this server does not have", "false")),
    no("wiredTigerJournalCompressor", "storage.wiredTiger.engineConfig.journalCompressor", ANY, NOT_WIRED_TIGER),
    no("wiredTigerMaxCacheOverflowFileSizeGB", "storage.wiredTiger.engineConfig.maxCacheOverflowFileSizeGB", ANY, NOT_WIRED_TIGER),
    no("wiredTigerEngineConfigString", "storage.wiredTiger.engineConfig.configString", ANY, NOT_WIRED_TIGER),
    no("zstdDefaultCompressionLevel", "storage.wiredTiger.engineConfig.zstdCompressionLevel", ANY, NOT_WIRED_TIGER),
    no("inMemorySizeGB", "storage.inMemory.engineConfig.inMemorySizeGB", ANY, refused("use --wiredTigerCacheSizeGB")),
    no("restore", "", Kind::Switch, refused("this version does not restore backups")),
    no("syslog", "", Kind::Switch, refused("this version does not log to syslog: use --logpath")),
    no("syslogFacility", "systemLog.syslogFacility", ANY, refused("this version does not log to syslog: use --logpath")),
    no("traceExceptions", "systemLog.traceAllExceptions", Kind::Switch, refused_unless("it has no meaning here", "false")),
    no("timeZoneInfo", "processManagement.timeZoneInfo", ANY, accepted("time zone rules are built in", "")),
    no("auditDestination", "auditLog.destination", ANY, refused("this version has no audit log")),
    no("auditFormat", "auditLog.format", ANY, refused("this version has no audit log")),
    no("auditPath", "auditLog.path", ANY, refused("this version has no audit log")),
    no("auditFilter", "auditLog.filter", ANY, refused("this version has no audit log")),
    no("cpu", "", Kind::Switch, refused("the option no longer exists")),
    no("configExpand", "", Kind::Text, refused_unless("expansion directives in configuration files are not supported", "none")),
    no("enableFreeMonitoring", "cloud.monitoring.free.state", Kind::Text, refused_unless("there is no monitoring service", "off")),
];

/// Finds an option by its long flag or alias.
pub fn by_flag(flag: &str) -> Option<&'static Opt> {
    OPTIONS
        .iter()
        .find(|o| !flag.is_empty() && (o.flag == flag || o.alias == Some(flag)))
}

/// Finds an option by its key in the file; also returns the variable part of the key.
pub fn by_key(key: &str) -> Option<(&'static Opt, &str)> {
    OPTIONS.iter().find_map(|option| {
        if option.key.is_empty() {
            return None;
        }
        if option.kind == Kind::Parameters {
            let name = key.strip_prefix(option.key)?.strip_prefix('.')?;
            return Some((option, name));
        }
        match option.key.split_once('*') {
            None => (option.key == key).then_some((option, "")),
            Some((before, after)) => {
                let name = key.strip_prefix(before)?.strip_suffix(after)?;
                Some((option, name))
            }
        }
    })
}

/// True if `key` is a section: a proper prefix of option keys.
pub fn is_section(key: &str) -> bool {
    OPTIONS.iter().any(|option| {
        let begins = |k: &str| {
            k.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        begins(option.key)
            || option.kind == Kind::Parameters && option.key == key
            || option
                .key
                .split_once('*')
                .is_some_and(|(before, _)| key.starts_with(before))
    })
}

impl Opt {
    /// Why the option has no effect with this value; `None` if it has one, or if the value
    /// describes what the server does anyway.
    pub fn without_effect(&self, value: &Value) -> Option<&'static str> {
        let Standing::Accepted { because, usual } = self.standing else {
            return None;
        };
        let is_usual = match value {
            Value::Boolean(on) => usual == if *on { "true" } else { "false" },
            Value::Text(text) => usual == text,
            Value::Integer(_) | Value::Number(_) => false,
        };
        (!is_usual).then_some(because)
    }

    /// True if the option takes no argument on the command line.
    pub fn is_flag(&self) -> bool {
        self.kind == Kind::Switch || self.flag_means.is_some()
    }

    /// The setting that the option changes: its key, or its flag if it has no key.
    /// Of two options with the same target the last one wins.
    pub fn target(&self) -> &'static str {
        match self.key {
            "" => self.flag,
            key => key,
        }
    }

    /// Parses a value. `named` is the option as the user wrote it, for errors.
    ///
    /// Errors: the option is refused, or the value does not match its kind.
    pub fn value(&self, named: &str, text: &str) -> Result<Value, ConfigError> {
        if let Standing::Refused { because, harmless } = self.standing {
            return match harmless {
                Some(harmless) if harmless == text => Ok(Value::Text(text.to_string())),
                _ => Err(ConfigError::new(format!("{named} is refused: {because}"))),
            };
        }
        let wrong = |expected: String| {
            ConfigError::new(format!("{named} must be {expected}, not '{text}'"))
        };
        match self.kind {
            Kind::Switch => match text {
                "true" => Ok(Value::Boolean(true)),
                "false" => Ok(Value::Boolean(false)),
                word if self.flag_means == Some(word) => Ok(Value::Text(word.to_string())),
                _ => Err(wrong("true or false".into())),
            },
            Kind::Integer(min, max) => match text.parse::<i64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(Value::Integer(n)),
                _ => Err(wrong(format!("a whole number from {min} to {max}"))),
            },
            Kind::Count(max) => match text.parse::<i64>() {
                Ok(n) if (0..=max).contains(&n) => Ok(Value::Integer(n)),
                _ => Err(wrong(format!("a whole number from 0 to {max}"))),
            },
            Kind::Number(min, max) => match text.parse::<f64>() {
                Ok(x) if x >= min && x <= max => Ok(Value::Number(x)),
                _ => Err(wrong(format!("a number from {min} to {max}"))),
            },
            Kind::Choice(words) => match words.contains(&text) {
                true => Ok(Value::Text(text.to_string())),
                false => Err(wrong(format!("one of {}", words.join(", ")))),
            },
            Kind::Text | Kind::Parameters if text.is_empty() => {
                Err(ConfigError::new(format!("{named} requires a value")))
            }
            Kind::Text | Kind::Parameters => Ok(Value::Text(text.to_string())),
        }
    }
}
