//! The key of an entry: what the queries that it counts have in common.
//!
//! ```text
//!   {queryShape: {cmdNs, command: "find", filter: {a: {$eq: "?number"}}},
//!    client: {driver, os, platform, application}, collectionType: "collection",
//!    hint: {a: 1}, batchSize: "?number", comment: "?string", readConcern: {level: "majority"}}
//! ```

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue, base64};
use sheaf_query::query_shape::{self, identifiers};

/// Options that are part of a key as they are, under their names.
const LITERAL: &[(&str, &str)] = &[
    ("apiVersion", "apiVersion"),
    ("apiStrict", "apiStrict"),
    ("apiDeprecationErrors", "apiDeprecationErrors"),
    ("readConcern", "readConcern"),
    ("$readPreference", "readPreference"),
];

/// Options of which only the type is part of a key.
const NORMALIZED: &[(&str, &str)] = &[
    ("batchSize", "?number"),
    ("comment", "?string"),
    ("maxTimeMS", "?number"),
    ("noCursorTimeout", "?bool"),
];

/// What a key is made of.
#[derive(Clone, Copy)]
pub struct KeyParts<'a> {
    /// The command.
    pub command: RawDoc<'a>,
    /// Its database.
    pub db: &'a str,
    /// What the client sent about itself.
    pub client: Option<&'a DocBuf>,
    /// `collection`, `view`, ...
    pub collection_type: &'static str,
}

/// A key.
#[derive(Debug, Clone)]
pub struct Key {
    doc: DocBuf,
    shape_hash: String,
}

/// Replaces identifiers by their HMAC-SHA-256 with this key.
pub struct Transform {
    /// The key.
    pub hmac_key: Vec<u8>,
}

impl Transform {
    fn replace(&self, name: &str) -> String {
        // An HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.hmac_key) else {
            unreachable!("HMAC takes keys of any length");
        };
        mac.update(name.as_bytes());
        encoded(&mac.finalize().into_bytes())
    }
}

fn encoded(bytes: &[u8]) -> String {
    let mut out = String::new();
    base64::encode(bytes, &mut out);
    out
}

impl Key {
    /// The key of a command; `None` if it has no shape.
    pub fn new(parts: &KeyParts<'_>) -> Option<Key> {
        let shape = query_shape::of_command(parts.command, parts.db)?;
        let command = parts.command;
        let mut out = DocBuilder::new();
        out.append_bson("queryShape", &shape);
        for (name, shown) in LITERAL {
            if let Some(value) = given(command, name) {
                out.append(shown, value);
            }
        }
        if let Some(client) = parts.client {
            out.append_bson("client", client);
        }
        out.append("collectionType", parts.collection_type);
        match given(command, "hint") {
            Some(RawValue::Document(hint)) => drop(out.append("hint", hint)),
            Some(_) => drop(out.append("hint", "?string")),
            None => {}
        }
        append_normalized(command, &mut out);
        if let Some(RawValue::Document(cursor)) = given(command, "cursor")
            && given(cursor, "batchSize").is_some()
        {
            out.begin_document("cursor");
            append_normalized(cursor, &mut out);
            out.end();
        }
        Some(Key {
            doc: out.finish(),
            shape_hash: query_shape::hash(shape.as_raw()),
        })
    }

    /// Identifies the key.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.doc.as_raw().as_bytes()).into()
    }

    /// Bytes of memory that the key takes.
    pub fn bytes(&self) -> usize {
        self.doc.as_raw().as_bytes().len() + self.shape_hash.len()
    }

    /// Appends `key`, `keyHash` and `queryShapeHash`.
    pub fn append(&self, transform: Option<&Transform>, out: &mut DocBuilder) {
        let shown = match transform {
            Some(transform) => self.transformed(transform),
            None => self.doc.clone(),
        };
        let hash = Sha256::digest(shown.as_raw().as_bytes());
        out.append_bson("key", &shown);
        out.append("keyHash", encoded(&hash).as_str());
        out.append("queryShapeHash", self.shape_hash.as_str());
    }

    fn transformed(&self, transform: &Transform) -> DocBuf {
        let replace = |name: &str| transform.replace(name);
        let mut out = DocBuilder::new();
        for element in self.doc.iter() {
            match (element.key(), element.value()) {
                (name @ "queryShape", RawValue::Document(shape)) => {
                    out.append_bson(name, &identifiers::replaced(shape, &replace));
                }
                (name @ "hint", RawValue::Document(hint)) => {
                    out.append_bson(name, &identifiers::replaced_keys(hint, &replace));
                }
                _ => drop(out.append_raw_element(element)),
            }
        }
        out.finish()
    }
}

fn given<'a>(doc: RawDoc<'a>, name: &str) -> Option<RawValue<'a>> {
    doc.get(name)
        .filter(|value| !matches!(value, RawValue::Null | RawValue::Undefined))
}

fn append_normalized(doc: RawDoc<'_>, out: &mut DocBuilder) {
    for (name, kind) in NORMALIZED {
        if given(doc, name).is_some() {
            out.append(name, *kind);
        }
    }
}
