//! The standard deviation over a sliding window: a sum and a sum of squared distances from the
//! mean, both in doubles.
//!
//! After subtractions, the rounding error is that of the largest sum so far. If the sum has become
//! much smaller than that, it is computed again from the window. This only happens when a number
//! leaves that is much larger than all others.
//!
//! ```text
//!   m(n) = m(n-1) + (n x - sum)² / (n (n - 1))
//! ```

use sheaf_bson::Value;
use sheaf_bson::error_code::Result;

use crate::arithmetic::{Number, Sum};
use crate::interrupt;

/// Fraction of the largest sum of squares below which the rounding error is significant.
const PRECISE_SHARE: f64 = 1e-4;

/// The sums over the finite numbers in the window.
#[derive(Debug, Default)]
pub(super) struct SlidingDeviation {
    count: u64,
    sum: Sum,
    squares: Sum,
    /// The largest sum of squares since it was computed from the window.
    peak: f64,
    /// The number that entered last, and how many equal ones entered in a row: if these are all
    /// that the window holds, the deviation is exactly 0, which subtraction may miss.
    last: f64,
    run: u64,
    /// Numbers that are not finite; they make the deviation NaN.
    special: u64,
}

impl SlidingDeviation {
    /// The term of `x` in the sum of squares, among `count` numbers with it.
    fn square(&self, x: f64) -> f64 {
        let n = self.count as f64;
        let distance = n * x - self.sum.total().to_f64();
        distance * distance / (n * (n - 1.0))
    }

    pub(super) fn add(&mut self, x: f64) {
        if !x.is_finite() {
            self.special += 1;
            return;
        }
        self.run = match self.run > 0 && self.last == x {
            true => self.run + 1,
            false => 1,
        };
        self.last = x;
        self.count += 1;
        self.sum.add(Number::Double(x));
        if self.count > 1 {
            self.squares.add(Number::Double(self.square(x)));
            self.peak = self.peak.max(self.squares.total().to_f64());
        }
    }

    /// Whether rounding errors may be a large part of the sum of squares.
    pub(super) fn is_imprecise(&self) -> bool {
        self.squares.total().to_f64() < self.peak * PRECISE_SHARE
    }

    /// Computes the sums from the numbers in the window.
    /// Errors: an interruption.
    pub(super) fn restart(&mut self, numbers: impl Iterator<Item = f64>) -> Result<()> {
        let (last, run, special) = (self.last, self.run, self.special);
        *self = SlidingDeviation::default();
        for (at, x) in numbers.enumerate() {
            if at.is_multiple_of(1024) {
                interrupt::check()?;
            }
            self.add(x);
        }
        (self.last, self.run, self.special) = (last, run, special);
        self.peak = self.squares.total().to_f64();
        Ok(())
    }

    pub(super) fn remove(&mut self, x: f64) {
        if !x.is_finite() {
            self.special -= 1;
            return;
        }
        if self.count <= 1 {
            *self = SlidingDeviation {
                special: self.special,
                ..SlidingDeviation::default()
            };
            return;
        }
        self.squares.add(Number::Double(-self.square(x)));
        self.sum.take_away(Number::Double(x));
        self.count -= 1;
        if self.count == 1 {
            self.squares = Sum::default();
        }
    }

    /// Null if there are no numbers, or only one in a sample. The deviation of a population of one
    /// number is the integer 0, as in MongoDB.
    pub(super) fn value(&self, sample: bool) -> Value {
        let count = self.count + self.special;
        let divisor = match sample {
            true => count.saturating_sub(1),
            false => count,
        };
        if divisor == 0 {
            return Value::Null;
        }
        if self.special > 0 {
            return Value::Double(f64::NAN);
        }
        if !sample && count == 1 {
            return Value::Int32(0);
        }
        if self.run >= self.count {
            return Value::Double(0.0);
        }
        let squares = self.squares.total().to_f64();
        match squares < 0.0 {
            // Rounding may make the sum negative.
            true => Value::Int32(0),
            false => Value::Double((squares / divisor as f64).sqrt()),
        }
    }
}
