//! Reads the parts of an X.509 certificate that the server reports: names and validity.
//!
//! ```text
//! Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature }
//! tbsCertificate ::= SEQUENCE { [0] version, serialNumber, signature, issuer, validity, subject, ... }
//! ```
//!
//! Certificates are verified by rustls; nothing here decides on trust.

/// Tags of DER.
pub(super) mod tag {
    pub const INTEGER: u8 = 0x02;
    pub const OCTETS: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const VERSION: u8 = 0xa0;
}

/// Reads the elements of a DER encoding one after the other.
pub(super) struct Reader<'a>(&'a [u8]);

/// One element: its tag, its content, and its whole encoding.
pub(super) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    pub encoded: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The next element; `None` at the end, or where the bytes are not DER.
    pub fn next(&mut self) -> Option<Element<'a>> {
        let bytes = self.0;
        let tag = *bytes.first()?;
        // No tag of a certificate has a number that needs a second byte.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, header) = match *bytes.get(1)? {
            short @ 0..0x80 => (usize::from(short), 2),
            long => {
                let count = usize::from(long & 0x7f);
                if count == 0 || count > 4 {
                    return None;
                }
                let digits = bytes.get(2..2 + count)?;
                let length = digits.iter().fold(0, |n, d| n << 8 | usize::from(*d));
                (length, 2 + count)
            }
        };
        let end = header.checked_add(length)?;
        let encoded = bytes.get(..end)?;
        self.0 = &bytes[end..];
        Some(Element {
            tag,
            content: &encoded[header..],
            encoded,
        })
    }

    /// The content of the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next()
            .filter(|element| element.tag == tag)
            .map(|element| element.content)
    }

    /// The same, for an optional element: nothing is consumed if the tag is another.
    pub fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        match self.0.first() {
            Some(first) if *first == tag => self.expect(tag),
            _ => None,
        }
    }
}

/// Names and validity of a certificate.
pub(super) struct Facts<'a> {
    /// The content of the issuer's name.
    pub issuer: &'a [u8],
    /// The content of the subject's name.
    pub subject: &'a [u8],
    /// The encoding of the public key with its algorithm.
    pub public_key: &'a [u8],
    /// First millisecond of its validity, since 1970.
    pub begins: i64,
    /// Last millisecond of its validity, since 1970.
    pub expires: i64,
}

/// Reads a certificate; `None` if it is not one.
pub(super) fn facts(certificate: &[u8]) -> Option<Facts<'_>> {
    let certificate = Reader::new(certificate).expect(tag::SEQUENCE)?;
    let mut body = Reader::new(Reader::new(certificate).expect(tag::SEQUENCE)?);
    body.optional(tag::VERSION);
    body.expect(tag::INTEGER)?;
    body.expect(tag::SEQUENCE)?;
    let issuer = body.expect(tag::SEQUENCE)?;
    let mut validity = Reader::new(body.expect(tag::SEQUENCE)?);
    let subject = body.expect(tag::SEQUENCE)?;
    Some(Facts {
        issuer,
        subject,
        public_key: body.next()?.encoded,
        begins: millis(&validity.next()?)?,
        expires: millis(&validity.next()?)?,
    })
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, as RFC 5280 requires.
fn millis(time: &Element<'_>) -> Option<i64> {
    let text = std::str::from_utf8(time.content).ok()?;
    if !text.is_ascii() {
        return None;
    }
    let (year, rest) = match time.tag {
        tag::UTC_TIME => {
            let year: i64 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 } else { 1900 } + year, text.get(2..)?)
        }
        tag::GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let rest = rest.strip_suffix('Z').filter(|rest| rest.len() == 10)?;
    let pair = |at: usize| rest.get(at..at + 2)?.parse::<u32>().ok();
    let iso = format!(
        "{year:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        pair(0)?,
        pair(2)?,
        pair(4)?,
        pair(6)?,
        pair(8)?
    );
    sheaf_bson::json::parse_date(&iso)
}
