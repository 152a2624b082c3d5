//! Validation of bytes that come from outside.
//!
//! Everything after it reads documents without checks. This therefore checks all that reading
//! relies on, once, in one pass and without recursion:
//!
//! - every length holds inside its parent, every frame ends in its zero byte
//! - types are known, booleans are 0 or 1
//! - keys, strings, code, patterns and namespaces are UTF-8
//! - code with scope and the old binary subtype agree with their inner lengths
//! - nesting stays within the limit
//!
//! Keys of arrays are ignored, and keys may repeat: MongoDB accepts both.

use crate::element_type::ElementType;
use crate::error::BsonError;
use crate::raw::{RawDoc, find_zero, zero_bytes};

/// Maximum nesting of a stored document, counting the document itself. MongoDB's manual promises 100
/// levels; its server stores 180, and reads requests of 200.
pub const DOCUMENT_DEPTH_MAX: usize = 180;

/// The limits that [`validate`] enforces.
#[derive(Clone, Copy, Debug)]
pub struct ValidateOptions {
    /// Maximum number of documents and arrays around a value, not counting the outermost.
    pub depth_max: usize,
}

impl ValidateOptions {
    /// For what the server stored itself: options and documents of a request, within its own rows
    /// and entries.
    pub const STORED: ValidateOptions = ValidateOptions { depth_max: 250 };
}

impl Default for ValidateOptions {
    /// The limit of documents that are stored.
    fn default() -> ValidateOptions {
        ValidateOptions {
            depth_max: DOCUMENT_DEPTH_MAX - 1,
        }
    }
}

/// Checks that `bytes` are exactly one well-formed document.
///
/// The error has the offset and the dotted path of the faulty element.
pub fn validate(bytes: &[u8], options: &ValidateOptions) -> Result<(), BsonError> {
    RawDoc::parse(bytes)?;
    let mut walk = Walk {
        bytes,
        at: 4,
        end: bytes.len(),
        outer: Vec::new(),
        key: (0, 0),
    };
    walk.run(options).map_err(|error| {
        let path = walk.path();
        error.with_path(path)
    })
}

/// Checks that `bytes` begin with one well-formed document. Returns it and the bytes that follow.
pub fn validate_prefix<'a>(
    bytes: &'a [u8],
    options: &ValidateOptions,
) -> Result<(RawDoc<'a>, &'a [u8]), BsonError> {
    let (doc, rest) = RawDoc::parse_prefix(bytes)?;
    validate(doc.as_bytes(), options)?;
    Ok((doc, rest))
}

struct Walk<'a> {
    bytes: &'a [u8],
    /// Offset of the next byte.
    at: usize,
    /// Offset just after the terminating zero of the innermost open document.
    end: usize,
    outer: Vec<Outer>,
    /// Start and length of the current element's key; start 0 if there is no current key.
    key: (usize, usize),
}

/// An enclosing document: its end, and the key of the nested document in it.
struct Outer {
    end: usize,
    key: (usize, usize),
}

impl Walk<'_> {
    fn run(&mut self, options: &ValidateOptions) -> Result<(), BsonError> {
        loop {
            let start = self.at;
            let type_byte = self.byte()?;
            if type_byte == 0 {
                if self.at != self.end {
                    return fail("document ends before its declared length", start);
                }
                match self.outer.pop() {
                    None => return Ok(()),
                    Some(outer) => {
                        self.end = outer.end;
                        self.key = outer.key;
                        continue;
                    }
                }
            }
            let Some(element_type) = ElementType::from_u8(type_byte) else {
                return fail(format!("unrecognized BSON type {type_byte}"), start);
            };
            let key_start = self.at;
            // If the key is malformed, the path must not show the previous element.
            self.key = (0, 0);
            self.cstring("field name")?;
            self.key = (key_start, self.at - 1 - key_start);
            self.value(element_type, options)?;
        }
    }

    fn value(
        &mut self,
        element_type: ElementType,
        options: &ValidateOptions,
    ) -> Result<(), BsonError> {
        match element_type {
            ElementType::Undefined
            | ElementType::Null
            | ElementType::MinKey
            | ElementType::MaxKey => Ok(()),
            ElementType::Boolean => match self.byte()? {
                0 | 1 => Ok(()),
                other => fail(
                    format!("boolean value {other} is neither 0 nor 1"),
                    self.at - 1,
                ),
            },
            ElementType::Int32 => self.skip(4),
            ElementType::Double
            | ElementType::DateTime
            | ElementType::Timestamp
            | ElementType::Int64 => self.skip(8),
            ElementType::ObjectId => self.skip(12),
            ElementType::Decimal128 => self.skip(16),
            ElementType::String | ElementType::JavaScript | ElementType::Symbol => self.string(),
            ElementType::DbPointer => {
                self.string()?;
                self.skip(12)
            }
            ElementType::Regex => {
                self.cstring("regular expression")?;
                self.cstring("regular expression options")
            }
            ElementType::Binary => self.binary(),
            ElementType::Document | ElementType::Array => self.open(None, options),
            ElementType::JavaScriptWithScope => {
                let start = self.at;
                let total = self.length(14, "code with scope")?;
                self.string()?;
                self.open(Some(start + total), options)
            }
        }
    }

    fn byte(&mut self) -> Result<u8, BsonError> {
        match self.bytes.get(self.at) {
            Some(&byte) if self.at < self.end => {
                self.at += 1;
                Ok(byte)
            }
            _ => fail("document ends inside an element", self.at),
        }
    }

    /// Skips `n` bytes. They must leave room for the document's terminating zero.
    fn skip(&mut self, n: usize) -> Result<(), BsonError> {
        if n >= self.end - self.at {
            return fail("value exceeds its document", self.at);
        }
        self.at += n;
        Ok(())
    }

    /// Reads a length of at least `min`. The caller checks that it fits.
    fn length(&mut self, min: i32, what: &str) -> Result<usize, BsonError> {
        let start = self.at;
        self.skip(4)?;
        let Some(four) = self.bytes[start..].first_chunk() else {
            return fail(
                format!("not enough bytes for the length of a {what}"),
                start,
            );
        };
        let length = i32::from_le_bytes(*four);
        if length < min {
            return fail(
                format!("{what} length {length} is below the minimum of {min}"),
                start,
            );
        }
        Ok(length as usize)
    }

    fn utf8(&self, start: usize, end: usize, what: &str) -> Result<(), BsonError> {
        match std::str::from_utf8(&self.bytes[start..end]) {
            Ok(_) => Ok(()),
            Err(e) => fail(
                format!("{what} is not valid UTF-8"),
                start + e.valid_up_to(),
            ),
        }
    }

    fn cstring(&mut self, what: &str) -> Result<(), BsonError> {
        let start = self.at;
        // The last byte is the document's terminating zero.
        let inside = &self.bytes[start..self.end - 1];
        // Most keys are a few ASCII letters: one step finds the end and checks the encoding.
        if let Some(chunk) = inside.first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let zeros = zero_bytes(word);
            let before_end = zeros.wrapping_sub(1) & !zeros;
            if zeros != 0 && word & before_end & 0x8080_8080_8080_8080 == 0 {
                self.at = start + zeros.trailing_zeros() as usize / 8 + 1;
                return Ok(());
            }
        }
        match find_zero(inside) {
            None => fail(
                format!("{what} is not terminated inside its document"),
                start,
            ),
            Some(len) => {
                self.at = start + len + 1;
                self.utf8(start, start + len, what)
            }
        }
    }

    fn string(&mut self) -> Result<(), BsonError> {
        let length_at = self.at;
        let length = self.length(1, "string")?;
        let start = self.at;
        if self.skip(length).is_err() {
            return fail(
                format!("string length {length} exceeds its document"),
                length_at,
            );
        }
        if self.bytes[self.at - 1] != 0 {
            return fail("string does not end with a zero byte", self.at - 1);
        }
        self.utf8(start, self.at - 1, "string")
    }

    fn binary(&mut self) -> Result<(), BsonError> {
        let length_at = self.at;
        let length = self.length(0, "binary")?;
        let subtype = self.byte()?;
        let start = self.at;
        if self.skip(length).is_err() {
            return fail(
                format!("binary length {length} exceeds its document"),
                length_at,
            );
        }
        if subtype == 2 {
            let inner = self.bytes[start..self.at]
                .first_chunk()
                .map(|four| i32::from_le_bytes(*four));
            if inner.map(|inner| i64::from(inner) + 4) != Some(length as i64) {
                return fail("inner length of binary subtype 2 does not match", start);
            }
        }
        Ok(())
    }

    /// Enters a nested document, which must end exactly at `end` if given.
    fn open(&mut self, end: Option<usize>, options: &ValidateOptions) -> Result<(), BsonError> {
        let start = self.at;
        let length = self.length(5, "document")?;
        if length >= self.end - start {
            return fail(
                format!("document length {length} exceeds its parent"),
                start,
            );
        }
        if end.is_some_and(|end| end != start + length) {
            return fail("length of code with scope does not match its parts", start);
        }
        if self.bytes[start + length - 1] != 0 {
            return fail("document does not end with a zero byte", start + length - 1);
        }
        if self.outer.len() >= options.depth_max {
            return Err(BsonError::too_deep(options.depth_max, start));
        }
        self.outer.push(Outer {
            end: self.end,
            key: self.key,
        });
        self.end = start + length;
        self.key = (0, 0);
        Ok(())
    }

    /// The dotted path of the current element, truncated for a message.
    fn path(&self) -> String {
        const LEN_MAX: usize = 200;
        let mut path = String::new();
        for (start, len) in self.outer.iter().map(|o| o.key).chain([self.key]) {
            if start == 0 {
                break;
            }
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(
                &self.bytes[start..start + len.min(LEN_MAX)],
            ));
            if path.len() > LEN_MAX {
                path.push_str("...");
                break;
            }
        }
        path
    }
}

fn fail<T>(message: impl Into<String>, offset: usize) -> Result<T, BsonError> {
    Err(BsonError::new(message, offset))
}
