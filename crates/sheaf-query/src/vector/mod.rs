//! Vectors: their representations, their similarity, and the definition of a `vectorSearch` index.
//!
//! ```text
//!   [0.5, 1, -2]                              packed as 32-bit floats
//!   BinData 9, float32 | int8 | packed_bit    packed as they are
//!        │ pack
//!        ▼
//!   Packed: in an index, compared with a query
//!        │ Similarity::score
//!        ▼
//!   (1 + cos) / 2,  (1 + dot) / 2,  1 / (1 + distance)
//! ```
//!
//! A component is a number regardless of its packing: a bit is 0 or 1, a byte -128 to 127. Two
//! vectors with the same number of components are therefore comparable, and every formula applies
//! to all of them.
//!
//! Sources: the manual's pages on the `vectorSearch` index type and the `$vectorSearch` stage; the
//! BSON specification of binary subtype 9.

pub mod definition;
pub mod kernels;

use sheaf_bson::RawValue;

pub use definition::{Quantization, VectorField, VectorIndexDefinition};

/// Maximum number of components of an indexed vector.
pub const DIMENSIONS_MAX: usize = 8192;
/// The binary subtype of vectors.
pub const BINARY_SUBTYPE: u8 = 9;

const DTYPE_INT8: u8 = 0x03;
const DTYPE_FLOAT32: u8 = 0x27;
const DTYPE_PACKED_BIT: u8 = 0x10;

/// How components are packed. The discriminants are part of the format of indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// Four bytes per component, little-endian.
    Float32 = 1,
    /// One signed byte per component.
    Int8 = 2,
    /// Eight components per byte, the first in the highest bit.
    Bit = 3,
}

impl Packing {
    /// The packing with this discriminant; `None` if there is none.
    pub fn from_byte(byte: u8) -> Option<Packing> {
        match byte {
            1 => Some(Packing::Float32),
            2 => Some(Packing::Int8),
            3 => Some(Packing::Bit),
            _ => None,
        }
    }

    /// Number of bytes for `dimensions` components.
    pub fn bytes_of(self, dimensions: usize) -> usize {
        match self {
            Packing::Float32 => 4 * dimensions,
            Packing::Int8 => dimensions,
            Packing::Bit => dimensions.div_ceil(8),
        }
    }
}

/// The components of a vector as stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packed<'a> {
    /// The packing of `bytes`.
    pub packing: Packing,
    /// As many bytes as the packing needs for the number of components.
    pub bytes: &'a [u8],
}

/// Appends the components of a BSON value to `out` and returns their packing. `None` if the value
/// is not a vector of `dimensions` finite numbers; the bytes appended are then meaningless.
pub fn pack(value: RawValue<'_>, dimensions: usize, out: &mut Vec<u8>) -> Option<Packing> {
    match value {
        RawValue::Array(array) => {
            let mut count = 0;
            for element in array.iter() {
                if count == dimensions || !element.is_number() {
                    return None;
                }
                let component = element.as_f64()? as f32;
                if !component.is_finite() {
                    return None;
                }
                out.extend_from_slice(&component.to_le_bytes());
                count += 1;
            }
            (count == dimensions).then_some(Packing::Float32)
        }
        RawValue::Binary {
            subtype: BINARY_SUBTYPE,
            bytes,
        } => {
            let vector = BinaryVector::parse(bytes)?;
            let finite = || vector.components().all(f64::is_finite);
            if vector.count != dimensions || !finite() {
                return None;
            }
            out.extend_from_slice(vector.packed.bytes);
            Some(vector.packed.packing)
        }
        _ => None,
    }
}

/// A parsed binary vector: type, number of padding bits at the end, components.
#[derive(Debug, Clone, Copy)]
pub struct BinaryVector<'a> {
    /// The components as stored.
    pub packed: Packed<'a>,
    /// Number of components.
    pub count: usize,
}

impl<'a> BinaryVector<'a> {
    /// Parses the bytes of a binary value with subtype 9; `None` if they are not a vector.
    pub fn parse(bytes: &'a [u8]) -> Option<BinaryVector<'a>> {
        let (&[dtype, padding], bytes) = bytes.split_first_chunk::<2>()?;
        let (packing, count) = match (dtype, padding) {
            (DTYPE_FLOAT32, 0) if bytes.len().is_multiple_of(4) => {
                (Packing::Float32, bytes.len() / 4)
            }
            (DTYPE_INT8, 0) => (Packing::Int8, bytes.len()),
            (DTYPE_PACKED_BIT, 0..=7) => {
                let bits = (bytes.len() * 8).checked_sub(usize::from(padding))?;
                (Packing::Bit, bits)
            }
            _ => return None,
        };
        let packed = Packed { packing, bytes };
        Some(BinaryVector { packed, count })
    }

    /// The components as numbers.
    pub fn components(self) -> impl Iterator<Item = f64> + 'a {
        let bytes = self.packed.bytes;
        (0..self.count).map(move |at| match self.packed.packing {
            Packing::Float32 => f64::from(f32::from_le_bytes([
                bytes[4 * at],
                bytes[4 * at + 1],
                bytes[4 * at + 2],
                bytes[4 * at + 3],
            ])),
            Packing::Int8 => f64::from(bytes[at] as i8),
            Packing::Bit => f64::from(bytes[at / 8] >> (7 - at % 8) & 1),
        })
    }
}

/// The components of a vector of any length as numbers; `None` if the value is not a vector.
pub fn components(value: RawValue<'_>) -> Option<Vec<f64>> {
    match value {
        RawValue::Array(array) => array
            .iter()
            .map(|element| element.as_f64().filter(|_| element.is_number()))
            .collect(),
        RawValue::Binary {
            subtype: BINARY_SUBTYPE,
            bytes,
        } => Some(BinaryVector::parse(bytes)?.components().collect()),
        _ => None,
    }
}

/// How the similarity of two vectors is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// By Euclidean distance.
    Euclidean,
    /// By the angle between them, which is undefined for the zero vector.
    Cosine,
    /// By angle and lengths.
    DotProduct,
}

impl Similarity {
    /// Parses `euclidean`, `cosine` or `dotProduct`.
    pub fn parse(name: &str) -> Option<Similarity> {
        match name {
            "euclidean" => Some(Similarity::Euclidean),
            "cosine" => Some(Similarity::Cosine),
            "dotProduct" => Some(Similarity::DotProduct),
            _ => None,
        }
    }

    /// The name, as in [`Similarity::parse`].
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Euclidean => "euclidean",
            Similarity::Cosine => "cosine",
            Similarity::DotProduct => "dotProduct",
        }
    }

    /// The rank by which a search orders results: greater is more similar. `norm` is the norm of
    /// the stored vector.
    pub fn rank(self, query: &QueryVector, stored: Packed<'_>, norm: f32) -> f32 {
        match self {
            Similarity::Euclidean => -kernels::distance_squared(&query.components, stored),
            Similarity::Cosine => {
                let cosine = kernels::dot(&query.components, stored) / (query.norm * norm);
                cosine.clamp(-1.0, 1.0)
            }
            Similarity::DotProduct => kernels::dot(&query.components, stored),
        }
    }

    /// The score that users see, computed from the result of [`Similarity::rank`].
    pub fn score(self, rank: f32) -> f64 {
        let rank = f64::from(rank);
        self.score_of_measure(match self {
            Similarity::Euclidean => (-rank).max(0.0).sqrt(),
            Similarity::Cosine | Similarity::DotProduct => rank,
        })
    }

    /// Normalizes a distance, a cosine or a dot product so that 1 means equal.
    pub fn score_of_measure(self, measure: f64) -> f64 {
        match self {
            Similarity::Euclidean => 1.0 / (1.0 + measure),
            Similarity::Cosine | Similarity::DotProduct => (1.0 + measure) / 2.0,
        }
    }
}

/// The query vector of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryVector {
    components: Vec<f32>,
    norm: f32,
}

impl QueryVector {
    /// Parses a BSON value; `None` if it is not a vector of finite numbers, is empty, or has more
    /// than [`DIMENSIONS_MAX`] components.
    pub fn of(value: RawValue<'_>) -> Option<QueryVector> {
        let components = components(value)?;
        if components.is_empty() || components.len() > DIMENSIONS_MAX {
            return None;
        }
        let components: Vec<f32> = components.into_iter().map(|c| c as f32).collect();
        QueryVector::new(components)
    }

    /// A query vector with these components; `None` unless all are finite.
    pub fn new(components: Vec<f32>) -> Option<QueryVector> {
        if !components.iter().all(|c| c.is_finite()) {
            return None;
        }
        let norm = kernels::norm(&components);
        Some(QueryVector { components, norm })
    }

    /// Number of components.
    pub fn dimensions(&self) -> usize {
        self.components.len()
    }

    /// The components as floats.
    pub fn components(&self) -> &[f32] {
        &self.components
    }

    /// The Euclidean norm.
    pub fn norm(&self) -> f32 {
        self.norm
    }
}

#[cfg(test)]
mod tests;
