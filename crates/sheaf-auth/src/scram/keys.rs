//! What the server stores in place of a password.

use std::fmt::Write;

use md5::{Digest, Md5};
use sheaf_bson::{DocBuilder, Error, RawDoc, RawValue, base64};

use super::primitives::{hash, hmac, salted};
use crate::{Mechanism, random};

/// Stored keys of one user for one mechanism: `credentials.<mechanism>` of the user's document.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `iterationCount`.
    pub iterations: u32,
    /// `salt`.
    pub salt: Vec<u8>,
    /// `storedKey`.
    pub stored_key: Vec<u8>,
    /// `serverKey`.
    pub server_key: Vec<u8>,
}

/// A secret; not shown.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// Lengths of MongoDB's salts.
fn salt_bytes(mechanism: Mechanism) -> usize {
    match mechanism {
        Mechanism::ScramSha1 => 16,
        Mechanism::ScramSha256 => 28,
    }
}

/// The password of SCRAM-SHA-1: the MD5 digest of name and password, in hexadecimal digits.
pub fn digest_of_password(user: &str, password: &str) -> String {
    let mut text = String::with_capacity(32);
    for byte in Md5::digest(format!("{user}:mongo:{password}")) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The password as the mechanism uses it: with SCRAM-SHA-256 prepared by SASLprep, with
/// SCRAM-SHA-1 the digest.
/// Errors: `BadValue` for characters that SASLprep prohibits.
pub(super) fn prepared(mechanism: Mechanism, user: &str, password: &str) -> Result<String, Error> {
    match mechanism {
        Mechanism::ScramSha1 => Ok(digest_of_password(user, password)),
        Mechanism::ScramSha256 => match stringprep::saslprep(password) {
            Ok(prepared) => Ok(prepared.into_owned()),
            Err(e) => Err(Error::bad_value(format!(
                "the password cannot be prepared with SASLprep: {e}"
            ))),
        },
    }
}

impl Credentials {
    /// Keys of a password with a new salt.
    /// Errors: characters that SASLprep prohibits; the system has no randomness.
    pub fn of_password(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        iterations: u32,
    ) -> Result<Credentials, Error> {
        let prepared = prepared(mechanism, user, password)?;
        Credentials::of_prepared(mechanism, &prepared, iterations)
    }

    /// As [`Credentials::of_password`] for SCRAM-SHA-1, of the digest that a client sent in place
    /// of the password.
    pub fn of_digest(digest: &str, iterations: u32) -> Result<Credentials, Error> {
        Credentials::of_prepared(Mechanism::ScramSha1, digest, iterations)
    }

    fn of_prepared(mechanism: Mechanism, password: &str, count: u32) -> Result<Self, Error> {
        let salt = random::bytes::<28>()?[..salt_bytes(mechanism)].to_vec();
        let salted = salted(mechanism, password.as_bytes(), &salt, count);
        let client_key = hmac(mechanism, &salted, b"Client Key");
        Ok(Credentials {
            iterations: count,
            salt,
            stored_key: hash(mechanism, &client_key),
            server_key: hmac(mechanism, &salted, b"Server Key"),
        })
    }

    /// Keys that no password has: those of a user that does not exist. The salt depends on `secret`
    /// and the name alone, so that a client that asks twice cannot tell.
    pub fn of_nobody(
        mechanism: Mechanism,
        user: &str,
        secret: &[u8],
        iterations: u32,
    ) -> Credentials {
        let digest = hmac(Mechanism::ScramSha256, secret, user.as_bytes());
        Credentials {
            iterations,
            salt: digest[..salt_bytes(mechanism)].to_vec(),
            stored_key: hmac(mechanism, secret, &digest),
            server_key: hmac(mechanism, &digest, secret),
        }
    }

    /// Reads `credentials.<mechanism>` of a user's document; `None` if it is malformed.
    pub fn from_doc(mechanism: Mechanism, doc: RawDoc<'_>) -> Option<Credentials> {
        let bytes = |name: &str| match doc.get(name)? {
            RawValue::String(text) => base64::decode(text),
            _ => None,
        };
        let iterations = doc.get("iterationCount")?.as_i64_exact()?;
        let found = Credentials {
            iterations: u32::try_from(iterations).ok().filter(|n| *n > 0)?,
            salt: bytes("salt")?,
            stored_key: bytes("storedKey")?,
            server_key: bytes("serverKey")?,
        };
        let length = hash(mechanism, b"").len();
        let fits = found.stored_key.len() == length && found.server_key.len() == length;
        fits.then_some(found)
    }

    /// Appends the document that [`Credentials::from_doc`] reads.
    pub fn append(&self, mechanism: Mechanism, out: &mut DocBuilder) {
        let text = |bytes: &[u8]| {
            let mut text = String::new();
            base64::encode(bytes, &mut text);
            text
        };
        out.begin_document(mechanism.name());
        out.append("iterationCount", self.iterations as i32);
        out.append("salt", text(&self.salt).as_str());
        out.append("storedKey", text(&self.stored_key).as_str());
        out.append("serverKey", text(&self.server_key).as_str());
        out.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn stored_keys_of_rfc_7677() {
        let salt = base64::decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted(Mechanism::ScramSha256, b"pencil", &salt, 4096);
        let client_key = hmac(Mechanism::ScramSha256, &salted, b"Client Key");
        let mut stored = String::new();
        base64::encode(&hash(Mechanism::ScramSha256, &client_key), &mut stored);
        assert_eq!(stored, "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=");
    }

    #[test]
    fn keys_survive_their_document() {
        for mechanism in Mechanism::ALL {
            let keys = Credentials::of_password(mechanism, "ada", "pencil", 4096).unwrap();
            let mut out = DocBuilder::new();
            keys.append(mechanism, &mut out);
            let doc = out.finish();
            let doc = doc.get(mechanism.name()).unwrap().as_document().unwrap();
            assert_eq!(Credentials::from_doc(mechanism, doc), Some(keys));
            let wrong = Mechanism::ALL
                .into_iter()
                .find(|m| *m != mechanism)
                .unwrap();
            assert_eq!(Credentials::from_doc(wrong, doc), None);
        }
    }

    #[test]
    fn digest_of_mongodb() {
        // From the specification of authentication: user `user`, password `pencil`.
        assert_eq!(
            digest_of_password("user", "pencil"),
            "1c33006ec1ffd90f9cadcbcc0e118200"
        );
    }

    #[test]
    fn nobody_has_one_salt() {
        let of = |user, secret: &[u8]| {
            Credentials::of_nobody(Mechanism::ScramSha1, user, secret, 10_000)
        };
        assert_eq!(of("x", b"s"), of("x", b"s"));
        assert_ne!(of("x", b"s").salt, of("y", b"s").salt);
        assert_ne!(of("x", b"s").salt, of("x", b"t").salt);
        assert_eq!(of("x", b"s").salt.len(), 16);
    }

    #[test]
    fn passwords_are_prepared() {
        let of = |password: &str| prepared(Mechanism::ScramSha256, "u", password);
        assert_eq!(of("I\u{00ad}X").unwrap(), "IX");
        assert_eq!(of("\u{2168}").unwrap(), "IX");
        assert_eq!(of("\u{0007}").unwrap_err().code().0, 2);
    }
}
