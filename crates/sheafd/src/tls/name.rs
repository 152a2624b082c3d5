//! Distinguished names as text, in the form of RFC 2253 that MongoDB uses for users of `$external`:
//! what `openssl x509 -subject -nameopt RFC2253` prints.
//!
//! The last component comes first: `CN=app,OU=clients,O=Example,C=DE`.

use std::fmt::Write;

use super::der::{Element, Reader, tag};

/// Names of attribute types, by the content of their object identifiers.
const TYPES: &[(&[u8], &str)] = &[
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 4], "SN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 12], "title"),
    (&[0x55, 4, 13], "description"),
    (&[0x55, 4, 15], "businessCategory"),
    (&[0x55, 4, 17], "postalCode"),
    (&[0x55, 4, 41], "name"),
    (&[0x55, 4, 42], "GN"),
    (&[0x55, 4, 43], "initials"),
    (&[0x55, 4, 44], "generationQualifier"),
    (&[0x55, 4, 46], "dnQualifier"),
    (&[0x55, 4, 65], "pseudonym"),
    (&[0x55, 4, 97], "organizationIdentifier"),
    (
        &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1],
        "emailAddress",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25],
        "DC",
    ),
    (
        &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1],
        "UID",
    ),
];

/// The text of a name, given the content of its sequence; `None` if it is not DER.
pub(super) fn rfc2253(name: &[u8]) -> Option<String> {
    let mut sets = Vec::new();
    let mut all = Reader::new(name);
    while let Some(set) = all.next() {
        if set.tag != tag::SET {
            return None;
        }
        sets.push(set.content);
    }
    let mut out = String::new();
    for set in sets.iter().rev() {
        let mut pairs = Vec::new();
        let mut reader = Reader::new(set);
        while let Some(pair) = reader.next() {
            let mut pair = Reader::new(pair.content);
            pairs.push((pair.expect(tag::OID)?, pair.next()?));
        }
        for (place, (kind, value)) in pairs.iter().rev().enumerate() {
            if !out.is_empty() {
                out.push(if place == 0 { ',' } else { '+' });
            }
            append(&mut out, kind, value);
        }
    }
    Some(out)
}

fn append(out: &mut String, kind: &[u8], value: &Element<'_>) {
    let known = TYPES.iter().find(|(id, _)| *id == kind);
    match known {
        Some((_, name)) => out.push_str(name),
        None => dotted(out, kind),
    }
    out.push('=');
    match known.and_then(|_| text(value)) {
        Some(text) => escape(out, &text),
        // Of an unknown type, or not text: the encoding.
        None => {
            out.push('#');
            for byte in value.encoded {
                let _ = write!(out, "{byte:02X}");
            }
        }
    }
}

/// The object identifier in numbers with dots.
fn dotted(out: &mut String, id: &[u8]) {
    let mut number = 0u64;
    let mut first = true;
    for byte in id {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        // The first number encodes two.
        let _ = match first {
            true => {
                let root = (number / 40).min(2);
                write!(out, "{root}.{}", number - root * 40)
            }
            false => write!(out, ".{number}"),
        };
        first = false;
        number = 0;
    }
}

/// The characters of a string of any of X.509's types.
fn text(value: &Element<'_>) -> Option<String> {
    const UTF8: u8 = 12;
    const NUMERIC: u8 = 18;
    const PRINTABLE: u8 = 19;
    const TELETEX: u8 = 20;
    const IA5: u8 = 22;
    const VISIBLE: u8 = 26;
    const UNIVERSAL: u8 = 28;
    const BMP: u8 = 30;
    let bytes = value.content;
    match value.tag {
        UTF8 => std::str::from_utf8(bytes).ok().map(str::to_owned),
        NUMERIC | PRINTABLE | TELETEX | IA5 | VISIBLE => {
            Some(bytes.iter().map(|b| char::from(*b)).collect())
        }
        BMP if bytes.len().is_multiple_of(2) => bytes
            .chunks_exact(2)
            .map(|pair| char::from_u32(u32::from(pair[0]) << 8 | u32::from(pair[1])))
            .collect(),
        UNIVERSAL if bytes.len().is_multiple_of(4) => bytes
            .chunks_exact(4)
            .map(|four| char::from_u32(four.iter().fold(0, |n, b| n << 8 | u32::from(*b))))
            .collect(),
        _ => None,
    }
}

fn escape(out: &mut String, text: &str) {
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        let special = matches!(byte, b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';')
            || at == 0 && matches!(byte, b' ' | b'#')
            || at == last && byte == b' ';
        match byte {
            _ if special => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x20..0x7f => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
}
