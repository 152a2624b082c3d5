//! The options of TLS, typed.

use std::fmt;
use std::path::PathBuf;

/// How TLS is used on TCP. Unix domain sockets never use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Clients choose; connections of the server's own are plain.
    Allow,
    /// Clients choose; connections of the server's own use TLS.
    Prefer,
    /// Every connection uses TLS.
    Require,
}

impl TlsMode {
    /// The mode of this name; `None` for `disabled` and unknown names.
    pub fn from_name(name: &str) -> Option<TlsMode> {
        match name {
            "allowTLS" => Some(TlsMode::Allow),
            "preferTLS" => Some(TlsMode::Prefer),
            "requireTLS" => Some(TlsMode::Require),
            _ => None,
        }
    }
}

/// The password of an encrypted key. Not shown in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<password>")
    }
}

/// A protocol version that `serverStatus.transportSecurity` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl TlsVersion {
    /// The number, as logs show it.
    pub fn number(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        }
    }
}

/// The options of TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Which connections use TLS.
    pub mode: TlsMode,
    /// The server's certificate, the certificates that lead to its authority, and its key.
    pub certificate_key_file: PathBuf,
    /// The password of the key.
    pub password: Option<Password>,
    /// The authorities that the server trusts.
    pub ca_file: PathBuf,
    /// The authorities for client certificates, in place of `ca_file`.
    pub cluster_ca_file: Option<PathBuf>,
    /// Revoked client certificates.
    pub crl_file: Option<PathBuf>,
    /// The certificate and key for connections of the server's own. Checked, and not used yet.
    pub cluster_file: Option<PathBuf>,
    /// The password of that key.
    pub cluster_password: Option<Password>,
    /// A client may present no certificate.
    pub allow_connections_without_certificates: bool,
    /// A client's certificate may be invalid; so may the dates of the server's own.
    pub allow_invalid_certificates: bool,
    /// Protocol versions that are offered; never empty.
    pub versions: Vec<TlsVersion>,
    /// A connection with one of these versions is logged.
    pub log_versions: Vec<TlsVersion>,
}
