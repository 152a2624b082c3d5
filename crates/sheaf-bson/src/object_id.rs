//! Object ids: a second, five random bytes of the process, and a counter.
//!
//! Ids therefore sort by second and, within a process, by order of creation until the counter
//! wraps.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The twelve bytes of an object id. Ordered as MongoDB orders them: by bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectId(pub [u8; 12]);

struct Process {
    bytes: [u8; 5],
    counter: AtomicU32,
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let mut seed = [0u8; 8];
        // If the system has no randomness, the hash seeds of the standard library still differ
        // between processes.
        if getrandom::fill(&mut seed).is_err() {
            use std::hash::{BuildHasher, RandomState};
            seed = RandomState::new()
                .hash_one(std::process::id())
                .to_ne_bytes();
        }
        let [a, b, c, d, e, x, y, z] = seed;
        Process {
            bytes: [a, b, c, d, e],
            counter: AtomicU32::new(u32::from_be_bytes([0, x, y, z])),
        }
    })
}

impl ObjectId {
    /// A new id: the current second, this process's random bytes, the next count.
    #[allow(clippy::new_without_default)]
    pub fn new() -> ObjectId {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        ObjectId::with_seconds(seconds as u32)
    }

    /// A new id with the given timestamp, in seconds since 1970.
    pub fn with_seconds(seconds: u32) -> ObjectId {
        let process = process();
        let count = process.counter.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(&process.bytes);
        bytes[9..].copy_from_slice(&count.to_be_bytes()[1..]);
        ObjectId(bytes)
    }

    /// The timestamp of the id, in seconds since 1970.
    pub fn seconds(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The id as 24 lowercase hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.to_string()
    }

    /// Parses exactly 24 hexadecimal digits of either case; `None` otherwise.
    pub fn parse_hex(text: &str) -> Option<ObjectId> {
        let digits: &[u8; 24] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 12];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = (pair[0] as char).to_digit(16)?;
            let low = (pair[1] as char).to_digit(16)?;
            *byte = (high * 16 + low) as u8;
        }
        Some(ObjectId(bytes))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId('{self}')")
    }
}
