//! Mutation of bytes, for tests without a fuzzer.

/// A small pseudo-random generator (xorshift64*); deterministic for a seed.
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// The next 64 random bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`, or 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            (self.number() >> 16) as usize % n
        }
    }
}

/// Damages `bytes` in one to four places: flips bits, sets special bytes, changes bytes by one,
/// and removes, duplicates or overwrites ranges.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const INTERESTING: [u8; 16] = [
        0, 1, 2, 3, 4, 5, 7, 0x0F, 0x13, 0x14, 0x7F, 0x80, 0xC0, 0xED, 0xFE, 0xFF,
    ];
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let len = 1 + random.below(8.min(bytes.len().max(1)));
        let end = (at + len).min(bytes.len());
        match random.below(7) {
            _ if bytes.is_empty() => bytes.push(random.number() as u8),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = INTERESTING[random.below(INTERESTING.len())],
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes[at] = bytes[at].wrapping_sub(1),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let from = random.below(bytes.len());
                let part = bytes[from..(from + len).min(bytes.len())].to_vec();
                bytes.splice(at..end, part);
            }
        }
    }
}
