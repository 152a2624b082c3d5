//! MD5 (RFC 1321), a piece at a time. It spreads keys and compares collections; it guards nothing.

use std::sync::LazyLock;

/// How far each step of a round rotates.
const ROTATIONS: [[u32; 4]; 4] = [
    [7, 12, 17, 22],
    [5, 9, 14, 20],
    [4, 11, 16, 23],
    [6, 10, 15, 21],
];

/// The RFC's table: the sine of each step, in fractions of 2^32.
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|step| (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
});

/// A sum under way.
#[derive(Debug, Clone)]
pub struct Md5 {
    state: [u32; 4],
    /// What does not fill a block yet.
    rest: [u8; 64],
    length: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        Md5::new()
    }
}

impl Md5 {
    /// Of nothing so far.
    pub fn new() -> Md5 {
        Md5 {
            state: [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476],
            rest: [0; 64],
            length: 0,
        }
    }

    /// Takes in some bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let filled = (self.length % 64) as usize;
        self.length = self.length.wrapping_add(bytes.len() as u64);
        if filled > 0 {
            let taken = bytes.len().min(64 - filled);
            self.rest[filled..filled + taken].copy_from_slice(&bytes[..taken]);
            if filled + taken < 64 {
                return;
            }
            let block = self.rest;
            self.block(&block);
            bytes = &bytes[taken..];
        }
        let mut blocks = bytes.chunks_exact(64);
        for block in &mut blocks {
            self.block(block);
        }
        let rest = blocks.remainder();
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// The sum of all that was taken in.
    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8);
        let filled = (self.length % 64) as usize;
        let zeros = if filled < 56 {
            55 - filled
        } else {
            119 - filled
        };
        let mut padding = [0; 64];
        padding[0] = 0x80;
        // At most 63 zeros: the whole of a block.
        self.update(&padding[..=zeros]);
        self.update(&bits.to_le_bytes());
        let mut out = [0; 16];
        for (four, word) in out.chunks_exact_mut(4).zip(self.state) {
            four.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The sum in hexadecimal digits.
    pub fn finish_hex(self) -> String {
        self.finish().map(|byte| format!("{byte:02x}")).concat()
    }

    fn block(&mut self, block: &[u8]) {
        let sines = &*SINES;
        let mut words = [0u32; 16];
        for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        }
        let [mut a, mut b, mut c, mut d] = self.state;
        for step in 0..64usize {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(sines[step])
                .wrapping_add(words[word]);
            a = d;
            d = c;
            c = b;
            b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
        }
        for (whole, part) in self.state.iter_mut().zip([a, b, c, d]) {
            *whole = whole.wrapping_add(part);
        }
    }
}

/// The sum of these bytes.
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    let mut sum = Md5::new();
    sum.update(bytes);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str =
        "12345678901234567890123456789012345678901234567890123456789012345678901234567890";

    #[test]
    fn of_the_rfc() {
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (DIGITS, "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            let mut sum = Md5::new();
            sum.update(text.as_bytes());
            assert_eq!(sum.finish_hex(), digest);
        }
    }

    #[test]
    fn pieces_are_as_the_whole() {
        let text = DIGITS.repeat(4).into_bytes();
        for length in 0..text.len() {
            for piece in [1, 7, 63, 64, 65] {
                let mut sum = Md5::new();
                for part in text[..length].chunks(piece) {
                    sum.update(part);
                }
                assert_eq!(sum.finish(), md5(&text[..length]), "{length} by {piece}");
            }
        }
    }
}
