//! `authenticationRestrictions`: the addresses from which a user may log in.
//!
//! ```text
//!   [{clientSource: ["10.0.0.0/8"], serverAddress: ["10.0.0.1"]}, ...]
//! ```
//!
//! A list is satisfied by one of its documents, a document by all of its fields, a field by one of
//! its addresses.

use std::net::IpAddr;

use sheaf_bson::{DocBuf, Error, RawArray, RawDoc, RawValue};

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The client's address.
    pub client: IpAddr,
    /// The address that the client connected to.
    pub server: IpAddr,
}

/// A range of addresses: `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    address: u128,
    bits: u32,
    is_v4: bool,
}

/// The address as a number of 128 bits, aligned at the top, and whether it is one of IPv4.
fn number(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
        IpAddr::V6(v6) => (v6.to_bits(), false),
    }
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let (address, is_v4) = number(address.parse().ok()?);
        let most = if is_v4 { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Range {
            address,
            bits,
            is_v4,
        })
    }

    fn contains(self, address: IpAddr) -> bool {
        let (address, is_v4) = number(address);
        let differ = self.address ^ address;
        is_v4 == self.is_v4 && (self.bits == 0 || differ >> (128 - self.bits) == 0)
    }
}

/// Checks a list as a command receives it, and returns its documents.
/// Errors: `BadValue`.
pub fn parse(list: RawArray<'_>) -> Result<Vec<DocBuf>, Error> {
    let mut checked = Vec::new();
    for value in list.iter() {
        let RawValue::Document(doc) = value else {
            return Err(wrong("a document"));
        };
        for element in doc.iter() {
            let RawValue::Array(ranges) = element.value() else {
                return Err(wrong("lists of addresses"));
            };
            if !matches!(element.key(), "clientSource" | "serverAddress") {
                return Err(wrong("clientSource and serverAddress"));
            }
            for range in ranges.iter() {
                if range.as_str().and_then(Range::parse).is_none() {
                    return Err(wrong("addresses such as '10.0.0.1' and '10.0.0.0/8'"));
                }
            }
        }
        checked.push(doc.to_buf());
    }
    Ok(checked)
}

fn wrong(expected: &str) -> Error {
    Error::bad_value(format!("authenticationRestrictions must have {expected}"))
}

/// Whether a stored list allows a connection; without addresses (`None`, a Unix domain socket) only
/// an empty list does. What cannot be read allows nothing.
pub fn allows(list: RawArray<'_>, ends: Option<Ends>) -> bool {
    let mut documents = list.iter().peekable();
    if documents.peek().is_none() {
        return true;
    }
    documents.any(|value| match value {
        RawValue::Document(doc) => document_allows(doc, ends),
        _ => false,
    })
}

fn document_allows(doc: RawDoc<'_>, ends: Option<Ends>) -> bool {
    doc.iter().all(|element| {
        let Some(ends) = ends else { return false };
        let address = match element.key() {
            "clientSource" => ends.client,
            "serverAddress" => ends.server,
            _ => return false,
        };
        let RawValue::Array(ranges) = element.value() else {
            return false;
        };
        (ranges.iter())
            .filter_map(|range| Range::parse(range.as_str()?))
            .any(|range| range.contains(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::json::parse_doc;

    fn allowed(list: &str, client: &str, server: &str) -> bool {
        let doc = parse_doc(&format!("{{r: {list}}}")).unwrap();
        let list = doc.get("r").unwrap().as_array().unwrap();
        parse(list).unwrap();
        let ends = Ends {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
        };
        allows(list, Some(ends))
    }

    #[test]
    fn addresses() {
        let here = "10.1.2.3";
        for (list, expected) in [
            ("[]", true),
            ("[{}]", true),
            ("[{clientSource: ['10.1.2.3']}]", true),
            ("[{clientSource: ['10.1.2.4']}]", false),
            ("[{clientSource: ['10.1.2.4', '10.0.0.0/8']}]", true),
            (
                "[{clientSource: ['10.1.2.4']}, {clientSource: ['0.0.0.0/0']}]",
                true,
            ),
            (
                "[{clientSource: ['10.0.0.0/8'], serverAddress: ['::1']}]",
                false,
            ),
            (
                "[{clientSource: ['10.0.0.0/8'], serverAddress: ['127.0.0.0/8']}]",
                true,
            ),
            ("[{clientSource: ['::/0']}]", false),
            ("[{clientSource: ['::ffff:10.1.2.3']}]", true),
            ("[{clientSource: []}]", false),
        ] {
            assert_eq!(allowed(list, here, "127.0.0.1"), expected, "{list}");
        }
        assert!(allowed("[{clientSource: ['fe80::/10']}]", "fe80::1", "::1"));
        assert!(!allowed(
            "[{clientSource: ['fe80::/10']}]",
            "fe00::1",
            "::1"
        ));
    }

    #[test]
    fn without_addresses() {
        let doc = parse_doc("{a: [], b: [{clientSource: ['0.0.0.0/0']}]}").unwrap();
        let list = |name| doc.get(name).unwrap().as_array().unwrap();
        assert!(allows(list("a"), None));
        assert!(!allows(list("b"), None));
    }

    #[test]
    fn malformed_lists() {
        for list in [
            "[1]",
            "[{x: []}]",
            "[{clientSource: '10.0.0.1'}]",
            "[{clientSource: [1]}]",
            "[{clientSource: ['10.0.0']}]",
            "[{clientSource: ['10.0.0.0/33']}]",
            "[{clientSource: ['localhost']}]",
        ] {
            let doc = parse_doc(&format!("{{r: {list}}}")).unwrap();
            let list = doc.get("r").unwrap().as_array().unwrap();
            assert_eq!(parse(list).unwrap_err().code().0, 2);
        }
    }
}
