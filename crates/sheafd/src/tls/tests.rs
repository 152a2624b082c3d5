//! Keys in every form, and names as OpenSSL prints them. The files are made by OpenSSL.

use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sheaf_testkit::fuzz::{Random, mutate};

use super::options::Password;
use super::pem::{self, Source};
use super::{Identity, encrypted};

/// The password of the encrypted keys.
const PASSWORD: &str = "secret ä";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/tls")
        .join(name)
}

fn key(name: &str, password: Option<&str>) -> Result<PrivateKeyDer<'static>, String> {
    let path = file(name);
    let source = Source {
        option: "--keyOption",
        path: &path,
    };
    let password = password.map(|text| Password(text.to_owned()));
    let key = pem::private_key(
        source,
        &source.read()?,
        password.as_ref(),
        "--passwordOption",
    )?;
    Ok(key)
}

/// The error without the option and the file, which it begins with.
fn wrong(name: &str, password: Option<&str>) -> String {
    let error = key(name, password).expect_err(name);
    let start = format!("--keyOption {}: ", file(name).display());
    error
        .strip_prefix(&start)
        .expect("names the file")
        .to_owned()
}

#[test]
fn keys_in_every_form() {
    for name in [
        "rsa-pkcs1.pem",
        "rsa-pkcs8.pem",
        "ec-sec1.pem",
        "ec-pkcs8.pem",
        "ed25519.pem",
    ] {
        let key = key(name, None).expect(name);
        rustls::crypto::ring::sign::any_supported_type(&key).expect(name);
    }
}

#[test]
fn encrypted_keys_are_decrypted() {
    let plain = key("ec-pkcs8.pem", None).unwrap();
    for name in [
        "ec-aes128-hmacWithSHA1.pem",
        "ec-aes192-hmacWithSHA1.pem",
        "ec-aes256-hmacWithSHA1.pem",
        "ec-aes256-hmacWithSHA256.pem",
        "ec-aes256-hmacWithSHA384.pem",
        "ec-aes256-hmacWithSHA512.pem",
    ] {
        let decrypted = key(name, Some(PASSWORD)).expect(name);
        assert_eq!(decrypted.secret_der(), plain.secret_der(), "{name}");
        assert_eq!(
            wrong(name, Some("secret")),
            "the password of --passwordOption does not decrypt the private key"
        );
        assert_eq!(
            wrong(name, None),
            "the private key is encrypted: give its password with --passwordOption, or start the server on a terminal, where it asks"
        );
    }
}

#[test]
fn other_encryption_is_refused() {
    let convert = "convert it with 'openssl pkcs8 -topk8 -v2 aes-256-cbc'";
    for name in ["ec-scrypt.pem", "ec-des3.pem"] {
        assert_eq!(
            wrong(name, Some("secret")),
            format!(
                "the private key is encrypted with an algorithm other than AES-CBC with PBKDF2; {convert}"
            )
        );
    }
    assert_eq!(
        wrong("ec-old-encryption.pem", Some("secret")),
        format!("the key is encrypted in OpenSSL's old form; {convert}")
    );
    assert_eq!(
        wrong("subject.pem", None),
        "the file has no private key: append the key to the certificate, in PEM"
    );
}

#[test]
fn a_damaged_encrypted_key_is_an_error() {
    let text = std::fs::read_to_string(file("ec-aes128-hmacWithSHA1.pem")).unwrap();
    let text = text.replace("ENCRYPTED ", "");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).unwrap();
    let whole = key.secret_pkcs8_der();
    assert!(encrypted::decrypt(whole, PASSWORD).is_ok());
    for cut in 0..whole.len() {
        assert!(encrypted::decrypt(&whole[..cut], PASSWORD).is_err());
    }
    // Without the octets of the iteration count, whose damage only costs time.
    for at in 0..40 {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 0x10;
        let _ = encrypted::decrypt(&damaged, PASSWORD);
    }
}

/// What `openssl x509 -subject -nameopt RFC2253` prints for `subject.pem`.
const SUBJECT: &str = r##"CN=app,1.3.6.1.4.1.99999.1=#0C06637573746F6D,organizationIdentifier=oi,name=n,businessCategory=b,postalCode=12345,description=d,generationQualifier=III,pseudonym=p,dnQualifier=q,initials=gs,street=Way 1,SN=Sur,GN=Given,title=Dr,serialNumber=77,UID=u1,emailAddress=a@example.org,L=a\<b\>c\;d\\e\"f+CN=multi,OU=\#first,OU=\  spaced# \ ,O=M\C3\BCller\, S\C3\B6hne \+ Co,ST=Nordrhein-Westfalen,C=DE,DC=example,DC=org"##;

#[test]
fn subjects_are_written_as_openssl_writes_them() {
    let certificate = CertificateDer::from_pem_file(file("subject.pem")).unwrap();
    let identity = Identity::of(&certificate).unwrap();
    assert_eq!(identity.subject, SUBJECT);
    assert_eq!(
        sheaf_bson::json::format_date(identity.expires.millis()).as_deref(),
        Some("2126-10-30T11:47:23Z")
    );
}

#[test]
fn damaged_certificates_are_read_or_refused() {
    let certificate = CertificateDer::from_pem_file(file("subject.pem")).unwrap();
    for cut in 0..certificate.len() {
        let _ = Identity::of(&CertificateDer::from(&certificate[..cut]));
    }
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let mut damaged = certificate.to_vec();
        mutate(&mut damaged, &mut random);
        let _ = Identity::of(&CertificateDer::from(damaged));
    }
}
