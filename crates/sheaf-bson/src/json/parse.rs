//! Parses values: JSON, Extended JSON, and the shell's notation.
//!
//! ```text
//!  {a: 1, 'b.c': [1.5, NumberLong(5), /re/i], $and: [], d: ISODate("2020-01-01"), e: MinKey}
//!  {"a": {"$numberLong": "5"}}
//! ```
//!
//! - Keys may be bare if they consist of letters, digits, `_`, `$`, `.`;
//!   strings take either quote; a trailing comma is allowed.
//! - An integer is an int if it fits, else a long, else a double; a number
//!   with a point or an exponent is a double.
//! - An object whose first key is an Extended JSON key represents that value.
//! - Everything `json::typed` prints parses to the same bytes.
//!
//! Recursion is bounded by the nesting limit of documents.

use super::{date, wrapper};
use crate::base64;
use crate::builder::{ArrayBuilder, DocBuilder};
use crate::error::BsonError;
use crate::instant::{DateTime, Timestamp};
use crate::object_id::ObjectId;
use crate::value::{DocBuf, Value};

/// Maximum nesting of a text: the nesting limit of documents, plus Extended JSON wrappers.
const DEPTH_MAX: u32 = 210;

/// Parses exactly one value. The error's offset is relative to `text`.
pub fn parse(text: &str) -> Result<Value, BsonError> {
    let (value, end) = parse_prefix(text)?;
    if end < text.len() {
        return Err(BsonError::new("unexpected text after the value", end));
    }
    Ok(value)
}

/// Parses one object. Errors: as [`parse`], or the value is not an object.
pub fn parse_doc(text: &str) -> Result<DocBuf, BsonError> {
    match parse(text)? {
        Value::Document(doc) => Ok(doc),
        other => Err(BsonError::new(
            format!("expected an object, found {}", other.type_name()),
            0,
        )),
    }
}

/// Parses the value at the start of `text`. Also returns the offset after the value and the white
/// space that follows it.
pub fn parse_prefix(text: &str) -> Result<(Value, usize), BsonError> {
    let mut parser = Parser { text, at: 0 };
    parser.space();
    let value = parser.value(0)?;
    parser.space();
    Ok((value, parser.at))
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, BsonError> {
        Err(BsonError::new(message, self.at))
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), BsonError> {
        self.space();
        if self.eat(byte) {
            self.space();
            return Ok(());
        }
        self.fail(format!("expected '{}'", byte as char))
    }

    /// After an item: true if another may follow, false if the closing byte was consumed.
    fn another(&mut self, close: u8) -> Result<bool, BsonError> {
        self.space();
        if self.eat(close) {
            return Ok(false);
        }
        if !self.eat(b',') {
            return self.fail(format!("expected ',' or '{}'", close as char));
        }
        self.space();
        Ok(!self.eat(close))
    }

    fn value(&mut self, depth: u32) -> Result<Value, BsonError> {
        if depth > DEPTH_MAX {
            return self.fail(format!("nesting exceeds {DEPTH_MAX} levels"));
        }
        match self.peek() {
            None => self.fail("expected a value"),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"' | b'\'') => self.string().map(Value::String),
            Some(b'/') => self.regex(),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(depth),
        }
    }

    fn object(&mut self, depth: u32) -> Result<Value, BsonError> {
        let start = self.at;
        self.at += 1;
        self.space();
        let mut builder = DocBuilder::new();
        let mut more = !self.eat(b'}');
        while more {
            let key_at = self.at;
            let key = self.key()?;
            if key.contains('\0') {
                return Err(BsonError::new(
                    "a field name cannot contain a zero byte",
                    key_at,
                ));
            }
            self.expect(b':')?;
            let value = self.value(depth + 1)?;
            builder.append_value(key, &value);
            more = self.another(b'}')?;
        }
        let object = builder.finish();
        match wrapper::unwrap(object.as_raw()) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Ok(Value::Document(object)),
            Err(message) => Err(BsonError::new(message, start)),
        }
    }

    fn array(&mut self, depth: u32) -> Result<Value, BsonError> {
        self.at += 1;
        self.space();
        let mut builder = ArrayBuilder::new();
        let mut more = !self.eat(b']');
        while more {
            let value = self.value(depth + 1)?;
            builder.push_value(&value);
            more = self.another(b']')?;
        }
        Ok(Value::Array(builder.finish()))
    }

    fn key(&mut self) -> Result<String, BsonError> {
        if matches!(self.peek(), Some(b'"' | b'\'')) {
            return self.string();
        }
        match self.bare() {
            "" => self.fail("expected a field name"),
            name => Ok(name.to_owned()),
        }
    }

    /// Reads letters, digits, `_`, `$` and `.`; the result may be empty.
    fn bare(&mut self) -> &'t str {
        let rest = self.rest();
        let is_bare = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.');
        let word = &rest[..rest.find(|c| !is_bare(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn string(&mut self) -> Result<String, BsonError> {
        let start = self.at;
        let quote = self.peek().unwrap_or(b'"') as char;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.next_char() else {
                return Err(BsonError::new("unterminated string", start));
            };
            match c {
                '\\' => out.push(self.escape()?),
                c if c == quote => return Ok(out),
                c => out.push(c),
            }
        }
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn escape(&mut self) -> Result<char, BsonError> {
        match self.next_char() {
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            Some('r') => Ok('\r'),
            Some('b') => Ok('\x08'),
            Some('f') => Ok('\x0C'),
            Some('x') => self.hex(2).and_then(|n| self.char(n)),
            Some('u') => {
                let high = self.hex(4)?;
                if !(0xD800..0xDC00).contains(&high) {
                    return self.char(high);
                }
                if !self.rest().starts_with("\\u") {
                    return self.fail("unpaired surrogate");
                }
                self.at += 2;
                let low = self.hex(4)?;
                if !(0xDC00..0xE000).contains(&low) {
                    return self.fail("unpaired surrogate");
                }
                self.char(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            }
            Some(c @ ('"' | '\'' | '\\' | '/')) => Ok(c),
            _ => self.fail("unknown escape in a string"),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<u32, BsonError> {
        let number = self
            .rest()
            .get(..digits)
            .filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|text| u32::from_str_radix(text, 16).ok());
        match number {
            Some(number) => {
                self.at += digits;
                Ok(number)
            }
            None => self.fail(format!("expected {digits} hexadecimal digits")),
        }
    }

    fn char(&self, code: u32) -> Result<char, BsonError> {
        char::from_u32(code).map_or_else(|| self.fail("unpaired surrogate"), Ok)
    }

    fn regex(&mut self) -> Result<Value, BsonError> {
        let start = self.at;
        self.at += 1;
        let mut pattern = String::new();
        loop {
            match self.next_char() {
                Some('/') => break,
                Some('\\') => {
                    // `\/` is how a pattern writes a slash: the backslash is not part of the
                    // pattern.
                    if self.peek() != Some(b'/') {
                        pattern.push('\\');
                    }
                    pattern.extend(self.next_char());
                }
                Some('\n') | None => {
                    return Err(BsonError::new("unterminated regular expression", start));
                }
                Some('\0') => return self.fail("a pattern cannot contain a zero byte"),
                Some(c) => pattern.push(c),
            }
        }
        let options = self.bare().to_owned();
        Ok(Value::Regex { pattern, options })
    }

    fn number(&mut self) -> Result<Value, BsonError> {
        let start = self.at;
        let negative = match self.peek() {
            Some(b'-') => {
                self.at += 1;
                true
            }
            Some(b'+') => {
                self.at += 1;
                false
            }
            _ => false,
        };
        if let Some(special) = self.special_double() {
            return Ok(Value::Double(if negative { -special } else { special }));
        }
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            let signs = matches!(byte, b'+' | b'-') && matches!(bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || signs) {
                break;
            }
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if !text.contains(['.', 'e', 'E'])
            && let Ok(n) = text.parse::<i64>()
        {
            return Ok(i32::try_from(n).map_or(Value::Int64(n), Value::Int32));
        }
        match text.parse::<f64>() {
            Ok(x) => Ok(Value::Double(x)),
            Err(_) => Err(BsonError::new(format!("'{text}' is not a number"), start)),
        }
    }

    /// Reads `inf.0`, `nan.0`, `Infinity` or `NaN`, if one is next.
    fn special_double(&mut self) -> Option<f64> {
        let names = [
            ("inf.0", f64::INFINITY),
            ("Infinity", f64::INFINITY),
            ("nan.0", f64::NAN),
            ("NaN", f64::NAN),
        ];
        let (name, value) = names
            .into_iter()
            .find(|(name, _)| self.rest().starts_with(name))?;
        self.at += name.len();
        Some(value)
    }

    fn word(&mut self, depth: u32) -> Result<Value, BsonError> {
        if let Some(special) = self.special_double() {
            return Ok(Value::Double(special));
        }
        let start = self.at;
        let mut word = self.bare();
        if word == "new" {
            self.space();
            word = self.bare();
        }
        match word {
            "true" => return Ok(Value::Boolean(true)),
            "false" => return Ok(Value::Boolean(false)),
            "null" => return Ok(Value::Null),
            "undefined" => return Ok(Value::Undefined),
            "MinKey" | "MaxKey" => {
                if self.eat(b'(') {
                    self.expect(b')')?;
                }
                return Ok(if word == "MinKey" {
                    Value::MinKey
                } else {
                    Value::MaxKey
                });
            }
            _ => {}
        }
        if word.is_empty() || !self.eat(b'(') {
            return Err(BsonError::new(
                format!("unexpected {:?}", self.shown(start)),
                start,
            ));
        }
        let arguments = self.arguments(word, depth)?;
        match call(word, &arguments) {
            Some(value) => Ok(value),
            None => Err(BsonError::new(
                format!("invalid arguments of {word}(...)"),
                start,
            )),
        }
    }

    /// The text at an offset, truncated for a message.
    fn shown(&self, at: usize) -> String {
        self.text[at..].chars().take(12).collect()
    }

    fn arguments(&mut self, call: &str, depth: u32) -> Result<Vec<Value>, BsonError> {
        self.space();
        let mut arguments = Vec::new();
        let mut more = !self.eat(b')');
        while more {
            // The bytes of BinData may be bare hexadecimal digits, without quotes.
            let hex = call == "BinData" && arguments.len() == 1;
            if hex && self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                let start = self.at;
                let Some(bytes) = wrapper::from_hex(self.bare()) else {
                    return Err(BsonError::new(
                        "expected pairs of hexadecimal digits",
                        start,
                    ));
                };
                arguments.push(Value::Binary { subtype: 0, bytes });
            } else {
                arguments.push(self.value(depth + 1)?);
            }
            more = self.another(b')')?;
        }
        Ok(arguments)
    }
}

/// The value of a shell constructor call; `None` if the arguments do not fit.
fn call(name: &str, arguments: &[Value]) -> Option<Value> {
    use Value::{Binary, Document, Int32, Int64, String};
    let integer = |value: &Value| match value {
        String(text) => text.parse().ok(),
        other => other.as_raw().as_i64_exact(),
    };
    let small = |value: &Value| u32::try_from(integer(value)?).ok();
    match (name, arguments) {
        ("NumberInt" | "Int32", [n]) => i32::try_from(integer(n)?).ok().map(Int32),
        ("NumberLong" | "Long", [n]) => integer(n).map(Int64),
        ("NumberDouble" | "Double", [String(text)]) => text.parse().ok().map(Value::Double),
        ("NumberDouble" | "Double", [n]) => n.as_raw().as_f64().map(Value::Double),
        ("NumberDecimal" | "Decimal128", [String(text)]) => {
            text.parse().ok().map(Value::Decimal128)
        }
        ("NumberDecimal" | "Decimal128", [n]) => Some(Value::Decimal128(integer(n)?.into())),
        ("ObjectId", [String(hex)]) => ObjectId::parse_hex(hex).map(Value::ObjectId),
        ("ISODate" | "Date", [String(text)]) => Some(Value::DateTime(DateTime(date::parse(text)?))),
        ("ISODate" | "Date", [n]) => integer(n).map(|ms| Value::DateTime(DateTime(ms))),
        ("Timestamp", [time, increment]) => Some(Value::Timestamp(Timestamp::new(
            small(time)?,
            small(increment)?,
        ))),
        ("Timestamp", [Document(halves)]) => {
            let half = |key: &str| small(&halves.get(key)?.to_value());
            Some(Value::Timestamp(Timestamp::new(half("t")?, half("i")?)))
        }
        ("BinData", [subtype, Binary { bytes, .. }]) => binary(integer(subtype)?, bytes.clone()),
        ("BinData", [subtype, String(text)]) => binary(integer(subtype)?, base64::decode(text)?),
        ("HexData", [subtype, String(hex)]) => binary(integer(subtype)?, wrapper::from_hex(hex)?),
        ("UUID", [String(text)]) => Some(Binary {
            subtype: 4,
            bytes: wrapper::uuid(text)?,
        }),
        ("RegExp", [String(pattern)]) => regex(pattern, ""),
        ("RegExp", [String(pattern), String(options)]) => regex(pattern, options),
        ("Symbol", [String(text)]) => Some(Value::Symbol(text.clone())),
        ("Code", [String(code)]) => Some(Value::JavaScript(code.clone())),
        ("Code", [String(code), Document(scope)]) => Some(Value::JavaScriptWithScope {
            code: code.clone(),
            scope: scope.clone(),
        }),
        ("DBPointer", [String(namespace), Value::ObjectId(id)]) => Some(Value::DbPointer {
            namespace: namespace.clone(),
            id: *id,
        }),
        _ => None,
    }
}

/// Binary as stored: the bytes of the old subtype 2 must begin with their length.
fn binary(subtype: i64, bytes: Vec<u8>) -> Option<Value> {
    let subtype = u8::try_from(subtype).ok()?;
    let inner = |bytes: &[u8]| Some(u32::from_le_bytes(*bytes.first_chunk()?) as usize + 4);
    let holds = subtype != 2 || inner(&bytes) == Some(bytes.len());
    holds.then_some(Value::Binary { subtype, bytes })
}

fn regex(pattern: &str, options: &str) -> Option<Value> {
    if pattern.contains('\0') || options.contains('\0') {
        return None;
    }
    Some(Value::Regex {
        pattern: pattern.to_owned(),
        options: options.to_owned(),
    })
}
