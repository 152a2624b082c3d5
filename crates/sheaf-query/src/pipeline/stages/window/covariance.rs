//! The covariance of pairs of numbers over a window: means and a co-moment that are updated when a
//! pair enters or leaves.
//!
//! ```text
//!   c(n) = c(n-1) + (x(n) - mean x(n-1)) * (y(n) - mean y(n))
//! ```
//!
//! The types are those of the operators: a decimal among the numbers makes the result a decimal.
//! Pairs with an infinity or NaN are counted separately, because they cannot be subtracted again.

use sheaf_bson::Value;

use crate::arithmetic::Number;

use super::sliding_sum::SlidingSum;

/// The sums over the pairs in the window.
#[derive(Debug, Default)]
pub(super) struct Covariance {
    /// Finite pairs.
    count: u64,
    x: SlidingSum,
    y: SlidingSum,
    together: SlidingSum,
    /// Pairs with an infinity or NaN, and their members.
    special: u64,
    special_members: SlidingSum,
}

impl Covariance {
    /// The mean of `count` terms; 0 without terms.
    fn mean(&self, terms: &SlidingSum) -> Number {
        let sum = terms.number();
        sum.divide(Number::Double(self.count as f64)).unwrap_or(sum)
    }

    pub(super) fn add(&mut self, x: Number, y: Number) {
        if !(SlidingSum::is_finite(x) && SlidingSum::is_finite(y)) {
            self.special += 1;
            self.special_members.add(x);
            self.special_members.add(y);
            return;
        }
        let dx = x.minus(self.mean(&self.x));
        self.count += 1;
        self.x.add(x);
        self.y.add(y);
        let dy = y.minus(self.mean(&self.y));
        self.together.add(dx.times(dy));
    }

    pub(super) fn remove(&mut self, x: Number, y: Number) {
        if !(SlidingSum::is_finite(x) && SlidingSum::is_finite(y)) {
            self.special -= 1;
            self.special_members.remove(x);
            self.special_members.remove(y);
            return;
        }
        if self.count <= 1 {
            *self = Covariance {
                special: self.special,
                special_members: std::mem::take(&mut self.special_members),
                ..Covariance::default()
            };
            return;
        }
        let dy = y.minus(self.mean(&self.y));
        self.count -= 1;
        self.x.remove(x);
        self.y.remove(y);
        let dx = x.minus(self.mean(&self.x));
        self.together.remove(dx.times(dy));
    }

    /// The covariance; null if there are not enough finite pairs. If the window also has a pair
    /// with an infinity or NaN, and more than one finite pair, the result is an infinity or NaN.
    pub(super) fn value(&self, sample: bool) -> Value {
        let divisor = match sample {
            true => self.count.saturating_sub(1),
            false => self.count,
        };
        if divisor == 0 {
            return Value::Null;
        }
        let together = self.together.number();
        if self.special > 0 && self.count > 1 {
            let special = self.special_members.number();
            return match together {
                Number::Decimal(_) => Number::Decimal(special.to_decimal()).into(),
                _ => special.into(),
            };
        }
        let value = together.divide(Number::Double(divisor as f64));
        value.map_or(Value::Null, Value::from)
    }
}
