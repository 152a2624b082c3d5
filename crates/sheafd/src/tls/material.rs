//! Loads the files that the options name into one configuration for new connections.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sheaf_bson::{DateTime, json};

use super::options::{Password, TlsOptions, TlsVersion};
use super::pem::{self, Source};
use super::{der, name, verifier};

/// Certificates that a chain is completed with, at most.
const CHAIN_MAX: usize = 10;

/// The files of the options, read and checked together.
pub(super) struct Material {
    pub config: Arc<ServerConfig>,
    /// Decides whether a certificate that was accepted is valid; `None` if only valid ones are.
    pub strict: Option<Arc<dyn ClientCertVerifier>>,
    pub certificate: Identity,
}

/// Who a certificate belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject, as RFC 2253 writes it.
    pub subject: String,
    /// When the certificate's validity ends.
    pub expires: DateTime,
}

impl Identity {
    /// Reads a certificate; `None` if it is not one.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let facts = der::facts(certificate)?;
        Some(Identity {
            subject: name::rfc2253(facts.subject)?,
            expires: DateTime(facts.expires),
        })
    }
}

/// Reads and checks every file.
pub(super) fn load(options: &TlsOptions) -> Result<Material, String> {
    let provider = Arc::new(ring::default_provider());
    let own = Source {
        option: "--tlsCertificateKeyFile",
        path: &options.certificate_key_file,
    };
    let password = (options.password.as_ref(), "--tlsCertificateKeyFilePassword");
    let mut certified = certified(own, password)?;
    let certificate = check_own(own, &certified.cert[0], options)?;
    if let Some(path) = &options.cluster_file {
        let source = Source {
            option: "--tlsClusterFile",
            path,
        };
        let password = (options.cluster_password.as_ref(), "--tlsClusterPassword");
        self::certified(source, password)?;
    }
    let authorities = Source {
        option: "--tlsCAFile",
        path: &options.ca_file,
    };
    let authorities = pem::certificates(authorities, &authorities.read()?)?;
    complete(&mut certified.cert, &authorities);
    let strict = verifier::strict(options, &provider)?;
    let used: Arc<dyn ClientCertVerifier> = match options.allow_invalid_certificates {
        true => Arc::new(verifier::Lenient(Arc::clone(&strict))),
        false => Arc::clone(&strict),
    };
    Ok(Material {
        config: Arc::new(config(options, provider, used, certified)?),
        strict: options.allow_invalid_certificates.then_some(strict),
        certificate,
    })
}

fn config(
    options: &TlsOptions,
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    certified: CertifiedKey,
) -> Result<ServerConfig, String> {
    let versions: Vec<_> = (options.versions.iter())
        .map(|version| match version {
            TlsVersion::Tls12 => &rustls::version::TLS12,
            TlsVersion::Tls13 => &rustls::version::TLS13,
        })
        .collect();
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| format!("--tlsDisabledProtocols: {e}"))?;
    Ok(builder
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
}

/// The certificates and the key of one file, which must belong together.
fn certified(
    source: Source<'_>,
    (password, password_option): (Option<&Password>, &str),
) -> Result<CertifiedKey, String> {
    let text = source.read()?;
    let certificates = pem::certificates(source, &text)?;
    let key = pem::private_key(source, &text, password, password_option)?;
    let key = ring::sign::any_supported_type(&key).map_err(|_| {
        source.wrong(
            "the private key is of a type that is not supported: use RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519",
        )
    })?;
    let facts = der::facts(&certificates[0]);
    let facts = facts.ok_or_else(|| source.wrong("the first certificate cannot be read"))?;
    // rustls's own comparison is not used: it rejects certificates of X.509 version 1.
    let public = key.public_key();
    match public.is_some_and(|public| public.as_ref() == facts.public_key) {
        true => Ok(CertifiedKey::new(certificates, key)),
        false => Err(source.wrong(
            "the private key does not belong to the first certificate: the server's certificate comes first, those of authorities after it",
        )),
    }
}

/// The identity of the server's certificate, which must be valid now.
fn check_own(
    source: Source<'_>,
    certificate: &CertificateDer<'_>,
    options: &TlsOptions,
) -> Result<Identity, String> {
    let unreadable = || source.wrong("the subject or the dates of the certificate cannot be read");
    let facts = der::facts(certificate).ok_or_else(unreadable)?;
    let identity = Identity::of(certificate).ok_or_else(unreadable)?;
    let now = DateTime::now().millis();
    let date = |millis| json::format_date(millis).unwrap_or_else(|| "an unknown date".into());
    if now < facts.begins {
        return Err(source.wrong(format!(
            "the certificate is not valid before {}: check the clock, or use another certificate",
            date(facts.begins)
        )));
    }
    if now > facts.expires && !options.allow_invalid_certificates {
        return Err(source.wrong(format!(
            "the certificate expired on {}: renew it, or start with --tlsAllowInvalidCertificates",
            date(facts.expires)
        )));
    }
    Ok(identity)
}

/// Appends the intermediate certificates of the authorities' file that lead from the last
/// certificate to a root, as OpenSSL does: a client may know the root only.
fn complete(chain: &mut Vec<CertificateDer<'static>>, authorities: &[CertificateDer<'static>]) {
    while chain.len() < CHAIN_MAX {
        let Some(last) = chain.last().and_then(|last| der::facts(last)) else {
            return;
        };
        let next = authorities.iter().find(|authority| {
            let facts = der::facts(authority);
            facts.is_some_and(|facts| facts.subject == last.issuer && facts.subject != facts.issuer)
        });
        match next {
            Some(next) if !chain.contains(next) => chain.push(next.clone()),
            _ => return,
        }
    }
}
