//! Resume tokens: positions of a change stream in the oplog.
//!
//! ```text
//!   {_data: "82" time:8 version:1 operation:4 kind:1}               hexadecimal; ordered as the events
//!   {_data: "82" time:8 version:1 operation:4 kind:1 fragment:4}    of a fragment of an event
//! ```
//!
//! An event's token identifies the event: the stream resumes after it. A high-water mark identifies
//! a time up to which the stream has seen everything, whether or not an event occurred then. To
//! clients, tokens are opaque, but comparable.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, Result, Timestamp};

const PREFIX: &str = "82";
const VERSION: u8 = 1;

/// What a token identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenKind {
    /// An event.
    Event,
    /// The end of a stream whose collection or database was dropped.
    Invalidate,
    /// A time up to which everything was seen.
    HighWater,
}

/// A position in the oplog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResumeToken {
    /// Time of the entry.
    pub time: Timestamp,
    /// What the token identifies.
    pub kind: TokenKind,
    /// Position of the operation within a transaction; 0 for other entries.
    pub operation: u32,
    /// Number of the fragment of a split event, from 1; 0 for a whole event.
    pub fragment: u32,
}

impl ResumeToken {
    /// The token of a stream that has seen everything up to `time`.
    pub fn high_water(time: Timestamp) -> ResumeToken {
        ResumeToken {
            time,
            kind: TokenKind::HighWater,
            operation: 0,
            fragment: 0,
        }
    }

    /// The token of the whole event.
    pub fn whole(self) -> ResumeToken {
        ResumeToken {
            fragment: 0,
            ..self
        }
    }

    /// `{_data: ...}`.
    pub fn to_doc(self) -> DocBuf {
        let kind = match self.kind {
            TokenKind::Event => 0,
            TokenKind::Invalidate => 1,
            TokenKind::HighWater => 2,
        };
        let mut data = format!(
            "{PREFIX}{:016X}{VERSION:02X}{:08X}{kind:02X}",
            self.time.as_u64(),
            self.operation
        );
        if self.fragment > 0 {
            data += &format!("{:08X}", self.fragment);
        }
        let mut out = DocBuilder::new();
        out.append("_data", data.as_str());
        out.finish()
    }

    /// Parses a token sent by a client. Errors: 40647 without a string `_data`, 40648 for
    /// `_typeBits` that are not binary data, 40649 for empty data, FailedToParse for data that is
    /// not hexadecimal, 50811 if the first byte is not that of a token, `InvalidResumeToken` for a
    /// token that this server did not create.
    pub fn parse(doc: RawDoc<'_>) -> Result<ResumeToken> {
        let data = Self::data(doc)?;
        let digits = data.strip_prefix(PREFIX).unwrap_or("");
        let part = |from: usize, to: usize| {
            digits
                .get(from..to)
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        };
        let fragment = match digits.len() {
            28 => Some(0),
            36 => part(28, 36).filter(|fragment| *fragment > 0),
            _ => None,
        };
        let (Some(time), Some(version), Some(operation), Some(kind), Some(fragment)) = (
            part(0, 16),
            part(16, 18),
            part(18, 26),
            part(26, 28),
            fragment,
        ) else {
            return Err(malformed("it was not issued by this server"));
        };
        if version != u64::from(VERSION) {
            return Err(malformed("it has an unsupported version"));
        }
        let kind = match kind {
            0 => TokenKind::Event,
            1 => TokenKind::Invalidate,
            2 => TokenKind::HighWater,
            _ => return Err(malformed("it was not issued by this server")),
        };
        Ok(ResumeToken {
            time: Timestamp::from_u64(time),
            kind,
            operation: operation as u32,
            fragment: fragment as u32,
        })
    }
}

impl ResumeToken {
    /// The hexadecimal digits of a token.
    fn data<'d>(doc: RawDoc<'d>) -> Result<&'d str> {
        let error = |code, why: &str| {
            Err(Error::new(
                code,
                format!("the resume token cannot be read: {why}"),
            ))
        };
        let Some(RawValue::String(data)) = doc.get("_data") else {
            return error(ErrorCode(40647), "it has no string _data");
        };
        if !matches!(doc.get("_typeBits"), None | Some(RawValue::Binary { .. })) {
            return error(ErrorCode(40648), "its _typeBits are not binary data");
        }
        if data.is_empty() {
            return error(ErrorCode(40649), "its _data is empty");
        }
        let is_hex = data.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_hex || data.len() % 2 == 1 {
            return error(ErrorCode::FAILED_TO_PARSE, "its _data is not hexadecimal");
        }
        if !data.starts_with(PREFIX) {
            return error(ErrorCode(50811), "its _data begins with an unknown type");
        }
        Ok(data)
    }
}

fn malformed(why: &str) -> Error {
    Error::new(
        ErrorCode::INVALID_RESUME_TOKEN,
        format!("the resume token cannot be read: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::doc;

    #[test]
    fn tokens_round_trip_and_sort() {
        let token = |time, kind, operation| ResumeToken {
            time: Timestamp::from_u64(time),
            kind,
            operation,
            fragment: 0,
        };
        let part = |token, fragment| ResumeToken { fragment, ..token };
        let tokens = [
            token(5 << 32 | 1, TokenKind::Event, 0),
            token(5 << 32 | 1, TokenKind::Invalidate, 0),
            token(5 << 32 | 1, TokenKind::HighWater, 0),
            token(5 << 32 | 2, TokenKind::Event, 0),
            token(5 << 32 | 2, TokenKind::Event, 1),
            part(token(5 << 32 | 2, TokenKind::Event, 1), 1),
            part(token(5 << 32 | 2, TokenKind::Event, 1), 2),
            token(6 << 32, TokenKind::Event, u32::MAX),
        ];
        let mut texts = Vec::new();
        for token in tokens {
            let doc = token.to_doc();
            assert_eq!(ResumeToken::parse(doc.as_raw()).unwrap(), token);
            texts.push(doc.to_string());
        }
        assert!(texts.is_sorted());
    }

    #[test]
    fn others_are_refused() {
        for (bad, code) in [
            (doc! {}, 40647),
            (doc! {"_data": 5}, 40647),
            (doc! {"_data": "82", "_typeBits": 1}, 40648),
            (doc! {"_data": ""}, 40649),
            (doc! {"_data": "82xx00000500000001010000000000"}, 9),
            (doc! {"_data": "8200000005000000010200000000000"}, 9),
            (doc! {"_data": "82ä"}, 9),
            (doc! {"_data": "0a"}, 50811),
            (doc! {"_data": "82"}, 260),
            (doc! {"_data": "82000000050000000101000000000000"}, 260),
            (
                doc! {"_data": "82000000050000000101000000000000000000"},
                260,
            ),
        ] {
            let error = ResumeToken::parse(bad.as_raw()).unwrap_err();
            assert_eq!(error.code().0, code, "{bad}");
        }
    }
}
