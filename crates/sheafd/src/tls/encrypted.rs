//! Decrypts a private key in the form "ENCRYPTED PRIVATE KEY" (PKCS#8 with PBES2, RFC 8018).
//!
//! ```text
//! password ── PBKDF2 (salt, iterations, HMAC) ──> key ── AES-CBC (iv) ──> PKCS#8
//! ```

use std::num::NonZeroU32;

use aes::cipher::{Array, BlockCipherDecrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use ring::pbkdf2;

use super::der::{Reader, tag};

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 12];
/// `1.2.840.113549.2`, the prefix of the object identifiers of HMACs.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 2];
/// `2.16.840.1.101.3.4.1`, the prefix of the object identifiers of AES modes.
const AES: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 3, 4, 1];

const BLOCK_BYTES: usize = 16;

/// A file with more iterations is rejected: the start would take minutes.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Why a key could not be decrypted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The bytes are not an encrypted key.
    Malformed,
    /// The key is encrypted in a way that is not supported.
    Unsupported,
    /// The password is wrong.
    WrongPassword,
}

/// The parameters of one encrypted key.
struct Scheme<'a> {
    salt: &'a [u8],
    iterations: NonZeroU32,
    hmac: pbkdf2::Algorithm,
    key_bytes: usize,
    iv: [u8; BLOCK_BYTES],
}

/// The PKCS#8 encoding of the key.
pub(super) fn decrypt(encrypted: &[u8], password: &str) -> Result<Vec<u8>, Failed> {
    let mut outer = inner(&mut Reader::new(encrypted))?;
    let algorithm = inner(&mut outer)?;
    let data = content(&mut outer, tag::OCTETS)?;
    let scheme = scheme(algorithm)?;
    if data.is_empty() || !data.len().is_multiple_of(BLOCK_BYTES) {
        return Err(Failed::Malformed);
    }
    let mut key = [0; 32];
    let key = &mut key[..scheme.key_bytes];
    let (hmac, iterations) = (scheme.hmac, scheme.iterations);
    pbkdf2::derive(hmac, iterations, scheme.salt, password.as_bytes(), key);
    let mut plain = data.to_vec();
    match key.len() {
        16 => cbc(&Aes128::new_from_slice(key), &mut plain, scheme.iv),
        24 => cbc(&Aes192::new_from_slice(key), &mut plain, scheme.iv),
        _ => cbc(&Aes256::new_from_slice(key), &mut plain, scheme.iv),
    }?;
    unpad(&mut plain)?;
    // About one in 256 wrong passwords passes the check of the padding.
    let is_sequence = Reader::new(&plain).expect(tag::SEQUENCE).is_some();
    is_sequence.then_some(plain).ok_or(Failed::WrongPassword)
}

fn content<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<&'a [u8], Failed> {
    reader.expect(tag).ok_or(Failed::Malformed)
}

/// A reader of the next element, which is a sequence.
fn inner<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, Failed> {
    content(reader, tag::SEQUENCE).map(Reader::new)
}

fn scheme(mut algorithm: Reader<'_>) -> Result<Scheme<'_>, Failed> {
    if content(&mut algorithm, tag::OID)? != PBES2 {
        return Err(Failed::Unsupported);
    }
    let mut parts = inner(&mut algorithm)?;
    let mut derivation = inner(&mut parts)?;
    let mut cipher = inner(&mut parts)?;
    let is_pbkdf2 = content(&mut derivation, tag::OID)? == PBKDF2;
    let key_bytes = match content(&mut cipher, tag::OID)?.strip_prefix(AES) {
        Some([2]) if is_pbkdf2 => 16,
        Some([22]) if is_pbkdf2 => 24,
        Some([42]) if is_pbkdf2 => 32,
        _ => return Err(Failed::Unsupported),
    };
    let iv = content(&mut cipher, tag::OCTETS)?;
    let mut derivation = inner(&mut derivation)?;
    let salt = content(&mut derivation, tag::OCTETS)?;
    let iterations = number(content(&mut derivation, tag::INTEGER)?).ok_or(Failed::Unsupported)?;
    // The length of the key, which the cipher implies.
    derivation.optional(tag::INTEGER);
    let hmac = match derivation.optional(tag::SEQUENCE) {
        Some(hmac) => hmac_of(content(&mut Reader::new(hmac), tag::OID)?)?,
        None => pbkdf2::PBKDF2_HMAC_SHA1,
    };
    Ok(Scheme {
        salt,
        iterations: NonZeroU32::new(iterations)
            .filter(|n| n.get() <= ITERATIONS_MAX)
            .ok_or(Failed::Unsupported)?,
        hmac,
        key_bytes,
        iv: iv.try_into().map_err(|_| Failed::Malformed)?,
    })
}

fn hmac_of(id: &[u8]) -> Result<pbkdf2::Algorithm, Failed> {
    match id.strip_prefix(HMAC) {
        Some([7]) => Ok(pbkdf2::PBKDF2_HMAC_SHA1),
        Some([9]) => Ok(pbkdf2::PBKDF2_HMAC_SHA256),
        Some([10]) => Ok(pbkdf2::PBKDF2_HMAC_SHA384),
        Some([11]) => Ok(pbkdf2::PBKDF2_HMAC_SHA512),
        _ => Err(Failed::Unsupported),
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let value = digits
        .iter()
        .try_fold(0u64, |n, d| n.checked_mul(256).map(|n| n + u64::from(*d)))?;
    u32::try_from(value).ok()
}

/// Decrypts whole blocks in place, each one combined with the encrypted one before it.
fn cbc<C, E>(cipher: &Result<C, E>, data: &mut [u8], iv: [u8; BLOCK_BYTES]) -> Result<(), Failed>
where
    C: BlockCipherDecrypt<BlockSize = aes::cipher::consts::U16>,
{
    let cipher = cipher.as_ref().map_err(|_| Failed::Malformed)?;
    let mut before = iv;
    for block in data.chunks_exact_mut(BLOCK_BYTES) {
        let mut current = [0; BLOCK_BYTES];
        current.copy_from_slice(block);
        let mut plain = Array(current);
        cipher.decrypt_block(&mut plain);
        for (out, (plain, before)) in block.iter_mut().zip(plain.iter().zip(before)) {
            *out = plain ^ before;
        }
        before = current;
    }
    Ok(())
}

/// Removes the padding: `n` bytes of the value `n`.
fn unpad(plain: &mut Vec<u8>) -> Result<(), Failed> {
    let count = usize::from(plain.last().copied().unwrap_or(0));
    let start = plain
        .len()
        .checked_sub(count)
        .ok_or(Failed::WrongPassword)?;
    let is_padding = (1..=BLOCK_BYTES).contains(&count)
        && plain[start..]
            .iter()
            .all(|byte| usize::from(*byte) == count);
    if !is_padding {
        return Err(Failed::WrongPassword);
    }
    plain.truncate(start);
    Ok(())
}
