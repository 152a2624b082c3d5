//! `$stdDevPop` and `$stdDevSamp`: mean and squared distances in one pass (Welford),
//! merged as Chan does. Everything is computed in doubles, decimals too.

use sheaf_bson::{ArrayBuilder, RawArray, RawValue, Value};

/// A running deviation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deviation {
    count: u64,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
}

impl Deviation {
    /// Adds a number.
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1;
        let before = x - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (x - self.mean);
    }

    /// Number of numbers added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Merges another state into this one.
    pub(crate) fn merge(&mut self, other: &Deviation) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let apart = other.mean - self.mean;
        self.count += other.count;
        let all = self.count as f64;
        self.mean += apart * b / all;
        self.squares += other.squares + apart * apart * a * b / all;
    }

    /// The standard deviation of the population, or of the sample if `sample` is set. Null if there
    /// are no numbers, or only one in a sample.
    pub(crate) fn finish(&self, sample: bool) -> Value {
        let divisor = if sample {
            self.count.saturating_sub(1)
        } else {
            self.count
        };
        if divisor == 0 {
            return Value::Null;
        }
        Value::Double((self.squares / divisor as f64).sqrt())
    }

    pub(crate) fn to_partial(self) -> Value {
        let mut out = ArrayBuilder::new();
        out.push(self.count as i64)
            .push(self.mean)
            .push(self.squares);
        Value::Array(out.finish())
    }

    pub(crate) fn from_partial(partial: RawArray<'_>) -> Option<Deviation> {
        let mut values = partial.iter();
        match (values.next(), values.next(), values.next()) {
            (
                Some(RawValue::Int64(count)),
                Some(RawValue::Double(mean)),
                Some(RawValue::Double(squares)),
            ) => Some(Deviation {
                count: count as u64,
                mean,
                squares,
            }),
            _ => None,
        }
    }
}
