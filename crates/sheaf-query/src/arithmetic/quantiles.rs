//! `$percentile` and `$median`: exact for few numbers, a t-digest for many.
//!
//! Up to [`EXACT_MAX`] numbers are kept as they are. Beyond that they are merged into centroids (a
//! mean and the number of numbers it represents), small ones at both ends and large ones in the
//! middle, so that extreme percentiles stay precise and the memory stays bounded:
//!
//! ```text
//!   numbers    . . ... ....... ............. ....... ... . .
//!   centroids  o o  o     o          O          o     o  o o
//! ```
//!
//! The result for p over n numbers is the number at rank ceil(p * n), or the first for p = 0. NaN
//! is ignored; infinities are counted separately, because they have no mean.

use sheaf_bson::{ArrayBuilder, DocBuilder, RawDoc, RawValue, Value};

/// Maximum number of numbers that are kept individually.
const EXACT_MAX: usize = 8192;
/// Approximate number of centroids.
const COMPRESSION: f64 = 1000.0;

/// A set of numbers whose percentiles can be computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quantiles {
    negative_infinities: u64,
    positive_infinities: u64,
    /// Numbers not in a centroid yet.
    loose: Vec<f64>,
    /// (mean, weight), sorted by mean. The weight is the number of numbers that the centroid
    /// represents.
    centroids: Vec<(f64, u64)>,
}

impl Quantiles {
    /// Adds a number; returns by how many bytes the state grew.
    pub(crate) fn add(&mut self, x: f64) -> usize {
        if x.is_nan() {
            return 0;
        }
        if x.is_infinite() {
            if x > 0.0 {
                self.positive_infinities += 1;
            } else {
                self.negative_infinities += 1;
            }
            return 0;
        }
        let before = self.loose.capacity();
        self.loose.push(x);
        let grown = (self.loose.capacity() - before) * size_of::<f64>();
        if self.loose.len() > EXACT_MAX {
            self.gather(Vec::new());
        }
        grown
    }

    /// Merges the loose numbers and the centroids `more` into the centroids.
    fn gather(&mut self, more: Vec<(f64, u64)>) {
        let mut all: Vec<(f64, u64)> = std::mem::take(&mut self.loose)
            .into_iter()
            .map(|x| (x, 1))
            .chain(std::mem::take(&mut self.centroids))
            .chain(more)
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: u64 = all.iter().map(|c| c.1).sum();
        // The arcsine scale: maps a quantile q to 0..COMPRESSION.
        let scale = |q: f64| {
            COMPRESSION * ((2.0 * q.clamp(0.0, 1.0) - 1.0).asin() / std::f64::consts::PI + 0.5)
        };
        let mut out: Vec<(f64, u64)> = Vec::with_capacity(COMPRESSION as usize + 2);
        let mut passed = 0u64;
        let mut begun_at = 0.0;
        for (mean, weight) in all {
            let end = scale((passed + weight) as f64 / total as f64);
            match out.last_mut() {
                Some(last) if end - begun_at <= 1.0 => {
                    last.1 += weight;
                    last.0 += (mean - last.0) * weight as f64 / last.1 as f64;
                }
                _ => {
                    begun_at = scale(passed as f64 / total as f64);
                    out.push((mean, weight));
                }
            }
            passed += weight;
        }
        self.centroids = out;
    }

    /// Merges another state into this one.
    pub(crate) fn merge(&mut self, other: Quantiles) {
        self.negative_infinities += other.negative_infinities;
        self.positive_infinities += other.positive_infinities;
        self.loose.extend(other.loose);
        if self.loose.len() > EXACT_MAX || !other.centroids.is_empty() {
            self.gather(other.centroids);
        }
    }

    /// The numbers at these quantiles (0 to 1), in the order of `shares`; nulls if there are no
    /// numbers.
    pub(crate) fn at(mut self, shares: &[f64]) -> Vec<Value> {
        if self.centroids.is_empty() {
            self.loose.sort_by(f64::total_cmp);
        } else {
            self.gather(Vec::new());
        }
        let finite = match self.centroids.is_empty() {
            true => self.loose.len() as u64,
            false => self.centroids.iter().map(|c| c.1).sum(),
        };
        let total = self.negative_infinities + finite + self.positive_infinities;
        let answer = |share: &f64| {
            if total == 0 {
                return Value::Null;
            }
            let rank = ((share * total as f64).ceil() as u64).clamp(1, total) - 1;
            if rank < self.negative_infinities {
                return Value::Double(f64::NEG_INFINITY);
            }
            let rank = rank - self.negative_infinities;
            if rank >= finite {
                return Value::Double(f64::INFINITY);
            }
            Value::Double(match self.centroids.is_empty() {
                true => self.loose[rank as usize],
                false => self.interpolated(rank),
            })
        };
        shares.iter().map(answer).collect()
    }

    /// The number at this rank, interpolated between the means of the adjacent centroids.
    fn interpolated(&self, rank: u64) -> f64 {
        let mut passed = 0u64;
        // A mean has the middle rank of its centroid.
        let mut before: Option<(f64, f64)> = None;
        let wanted = rank as f64;
        for &(mean, weight) in &self.centroids {
            let middle = passed as f64 + (weight - 1) as f64 / 2.0;
            if wanted <= middle {
                return match before {
                    Some((x, at)) if middle > at => x + (mean - x) * (wanted - at) / (middle - at),
                    _ => mean,
                };
            }
            before = Some((mean, middle));
            passed += weight;
        }
        before.map_or(f64::NAN, |(mean, _)| mean)
    }

    pub(crate) fn to_partial(&self) -> Value {
        let mut loose = ArrayBuilder::new();
        self.loose.iter().for_each(|x| {
            loose.push(*x);
        });
        let (mut means, mut weights) = (ArrayBuilder::new(), ArrayBuilder::new());
        for (mean, weight) in &self.centroids {
            means.push(*mean);
            weights.push(*weight as i64);
        }
        let mut out = DocBuilder::new();
        out.append("negative", self.negative_infinities as i64)
            .append("positive", self.positive_infinities as i64)
            .append("loose", &Value::Array(loose.finish()))
            .append("means", &Value::Array(means.finish()))
            .append("weights", &Value::Array(weights.finish()));
        Value::Document(out.finish())
    }

    pub(crate) fn from_partial(partial: RawDoc<'_>) -> Option<Quantiles> {
        let count = |key: &str| match partial.get(key) {
            Some(RawValue::Int64(n)) => u64::try_from(n).ok(),
            _ => None,
        };
        let doubles = |key: &str| -> Option<Vec<f64>> {
            let array = partial.get(key)?.as_array()?;
            array.iter().map(|v| v.as_f64()).collect()
        };
        let weights = partial.get("weights")?.as_array()?;
        let weights = weights.iter().map(|v| v.as_i64_exact()?.try_into().ok());
        let weights: Vec<u64> = weights.collect::<Option<_>>()?;
        Some(Quantiles {
            negative_infinities: count("negative")?,
            positive_infinities: count("positive")?,
            loose: doubles("loose")?,
            centroids: doubles("means")?.into_iter().zip(weights).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: impl IntoIterator<Item = f64>) -> Quantiles {
        let mut out = Quantiles::default();
        for x in numbers {
            out.add(x);
        }
        out
    }

    #[test]
    fn few_numbers_are_exact() {
        let q = of([62.0, 60.0, 67.0, 64.0, 60.0]);
        let at = q.at(&[0.0, 0.2, 0.41, 0.5, 0.75, 0.95, 1.0]);
        let expected = [60.0, 60.0, 62.0, 62.0, 64.0, 67.0, 67.0].map(Value::Double);
        assert_eq!(at, expected);
        assert_eq!(of([]).at(&[0.5]), [Value::Null]);
        assert_eq!(of([f64::NAN]).at(&[0.5]), [Value::Null]);
        let q = of([f64::INFINITY, 1.0, f64::NEG_INFINITY]);
        let expected = [f64::NEG_INFINITY, 1.0, f64::INFINITY].map(Value::Double);
        assert_eq!(q.at(&[0.1, 0.5, 0.9]), expected);
    }

    #[test]
    fn many_numbers_are_near_and_small() {
        // 0..n in an order that is neither sorted nor random: multiplication by a unit modulo a
        // prime.
        let n = 100_003u64;
        let numbers = (0..n).map(|i| (i * 31_337 % n) as f64);
        let mut whole = of(numbers.clone());
        whole.gather(Vec::new());
        assert!(whole.centroids.len() <= 2 * COMPRESSION as usize);
        let mut parts = Quantiles::default();
        let numbers: Vec<f64> = numbers.collect();
        for part in numbers.chunks(20_000) {
            let part = of(part.iter().copied()).to_partial();
            parts.merge(Quantiles::from_partial(part.as_raw().as_document().unwrap()).unwrap());
        }
        for share in [0.0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0] {
            let exact = (share * n as f64).ceil().max(1.0) - 1.0;
            for q in [&whole, &parts] {
                let [Value::Double(found)] = q.clone().at(&[share])[..] else {
                    panic!("no number")
                };
                let error = (found - exact).abs() / n as f64;
                assert!(error < 0.002, "{share}: {found} for {exact}");
            }
        }
    }
}
