//! The server's side of a login.

use sheaf_bson::{Error, base64};

use super::keys::Credentials;
use super::message::{client_final, client_first};
use super::primitives::{equal, hash, hmac, xor};
use crate::{Mechanism, random};

/// Bytes of the server's part of the nonce, before base64.
const NONCE_BYTES: usize = 24;

/// The client's first message, before its user has been looked up.
#[derive(Debug)]
pub struct Greeting {
    mechanism: Mechanism,
    gs2_header: String,
    bare: String,
    client_nonce: String,
    /// The user that the client claims to be.
    pub user: String,
}

/// A login that waits for the client's proof.
#[derive(Debug)]
pub struct Conversation {
    mechanism: Mechanism,
    credentials: Credentials,
    /// `c` that the last message must have.
    binding: String,
    /// Both nonces.
    nonce: String,
    /// The first two messages, as the signatures cover them.
    messages: String,
}

/// Why a login failed. No client sees which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A message is malformed.
    Malformed,
    /// The proof is that of another password, or the nonce is not the server's.
    WrongProof,
}

impl Greeting {
    /// Reads the client's first message; `None` if it is malformed.
    pub fn read(mechanism: Mechanism, message: &[u8]) -> Option<Greeting> {
        let first = client_first(std::str::from_utf8(message).ok()?)?;
        Some(Greeting {
            mechanism,
            gs2_header: first.gs2_header.to_owned(),
            bare: first.bare.to_owned(),
            client_nonce: first.nonce.to_owned(),
            user: first.user,
        })
    }
}

impl Conversation {
    /// Answers the first message with the salt and the nonce.
    /// Errors: the system has no randomness.
    pub fn start(
        greeting: Greeting,
        credentials: Credentials,
    ) -> Result<(Conversation, String), Error> {
        let mut own = String::new();
        base64::encode(&random::bytes::<NONCE_BYTES>()?, &mut own);
        Ok(Conversation::with_nonce(greeting, credentials, &own))
    }

    fn with_nonce(greeting: Greeting, credentials: Credentials, own: &str) -> (Self, String) {
        let nonce = format!("{}{own}", greeting.client_nonce);
        let mut answer = format!("r={nonce},s=");
        base64::encode(&credentials.salt, &mut answer);
        answer += &format!(",i={}", credentials.iterations);
        let mut binding = String::new();
        base64::encode(greeting.gs2_header.as_bytes(), &mut binding);
        let conversation = Conversation {
            mechanism: greeting.mechanism,
            credentials,
            binding,
            nonce,
            messages: format!("{},{answer}", greeting.bare),
        };
        (conversation, answer)
    }

    /// Checks the client's proof, and answers with the server's signature.
    pub fn finish(&self, message: &[u8]) -> Result<String, Failure> {
        let text = std::str::from_utf8(message).map_err(|_| Failure::Malformed)?;
        let last = client_final(text).ok_or(Failure::Malformed)?;
        let proof = base64::decode(last.proof).ok_or(Failure::Malformed)?;
        if last.binding != self.binding {
            return Err(Failure::Malformed);
        }
        let keys = &self.credentials;
        let signed = format!("{},{}", self.messages, last.without_proof);
        let signature = hmac(self.mechanism, &keys.stored_key, signed.as_bytes());
        let client_key = xor(&signature, &proof);
        let is_right = proof.len() == signature.len()
            && equal(&hash(self.mechanism, &client_key), &keys.stored_key)
            && equal(last.nonce.as_bytes(), self.nonce.as_bytes());
        if !is_right {
            return Err(Failure::WrongProof);
        }
        let own = hmac(self.mechanism, &keys.server_key, signed.as_bytes());
        let mut answer = "v=".to_owned();
        base64::encode(&own, &mut answer);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Login;
    use super::*;

    /// The example of RFC 7677, section 3.
    #[test]
    fn the_login_of_rfc_7677() {
        let keys = Credentials {
            iterations: 4096,
            salt: base64::decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(),
            stored_key: base64::decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=").unwrap(),
            server_key: base64::decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=").unwrap(),
        };
        let greeting =
            Greeting::read(Mechanism::ScramSha256, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        assert_eq!(greeting.user, "user");
        let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let (conversation, answer) = Conversation::with_nonce(greeting, keys, nonce);
        assert_eq!(
            answer,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(
            conversation.finish(last.as_bytes()).unwrap(),
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
    }

    fn login(mechanism: Mechanism, password: &str, given: &str) -> Result<(), Failure> {
        let keys = Credentials::of_password(mechanism, "a,b=c", password, 4096).unwrap();
        let mut client = Login::new(mechanism, "a,b=c", given, "nonce");
        let greeting = Greeting::read(mechanism, client.first().as_bytes()).unwrap();
        assert_eq!(greeting.user, "a,b=c");
        let (conversation, answer) = Conversation::start(greeting, keys).unwrap();
        let last = client.last(&answer).unwrap();
        let end = conversation.finish(last.as_bytes())?;
        assert!(client.is_server(&end));
        assert!(!client.is_server("v=AAAA"));
        Ok(())
    }

    #[test]
    fn right_and_wrong_passwords() {
        for mechanism in Mechanism::ALL {
            assert_eq!(login(mechanism, "pencil", "pencil"), Ok(()));
            assert_eq!(
                login(mechanism, "pencil", "Pencil"),
                Err(Failure::WrongProof)
            );
            assert_eq!(login(mechanism, "pencil", ""), Err(Failure::WrongProof));
        }
        // Equal after SASLprep, which SCRAM-SHA-1 does not use.
        let (one, two) = ("\u{2163}", "IV");
        assert_eq!(login(Mechanism::ScramSha256, one, two), Ok(()));
        assert!(login(Mechanism::ScramSha1, one, two).is_err());
    }

    #[test]
    fn changed_messages_fail() {
        let mechanism = Mechanism::ScramSha256;
        let keys = Credentials::of_password(mechanism, "u", "p", 4096).unwrap();
        let mut client = Login::new(mechanism, "u", "p", "nonce");
        let greeting = Greeting::read(mechanism, client.first().as_bytes()).unwrap();
        let (conversation, answer) = Conversation::start(greeting, keys).unwrap();
        let last = client.last(&answer).unwrap();
        for changed in [
            last.replace("c=biws", "c=eSws"),
            last.replace("r=nonce", "r=Nonce"),
            last.replace(",p=", ",p=AAAA"),
            last[..last.len() - 5].to_owned(),
            last.replace(",p=", ",x=1,p="),
            String::new(),
        ] {
            assert!(
                conversation.finish(changed.as_bytes()).is_err(),
                "{changed}"
            );
        }
        assert!(conversation.finish(&[0xff, 0xfe]).is_err());
        assert!(conversation.finish(last.as_bytes()).is_ok());
    }
}
