//! TLS on the server's TCP ports, by rustls.
//!
//! ```text
//!   options ── load ──> Material { ServerConfig, verifier, own certificate }
//!                          │  replaced as a whole by rotateCertificates
//!   connection ── begin ───┴──> handshake (net/stream.rs) ──> identity of the client
//! ```
//!
//! Invariant: a connection keeps the configuration with which its handshake began; an error while
//! files are read again leaves the one in use as it is.

mod der;
mod encrypted;
mod material;
mod name;
mod options;
mod password;
mod pem;
mod verifier;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ProtocolVersion, ServerConnection};
use sheaf_server::traffic::TransportSecurity;

pub use material::Identity;
pub use options::{Password, TlsMode, TlsOptions, TlsVersion};
pub use password::ask_for_password;

use material::Material;

/// TLS of one server: shared by all connections.
pub struct Tls {
    options: TlsOptions,
    material: ArcSwap<Material>,
    /// Handshakes completed with TLS 1.2 and 1.3.
    handshakes: [AtomicU64; 2],
}

/// A connection whose handshake has not ended, and the files it began with.
pub(crate) struct Beginning {
    /// The state of the protocol.
    pub connection: Box<ServerConnection>,
    material: Arc<Material>,
}

/// What a handshake showed about the client.
pub(crate) struct Finished {
    /// The version of the protocol.
    pub version: TlsVersion,
    /// The client's valid certificate.
    pub client: Option<Identity>,
    /// Why the client's certificate is not valid, where invalid ones are accepted.
    pub invalid: Option<String>,
}

impl Tls {
    /// Reads and checks all files of the options.
    ///
    /// Errors: one of them cannot be used; the text names the option, the file and the remedy.
    pub fn new(options: TlsOptions) -> Result<Arc<Tls>, String> {
        let material = material::load(&options)?;
        Ok(Arc::new(Tls {
            options,
            material: ArcSwap::from_pointee(material),
            handshakes: Default::default(),
        }))
    }

    /// Reads all files again, for new connections.
    ///
    /// Errors: as [`Tls::new`]; the files in use stay.
    pub fn rotate(&self) -> Result<(), String> {
        let material = material::load(&self.options)?;
        self.material.store(Arc::new(material));
        Ok(())
    }

    /// Which connections use TLS.
    pub fn mode(&self) -> TlsMode {
        self.options.mode
    }

    /// Whether connections of this version are logged.
    pub fn logs(&self, version: TlsVersion) -> bool {
        self.options.log_versions.contains(&version)
    }

    /// The server's certificate.
    pub fn certificate(&self) -> Identity {
        self.material.load().certificate.clone()
    }

    /// For `serverStatus`.
    pub fn status(&self) -> TransportSecurity {
        let certificate = self.certificate();
        let [tls12, tls13] = self
            .handshakes
            .each_ref()
            .map(|n| n.load(Ordering::Relaxed));
        TransportSecurity {
            subject: certificate.subject,
            expires: certificate.expires,
            tls12,
            tls13,
        }
    }

    /// The state of a new connection.
    pub(crate) fn begin(&self) -> Result<Beginning, rustls::Error> {
        let material = self.material.load_full();
        let connection = Box::new(ServerConnection::new(Arc::clone(&material.config))?);
        Ok(Beginning {
            connection,
            material,
        })
    }

    /// Counts a completed handshake, and reads the client's certificate.
    pub(crate) fn finish(&self, beginning: &Beginning) -> Finished {
        let connection = &beginning.connection;
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        };
        self.handshakes[version as usize].fetch_add(1, Ordering::Relaxed);
        let Some((own, rest)) = connection.peer_certificates().and_then(<[_]>::split_first) else {
            return Finished {
                version,
                client: None,
                invalid: None,
            };
        };
        let invalid = invalid(&beginning.material, own, rest);
        Finished {
            version,
            client: match invalid {
                None => Identity::of(own),
                Some(_) => None,
            },
            invalid,
        }
    }
}

/// Why a certificate that was accepted is not valid.
fn invalid(
    material: &Material,
    own: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
) -> Option<String> {
    let strict = material.strict.as_ref()?;
    let verified = strict.verify_client_cert(own, rest, UnixTime::now());
    verified.err().map(|e| e.to_string())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("options", &self.options)
            .finish()
    }
}

#[cfg(test)]
mod tests;
