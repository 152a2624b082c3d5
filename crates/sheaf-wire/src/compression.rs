//! The compressors of OP_COMPRESSED, with bounded output.
//!
//! A message declares its uncompressed length. That length is checked against the limit before any
//! byte is decoded, the output never grows past it, and a result of a different length is an error.
//! A few bytes can therefore not expand to gigabytes.
//!
//! zstd and snappy need large work areas. These belong to the process, not to a connection: a pool
//! keeps a few and lends one per message.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A compressor; the discriminant is its id on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Compressor {
    /// No compression. Only driver tests send it.
    Noop = 0,
    /// Snappy's raw format.
    Snappy = 1,
    /// A zlib stream.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    /// The compressors that can be negotiated, in the server's default order of preference.
    pub const NEGOTIABLE: [Compressor; 3] =
        [Compressor::Snappy, Compressor::Zstd, Compressor::Zlib];

    /// The compressor with this id; `None` if the id is unknown.
    pub fn from_id(id: u8) -> Option<Compressor> {
        Some(match id {
            0 => Compressor::Noop,
            1 => Compressor::Snappy,
            2 => Compressor::Zlib,
            3 => Compressor::Zstd,
            _ => return None,
        })
    }

    /// The compressor with this name in a handshake or in `--networkMessageCompressors`; `None` for
    /// unknown names and for noop, which cannot be negotiated.
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

/// A set of compressors, in the order of preference in which they were inserted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressorSet {
    /// The members, followed by `None`.
    in_order: [Option<Compressor>; Compressor::NEGOTIABLE.len()],
}

impl CompressorSet {
    /// No compression.
    pub const NONE: CompressorSet = CompressorSet {
        in_order: [None; 3],
    };

    /// All compressors that can be negotiated.
    pub fn all() -> CompressorSet {
        Compressor::NEGOTIABLE.into_iter().collect()
    }

    /// Whether the compressor is in the set.
    pub fn contains(&self, compressor: Compressor) -> bool {
        self.in_order.contains(&Some(compressor))
    }

    /// Appends a compressor. Ignores noop and members that are already present.
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

    /// Whether the set is empty: no compression.
    pub fn is_empty(&self) -> bool {
        self.in_order[0].is_none()
    }

    /// The result of a handshake: the client's names that are also in this set, in the client's
    /// order. Ignores unknown names.
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

/// Why data could not be decompressed.
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
/// Errors: the input is corrupt, or its uncompressed length is not exactly `output.len()` bytes.
/// The content of `output` is then unspecified.
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
            "{} data is {length} bytes uncompressed, but the message declares {}",
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
            "the stream is truncated, or longer than the message declares",
        ));
    }
    Ok(stream.total_out() as usize)
}

fn damaged(compressor: Compressor, why: impl fmt::Display) -> DecompressError {
    DecompressError(format!(
        "could not decompress {} data: {why}",
        compressor.name()
    ))
}

/// Appends the compressed form of `input` to `output`. Returns false, with `output` unchanged, if
/// that is not shorter than the input.
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
            // Room for one byte less than the input: a longer result is not worth sending.
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

/// Work areas that are expensive to create, each lent for one message.
struct Pool<T>(Mutex<Vec<T>>);

/// Maximum number of pooled items: more than run concurrently on most machines. Further ones are
/// created and dropped.
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
