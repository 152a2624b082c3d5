//! Vectors: what counts as one, how alike two are, and what a `vectorSearch` index may say.
//!
//! ```text
//!   [0.5, 1, -2]                  32-bit floats         Packed: kind + components, as small as they came
//!   BinData 9, float32 | int8 | packed_bit
//!        │ pack                                          │ Similarity::score
//!        ▼                                               ▼
//!   kept in an index, compared with a query       (1 + cos) / 2,  (1 + dot) / 2,  1 / (1 + distance)
//! ```
//!
//! A component is a number whatever it is packed as: a bit is 0 or 1, a byte -128 to 127. So any two
//! vectors of as many components can be compared, and every formula means the same for all.
//!
//! Sources: the manual's pages on the `vectorSearch` index type and the `$vectorSearch` stage; the BSON
//! specification of binary subtype 9.

pub mod definition;
pub mod kernels;

use sheaf_bson::RawValue;

pub use definition::{Quantization, VectorField, VectorIndexDefinition};

/// Most components of a vector that an index can have.
pub const DIMENSIONS_MAX: usize = 8192;
/// The subtype of binary values that are vectors.
pub const BINARY_SUBTYPE: u8 = 9;

const DTYPE_INT8: u8 = 0x03;
const DTYPE_FLOAT32: u8 = 0x27;
const DTYPE_PACKED_BIT: u8 = 0x10;

/// How components are packed. The numbers are part of the format of indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// Four bytes each, little endian.
    Float32 = 1,
    /// A signed byte each.
    Int8 = 2,
    /// Eight to a byte, the first in the highest bit.
    Bit = 3,
}

impl Packing {
    /// The inverse of `as u8`.
    pub fn from_byte(byte: u8) -> Option<Packing> {
        match byte {
            1 => Some(Packing::Float32),
            2 => Some(Packing::Int8),
            3 => Some(Packing::Bit),
            _ => None,
        }
    }

    /// How many bytes so many components take.
    pub fn bytes_of(self, dimensions: usize) -> usize {
        match self {
            Packing::Float32 => 4 * dimensions,
            Packing::Int8 => dimensions,
            Packing::Bit => dimensions.div_ceil(8),
        }
    }
}

/// The components of a vector as they are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Packed<'a> {
    /// How.
    pub packing: Packing,
    /// As many as the packing needs for the dimensions.
    pub bytes: &'a [u8],
}

/// Appends the components of a BSON value to `out` and says how they are packed. `None`: it is no vector
/// of `dimensions` finite numbers; then what was appended means nothing.
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

/// A binary vector, taken apart: a type, a number of bits to leave out at the end, components.
#[derive(Debug, Clone, Copy)]
pub struct BinaryVector<'a> {
    /// The components as they are stored.
    pub packed: Packed<'a>,
    /// How many there are.
    pub count: usize,
}

impl<'a> BinaryVector<'a> {
    /// Of the bytes of a binary value of subtype 9; `None`: they are no vector.
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

/// The components of any vector as numbers, however many; `None`: it is none.
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

/// How alike two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// By the distance of their ends.
    Euclidean,
    /// By the angle between them; vectors without length have none.
    Cosine,
    /// By angle and lengths.
    DotProduct,
}

impl Similarity {
    /// `euclidean`, `cosine`, `dotProduct`.
    pub fn parse(name: &str) -> Option<Similarity> {
        match name {
            "euclidean" => Some(Similarity::Euclidean),
            "cosine" => Some(Similarity::Cosine),
            "dotProduct" => Some(Similarity::DotProduct),
            _ => None,
        }
    }

    /// The inverse of [`Similarity::parse`].
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Euclidean => "euclidean",
            Similarity::Cosine => "cosine",
            Similarity::DotProduct => "dotProduct",
        }
    }

    /// What a search orders by; greater is more alike. `norm` is the stored vector's length.
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

    /// The score that users see, of what [`Similarity::rank`] gave.
    pub fn score(self, rank: f32) -> f64 {
        let rank = f64::from(rank);
        self.score_of_measure(match self {
            Similarity::Euclidean => (-rank).max(0.0).sqrt(),
            Similarity::Cosine | Similarity::DotProduct => rank,
        })
    }

    /// Brings a distance, a cosine or a product to where 1 means alike.
    pub fn score_of_measure(self, measure: f64) -> f64 {
        match self {
            Similarity::Euclidean => 1.0 / (1.0 + measure),
            Similarity::Cosine | Similarity::DotProduct => (1.0 + measure) / 2.0,
        }
    }
}

/// A vector that is looked for.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryVector {
    components: Vec<f32>,
    norm: f32,
}

impl QueryVector {
    /// Of a BSON value; `None`: it is no vector of finite numbers, or has more than [`DIMENSIONS_MAX`].
    pub fn of(value: RawValue<'_>) -> Option<QueryVector> {
        let components = components(value)?;
        if components.is_empty() || components.len() > DIMENSIONS_MAX {
            return None;
        }
        let components: Vec<f32> = components.into_iter().map(|c| c as f32).collect();
        QueryVector::new(components)
    }

    /// Of numbers; `None` unless all are finite.
    pub fn new(components: Vec<f32>) -> Option<QueryVector> {
        if !components.iter().all(|c| c.is_finite()) {
            return None;
        }
        let norm = kernels::norm(&components);
        Some(QueryVector { components, norm })
    }

    /// How many components it has.
    pub fn dimensions(&self) -> usize {
        self.components.len()
    }

    /// The components.
    pub fn components(&self) -> &[f32] {
        &self.components
    }

    /// The length.
    pub fn norm(&self) -> f32 {
        self.norm
    }
}

#[cfg(test)]
mod tests;
