//! Base64, in its two alphabets.

/// With `+`, `/` and padding.
pub(super) const STANDARD: Alphabet = Alphabet {
    last: [b'+', b'/'],
    padded: true,
};
/// With `-` and `_`, without padding.
pub(super) const URL: Alphabet = Alphabet {
    last: [b'-', b'_'],
    padded: false,
};

/// The characters for 62 and 63, and whether the last group is padded with `=`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alphabet {
    last: [u8; 2],
    padded: bool,
}

impl Alphabet {
    fn character(self, six: u32) -> char {
        let six = (six & 63) as u8;
        char::from(match six {
            0..=25 => b'A' + six,
            26..=51 => b'a' + (six - 26),
            52..=61 => b'0' + (six - 52),
            62 => self.last[0],
            _ => self.last[1],
        })
    }

    fn value(self, character: u8) -> Option<u32> {
        Some(u32::from(match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            c if c == self.last[0] => 62,
            c if c == self.last[1] => 63,
            _ => return None,
        }))
    }
}

/// Encodes bytes as text.
pub(super) fn encode(bytes: &[u8], alphabet: Alphabet) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = 0;
        for at in 0..3 {
            bits = bits << 8 | group.get(at).map_or(0, |b| u32::from(*b));
        }
        for at in 0..4 {
            if at <= group.len() {
                out.push(alphabet.character(bits >> (18 - 6 * at)));
            } else if alphabet.padded {
                out.push('=');
            }
        }
    }
    out
}

/// Decodes a text; `None` if it is malformed. Unused bits in the last group must be 0.
pub(super) fn decode(text: &str, alphabet: Alphabet) -> Option<Vec<u8>> {
    let digits = match alphabet.padded {
        true => {
            let digits = text.trim_end_matches('=');
            if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
                return None;
            }
            digits
        }
        false => text,
    };
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0;
        for at in 0..4 {
            let six = match group.get(at) {
                Some(character) => alphabet.value(*character)?,
                None => 0,
            };
            bits = bits << 6 | six;
        }
        let bytes = match group.len() {
            4 => 3,
            3 if bits & 0xFF == 0 => 2,
            2 if bits & 0xFFFF == 0 => 1,
            _ => return None,
        };
        out.extend_from_slice(&bits.to_be_bytes()[1..1 + bytes]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648.
    #[test]
    fn there_and_back() {
        for (bytes, standard) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let bytes = bytes.as_bytes();
            assert_eq!(encode(bytes, STANDARD), standard);
            assert_eq!(decode(standard, STANDARD).as_deref(), Some(bytes));
            let url = standard.trim_end_matches('=');
            assert_eq!(encode(bytes, URL), url);
            assert_eq!(decode(url, URL).as_deref(), Some(bytes));
        }
        assert_eq!(encode(&[0xFB, 0xFF], STANDARD), "+/8=");
        assert_eq!(encode(&[0xFB, 0xFF], URL), "-_8");
        for bad in [
            "Zg", "Zg=", "Zg===", "Z===", "Zh==", "Zm9=", "Z", "Zg==Zg==", "é", "-_8=",
        ] {
            assert_eq!(decode(bad, STANDARD), None, "{bad}");
        }
        for bad in ["Z", "Zg==", "+/8"] {
            assert_eq!(decode(bad, URL), None, "{bad}");
        }
    }
}
