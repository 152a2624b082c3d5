//! Base64 with `+`, `/` and padding.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` as padded base64.
pub fn encode(bytes: &[u8], out: &mut String) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            match i <= group.len() {
                true => out.push(DIGITS[(bits >> (18 - 6 * i) & 63) as usize] as char),
                false => out.push('='),
            }
        }
    }
}

/// Decodes padded base64; `None` if it is malformed.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_suffix('=').unwrap_or(text);
    let digits = digits.strip_suffix('=').unwrap_or(digits);
    if !text.len().is_multiple_of(4) || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    let (mut bits, mut have) = (0u32, 0u32);
    for digit in digits.bytes() {
        bits = bits << 6 | value(digit)?;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    Some(out)
}

fn value(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn every_length_returns() {
        for len in 0..50u8 {
            let bytes: Vec<u8> = (0..len).map(|b| b.wrapping_mul(73)).collect();
            let mut text = String::new();
            encode(&bytes, &mut text);
            assert_eq!(decode(&text), Some(bytes));
        }
        let mut text = String::new();
        encode(b"sheaf", &mut text);
        assert_eq!(text, "c2hlYWY=");
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["a", "ab", "abc", "a===", "ab*=", "====", "abcde==="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
