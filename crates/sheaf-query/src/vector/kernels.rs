//! Sums over components, the inner loops of a search.
//!
//! Sixteen parallel sums are folded at the end in a fixed order. Compilers turn this into vector
//! instructions, and the result is the same on every machine, since no operation is fused or
//! reordered. **The order of these additions is part of the format of indexes**: it determines the
//! list of an index to which a vector belongs. A test pins it.

use super::{Packed, Packing};

/// Number of parallel sums.
const LANES: usize = 16;

/// The floats in packed bytes.
pub fn floats(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn fold(lanes: [f32; LANES]) -> f32 {
    let mut sums = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for at in 0..width {
            sums[at] += sums[at + width];
        }
        width /= 2;
    }
    sums[0]
}

/// Sums `term(a, b)` over all components; `load` decodes `N * LANES` bytes of `b`.
#[inline(always)]
fn sum_over<const N: usize>(
    a: &[f32],
    b: &[u8],
    load: impl Fn(&[u8]) -> [f32; LANES],
    term: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [0f32; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let mut b_whole = b.chunks_exact(N * LANES);
    for (a, b) in a_whole.iter().zip(&mut b_whole) {
        let b = load(b);
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    let rest = b_whole.remainder();
    if !a_rest.is_empty() {
        let mut padded = vec![0u8; N * LANES];
        let len = rest.len().min(padded.len());
        padded[..len].copy_from_slice(&rest[..len]);
        let b = load(&padded);
        for (lane, &a) in a_rest.iter().enumerate() {
            lanes[lane] += term(a, b[lane]);
        }
    }
    fold(lanes)
}

#[inline(always)]
fn load_floats(bytes: &[u8]) -> [f32; LANES] {
    let mut out = [0f32; LANES];
    for (out, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }
    out
}

#[inline(always)]
fn load_bytes(bytes: &[u8]) -> [f32; LANES] {
    let mut out = [0f32; LANES];
    for (out, b) in out.iter_mut().zip(bytes) {
        *out = f32::from(*b as i8);
    }
    out
}

/// Sums over the components of `a` and bits, which are 0 or 1.
fn sum_over_bits(a: &[f32], bits: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    for (at, &a) in a.iter().enumerate() {
        let bit = bits.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
        lanes[at % LANES] += term(a, f32::from(bit));
    }
    fold(lanes)
}

fn sum(a: &[f32], b: Packed<'_>, term: impl Fn(f32, f32) -> f32) -> f32 {
    match b.packing {
        Packing::Float32 => sum_over::<4>(a, b.bytes, load_floats, term),
        Packing::Int8 => sum_over::<1>(a, b.bytes, load_bytes, term),
        Packing::Bit => sum_over_bits(a, b.bytes, term),
    }
}

/// The dot product.
pub fn dot(a: &[f32], b: Packed<'_>) -> f32 {
    sum(a, b, |a, b| a * b)
}

/// The square of the Euclidean distance.
pub fn distance_squared(a: &[f32], b: Packed<'_>) -> f32 {
    sum(a, b, |a, b| (a - b) * (a - b))
}

/// Sums over two slices of floats.
#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    for (lane, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += term(a, b);
    }
    fold(lanes)
}

/// The dot product of two slices of floats.
pub fn dot_of(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

/// The square of the Euclidean distance between two slices of floats.
pub fn distance_squared_of(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| (a - b) * (a - b))
}

/// The Euclidean norm of a vector.
pub fn norm(a: &[f32]) -> f32 {
    dot_of(a, a).sqrt()
}

/// Unpacks the components as floats into `out`, which is cleared first.
pub fn unpack(packed: Packed<'_>, dimensions: usize, out: &mut Vec<f32>) {
    out.clear();
    match packed.packing {
        Packing::Float32 => out.extend(floats(packed.bytes)),
        Packing::Int8 => out.extend(packed.bytes.iter().map(|&b| f32::from(b as i8))),
        Packing::Bit => {
            let bit = |at: usize| {
                packed
                    .bytes
                    .get(at / 8)
                    .map_or(0, |b| b >> (7 - at % 8) & 1)
            };
            out.extend((0..dimensions).map(|at| f32::from(bit(at))));
        }
    }
    out.resize(dimensions, 0.0);
}
