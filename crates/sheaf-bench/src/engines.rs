//! Storage engines side by side: the same documents, the same operations, each engine used as its own
//! library is meant to be used.
//!
//! ```text
//!   Documents ──> Contender::load / commit        a batch is one transaction
//!   Reader (one snapshot, cursors kept) ──> get, range, either direction
//! ```
//!
//! A document is five keys: its record (a 64-bit number in the order of insertion, 500 bytes), an `_id`
//! entry that ascends as ObjectIds do, and one entry in each of three indexes, whose order has nothing to do
//! with that of the records. An entry's value (of `_id`) or its key's last eight bytes name the record.

mod heed;
mod ours;
mod redb;
mod tree;

pub use self::heed::HeedContender;
pub use self::ours::EngineContender;
pub use self::redb::RedbContender;
pub use self::tree::TreeContender;

/// What goes wrong in a benchmark ends it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Where the documents are.
pub const RECORDS: usize = 0;
/// `_id` to record.
pub const IDS: usize = 1;
/// The first of the three indexes.
pub const INDEX: usize = 2;
/// Records, `_id`, three indexes.
pub const TABLES: usize = 5;

/// A key and its value in one of the tables.
pub struct Put {
    /// Which table.
    pub table: usize,
    /// The key.
    pub key: Vec<u8>,
    /// Its new value.
    pub value: Vec<u8>,
    /// Whether the key is known to be new.
    pub fresh: bool,
}

/// An engine in the comparison.
pub trait Contender: Send + Sync {
    /// As the table's head shows it.
    fn name(&self) -> &'static str;
    /// Writes all of it in one transaction, which is on disk afterwards when `synced`.
    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()>;
    /// A view that does not change, and what is needed to read it again and again.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;
    /// Brings everything to where it lies in the end.
    fn settle(&self) -> Result<()>;
    /// Bytes written to files up to now, where the engine tells.
    fn bytes_written(&self) -> Option<u64>;
}

/// One snapshot of a contender.
pub trait Reader {
    /// Hands the key's value to `found`; whether there is one.
    fn get(&mut self, table: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Hands on up to `count` entries, from the first key not less than `from` upwards, or from the last key not
    /// greater than `from` downwards; how many there were.
    fn range(
        &mut self,
        table: usize,
        from: &[u8],
        count: usize,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}

/// The documents of the comparison, a pure function of their number.
#[derive(Clone, Copy)]
pub struct Documents {
    /// How many there are.
    pub count: u64,
    /// Length of each, in bytes.
    pub bytes: usize,
}

/// Mixes the bits of a number; a bijection, so that distinct numbers stay distinct.
pub fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

impl Documents {
    /// The record's key.
    pub fn record_key(&self, n: u64) -> [u8; 8] {
        (n + 1).to_be_bytes()
    }

    /// The `_id` entry's key: twelve bytes that ascend, behind a type byte.
    pub fn id_key(&self, n: u64) -> [u8; 13] {
        let mut key = [100; 13];
        key[1..5].copy_from_slice(&(0x6500_0000 + (n / 1000) as u32).to_be_bytes());
        key[5..13].copy_from_slice(&n.to_be_bytes());
        key
    }

    /// The entry's key in index `which` (0 to 2): a value of few, one of many, and the record.
    pub fn index_key(&self, which: usize, n: u64) -> [u8; 24] {
        let mut key = [0; 24];
        let random = mixed(n ^ ((which as u64 + 1) << 56));
        key[..8].copy_from_slice(&(random % 100).to_be_bytes());
        key[8..16].copy_from_slice(&random.to_be_bytes());
        key[16..].copy_from_slice(&self.record_key(n));
        key
    }

    /// The document: bytes that do not compress to nothing, with its number in front.
    pub fn document(&self, n: u64, version: u64) -> Vec<u8> {
        let mut document = Vec::with_capacity(self.bytes);
        document.extend_from_slice(&n.to_le_bytes());
        let mut state = mixed(n ^ (version << 40));
        while document.len() < self.bytes {
            // Half of it random, half of it as texts and names repeat.
            document.extend_from_slice(&state.to_le_bytes());
            document.extend_from_slice(b"category");
            state = mixed(state);
        }
        document.truncate(self.bytes);
        document
    }

    /// The five keys of document `n`.
    pub fn insert(&self, n: u64) -> Vec<Put> {
        let record = self.record_key(n);
        let fresh = true;
        let mut puts = Vec::with_capacity(TABLES);
        puts.push(Put {
            table: RECORDS,
            key: record.to_vec(),
            value: self.document(n, 0),
            fresh,
        });
        puts.push(Put {
            table: IDS,
            key: self.id_key(n).to_vec(),
            value: record.to_vec(),
            fresh,
        });
        for which in 0..3 {
            puts.push(Put {
                table: INDEX + which,
                key: self.index_key(which, n).to_vec(),
                value: Vec::new(),
                fresh,
            });
        }
        puts
    }

    /// A document replaced, with an entry added to the first index.
    pub fn replace(&self, n: u64, version: u64) -> Vec<Put> {
        let mut entry = self.index_key(0, n);
        entry[8..16].copy_from_slice(&mixed(version).to_be_bytes());
        vec![
            Put {
                table: RECORDS,
                key: self.record_key(n).to_vec(),
                value: self.document(n, version),
                fresh: false,
            },
            Put {
                table: INDEX,
                key: entry.to_vec(),
                value: Vec::new(),
                fresh: true,
            },
        ]
    }
}
