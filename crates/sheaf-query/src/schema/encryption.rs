//! `encrypt` and `encryptMetadata`: schema keywords for fields that clients encrypt before sending
//! them.
//!
//! ```text
//!   encrypt: {bsonType: "int", algorithm: ..., keyId: [UUID]}
//!     passes  BinData(6, 01|02 <key id: 16 bytes> <type of the plain value> <ciphertext>)
//!   encryptMetadata: {algorithm, keyId}      defaults for nested schemas, used by clients
//! ```
//!
//! The server tests the binary subtype, and the type of the plain value in the payload. Algorithm
//! and key are for clients, which read the schema; the server only validates their syntax.

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::fields;
use sheaf_bson::{ElementType, Error, RawDoc, RawElement, RawValue};

use super::parse::{failed, types};
use crate::matcher::TypeSet;

/// The subtype of encrypted values.
const ENCRYPTED: u8 = 6;
/// The kinds of payload of client-side field level encryption: deterministic and random.
const PAYLOADS: [u8; 2] = [1, 2];
/// Offset of the plain value's type, after the kind and the key id.
const TYPE_AT: usize = 17;
const ALGORITHMS: [&str; 2] = [
    "AEAD_AES_256_CBC_HMAC_SHA_512-Deterministic",
    "AEAD_AES_256_CBC_HMAC_SHA_512-Random",
];

/// The condition on an encrypted value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encrypted {
    /// Types of the plain value; `None` allows any.
    types: Option<TypeSet>,
}

impl Encrypted {
    /// Parses the operand of `encrypt`.
    /// Errors: `TypeMismatch`, `BadValue`, `IDLUnknownField`.
    pub(super) fn parse(spec: RawDoc<'_>) -> Result<Encrypted, Error> {
        let mut encrypted = Encrypted { types: None };
        for element in spec {
            match element.key() {
                "bsonType" => encrypted.types = Some(types("bsonType", element.value())?),
                _ => check_metadata("encrypt", &element)?,
            }
        }
        Ok(encrypted)
    }

    /// Whether a value is encrypted, and its plain value has one of the types.
    pub(super) fn test(self, value: RawValue<'_>) -> bool {
        let RawValue::Binary {
            subtype: ENCRYPTED,
            bytes,
        } = value
        else {
            return false;
        };
        let Some(types) = self.types else {
            return true;
        };
        let plain = match bytes.first() {
            Some(kind) if PAYLOADS.contains(kind) => bytes.get(TYPE_AT),
            _ => None,
        };
        let plain = plain.and_then(|byte| ElementType::from_u8(*byte));
        plain.is_some_and(|plain| types.contains(plain))
    }
}

/// Checks the operand of `encryptMetadata`.
/// Errors: `TypeMismatch`, `BadValue`, `IDLUnknownField`; `FailedToParse` if it is empty.
pub(super) fn check_defaults(spec: RawDoc<'_>) -> Result<(), Error> {
    if spec.is_empty() {
        return Err(failed(
            "$jsonSchema keyword 'encryptMetadata' cannot be an empty object".into(),
        ));
    }
    spec.iter()
        .try_for_each(|element| check_metadata("encryptMetadata", &element))
}

fn check_metadata(keyword: &str, element: &RawElement<'_>) -> Result<(), Error> {
    let name = format!("{keyword}.{}", element.key());
    match (element.key(), element.value()) {
        ("algorithm", RawValue::String(algorithm)) => match ALGORITHMS.contains(&algorithm) {
            true => Ok(()),
            false => Err(Error::bad_value(format!(
                "Enumeration value '{algorithm}' for field '{name}' is not a valid value; known are \
                 {} and {}",
                ALGORITHMS[0], ALGORITHMS[1]
            ))),
        },
        ("algorithm", value) => Err(fields::wrong_type(name, value, "string")),
        ("keyId", value) => check_key_id(&name, value),
        _ => Err(fields::unknown_field(name)),
    }
}

/// Checks `keyId`: a JSON pointer to the field that names the key, or an array of key ids.
fn check_key_id(name: &str, value: RawValue<'_>) -> Result<(), Error> {
    match value {
        RawValue::String(pointer) if pointer.starts_with('/') => Ok(()),
        RawValue::String(_) => Err(Error::new(
            ErrorCode(51065),
            format!("{name} must be a JSON pointer, which begins with '/', or an array of UUIDs"),
        )),
        RawValue::Array(ids) => {
            let is_uuid =
                |id| matches!(id, RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16);
            match !ids.is_empty() && ids.iter().all(is_uuid) {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorCode(51088),
                    format!("{name} must be an array of UUIDs that is not empty"),
                )),
            }
        }
        value => Err(fields::wrong_type(name, value, "string or array")),
    }
}

#[cfg(test)]
mod tests {
    use sheaf_bson::{DocBuf, doc};

    use super::*;

    fn encrypted(kind: u8, plain: ElementType) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend([7; 16]);
        bytes.push(plain as i32 as u8);
        bytes.extend([9; 8]);
        bytes
    }

    fn passes(spec: DocBuf, subtype: u8, bytes: &[u8]) -> bool {
        let rule = Encrypted::parse(spec.as_raw()).unwrap();
        rule.test(RawValue::Binary { subtype, bytes })
    }

    #[test]
    fn the_payload_names_the_type() {
        let int = encrypted(1, ElementType::Int32);
        assert!(passes(doc! {}, 6, &int));
        assert!(passes(doc! {"bsonType": "int"}, 6, &int));
        assert!(passes(doc! {"bsonType": ["string", "int"]}, 6, &int));
        assert!(!passes(doc! {"bsonType": "string"}, 6, &int));
        assert!(!passes(
            doc! {"bsonType": "int"},
            6,
            &encrypted(9, ElementType::Int32)
        ));
        assert!(!passes(doc! {"bsonType": "int"}, 6, &int[..10]));
        assert!(!passes(doc! {}, 0, &int));
        let rule = Encrypted::parse(doc! {}.as_raw()).unwrap();
        assert!(!rule.test(RawValue::Int32(5)));
    }

    #[test]
    fn operands() {
        let uuid = RawValue::Binary {
            subtype: 4,
            bytes: &[1; 16],
        };
        let deterministic = ALGORITHMS[0];
        for accepted in [
            doc! {},
            doc! {"algorithm": deterministic, "keyId": [uuid]},
            doc! {"keyId": "/owner"},
        ] {
            assert!(Encrypted::parse(accepted.as_raw()).is_ok(), "{accepted}");
        }
        for (refused, code) in [
            (doc! {"other": 1}, 40415),
            (doc! {"algorithm": 1}, 14),
            (doc! {"algorithm": "AES"}, 2),
            (doc! {"keyId": 1}, 14),
            (doc! {"keyId": "owner"}, 51065),
            (doc! {"keyId": []}, 51088),
            (doc! {"keyId": ["x"]}, 51088),
        ] {
            let error = Encrypted::parse(refused.as_raw()).unwrap_err();
            assert_eq!(error.code().0, code, "{refused}");
        }
        assert!(check_defaults(doc! {"algorithm": deterministic}.as_raw()).is_ok());
        assert!(check_defaults(doc! {"bsonType": "int"}.as_raw()).is_err());
    }
}
