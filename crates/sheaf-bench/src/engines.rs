//! Comparison of storage engines: the same documents and the same operations, with each engine used
//! as its library intends.
//!
//! ```text
//!   Documents ──> Contender::load / commit        a batch is one transaction
//!   Reader (one snapshot, reused cursors) ──> get, range, either direction
//! ```
//!
//! A document has five keys: its record (a 64-bit number in insertion order, 500 bytes), an `_id`
//! entry that ascends as ObjectIds do, and one entry in each of three indexes, whose order is
//! unrelated to that of the records. The value of the `_id` entry and the last eight bytes of an
//! index key are the key of the record.

mod heed;
mod ours;
mod redb;
mod tree;

pub use self::heed::HeedContender;
pub use self::ours::EngineContender;
pub use self::redb::RedbContender;
pub use self::tree::TreeContender;

/// Any error ends the benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The table of the documents.
pub const RECORDS: usize = 0;
/// The table that maps `_id` to record.
pub const IDS: usize = 1;
/// The table of the first of the three indexes.
pub const INDEX: usize = 2;
/// Number of tables: records, `_id`, three indexes.
pub const TABLES: usize = 5;

/// A key to write with its value.
pub struct Put {
    /// The table: [`RECORDS`], [`IDS`], or [`INDEX`] and the two after it.
    pub table: usize,
    /// The key in that table.
    pub key: Vec<u8>,
    /// Its new value.
    pub value: Vec<u8>,
    /// Whether the key is known to be new.
    pub fresh: bool,
}

/// An engine in the comparison.
pub trait Contender: Send + Sync {
    /// The name in the heading of the output.
    fn name(&self) -> &'static str;
    /// Writes all of `puts` in one transaction. With `synced`, it is durable on return.
    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()>;
    /// A consistent view, with reusable resources for repeated reads.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;
    /// Completes deferred work, such as a checkpoint.
    fn settle(&self) -> Result<()>;
    /// Bytes written to files so far; `None` if the engine does not report it.
    fn bytes_written(&self) -> Option<u64>;
}

/// One snapshot of a contender.
pub trait Reader {
    /// Passes the key's value to `found`; returns whether the key exists.
    fn get(&mut self, table: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Passes up to `count` entries to `each`: forward from the first key >= `from`, or in reverse
    /// from the last key <= `from`. Returns the number of entries.
    fn range(
        &mut self,
        table: usize,
        from: &[u8],
        count: usize,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}

/// The documents of the comparison, each a pure function of its number.
#[derive(Clone, Copy)]
pub struct Documents {
    /// Number of documents.
    pub count: u64,
    /// Length of a document in bytes.
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

    /// The key of the `_id` entry: a type byte, then twelve ascending bytes.
    pub fn id_key(&self, n: u64) -> [u8; 13] {
        let mut key = [100; 13];
        key[1..5].copy_from_slice(&(0x6500_0000 + (n / 1000) as u32).to_be_bytes());
        key[5..13].copy_from_slice(&n.to_be_bytes());
        key
    }

    /// The key of the entry in index `which` (0 to 2): a value with few distinct values, one with
    /// many, and the record.
    pub fn index_key(&self, which: usize, n: u64) -> [u8; 24] {
        let mut key = [0; 24];
        let random = mixed(n ^ ((which as u64 + 1) << 56));
        key[..8].copy_from_slice(&(random % 100).to_be_bytes());
        key[8..16].copy_from_slice(&random.to_be_bytes());
        key[16..].copy_from_slice(&self.record_key(n));
        key
    }

    /// The document: its number, then data that compresses only in part.
    pub fn document(&self, n: u64, version: u64) -> Vec<u8> {
        let mut document = Vec::with_capacity(self.bytes);
        document.extend_from_slice(&n.to_le_bytes());
        let mut state = mixed(n ^ (version << 40));
        while document.len() < self.bytes {
            // Half random, half repetitive like texts and names.
            document.extend_from_slice(&state.to_le_bytes());
            document.extend_from_slice(b"category");
            state = mixed(state);
        }
        document.truncate(self.bytes);
        document
    }

    /// The five keys of a new document.
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

    /// Replaces a document and adds an entry to the first index.
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
