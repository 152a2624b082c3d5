//! Files of certificates and keys. Errors name the file, what is wrong, and what to do.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};

use super::encrypted::{self, Failed};
use super::options::Password;

/// A file larger than this is not read: a bundle of every public authority has 250 kB.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// An option that names a file, and the file.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub option: &'static str,
    pub path: &'a Path,
}

impl Source<'_> {
    /// An error of this file.
    pub fn wrong(self, what: impl std::fmt::Display) -> String {
        format!("{} {}: {what}", self.option, self.path.display())
    }

    /// The text of the file.
    pub fn read(self) -> Result<String, String> {
        let size = std::fs::metadata(self.path).map(|file| file.len());
        if size.is_ok_and(|bytes| bytes > FILE_BYTES_MAX) {
            return Err(self.wrong("the file is larger than 16 MiB: name a PEM file"));
        }
        let text = std::fs::read(self.path).map_err(|e| {
            self.wrong(format!("{e}: the server needs to be able to read the file"))
        })?;
        String::from_utf8(text).map_err(|_| {
            self.wrong(
                "this is not a PEM file; convert it with 'openssl x509 -inform DER -outform PEM'",
            )
        })
    }
}

/// Whether a file has an encrypted key. False if it cannot be read.
pub(super) fn has_encrypted_key(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains(ENCRYPTED))
}

const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// Every certificate of the text, which has at least one.
pub(super) fn certificates(
    source: Source<'_>,
    text: &str,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|e| source.wrong(format!("a certificate is damaged: {e}")))?;
    match found.is_empty() {
        true => Err(source.wrong(
            "the file has no certificate: it needs a section '-----BEGIN CERTIFICATE-----'",
        )),
        false => Ok(found),
    }
}

/// Every revocation list of the text, which has at least one.
pub(super) fn revocation_lists(
    source: Source<'_>,
    text: &str,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let found: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|e| source.wrong(format!("a revocation list is damaged: {e}")))?;
    match found.is_empty() {
        true => Err(source.wrong(
            "the file has no revocation list: it needs a section '-----BEGIN X509 CRL-----'",
        )),
        false => Ok(found),
    }
}

/// The one private key of the text: PKCS#8, PKCS#1 or SEC1, or an encrypted PKCS#8 key.
pub(super) fn private_key(
    source: Source<'_>,
    text: &str,
    password: Option<&Password>,
    password_option: &str,
) -> Result<PrivateKeyDer<'static>, String> {
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(source.wrong(
            "the key is encrypted in OpenSSL's old form; convert it with 'openssl pkcs8 -topk8 -v2 aes-256-cbc'",
        ));
    }
    let count = text
        .lines()
        .filter(|line| line.starts_with("-----BEGIN ") && line.contains("PRIVATE KEY-----"))
        .count();
    match count {
        0 => {
            return Err(source
                .wrong("the file has no private key: append the key to the certificate, in PEM"));
        }
        1 => {}
        _ => return Err(source.wrong("the file has several private keys: keep one")),
    }
    if !text.contains(ENCRYPTED) {
        return PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| {
            source.wrong(format!(
                "the private key is damaged or of an unknown type: {e}"
            ))
        });
    }
    let Some(Password(password)) = password else {
        return Err(source.wrong(format!(
            "the private key is encrypted: give its password with {password_option}, or start the server on a terminal, where it asks"
        )));
    };
    // The PEM reader knows the label of plain keys only.
    let renamed = text.replace("ENCRYPTED PRIVATE KEY", "PRIVATE KEY");
    let encrypted = PrivatePkcs8KeyDer::from_pem_slice(renamed.as_bytes())
        .map_err(|e| source.wrong(format!("the private key is damaged: {e}")))?;
    match encrypted::decrypt(encrypted.secret_pkcs8_der(), password) {
        Ok(key) => Ok(PrivatePkcs8KeyDer::from(key).into()),
        Err(Failed::WrongPassword) => Err(source.wrong(format!(
            "the password of {password_option} does not decrypt the private key"
        ))),
        Err(Failed::Malformed) => Err(source.wrong("the private key is damaged")),
        Err(Failed::Unsupported) => Err(source.wrong(
            "the private key is encrypted with an algorithm other than AES-CBC with PBKDF2; convert it with 'openssl pkcs8 -topk8 -v2 aes-256-cbc'",
        )),
    }
}
