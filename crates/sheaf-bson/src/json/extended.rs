//! Extended JSON v2, relaxed and canonical.

use std::fmt::Write;

use crate::base64;
use crate::json::DEPTH_MAX;
use crate::raw::{RawArray, RawDoc};
use crate::raw_value::RawValue;

/// Formats a value as relaxed Extended JSON: plain numbers, ISO dates, no spaces.
pub fn to_relaxed<'a>(value: impl Into<RawValue<'a>>) -> String {
    let mut out = String::new();
    write_relaxed(&mut out, value.into());
    out
}

/// Formats a value as canonical Extended JSON: every type is distinguishable, no spaces.
pub fn to_canonical<'a>(value: impl Into<RawValue<'a>>) -> String {
    let mut out = String::new();
    write_canonical(&mut out, value.into());
    out
}

/// Appends a value as relaxed Extended JSON.
pub fn write_relaxed(out: &mut String, value: RawValue<'_>) {
    Printer {
        out,
        canonical: false,
    }
    .value(value, 0);
}

/// Appends a value as canonical Extended JSON.
pub fn write_canonical(out: &mut String, value: RawValue<'_>) {
    Printer {
        out,
        canonical: true,
    }
    .value(value, 0);
}

struct Printer<'o> {
    out: &'o mut String,
    canonical: bool,
}

impl Printer<'_> {
    fn value(&mut self, value: RawValue<'_>, depth: u32) {
        match value {
            RawValue::Double(x) => self.double(x),
            RawValue::String(s) => self.text(s),
            RawValue::Document(d) => self.document(d, depth),
            RawValue::Array(a) => self.array(a, depth),
            RawValue::Binary { subtype, bytes } => {
                // Subtype 2 (old binary) repeats its length inside; the text shows only the
                // payload.
                let shown = if subtype == 2 {
                    bytes.get(4..).unwrap_or(&[])
                } else {
                    bytes
                };
                let _ = write!(self.out, r#"{{"$binary":{{"base64":""#);
                base64::encode(shown, self.out);
                let _ = write!(self.out, r#"","subType":"{subtype:02x}"}}}}"#);
            }
            RawValue::Undefined => self.raw(r#"{"$undefined":true}"#),
            RawValue::ObjectId(id) => self.wrap("$oid", format_args!("{id}")),
            RawValue::Boolean(b) => self.raw(if b { "true" } else { "false" }),
            RawValue::DateTime(t) => match (!self.canonical)
                .then(|| super::date::format(t.0))
                .flatten()
            {
                Some(text) => self.wrap("$date", format_args!("{text}")),
                None => {
                    let _ = write!(self.out, r#"{{"$date":{{"$numberLong":"{}"}}}}"#, t.0);
                }
            },
            RawValue::Null => self.raw("null"),
            RawValue::Regex { pattern, options } => {
                self.raw(r#"{"$regularExpression":{"pattern":"#);
                self.text(pattern);
                self.raw(r#","options":"#);
                let mut sorted: Vec<char> = options.chars().collect();
                sorted.sort_unstable();
                self.text(&sorted.into_iter().collect::<String>());
                self.raw("}}");
            }
            RawValue::DbPointer { namespace, id } => {
                self.raw(r#"{"$dbPointer":{"$ref":"#);
                self.text(namespace);
                let _ = write!(self.out, r#","$id":{{"$oid":"{id}"}}}}}}"#);
            }
            RawValue::JavaScript(code) => self.wrap_text("$code", code),
            RawValue::Symbol(s) => self.wrap_text("$symbol", s),
            RawValue::JavaScriptWithScope { code, scope } => {
                self.raw(r#"{"$code":"#);
                self.text(code);
                self.raw(r#","$scope":"#);
                self.document(scope, depth);
                self.raw("}");
            }
            RawValue::Int32(n) => self.integer("$numberInt", i64::from(n)),
            RawValue::Timestamp(t) => {
                let (time, increment) = (t.time, t.increment);
                let _ = write!(
                    self.out,
                    r#"{{"$timestamp":{{"t":{time},"i":{increment}}}}}"#
                );
            }
            RawValue::Int64(n) => self.integer("$numberLong", n),
            RawValue::Decimal128(d) => self.wrap("$numberDecimal", format_args!("{d}")),
            RawValue::MinKey => self.raw(r#"{"$minKey":1}"#),
            RawValue::MaxKey => self.raw(r#"{"$maxKey":1}"#),
        }
    }

    fn raw(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn text(&mut self, text: &str) {
        // JSON needs the same escapes as the shell style.
        let _ = super::shell::quoted(self.out, text);
    }

    fn wrap(&mut self, key: &str, text: std::fmt::Arguments<'_>) {
        let _ = write!(self.out, r#"{{"{key}":"{text}"}}"#);
    }

    fn wrap_text(&mut self, key: &str, text: &str) {
        let _ = write!(self.out, r#"{{"{key}":"#);
        self.text(text);
        self.raw("}");
    }

    fn integer(&mut self, key: &str, n: i64) {
        if self.canonical {
            self.wrap(key, format_args!("{n}"));
        } else {
            let _ = write!(self.out, "{n}");
        }
    }

    fn double(&mut self, x: f64) {
        if !x.is_finite() {
            let text = match (x.is_nan(), x < 0.0) {
                (true, _) => "NaN",
                (false, true) => "-Infinity",
                (false, false) => "Infinity",
            };
            return self.wrap("$numberDouble", format_args!("{text}"));
        }
        let small = x == 0.0 || (1e-5..1e16).contains(&x.abs());
        let text = if small {
            format!("{x:?}")
        } else {
            // 1.5e300 is written 1.5E+300.
            let text = format!("{x:E}");
            let text = if text.contains("E-") {
                text
            } else {
                text.replace('E', "E+")
            };
            if text.contains('.') {
                text
            } else {
                text.replacen('E', ".0E", 1)
            }
        };
        if self.canonical {
            self.wrap("$numberDouble", format_args!("{text}"));
        } else {
            self.raw(&text);
        }
    }

    fn document(&mut self, doc: RawDoc<'_>, depth: u32) {
        self.raw("{");
        if depth < DEPTH_MAX {
            for (i, element) in doc.iter().enumerate() {
                if i > 0 {
                    self.raw(",");
                }
                self.text(element.key());
                self.raw(":");
                self.value(element.value(), depth + 1);
            }
        }
        self.raw("}");
    }

    fn array(&mut self, array: RawArray<'_>, depth: u32) {
        self.raw("[");
        if depth < DEPTH_MAX {
            for (i, value) in array.iter().enumerate() {
                if i > 0 {
                    self.raw(",");
                }
                self.value(value, depth + 1);
            }
        }
        self.raw("]");
    }
}
