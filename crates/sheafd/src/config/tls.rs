//! The options of TLS, checked against each other.

use std::path::PathBuf;

use super::ConfigError;
use super::settings::Lookup;
use crate::tls::{Password, TlsMode, TlsOptions, TlsVersion};

/// Options that say how TLS is used, and need it.
const OF_TLS: &[(&str, &str)] = &[
    ("net.tls.certificateKeyFile", "--tlsCertificateKeyFile"),
    (
        "net.tls.certificateKeyFilePassword",
        "--tlsCertificateKeyFilePassword",
    ),
    (
        "net.tls.certificateKeyFilePasswordFile",
        "--tlsCertificateKeyFilePasswordFile",
    ),
    ("net.tls.CAFile", "--tlsCAFile"),
    ("net.tls.clusterCAFile", "--tlsClusterCAFile"),
    ("net.tls.CRLFile", "--tlsCRLFile"),
    ("net.tls.clusterFile", "--tlsClusterFile"),
    ("net.tls.clusterPassword", "--tlsClusterPassword"),
    ("net.tls.disabledProtocols", "--tlsDisabledProtocols"),
    ("net.tls.logVersions", "--tlsLogVersions"),
];

/// Switches that need TLS when they are on.
const SWITCHES: &[(&str, &str)] = &[
    (
        "net.tls.allowConnectionsWithoutCertificates",
        "--tlsAllowConnectionsWithoutCertificates",
    ),
    (
        "net.tls.allowInvalidCertificates",
        "--tlsAllowInvalidCertificates",
    ),
    (
        "net.tls.allowInvalidHostnames",
        "--tlsAllowInvalidHostnames",
    ),
];

/// The options of TLS; `None` if it is disabled.
///
/// Errors: an option is missing, or given without the one that it needs.
pub(super) fn options(options: &Lookup<'_>) -> Result<Option<TlsOptions>, ConfigError> {
    let mode = options.text("net.tls.mode").and_then(TlsMode::from_name);
    let Some(mode) = mode else {
        return match given(options) {
            None => Ok(None),
            Some(name) => Err(ConfigError::new(format!(
                "{name} needs TLS: add --tlsMode requireTLS, or remove the option"
            ))),
        };
    };
    let path = |target| options.text(target).map(PathBuf::from);
    let cluster_file = path("net.tls.clusterFile");
    let cluster_password = options.text("net.tls.clusterPassword");
    if cluster_password.is_some() && cluster_file.is_none() {
        return Err(ConfigError::new(
            "--tlsClusterPassword needs --tlsClusterFile, whose key it decrypts",
        ));
    }
    Ok(Some(TlsOptions {
        mode,
        certificate_key_file: path("net.tls.certificateKeyFile").ok_or_else(|| {
            ConfigError::new(
                "--tlsMode needs --tlsCertificateKeyFile, a PEM file of the server's certificate and key",
            )
        })?,
        password: password(options)?,
        ca_file: path("net.tls.CAFile").ok_or_else(|| {
            ConfigError::new(
                "--tlsMode needs --tlsCAFile, a PEM file of the authorities that certificates are checked with",
            )
        })?,
        cluster_ca_file: path("net.tls.clusterCAFile"),
        crl_file: path("net.tls.CRLFile"),
        cluster_file,
        cluster_password: cluster_password.map(|text| Password(text.to_owned())),
        allow_connections_without_certificates: options
            .switch("net.tls.allowConnectionsWithoutCertificates")
            .unwrap_or(false),
        allow_invalid_certificates: options
            .switch("net.tls.allowInvalidCertificates")
            .unwrap_or(false),
        versions: versions(options)?,
        log_versions: named(options, "net.tls.logVersions", "--tlsLogVersions")?,
    }))
}

/// Values that change nothing, for the startup log.
pub(super) fn without_effect(options: &Lookup<'_>) -> Option<(String, &'static str)> {
    let list = options.text("net.tls.disabledProtocols")?;
    (list == NONE).then(|| {
        (
            "net.tls.disabledProtocols: none".to_owned(),
            "TLS 1.0 and 1.1 are not supported",
        )
    })
}

/// Enables every protocol, in MongoDB also TLS 1.0.
const NONE: &str = "none";

/// The first option that is given without TLS.
fn given(options: &Lookup<'_>) -> Option<&'static str> {
    let named = OF_TLS
        .iter()
        .find(|(target, _)| options.text(target).is_some());
    let switched = SWITCHES
        .iter()
        .find(|(target, _)| options.switch(target) == Some(true));
    named.or(switched).map(|(_, name)| *name)
}

/// The password of the key: the option, or the first line of a file.
fn password(options: &Lookup<'_>) -> Result<Option<Password>, ConfigError> {
    let given = options.text("net.tls.certificateKeyFilePassword");
    let file = options.text("net.tls.certificateKeyFilePasswordFile");
    match (given, file) {
        (Some(_), Some(_)) => Err(ConfigError::new(
            "--tlsCertificateKeyFilePassword and --tlsCertificateKeyFilePasswordFile are mutually exclusive",
        )),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|e| {
                ConfigError::new(format!(
                    "--tlsCertificateKeyFilePasswordFile {path}: {e}: name a file that the server can read"
                ))
            })?;
            let line = text.lines().next().unwrap_or("");
            Ok(Some(Password(line.to_owned())))
        }
        (given, None) => Ok(given.map(|text| Password(text.to_owned()))),
    }
}

/// The protocols that are not disabled.
fn versions(options: &Lookup<'_>) -> Result<Vec<TlsVersion>, ConfigError> {
    const DISABLED: (&str, &str) = ("net.tls.disabledProtocols", "--tlsDisabledProtocols");
    let disabled = match options.text(DISABLED.0) {
        Some(NONE) => Vec::new(),
        _ => named(options, DISABLED.0, DISABLED.1)?,
    };
    let left: Vec<TlsVersion> = [TlsVersion::Tls12, TlsVersion::Tls13]
        .into_iter()
        .filter(|version| !disabled.contains(version))
        .collect();
    match left.is_empty() {
        true => Err(ConfigError::new(
            "--tlsDisabledProtocols leaves no protocol: keep TLS1_2 or TLS1_3",
        )),
        false => Ok(left),
    }
}

/// The protocols that an option lists. TLS 1.0 and 1.1 are known and never used.
fn named(options: &Lookup<'_>, target: &str, option: &str) -> Result<Vec<TlsVersion>, ConfigError> {
    let mut found = Vec::new();
    for name in options.text(target).unwrap_or("").split(',').map(str::trim) {
        match name {
            "TLS1_2" => found.push(TlsVersion::Tls12),
            "TLS1_3" => found.push(TlsVersion::Tls13),
            "" | "TLS1_0" | "TLS1_1" => {}
            _ => {
                return Err(ConfigError::new(format!(
                    "{option}: unknown protocol '{name}'; use TLS1_0, TLS1_1, TLS1_2 or TLS1_3"
                )));
            }
        }
    }
    Ok(found)
}
