//! The compressors of OP_COMPRESSED, with their output bounded.
//!
//! A message says how long it is uncompressed. That length is checked against
//! the limit before a byte is decoded, the output never grows past it, and a
//! result of another length is an error: a few bytes cannot become gigabytes.
//!
//! zstd and snappy keep large work areas. They belong to the process, not to a
//! connection: a few are kept in a pool and lent for one message.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A compressor, by the id it has on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Compressor {
    /// Bytes as they are; only tests of drivers send it.
    Noop = 0,
    /// Snappy's raw format.
    Snappy = 1,
    /// A zlib stream.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    /// The compressors that can be negotiated, in the order a server prefers them.
    pub const NEGOTIABLE: [Compressor; 3] =
        [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

    /// The compressor with this id.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    /// The compressor a handshake or `--networkMessageCompressors` means.
    pub fn from_name(name: &str) -> Option<Compressor> {
        Compressor::NEGOTIABLE
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// The name in a handshake.
    pub fn name(self) -> &'static str {
        match self {
            Compressor::Noop => "noop",
            Compressor::Snappy => "snappy",
            Compressor::Zlib => "zlib",
            Compressor::Zstd => "zstd",
        }
    }
}

/// A set of compressors, in the order of preference they were given.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressorSet {
    /// Absent ones are `None`, at the end.
    in_order: [Option<Compressor>; Compressor::NEGOTIABLE.len()],
}

impl CompressorSet {
    /// No compression.
    pub const NONE: CompressorSet = CompressorSet {
        in_order: [None; 3],
    };

    /// All that can be negotiated.
    pub fn all() -> CompressorSet {
        Compressor::NEGOTIABLE.into_iter().collect()
    }

    /// True when the compressor is in the set.
    pub fn contains(&self, compressor: Compressor) -> bool {
        self.in_order.contains(&Some(compressor))
    }

    /// Adds a compressor behind the others; one that is there, or noop, is left out.
    pub fn insert(&mut self, compressor: Compressor) {
        if compressor == Compressor::Noop || self.contains(compressor) {
            return;
        }
        if let Some(free) = self.in_order.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(compressor);
        }
    }

    /// The members, most preferred first.
    pub fn iter(&self) -> impl Iterator<Item = Compressor> + use<> {
        self.in_order.into_iter().flatten()
    }

    /// True for no compression.
    pub fn is_empty(&self) -> bool {
        self.in_order[0].is_none()
    }

    /// What a handshake agrees on: those of the client's names that the server
    /// has too, in the client's order; unknown names are passed over.
    pub fn negotiate<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> CompressorSet {
        names
            .into_iter()
            .filter_map(Compressor::from_name)
            .filter(|c| self.contains(*c))
            .collect()
    }
}

impl FromIterator<Compressor> for CompressorSet {
    fn from_iter<I: IntoIterator<Item = Compressor>>(compressors: I) -> Self {
        let mut set = CompressorSet::NONE;
        for compressor in compressors {
            set.insert(compressor);
        }
        set
    }
}

impl fmt::Debug for CompressorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(Compressor::name))
            .finish()
    }
}

/// Commands whose request and reply are never compressed, by the compression
/// specification: what is secret must not show in a length.
pub fn is_compressible(command: &str) -> bool {
    const NEVER: [&str; 11] = [
        "hello",
        "isMaster",
        "ismaster",
        "saslStart",
        "saslContinue",
        "getnonce",
        "authenticate",
        "createUser",
        "updateUser",
        "copydbSaslStart",
        "copydbgetnonce",
    ];
    !NEVER.contains(&command) && command != "copydb"
}

/// Why bytes did not decompress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecompressError(String);

impl fmt::Display for DecompressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecompressError {}

/// Decompresses `input` into the whole of `output`.
///
/// Errors: the input is damaged, or is not exactly `output.len()` bytes long
/// when decompressed. `output` then holds anything.
pub fn decompress(
    compressor: Compressor,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), DecompressError> {
    let length = match compressor {
        Compressor::Noop => {
            if input.len() == output.len() {
                output.copy_from_slice(input);
            }
            input.len()
        }
        Compressor::Snappy => {
            let length = snap::raw::decompress_len(input).map_err(|e| damaged(compressor, e))?;
            if length == output.len() {
                snap::raw::Decoder::new()
                    .decompress(input, output)
                    .map_err(|e| damaged(compressor, e))?;
            }
            length
        }
        Compressor::Zlib => inflate(input, output)?,
        Compressor::Zstd => ZSTD_DECODERS
            .lend(zstd::bulk::Decompressor::new, |decoder| {
                decoder.decompress_to_buffer(input, output)
            })
            .map_err(|e| damaged(compressor, e))?,
    };
    if length != output.len() {
        return Err(DecompressError(format!(
            "{} data is {length} bytes uncompressed, the message says {}",
            compressor.name(),
            output.len()
        )));
    }
    Ok(())
}

fn inflate(input: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    let mut stream = flate2::Decompress::new(true);
    let status = stream
        .decompress(input, output, flate2::FlushDecompress::Finish)
        .map_err(|e| damaged(Compressor::Zlib, e))?;
    if status != flate2::Status::StreamEnd {
        return Err(damaged(
            Compressor::Zlib,
            "the stream is cut off, or longer than the message says",
        ));
    }
    Ok(stream.total_out() as usize)
}

fn damaged(compressor: Compressor, why: impl fmt::Display) -> DecompressError {
    DecompressError(format!(
        "{} data does not decompress: {why}",
        compressor.name()
    ))
}

/// Appends `input` compressed to `output`. Returns false, with `output` as it
/// was, when that would not be shorter than the input.
pub fn compress(compressor: Compressor, input: &[u8], output: &mut Vec<u8>) -> bool {
    let start = output.len();
    let written = match compressor {
        Compressor::Noop => None,
        Compressor::Snappy => {
            output.resize(start + snap::raw::max_compress_len(input.len()), 0);
            SNAPPY_ENCODERS
                .lend(
                    || Ok::<_, snap::Error>(snap::raw::Encoder::new()),
                    |encoder| encoder.compress(input, &mut output[start..]),
                )
                .ok()
        }
        Compressor::Zlib => {
            // Room for one byte less than the input: what does not fit is not worth sending.
            output.resize(start + input.len().saturating_sub(1), 0);
            let mut stream = flate2::Compress::new(flate2::Compression::default(), true);
            match stream.compress(input, &mut output[start..], flate2::FlushCompress::Finish) {
                Ok(flate2::Status::StreamEnd) => Some(stream.total_out() as usize),
                _ => None,
            }
        }
        Compressor::Zstd => {
            output.resize(start + input.len().saturating_sub(1), 0);
            ZSTD_ENCODERS
                .lend(
                    || zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL),
                    |encoder| encoder.compress_to_buffer(input, &mut output[start..]),
                )
                .ok()
        }
    };
    match written {
        Some(length) if length < input.len() => {
            output.truncate(start + length);
            true
        }
        _ => {
            output.truncate(start);
            false
        }
    }
}

static ZSTD_DECODERS: Pool<zstd::bulk::Decompressor<'static>> = Pool::new();
static ZSTD_ENCODERS: Pool<zstd::bulk::Compressor<'static>> = Pool::new();
static SNAPPY_ENCODERS: Pool<snap::raw::Encoder> = Pool::new();

/// Work areas that are dear to make, lent for one message each.
struct Pool<T>(Mutex<Vec<T>>);

/// More than work at once on most machines; those beyond are made and dropped.
const POOLED: usize = 8;

impl<T> Pool<T> {
    const fn new() -> Self {
        Pool(Mutex::new(Vec::new()))
    }

    fn lend<R, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
        work: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut item = match kept {
            Some(item) => item,
            None => make()?,
        };
        let result = work(&mut item);
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() < POOLED {
            pool.push(item);
        }
        result
    }
}
