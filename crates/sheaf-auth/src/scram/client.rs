//! The client's side of a login: for tests, and for servers that log in to one another.

use sheaf_bson::base64;

use super::keys::prepared;
use super::message::encode_name;
use super::primitives::{equal, hash, hmac, salted, xor};
use crate::Mechanism;

/// A login of a client.
pub struct Login {
    mechanism: Mechanism,
    user: String,
    password: String,
    nonce: String,
    /// The server's signature, once the client has computed it.
    expected: Option<String>,
}

impl Login {
    /// A login with a nonce that the client has chosen.
    pub fn new(mechanism: Mechanism, user: &str, password: &str, nonce: &str) -> Login {
        Login {
            mechanism,
            user: user.to_owned(),
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            expected: None,
        }
    }

    fn bare(&self) -> String {
        format!("n={},r={}", encode_name(&self.user), self.nonce)
    }

    /// The first message.
    pub fn first(&self) -> String {
        format!("n,,{}", self.bare())
    }

    /// The message with the proof, for the server's first message; `None` if that is malformed or
    /// SASLprep prohibits the password.
    pub fn last(&mut self, server_first: &str) -> Option<String> {
        let mut fields = server_first.split(',');
        let nonce = fields.next()?.strip_prefix("r=")?;
        let salt = base64::decode(fields.next()?.strip_prefix("s=")?)?;
        let count = fields.next()?.strip_prefix("i=")?.parse().ok()?;
        let mechanism = self.mechanism;
        let password = prepared(mechanism, &self.user, &self.password).ok()?;
        let salted = salted(mechanism, password.as_bytes(), &salt, count);
        let client_key = hmac(mechanism, &salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.bare());
        let stored_key = hash(mechanism, &client_key);
        let signature = hmac(mechanism, &stored_key, signed.as_bytes());
        let mut message = format!("{without_proof},p=");
        base64::encode(&xor(&client_key, &signature), &mut message);
        let server_key = hmac(mechanism, &salted, b"Server Key");
        let mut expected = "v=".to_owned();
        base64::encode(
            &hmac(mechanism, &server_key, signed.as_bytes()),
            &mut expected,
        );
        self.expected = Some(expected);
        Some(message)
    }

    /// Whether the server's last message proves that it knows the user's keys.
    pub fn is_server(&self, server_final: &str) -> bool {
        let expected = self.expected.as_ref();
        expected.is_some_and(|expected| equal(expected.as_bytes(), server_final.as_bytes()))
    }
}
