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
            let (packing, components) = binary(bytes)?;
            let bits = match packing {
                Packing::Bit => components.len() * 8 - usize::from(bytes[1]),
                _ => dimensions,
            };
            let fits = components.len() == packing.bytes_of(dimensions) && bits == dimensions;
            let finite = || {
                packing != Packing::Float32 || kernels::floats(components).all(|c| c.is_finite())
            };
            if !fits || !finite() {
                return None;
            }
            out.extend_from_slice(components);
            Some(packing)
        }
        _ => None,
    }
}

/// Takes a binary vector apart: a type, a number of bits to leave out at the end, components.
fn binary(bytes: &[u8]) -> Option<(Packing, &[u8])> {
    let (&[dtype, padding], components) = bytes.split_first_chunk::<2>()?;
    let packing = match (dtype, padding) {
        (DTYPE_FLOAT32, 0) if components.len().is_multiple_of(4) => Packing::Float32,
        (DTYPE_INT8, 0) => Packing::Int8,
        (DTYPE_PACKED_BIT, 0..=7) if padding == 0 || !components.is_empty() => Packing::Bit,
        _ => return None,
    };
    Some((packing, components))
}

/// The components of any vector as numbers, however many; `None`: it is none. For queries and expressions.
pub fn components(value: RawValue<'_>) -> Option<Vec<f64>> {
    match value {
        RawValue::Array(array) => array
            .iter()
            .map(|element| element.as_f64().filter(|_| element.is_number()))
            .collect(),
        RawValue::Binary {
            subtype: BINARY_SUBTYPE,
            bytes,
        } => {
            let (packing, components) = binary(bytes)?;
            Some(match packing {
                Packing::Float32 => kernels::floats(components).map(f64::from).collect(),
                Packing::Int8 => components.iter().map(|&c| f64::from(c as i8)).collect(),
                Packing::Bit => {
                    let bits = components.len() * 8 - usize::from(bytes[1]);
                    let bit = |at: usize| components[at / 8] >> (7 - at % 8) & 1;
                    (0..bits).map(|at| f64::from(bit(at))).collect()
                }
            })
        }
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
        match self {
            Similarity::Euclidean => 1.0 / (1.0 + (-rank).max(0.0).sqrt()),
            Similarity::Cosine | Similarity::DotProduct => (1.0 + rank) / 2.0,
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
