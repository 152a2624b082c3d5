//! Trains the centroids of a vector index's lists by k-means that recursively splits large parts.
//!
//! ```text
//!   vectors of a sample ── 16-means ──> parts ── larger than `members_max`: split again ──> lists
//! ```
//!
//! Deterministic: the same vectors in the same order produce the same centroids. Parts are of
//! similar size, which makes the cost of reading one predictable.

use sheaf_bson::Result;
use sheaf_query::vector::kernels;

/// Number of parts that one step splits into.
const PARTS_MAX: usize = 16;
/// Iterations of one step; most of the improvement comes early.
const ROUNDS: usize = 8;
/// Maximum depth of splits. Identical vectors cannot be split at all.
const STEPS_MAX: usize = 40;

/// A set of vectors and their mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Has unit length if only directions count.
    pub centroid: Vec<f32>,
    /// Indices of the vectors, ascending.
    pub members: Vec<u32>,
}

/// Partitions vectors, which are concatenated, into parts of at most `members_max`, except where
/// vectors are indistinguishable.
/// Errors: those of `check`, which is called repeatedly.
pub fn partition(
    vectors: &[f32],
    dimensions: usize,
    members_max: usize,
    angular: bool,
    check: &dyn Fn() -> Result<()>,
) -> Result<Vec<Part>> {
    let space = Space {
        vectors,
        dimensions,
        angular,
    };
    let all = (0..(vectors.len() / dimensions) as u32).collect();
    let mut parts = Vec::new();
    let mut left: Vec<(Vec<u32>, usize)> = vec![(all, 0)];
    while let Some((members, steps)) = left.pop() {
        if members.is_empty() {
            continue;
        }
        if members.len() <= members_max.max(1) || steps == STEPS_MAX {
            parts.push(space.part(members));
            continue;
        }
        let wanted = members
            .len()
            .div_ceil(members_max.max(1))
            .clamp(2, PARTS_MAX);
        let mut divided = space.divide(&members, wanted, check)?;
        divided.retain(|part| !part.is_empty());
        if divided.len() < 2 {
            parts.push(space.part(members));
            continue;
        }
        // The last is taken first, so neighbouring parts stay adjacent in the output.
        left.extend(divided.into_iter().rev().map(|part| (part, steps + 1)));
    }
    Ok(parts)
}

struct Space<'a> {
    vectors: &'a [f32],
    dimensions: usize,
    angular: bool,
}

impl Space<'_> {
    fn vector(&self, number: u32) -> &[f32] {
        &self.vectors[number as usize * self.dimensions..][..self.dimensions]
    }

    /// The mean of some vectors; in angular space, the mean direction.
    fn mean(&self, members: &[u32]) -> Vec<f32> {
        let mut sum = vec![0f64; self.dimensions];
        for &member in members {
            let vector = self.vector(member);
            let scale = match self.angular {
                true => 1.0 / f64::from(kernels::norm(vector)).max(f64::MIN_POSITIVE),
                false => 1.0,
            };
            for (sum, component) in sum.iter_mut().zip(vector) {
                *sum += f64::from(*component) * scale;
            }
        }
        let length = match self.angular {
            true => sum.iter().map(|c| c * c).sum::<f64>().sqrt(),
            false => members.len() as f64,
        };
        let length = if length > 0.0 { length } else { 1.0 };
        sum.iter().map(|c| (c / length) as f32).collect()
    }

    fn part(&self, members: Vec<u32>) -> Part {
        Part {
            centroid: self.mean(&members),
            members,
        }
    }

    /// Distance; in angular space, the negated dot product.
    fn distance(&self, vector: &[f32], centroid: &[f32]) -> f32 {
        match self.angular {
            true => -kernels::dot_of(vector, centroid),
            false => kernels::distance_squared_of(vector, centroid),
        }
    }

    /// Partitions members by the nearest of `wanted` means.
    fn divide(
        &self,
        members: &[u32],
        wanted: usize,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Vec<u32>>> {
        let mut means = self.first_means(members, wanted);
        let mut parts = Vec::new();
        for _ in 0..ROUNDS {
            parts = vec![Vec::new(); means.len()];
            for &member in members {
                check()?;
                let vector = self.vector(member);
                let mut nearest = (f32::INFINITY, 0);
                for (number, mean) in means.iter().enumerate() {
                    let distance = self.distance(vector, mean);
                    if distance < nearest.0 {
                        nearest = (distance, number);
                    }
                }
                parts[nearest.1].push(member);
            }
            let next: Vec<Vec<f32>> = parts
                .iter()
                .zip(&means)
                .map(|(part, mean)| match part.is_empty() {
                    true => mean.clone(),
                    false => self.mean(part),
                })
                .collect();
            if next == means {
                break;
            }
            means = next;
        }
        Ok(parts)
    }

    /// Chooses initial means that are far apart: each is the farthest from all earlier ones, among
    /// an evenly spaced sample of the members.
    fn first_means(&self, members: &[u32], wanted: usize) -> Vec<Vec<f32>> {
        const LOOKED_AT_MAX: usize = 512;
        let looked_at: Vec<u32> = members
            .iter()
            .step_by(members.len().div_ceil(LOOKED_AT_MAX))
            .copied()
            .collect();
        let mut distances = vec![f32::INFINITY; looked_at.len()];
        let mut means: Vec<Vec<f32>> = Vec::with_capacity(wanted);
        // A mean near the centre would attract from all sides: begin with the member farthest from
        // it.
        let middle = self.mean(&looked_at);
        let mut chosen = self.farthest(&looked_at, |at| {
            self.distance(self.vector(looked_at[at]), &middle)
        });
        for _ in 0..wanted {
            let mean = match self.angular {
                true => self.mean(&[looked_at[chosen]]),
                false => self.vector(looked_at[chosen]).to_vec(),
            };
            for (distance, &member) in distances.iter_mut().zip(&looked_at) {
                *distance = distance.min(self.distance(self.vector(member), &mean));
            }
            means.push(mean);
            chosen = self.farthest(&looked_at, |at| distances[at]);
        }
        means
    }

    fn farthest(&self, of: &[u32], distance: impl Fn(usize) -> f32) -> usize {
        let mut farthest = (f32::NEG_INFINITY, 0);
        for at in 0..of.len() {
            let distance = distance(at);
            if distance > farthest.0 {
                farthest = (distance, at);
            }
        }
        farthest.1
    }
}
