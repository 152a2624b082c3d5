//! Verification of client certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::options::TlsOptions;
use super::pem::{self, Source};

/// The verifier that the options require.
///
/// As in MongoDB, a certificate is looked up in the revocation lists of its issuer; where lists are
/// given, an issuer without a list, or with an outdated one, is an error.
pub(super) fn strict(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let source = match &options.cluster_ca_file {
        Some(path) => Source {
            option: "--tlsClusterCAFile",
            path,
        },
        None => Source {
            option: "--tlsCAFile",
            path: &options.ca_file,
        },
    };
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(source, &source.read()?)? {
        roots
            .add(certificate)
            .map_err(|e| source.wrong(format!("a certificate cannot be an authority: {e}")))?;
    }
    let mut builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if options.allow_connections_without_certificates {
        builder = builder.allow_unauthenticated();
    }
    let mut named = source;
    if let Some(path) = &options.crl_file {
        named = Source {
            option: "--tlsCRLFile",
            path,
        };
        builder = builder
            .with_crls(pem::revocation_lists(named, &named.read()?)?)
            .only_check_end_entity_revocation()
            .enforce_revocation_expiration();
    }
    builder.build().map_err(|e| named.wrong(e))
}

/// Accepts every certificate whose key the client has (`--tlsAllowInvalidCertificates`).
#[derive(Debug)]
pub(super) struct Lenient(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    /// None: a client would not send the certificate of another authority.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
