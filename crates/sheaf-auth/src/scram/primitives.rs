//! The hash functions of each mechanism.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Mechanism;

/// The hash of the mechanism.
pub(super) fn hash(mechanism: Mechanism, bytes: &[u8]) -> Vec<u8> {
    match mechanism {
        Mechanism::ScramSha1 => Sha1::digest(bytes).to_vec(),
        Mechanism::ScramSha256 => Sha256::digest(bytes).to_vec(),
    }
}

/// The mechanism's HMAC.
pub(super) fn hmac(mechanism: Mechanism, key: &[u8], bytes: &[u8]) -> Vec<u8> {
    fn of<M: Mac + KeyInit>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
        // An HMAC takes keys of any length.
        let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else {
            unreachable!("HMAC takes keys of any length");
        };
        mac.update(bytes);
        mac.finalize().into_bytes().to_vec()
    }
    match mechanism {
        Mechanism::ScramSha1 => of::<Hmac<Sha1>>(key, bytes),
        Mechanism::ScramSha256 => of::<Hmac<Sha256>>(key, bytes),
    }
}

/// `Hi` of RFC 5802: PBKDF2 with the mechanism's HMAC.
pub(super) fn salted(mechanism: Mechanism, password: &[u8], salt: &[u8], count: u32) -> Vec<u8> {
    match mechanism {
        Mechanism::ScramSha1 => {
            let mut out = vec![0; 20];
            pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, count, &mut out);
            out
        }
        Mechanism::ScramSha256 => {
            let mut out = vec![0; 32];
            pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, count, &mut out);
            out
        }
    }
}

/// The bytes of `a` xor those of `b`, which has the same length.
pub(super) fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// Whether the bytes are equal, in a time that depends on their length only.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}
