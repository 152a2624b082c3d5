//! The shell style: the notation of MongoDB's explain output and messages.

use std::fmt::{self, Write};

use crate::element_type::ElementType;
use crate::json::DEPTH_MAX;
use crate::raw::{RawArray, RawDoc};
use crate::raw_value::RawValue;
use crate::value::{ArrayBuf, DocBuf, Value};

/// Formats a value in shell style: `{ a: 1, b: "x" }`. Int, long and decimal look alike, as in
/// MongoDB's messages.
pub fn shell<'a>(value: impl Into<RawValue<'a>>) -> String {
    let mut out = String::new();
    write_shell(&mut out, value.into());
    out
}

/// Formats a document in shell style.
pub fn shell_doc(doc: RawDoc<'_>) -> String {
    shell(doc)
}

/// Formats a value in shell style with every type distinguishable. [`parse`](super::parse) reads it
/// back to the same value.
pub fn typed<'a>(value: impl Into<RawValue<'a>>) -> String {
    let mut out = String::new();
    let _ = Printer { typed: true }.value(&mut out, value.into(), 0);
    out
}

/// As [`typed`], for a document.
pub fn typed_doc(doc: RawDoc<'_>) -> String {
    typed(doc)
}

/// Appends a value in shell style.
pub fn write_shell(out: &mut String, value: RawValue<'_>) {
    // Writing to a String cannot fail.
    let _ = Printer { typed: false }.value(out, value, 0);
}

struct Printer {
    typed: bool,
}

impl Printer {
    fn value<W: Write>(&self, out: &mut W, value: RawValue<'_>, depth: u32) -> fmt::Result {
        match value {
            RawValue::Double(x) => double(out, x),
            RawValue::String(s) => quoted(out, s),
            RawValue::Document(d) => self.document(out, d, depth),
            RawValue::Array(a) => self.array(out, a, depth),
            RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16 => {
                out.write_str("UUID(\"")?;
                for (i, byte) in bytes.iter().enumerate() {
                    if matches!(i, 4 | 6 | 8 | 10) {
                        out.write_char('-')?;
                    }
                    write!(out, "{byte:02x}")?;
                }
                out.write_str("\")")
            }
            RawValue::Binary { subtype, bytes: [] } => write!(out, "BinData({subtype}, \"\")"),
            RawValue::Binary { subtype, bytes } => {
                write!(out, "BinData({subtype}, ")?;
                bytes.iter().try_for_each(|b| write!(out, "{b:02X}"))?;
                out.write_char(')')
            }
            RawValue::Undefined => out.write_str("undefined"),
            RawValue::ObjectId(id) => write!(out, "ObjectId('{id}')"),
            RawValue::Boolean(b) => write!(out, "{b}"),
            RawValue::DateTime(t) => write!(out, "new Date({})", t.0),
            RawValue::Null => out.write_str("null"),
            RawValue::Regex { pattern, options } if self.typed && !is_plain(pattern, options) => {
                out.write_str("RegExp(")?;
                quoted(out, pattern)?;
                out.write_str(", ")?;
                quoted(out, options)?;
                out.write_char(')')
            }
            RawValue::Regex { pattern, options } => write!(out, "/{pattern}/{options}"),
            RawValue::DbPointer { namespace, id } => {
                out.write_str("DBPointer(")?;
                quoted(out, namespace)?;
                write!(out, ", ObjectId('{id}'))")
            }
            RawValue::JavaScript(code) => call(out, "Code", code),
            RawValue::Symbol(s) => call(out, "Symbol", s),
            RawValue::JavaScriptWithScope { code, scope } => {
                out.write_str("Code(")?;
                quoted(out, code)?;
                out.write_str(", ")?;
                self.document(out, scope, depth)?;
                out.write_char(')')
            }
            RawValue::Int32(n) => write!(out, "{n}"),
            RawValue::Timestamp(t) => write!(out, "Timestamp({}, {})", t.time, t.increment),
            RawValue::Int64(n) if self.typed => write!(out, "NumberLong({n})"),
            RawValue::Int64(n) => write!(out, "{n}"),
            RawValue::Decimal128(d) if self.typed => write!(out, "NumberDecimal(\"{d}\")"),
            RawValue::Decimal128(d) => write!(out, "{d}"),
            RawValue::MinKey => out.write_str("MinKey"),
            RawValue::MaxKey => out.write_str("MaxKey"),
        }
    }

    fn document<W: Write>(&self, out: &mut W, doc: RawDoc<'_>, depth: u32) -> fmt::Result {
        if doc.is_empty() {
            return out.write_str("{}");
        }
        if depth >= DEPTH_MAX {
            return out.write_str("{ ... }");
        }
        for (i, element) in doc.iter().enumerate() {
            out.write_str(if i == 0 { "{ " } else { ", " })?;
            let key = element.key();
            if self.typed && !is_bare_key(key) {
                quoted(out, key)?
            } else {
                out.write_str(key)?
            }
            out.write_str(": ")?;
            self.value(out, element.value(), depth + 1)?;
        }
        out.write_str(" }")
    }

    fn array<W: Write>(&self, out: &mut W, array: RawArray<'_>, depth: u32) -> fmt::Result {
        if array.is_empty() {
            return out.write_str("[]");
        }
        if depth >= DEPTH_MAX {
            return out.write_str("[ ... ]");
        }
        for (i, value) in array.iter().enumerate() {
            out.write_str(if i == 0 { "[ " } else { ", " })?;
            self.value(out, value, depth + 1)?;
        }
        out.write_str(" ]")
    }
}

/// Whether a key can be parsed without quotes.
fn is_bare_key(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.'))
}

fn call<W: Write>(out: &mut W, name: &str, text: &str) -> fmt::Result {
    write!(out, "{name}(")?;
    quoted(out, text)?;
    out.write_char(')')
}

/// Whether a regular expression can be parsed when written between slashes.
fn is_plain(pattern: &str, options: &str) -> bool {
    !pattern.is_empty()
        && !pattern.contains(['/', '\n'])
        && !pattern.ends_with('\\')
        && options.bytes().all(|b| b.is_ascii_alphabetic())
}

/// Writes a double so that it is recognizable as one: 1.0, 1.5, 1e+20, inf.0, -inf.0, nan.0.
fn double<W: Write>(out: &mut W, x: f64) -> fmt::Result {
    if x.is_nan() {
        return out.write_str("nan.0");
    }
    if x.is_infinite() {
        return out.write_str(if x < 0.0 { "-inf.0" } else { "inf.0" });
    }
    if x != 0.0 && !(1e-5..1e16).contains(&x.abs()) {
        let text = format!("{x:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        return write!(out, "{digits}e{sign}{exponent}");
    }
    write!(out, "{x:?}")
}

/// Writes a string in double quotes, with quotes, backslashes and control characters escaped.
pub(crate) fn quoted<W: Write>(out: &mut W, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c < ' ' || c == '\x7f' => write!(out, "\\u{:04x}", c as u32)?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

impl fmt::Display for RawValue<'_> {
    /// Shell style.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { typed: false }.value(f, *self, 0)
    }
}

impl fmt::Debug for RawValue<'_> {
    /// Shell style with every type distinguishable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printer { typed: true }.value(f, *self, 0)
    }
}

macro_rules! print_as_raw {
    ($($t:ty, $this:ident => $raw:expr;)*) => {
        $(impl fmt::Display for $t {
            /// Shell style.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                fmt::Display::fmt(&$raw, f)
            }
        }
        impl fmt::Debug for $t {
            /// Shell style with every type distinguishable.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $this = self;
                fmt::Debug::fmt(&$raw, f)
            }
        })*
    };
}

print_as_raw! {
    RawDoc<'_>, doc => RawValue::Document(*doc);
    RawArray<'_>, array => RawValue::Array(*array);
    DocBuf, doc => RawValue::Document(doc.as_raw());
    ArrayBuf, array => RawValue::Array(array.as_raw());
    Value, value => value.as_raw();
}

impl fmt::Debug for crate::RawElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.key(), self.value())
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
