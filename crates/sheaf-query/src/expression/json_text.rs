//! Parses JSON as defined by RFC 8259, for `$toArray` and `$toObject`.
//!
//! ```text
//!   12            int, or long if needed             {"$oid": "..."}   an ordinary document
//!   12.0  1e3     double                             {"a": 1, "a": 2}  {a: 2}
//! ```
//!
//! Integers beyond long are doubles. The top level is an array or an object; comments, trailing
//! commas and bare words are errors. The text comes from clients, so nesting and the size of the
//! result are limited.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use sheaf_bson::error_code::{Error, Result};
use sheaf_bson::{ArrayBuilder, DocBuf, DocBuilder, Value};

use super::budget;

/// Maximum nesting of arrays and objects.
const DEPTH_MAX: usize = 200;

/// Why parsing stopped.
enum Failure {
    /// The text is not JSON: what is wrong, and at which byte.
    Text(String),
    /// A limit was exceeded, or the operation was interrupted.
    End(Error),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Text(why)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::End(error)
    }
}

type Read<T> = std::result::Result<T, Failure>;

/// Parses a text; the inner error is why it is not JSON. Errors: the value is too large; the
/// operation was interrupted.
pub(super) fn parse(text: &str) -> Result<std::result::Result<Value, String>> {
    let mut reader = Reader {
        text,
        at: 0,
        hasher: RandomState::new(),
    };
    match reader.whole() {
        Ok(value) => Ok(Ok(value)),
        Err(Failure::Text(why)) => Ok(Err(why)),
        Err(Failure::End(error)) => Err(error),
    }
}

struct Reader<'t> {
    text: &'t str,
    /// Always on a character boundary.
    at: usize,
    /// Hashes field names. Seeded per parse, so that clients cannot construct collisions.
    hasher: RandomState,
}

impl Reader<'_> {
    fn whole(&mut self) -> Read<Value> {
        self.skip_space();
        let value = match self.peek() {
            Some(b'{' | b'[') => self.value(0)?,
            _ => return Err("it is neither an array nor an object".to_owned().into()),
        };
        self.skip_space();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.wrong("nothing after the value")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, expected: &str) -> Failure {
        format!("expected {expected} at byte {}", self.at).into()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes `wanted` if it is next.
    fn take(&mut self, wanted: &str) -> bool {
        let found = self.text[self.at..].starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => {
                Err(format!("it is nested deeper than {DEPTH_MAX} levels").into())
            }
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.take("true") => Ok(Value::Boolean(true)),
            _ if self.take("false") => Ok(Value::Boolean(false)),
            _ if self.take("null") => Ok(Value::Null),
            _ => Err(self.wrong("a value")),
        }
    }

    fn array(&mut self, depth: usize) -> Read<Value> {
        let mut out = ArrayBuilder::new();
        self.at += 1;
        self.skip_space();
        if self.take("]") {
            return Ok(Value::Array(out.finish()));
        }
        loop {
            self.skip_space();
            budget::step()?;
            let value = self.value(depth + 1)?;
            out.push(value.as_raw());
            budget::check_value(out.current_len())?;
            self.skip_space();
            if self.take("]") {
                return Ok(Value::Array(out.finish()));
            }
            if !self.take(",") {
                return Err(self.wrong("',' or ']'"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        let mut out = DocBuilder::new();
        // Hashes instead of names: names may be long, and duplicates are rare.
        let mut seen = HashSet::new();
        let mut twice = false;
        self.at += 1;
        self.skip_space();
        let mut ended = self.take("}");
        while !ended {
            budget::step()?;
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.wrong("a field name"));
            }
            let name = self.string()?;
            if name.contains('\0') {
                return Err("a field name contains a zero byte".to_owned().into());
            }
            self.skip_space();
            if !self.take(":") {
                return Err(self.wrong("':'"));
            }
            self.skip_space();
            let value = self.value(depth + 1)?;
            twice |= !seen.insert(self.hasher.hash_one(&name));
            out.append(&name, value.as_raw());
            budget::check_value(out.current_len())?;
            self.skip_space();
            ended = self.take("}");
            if !ended && !self.take(",") {
                return Err(self.wrong("',' or '}'"));
            }
        }
        let doc = out.finish();
        Ok(Value::Document(match twice {
            true => last_of_each(&doc),
            false => doc,
        }))
    }

    fn string(&mut self) -> Read<String> {
        let mut out = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|c: char| matches!(c, '"' | '\\') || c < ' ')
                .ok_or_else(|| "a string does not end".to_owned())?;
            out.push_str(&rest[..plain]);
            self.at += plain;
            if self.take("\"") {
                return Ok(out);
            }
            if !self.take("\\") {
                return Err(self.wrong("no control character"));
            }
            out.push(self.escaped()?);
        }
    }

    fn escaped(&mut self) -> Read<char> {
        let letter = self
            .peek()
            .ok_or_else(|| "a string does not end".to_owned())?;
        let plain = match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at += 1;
                let first = self.unit()?;
                if !(0xD800..0xDC00).contains(&first) {
                    return char::from_u32(first).ok_or_else(|| self.wrong("no half of a pair"));
                }
                if !self.take("\\u") {
                    return Err(self.wrong("the second half of a pair"));
                }
                let second = self.unit()?;
                if !(0xDC00..0xE000).contains(&second) {
                    return Err(self.wrong("the second half of a pair"));
                }
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return char::from_u32(code).ok_or_else(|| self.wrong("a character"));
            }
            _ => return Err(self.wrong("an escape")),
        };
        self.at += 1;
        Ok(char::from(plain))
    }

    /// Four hexadecimal digits: a UTF-16 code unit.
    fn unit(&mut self) -> Read<u32> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .ok_or_else(|| self.wrong("four hexadecimal digits"))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|e| e.to_string().into())
    }

    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        match self.at > start {
            true => Ok(()),
            false => Err(self.wrong("a digit")),
        }
    }

    fn number(&mut self) -> Read<Value> {
        let start = self.at;
        self.take("-");
        // No digits may follow a leading zero.
        if !self.take("0") {
            self.digits()?;
        }
        let mut integral = true;
        if self.take(".") {
            integral = false;
            self.digits()?;
        }
        if self.take("e") || self.take("E") {
            integral = false;
            let _ = self.take("+") || self.take("-");
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if integral && let Ok(n) = text.parse::<i64>() {
            return Ok(match i32::try_from(n) {
                Ok(n) => Value::Int32(n),
                Err(_) => Value::Int64(n),
            });
        }
        match text.parse::<f64>() {
            Ok(x) if x.is_finite() => Ok(Value::Double(x)),
            _ => Err(format!("the number {text} is out of range").into()),
        }
    }
}

/// Keeps each field once, at its first position and with its last value.
fn last_of_each(doc: &DocBuf) -> DocBuf {
    let mut last = HashMap::new();
    for element in doc.as_raw() {
        last.insert(element.key(), element.value());
    }
    let mut out = DocBuilder::new();
    for element in doc.as_raw() {
        // The first occurrence takes the value out of the map.
        if let Some(value) = last.remove(element.key()) {
            out.append(element.key(), value);
        }
    }
    out.finish()
}
