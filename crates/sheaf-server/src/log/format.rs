//! One line of the log as text.
//!
//! ```text
//! {"t":{"$date":"2025-03-01T12:00:00.123+00:00"},"s":"I",  "c":"NETWORK",  "id":22943,   "ctx":"listener","msg":"...","attr":{...},"tags":[...],"truncated":{...},"size":{...}}
//! ```

use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sheaf_bson::{RawDoc, RawValue, json};

use super::truncate;
use super::{Component, Severity};

/// Default of `maxLogSizeKB`, in bytes.
const ATTRIBUTE_BYTES_MAX: usize = 10 << 10;

/// The offset of local time is looked up once in each period of this many seconds: it changes only
/// on quarters of an hour.
const OFFSET_HOLDS_SECONDS: i64 = 900;

pub(super) struct Format {
    utc: bool,
    attribute_bytes_max: AtomicUsize,
    /// The local offset in seconds and the quarter of an hour it was looked up for, packed into one
    /// word: `quarter << 20 | offset + 2^19`.
    offset: AtomicI64,
}

impl Format {
    pub(super) fn new(utc: bool) -> Self {
        Format {
            utc,
            attribute_bytes_max: AtomicUsize::new(ATTRIBUTE_BYTES_MAX),
            offset: AtomicI64::new(i64::MIN),
        }
    }

    pub(super) fn set_attribute_bytes_max(&self, bytes: usize) {
        self.attribute_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The line, without its newline.
    #[expect(clippy::too_many_arguments)]
    pub(super) fn line(
        &self,
        severity: Severity,
        component: Component,
        id: u32,
        context: &str,
        message: &str,
        attr: RawDoc<'_>,
        tags: &[&str],
    ) -> String {
        let mut out = String::with_capacity(160 + message.len() + attr.len_bytes());
        out.push_str("{\"t\":{\"$date\":\"");
        self.timestamp(SystemTime::now(), &mut out);
        out.push_str("\"},\"s\":");
        padded(&mut out, &format!("\"{severity}\","), 6);
        out.push_str("\"c\":");
        padded(&mut out, &format!("\"{}\",", component.label()), 12);
        out.push_str("\"id\":");
        padded(&mut out, &format!("{id},"), 9);
        out.push_str("\"ctx\":");
        string(&mut out, context);
        out.push_str(",\"msg\":");
        string(&mut out, message);
        let mut truncated = None;
        if !attr.is_empty() {
            out.push_str(",\"attr\":");
            let max = self.attribute_bytes_max.load(Ordering::Relaxed);
            truncated = truncate::write_attributes(&mut out, attr, max);
        }
        if !tags.is_empty() {
            out.push_str(",\"tags\":[");
            for (i, tag) in tags.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                string(&mut out, tag);
            }
            out.push(']');
        }
        if let Some(truncated) = truncated {
            out.push_str(",\"truncated\":");
            json::write_relaxed(&mut out, RawValue::Document(truncated.what.as_raw()));
            out.push_str(",\"size\":");
            json::write_relaxed(&mut out, RawValue::Document(truncated.sizes.as_raw()));
        }
        out.push('}');
        out
    }

    fn timestamp(&self, now: SystemTime, out: &mut String) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs() as i64;
        let offset = match self.utc {
            true => 0,
            false => self.local_offset(seconds),
        };
        let local = jiff::Timestamp::from_second(seconds + offset).unwrap_or_default();
        let civil = jiff::tz::Offset::UTC.to_datetime(local);
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
            since.subsec_millis()
        );
        if self.utc {
            out.push('Z');
        } else {
            let sign = if offset < 0 { '-' } else { '+' };
            let minutes = offset.abs() / 60;
            let _ = write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
    }

    fn local_offset(&self, seconds: i64) -> i64 {
        const HALF: i64 = 1 << 19;
        let quarter = seconds.div_euclid(OFFSET_HOLDS_SECONDS);
        let known = self.offset.load(Ordering::Relaxed);
        if known >> 20 == quarter {
            return (known & ((1 << 20) - 1)) - HALF;
        }
        let offset = system_offset(seconds);
        self.offset
            .store(quarter << 20 | (offset + HALF), Ordering::Relaxed);
        offset
    }
}

/// Seconds by which local time is ahead of UTC; 0 if the system does not report it.
fn system_offset(seconds: i64) -> i64 {
    let mut broken_down = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call; a zeroed `tm` is valid. The call reads the time
    // zone from the environment, which no code changes: in the edition of these crates that would
    // be `unsafe` too.
    unsafe {
        if libc::localtime_r(&seconds, broken_down.as_mut_ptr()).is_null() {
            return 0;
        }
        broken_down.assume_init().tm_gmtoff
    }
}

fn padded(out: &mut String, text: &str, width: usize) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{text:<width$}");
}

fn string(out: &mut String, text: &str) {
    json::write_relaxed(out, RawValue::String(text));
}
