//! Options of the command line and the file: accepted, without effect, or rejected.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use sheaf_bson::json;

use super::options::{self, OPTIONS, Standing};
use super::{ConfigError, Request, Settings, read_with};
use sheaf_server::log::{Component, Destination, Rotation};

/// Reads a command line, with this text as the configuration file `conf`.
fn read(line: &[&str], file: &str) -> Result<Request, ConfigError> {
    let mut arguments: Vec<OsString> = vec!["sheafd".into()];
    arguments.extend(line.iter().map(OsString::from));
    read_with(&arguments, &|path| match path == Path::new("conf") {
        true => Ok(file.to_string()),
        false => Err(io::ErrorKind::NotFound.into()),
    })
}

fn settings(line: &[&str], file: &str) -> Settings {
    match read(line, file) {
        Ok(Request::Run(settings)) => *settings,
        other => panic!("{line:?} is {other:?}"),
    }
}

fn from_line(line: &[&str]) -> Settings {
    settings(line, "")
}

fn from_file(file: &str) -> Settings {
    settings(&["--config", "conf"], file)
}

/// The error's text.
fn refused(line: &[&str], file: &str) -> String {
    match read(line, file) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("{line:?} is accepted with:\n{file}"),
    }
}

fn parsed(settings: &Settings) -> String {
    json::to_relaxed(settings.server.parsed.as_raw())
}

#[test]
fn defaults() {
    let s = from_line(&[]);
    assert_eq!(s.net.port, 27017);
    assert_eq!(s.net.bind, ["localhost"]);
    assert_eq!(s.net.unix_socket.unwrap().prefix, PathBuf::from("/tmp"));
    assert_eq!(s.net.unix_permissions, 0o700);
    assert_eq!(s.net.connections_max, 65_536);
    assert!(!s.net.ipv6 && !s.fork && !s.server.no_table_scan && !s.log.quiet);
    let names: Vec<_> = s.net.compressors.iter().map(|c| c.name()).collect();
    assert_eq!(names, ["snappy", "zstd", "zlib"]);
    assert_eq!(s.server.storage.db_path, PathBuf::from("data"));
    assert!(!s.server.storage.db_path_given);
    assert_eq!(s.server.storage.journal_commit_interval_ms, 100);
    assert_eq!(s.server.storage.sync_period_secs, 60.0);
    assert_eq!(s.server.profiling.slow_ms, 100);
    assert_eq!(s.server.profiling.sample_rate, 1.0);
    assert_eq!(s.log.options.destination, Destination::Stdout);
    assert_eq!(s.server.arguments, ["sheafd"]);
}

#[test]
fn both_spellings_set_the_same() {
    let line = from_line(&[
        "--port",
        "4000",
        "--bind_ip=127.0.0.1, ::1 ,/tmp/x.sock",
        "--ipv6",
        "--maxConns",
        "50",
        "--networkMessageCompressors",
        "zlib,snappy",
        "--unixSocketPrefix",
        "/run/x",
        "--filePermissions",
        "0777",
        "--dbpath",
        "/d",
        "--storageEngine",
        "inMemory",
        "--cacheSizeGB",
        "0.5",
        "--journalCommitInterval",
        "30",
        "--syncdelay",
        "10",
        "--logpath",
        "/l",
        "--logappend",
        "--logRotate",
        "reopen",
        "-vv",
        "--quiet",
        "--timeStampFormat",
        "iso8601-utc",
        "--fork",
        "--pidfilepath",
        "/p",
        "--profile",
        "1",
        "--slowms",
        "-1",
        "--slowOpSampleRate",
        "0.25",
        "--setParameter",
        "a=1",
        "--setParameter",
        "b=x=y",
    ]);
    let file = from_file(
        "
# everything
net:
  port: 4000
  bindIp: 127.0.0.1, ::1 ,/tmp/x.sock
  ipv6: true
  maxIncomingConnections: 50
  compression: {compressors: 'zlib,snappy'}
  unixDomainSocket:
    pathPrefix: /run/x
    filePermissions: 0777
storage:
  dbPath: /d
  engine: inMemory
  journal: {commitIntervalMs: 30}
  syncPeriodSecs: 10
  wiredTiger:
    engineConfig:
      cacheSizeGB: 0.5
systemLog:
  destination: file
  path: /l
  logAppend: true
  logRotate: reopen
  verbosity: 2
  quiet: true
  timeStampFormat: iso8601-utc
processManagement: {fork: true, pidFilePath: /p}
operationProfiling:
  mode: slowOp
  slowOpThresholdMs: -1
  slowOpSampleRate: 0.25
setParameter:
  a: 1
  b: x=y
",
    );
    for s in [line, file] {
        assert_eq!(s.net.port, 4000);
        assert_eq!(s.net.bind, ["127.0.0.1", "::1", "/tmp/x.sock"]);
        assert!(s.net.ipv6);
        assert_eq!(s.net.connections_max, 50);
        let names: Vec<_> = s.net.compressors.iter().map(|c| c.name()).collect();
        assert_eq!(names, ["zlib", "snappy"]);
        assert_eq!(s.net.unix_socket.unwrap().prefix, PathBuf::from("/run/x"));
        assert_eq!(s.net.unix_permissions, 0o777);
        assert_eq!(s.server.storage.db_path, PathBuf::from("/d"));
        assert!(s.server.storage.db_path_given);
        assert_eq!(s.server.storage.engine.as_deref(), Some("inMemory"));
        assert_eq!(s.server.storage.cache_bytes, Some(1 << 29));
        assert_eq!(s.server.storage.journal_commit_interval_ms, 30);
        assert_eq!(s.server.storage.sync_period_secs, 10.0);
        let destination = Destination::File {
            path: "/l".into(),
            append: true,
        };
        assert_eq!(s.log.options.destination, destination);
        assert_eq!(s.log.options.rotation, Rotation::Reopen);
        assert_eq!(s.log.options.verbosity, 2);
        assert!(s.log.options.utc && s.log.quiet && s.fork);
        assert_eq!(s.pid_file, Some("/p".into()));
        assert_eq!(s.server.profiling.level, 1);
        assert_eq!(s.server.profiling.slow_ms, -1);
        assert_eq!(s.server.profiling.sample_rate, 0.25);
        let parameters = [("a", "1"), ("b", "x=y")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(s.server.parameters, parameters);
    }
}

#[test]
fn the_command_line_wins() {
    let file = "
net: {port: 1, ipv6: true}
storage: {dbPath: /file}
setParameter: {a: file, b: file}
";
    let line = ["-f", "conf", "--port", "2", "--setParameter", "a=line"];
    let s = settings(&line, file);
    assert_eq!(s.net.port, 2);
    assert!(s.net.ipv6);
    assert_eq!(s.server.storage.db_path, PathBuf::from("/file"));
    let expected = [("b", "file"), ("a", "line")].map(|(n, v)| (n.into(), v.into()));
    assert_eq!(s.server.parameters, expected);

    // Also where the flag and the key have different names.
    let file = "net: {unixDomainSocket: {enabled: true}}";
    let s = settings(&["--config", "conf", "--nounixsocket"], file);
    assert_eq!(s.net.unix_socket, None);
}

#[test]
fn what_get_cmd_line_opts_shows() {
    for (line, file, expected) in [
        (vec![], "", "{}"),
        (
            vec![
                "--port",
                "1",
                "--dbpath",
                "d",
                "-v",
                "--logpath",
                "l",
                "--nounixsocket",
                "--notablescan",
            ],
            "",
            r#"{"net":{"port":1,"unixDomainSocket":{"enabled":false}},"setParameter":{"notablescan":true},"storage":{"dbPath":"d"},"systemLog":{"destination":"file","path":"l","verbosity":1}}"#,
        ),
        (
            vec![
                "--config",
                "conf",
                "--profile",
                "2",
                "--setParameter",
                "ttlMonitorEnabled=false",
            ],
            "systemLog: {component: {network: {verbosity: 3}}}",
            r#"{"config":"conf","operationProfiling":{"mode":"all"},"setParameter":{"ttlMonitorEnabled":"false"},"systemLog":{"component":{"network":{"verbosity":3}}}}"#,
        ),
    ] {
        assert_eq!(parsed(&settings(&line, file)), expected);
    }
}

#[test]
fn verbosity_of_components() {
    let s = from_file(
        "
systemLog:
  component:
    verbosity: 1
    network: {verbosity: 3}
    replication:
      verbosity: -1
      election: {verbosity: 5}
",
    );
    assert_eq!(s.log.options.verbosity, 1);
    let expected = [
        (Component::Network, 3),
        (Component::Replication, -1),
        (Component::Election, 5),
    ];
    assert_eq!(s.log.components, expected);
}

#[test]
fn refusals_name_the_option() {
    for (line, expected) in [
        (
            vec!["--port", "70000"],
            "--port must be a whole number from 0 to 65535, not '70000'",
        ),
        (
            vec!["--port", "x"],
            "--port must be a whole number from 0 to 65535, not 'x'",
        ),
        (
            vec!["--maxConns", "1"],
            "--maxConns must be a whole number from 5 to 1000000, not '1'",
        ),
        (
            vec!["--slowOpSampleRate", "1.5"],
            "--slowOpSampleRate must be a number from 0 to 1, not '1.5'",
        ),
        (
            vec!["--slowOpSampleRate", "NaN"],
            "--slowOpSampleRate must be a number from 0 to 1, not 'NaN'",
        ),
        (
            vec!["--profile", "3"],
            "--profile must be one of off, slowOp, all, 0, 1, 2, not '3'",
        ),
        (
            vec!["--setParameter", "a"],
            "--setParameter must be name=value, not 'a'",
        ),
        (vec!["--dbpath", ""], "--dbpath requires a value"),
        (
            vec!["--auth", "--noauth"],
            "--auth and --noauth are mutually exclusive",
        ),
        (
            vec!["--tlsMode", "always"],
            "--tlsMode must be one of disabled, allowTLS, preferTLS, requireTLS, not 'always'",
        ),
        (
            vec!["--tlsMode", "requireTLS"],
            "--tlsMode needs --tlsCertificateKeyFile, a PEM file of the server's certificate and key",
        ),
        (
            vec!["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", "f"],
            "--tlsMode needs --tlsCAFile, a PEM file of the authorities that certificates are checked with",
        ),
        (
            vec!["--tlsCAFile", "f"],
            "--tlsCAFile needs TLS: add --tlsMode requireTLS, or remove the option",
        ),
        (
            vec!["--tlsMode", "disabled", "--tlsAllowInvalidCertificates"],
            "--tlsAllowInvalidCertificates needs TLS: add --tlsMode requireTLS, or remove the option",
        ),
        (
            with_tls(&["--tlsClusterPassword", "x"]),
            "--tlsClusterPassword needs --tlsClusterFile, whose key it decrypts",
        ),
        (
            with_tls(&["--tlsDisabledProtocols", "TLS1_2,TLS1_3"]),
            "--tlsDisabledProtocols leaves no protocol: keep TLS1_2 or TLS1_3",
        ),
        (
            with_tls(&["--tlsDisabledProtocols", "TLS1_4"]),
            "--tlsDisabledProtocols: unknown protocol 'TLS1_4'; use TLS1_0, TLS1_1, TLS1_2 or TLS1_3",
        ),
        (
            with_tls(&[
                "--tlsCertificateKeyFilePassword",
                "x",
                "--tlsCertificateKeyFilePasswordFile",
                "y",
            ]),
            "--tlsCertificateKeyFilePassword and --tlsCertificateKeyFilePasswordFile are mutually exclusive",
        ),
        (
            with_tls(&["--tlsFIPSMode"]),
            "--tlsFIPSMode is refused: the cryptography library has no FIPS mode",
        ),
        (
            vec!["--sslMode", "requireSSL"],
            "--sslMode is refused: use --tlsMode",
        ),
        (
            vec!["--wiredTigerCollectionBlockCompressor=zstd"],
            "--wiredTigerCollectionBlockCompressor is refused: it configures the WiredTiger engine, which this server does not have",
        ),
        (
            vec!["--networkMessageCompressors", "lz4"],
            "--networkMessageCompressors: unknown compressor 'lz4'; use snappy, zstd or zlib",
        ),
        (
            vec!["--bind_ip", "::1"],
            "--bind_ip lists the IPv6 address ::1: add --ipv6",
        ),
        (vec!["--bind_ip", ","], "--bind_ip lists no address"),
        (
            vec!["--bind_ip", "127.0.0.1", "--bind_ip_all"],
            "--bind_ip and --bind_ip_all are mutually exclusive",
        ),
        (vec!["--fork"], "--fork requires --logpath"),
        (vec!["--logappend"], "--logappend requires --logpath"),
        (
            vec!["--logpath", "l", "--logRotate", "reopen"],
            "--logRotate reopen requires --logappend",
        ),
        (
            vec!["--filePermissions", "9"],
            "--filePermissions must be an octal number up to 0777, not '9'",
        ),
        (
            vec!["--config", "missing"],
            "cannot read the configuration file missing: entity not found",
        ),
    ] {
        assert_eq!(refused(&line, ""), expected);
    }
    for (line, expected) in [
        (vec!["--nosuch"], "--nosuch"),
        (vec!["nosuch"], "nosuch"),
        (vec!["--port"], "--port"),
        (vec!["--port", "1", "--port", "2"], "--port"),
    ] {
        let message = refused(&line, "");
        assert!(message.contains(expected), "{message}");
        assert!(!message.contains("Usage"), "{message}");
    }
}

#[test]
fn refusals_name_the_line() {
    for (file, expected) in [
        (
            "net:\n  port: 1\n  prot: 2\n",
            "line 3: unknown key 'net.prot'",
        ),
        ("nets:\n  port: 1\n", "line 1: unknown key 'nets'"),
        ("\n\nport: 1\n", "line 3: unknown key 'port'"),
        (
            "net:\n  port: x\n",
            "line 2: 'net.port' must be a whole number from 0 to 65535, not 'x'",
        ),
        (
            "net:\n  port: [1, 2]\n",
            "line 2: 'net.port' takes a single value, not a list; separate values with commas",
        ),
        (
            "net:\n  port:\n    a: 1\n",
            "line 2: 'net.port' takes a single value, not a mapping",
        ),
        (
            "net:\n  port: 1\n  port: 2\n",
            "line 3: duplicate key 'net.port'",
        ),
        (
            "net:\n  ipv6: yes\n",
            "line 2: 'net.ipv6' must be true or false, not 'yes'",
        ),
        ("net: 5\n", "line 1: unknown key 'net'"),
        (
            "storage:\n  dbPath:\n",
            "line 2: 'storage.dbPath' requires a value",
        ),
        (
            "security:\n  authorization: maybe\n",
            "line 2: 'security.authorization' must be one of enabled, disabled, not 'maybe'",
        ),
        (
            "net:\n  tls:\n    mode: requireSSL\n",
            "line 3: 'net.tls.mode' must be one of disabled, allowTLS, preferTLS, requireTLS, not 'requireSSL'",
        ),
        (
            "systemLog:\n  component:\n    nosuch: {verbosity: 1}\n",
            "line 3: unknown key 'systemLog.component.nosuch.verbosity'",
        ),
        (
            "- a\n",
            "line 1: the file must be a mapping, such as 'net:' followed by an indented 'port: 27017'",
        ),
        (
            "port = 1\n",
            "line 1: the file must be a mapping, such as 'net:' followed by an indented 'port: 27017'",
        ),
        (
            "net: {port: 1}\n---\nnet: {port: 2}\n",
            "line 2: the file must contain one document",
        ),
        (
            "net: &a {port: 1}\nstorage: *a\n",
            "line 2: 'storage' has an unsupported value",
        ),
        (
            "net:\n\tport: 1\n",
            "line 2: not YAML: tabs disallowed within this context (block indentation)",
        ),
        (
            "systemLog: {destination: syslog}",
            "'systemLog.destination: syslog' is refused: this version does not log to syslog",
        ),
        (
            "systemLog: {destination: file}",
            "'systemLog.destination: file' requires systemLog.path",
        ),
    ] {
        let message = refused(&["--config", "conf"], file);
        let message = message
            .strip_prefix("configuration file conf: ")
            .unwrap_or(&message);
        assert_eq!(message, expected, "{file}");
    }
}

#[test]
fn options_without_effect_pass() {
    for file in [
        "",
        "# nothing\n",
        "---\n",
        "net:\n",
        "security: {authorization: disabled}",
        "net: {tls: {mode: disabled}, wireObjectCheck: true}",
        "storage: {journal: {enabled: true}, directoryPerDB: false}",
        "replication:\n",
        "systemLog: {component: }",
    ] {
        from_file(file);
    }
    from_line(&["--noauth"]);
    from_line(&["--configExpand", "none"]);
}

#[test]
fn an_option_without_effect_is_accepted_and_reported() {
    let line = &[
        "--nojournal",
        "--directoryperdb",
        "--enableMajorityReadConcern",
        "--storageEngine",
        "wiredTiger",
    ];
    let settings = from_line(line);
    let names: Vec<&str> = (settings.without_effect.iter())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "storage.directoryPerDB",
            "nojournal",
            "storage.engine: wiredTiger"
        ]
    );
    assert_eq!(settings.server.storage.engine, None);
    let file = "processManagement: {timeZoneInfo: /usr/share/zoneinfo}\nstorage: {journal: {enabled: false}}";
    let settings = from_file(file);
    assert_eq!(settings.without_effect.len(), 2);
}

#[test]
fn scripts_can_be_switched_off() {
    let off = [("javascriptEnabled".to_owned(), "false".to_owned())];
    assert_eq!(from_line(&["--noscripting"]).server.parameters, off);
    let file = "security: {javascriptEnabled: false}";
    assert_eq!(from_file(file).server.parameters, off);
    assert!(from_line(&[]).server.parameters.is_empty());
}

#[test]
fn every_flag_and_key_is_unique() {
    for option in OPTIONS {
        let same_key = OPTIONS
            .iter()
            .filter(|o| !o.key.is_empty() && o.key == option.key);
        assert!(same_key.count() <= 1, "{}", option.key);
        let same_flag = OPTIONS
            .iter()
            .filter(|o| !o.flag.is_empty() && o.flag == option.flag);
        assert!(same_flag.count() <= 1, "{}", option.flag);
        let shown = option.standing == Standing::Supported && !option.flag.is_empty();
        assert_eq!(shown, !option.help.is_empty(), "{}", option.flag);
    }
}

#[test]
fn flags_that_people_use_are_known() {
    for flag in [
        "config",
        "port",
        "bind_ip",
        "bind_ip_all",
        "ipv6",
        "unixSocketPrefix",
        "nounixsocket",
        "maxConns",
        "networkMessageCompressors",
        "dbpath",
        "directoryperdb",
        "storageEngine",
        "wiredTigerCacheSizeGB",
        "wiredTigerCollectionBlockCompressor",
        "wiredTigerIndexPrefixCompression",
        "wiredTigerDirectoryForIndexes",
        "journalCommitInterval",
        "syncdelay",
        "oplogMinRetentionHours",
        "repair",
        "replSet",
        "oplogSize",
        "enableMajorityReadConcern",
        "auth",
        "noauth",
        "keyFile",
        "clusterAuthMode",
        "setParameter",
        "tlsMode",
        "tlsCertificateKeyFile",
        "tlsCAFile",
        "tlsAllowConnectionsWithoutCertificates",
        "tlsAllowInvalidCertificates",
        "tlsDisabledProtocols",
        "logpath",
        "logappend",
        "logRotate",
        "syslog",
        "verbose",
        "quiet",
        "timeStampFormat",
        "fork",
        "pidfilepath",
        "shutdown",
        "profile",
        "slowms",
        "slowOpSampleRate",
        "notablescan",
        "shardsvr",
        "configsvr",
        "auditDestination",
        "enableEncryption",
        "timeZoneInfo",
    ] {
        assert!(options::by_flag(flag).is_some(), "{flag}");
    }
}

/// A command line with the options that TLS needs, and these.
fn with_tls<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut line = vec![
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        "own.pem",
        "--tlsCAFile",
        "ca.pem",
    ];
    line.extend(more);
    line
}

#[test]
fn options_of_tls() {
    use crate::tls::{Password, TlsMode, TlsVersion};

    assert!(from_line(&[]).net.tls.is_none());
    assert!(from_line(&["--tlsMode", "disabled"]).net.tls.is_none());
    let tls = from_line(&with_tls(&[])).net.tls.unwrap();
    assert_eq!(tls.mode, TlsMode::Require);
    assert_eq!(tls.certificate_key_file, Path::new("own.pem"));
    assert_eq!(tls.ca_file, Path::new("ca.pem"));
    assert_eq!(tls.versions, [TlsVersion::Tls12, TlsVersion::Tls13]);
    assert_eq!(tls.password, None);
    assert!(!tls.allow_connections_without_certificates);

    let file = "net:
  tls:
    mode: preferTLS
    certificateKeyFile: own.pem
    certificateKeyFilePassword: word
    CAFile: ca.pem
    clusterCAFile: clients.pem
    CRLFile: revoked.pem
    clusterFile: member.pem
    clusterPassword: other
    allowConnectionsWithoutCertificates: true
    allowInvalidCertificates: true
    allowInvalidHostnames: true
    disabledProtocols: TLS1_0,TLS1_1,TLS1_2
    logVersions: TLS1_3
";
    let settings = from_file(file);
    let tls = settings.net.tls.unwrap();
    assert_eq!(tls.mode, TlsMode::Prefer);
    assert_eq!(tls.password, Some(Password("word".to_owned())));
    assert_eq!(
        tls.cluster_ca_file.as_deref(),
        Some(Path::new("clients.pem"))
    );
    assert_eq!(tls.crl_file.as_deref(), Some(Path::new("revoked.pem")));
    assert_eq!(tls.cluster_file.as_deref(), Some(Path::new("member.pem")));
    assert!(tls.allow_connections_without_certificates);
    assert!(tls.allow_invalid_certificates);
    assert_eq!(tls.versions, [TlsVersion::Tls13]);
    assert_eq!(tls.log_versions, [TlsVersion::Tls13]);
    let without_effect: Vec<&str> = settings
        .without_effect
        .iter()
        .map(|(option, _)| option.as_str())
        .collect();
    assert_eq!(
        without_effect,
        [
            "net.tls.clusterFile",
            "net.tls.clusterPassword",
            "net.tls.allowInvalidHostnames"
        ]
    );
}

#[test]
fn passwords_are_not_shown() {
    let line = with_tls(&[
        "--tlsCertificateKeyFilePassword",
        "hunter2",
        "--tlsClusterFile",
        "c.pem",
        "--tlsClusterPassword=hunter2",
    ]);
    let server = from_line(&line).server;
    let shown = format!("{:?} {:?}", server.arguments, server.parsed);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(
        server
            .arguments
            .contains(&"--tlsClusterPassword=<password>".to_owned())
    );
    let tls = server.parsed.get("net").and_then(|v| v.as_document());
    let tls = tls
        .and_then(|net| net.get("tls"))
        .and_then(|v| v.as_document());
    let password = tls.and_then(|tls| tls.get("certificateKeyFilePassword"));
    assert_eq!(password.and_then(|v| v.as_str()), Some("<password>"));
}

#[test]
fn access_control() {
    let off = from_line(&[]);
    assert!(!off.server.authorization && !off.no_auth);
    assert!(from_line(&["--auth"]).server.authorization);
    assert!(
        from_file("security: {authorization: enabled}")
            .server
            .authorization
    );
    assert!(from_line(&["--noauth"]).no_auth);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = path.to_str().unwrap();
    let write = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, permissions).unwrap();
    };
    write("c2hl\nYWY=\n", 0o600);
    assert!(from_line(&["--keyFile", key]).server.authorization);
    assert!(refused(&["--keyFile", key, "--noauth"], "").contains("remove --noauth"));
    write("c2hlYWY=", 0o644);
    assert!(refused(&["--keyFile", key], "").contains("0600"));
    for text in ["short", "no base64!"] {
        write(text, 0o600);
        assert!(
            refused(&["--keyFile", key], "").contains("base64"),
            "{text}"
        );
    }
    assert!(refused(&["--keyFile", "/nowhere"], "").contains("cannot be read"));
}
