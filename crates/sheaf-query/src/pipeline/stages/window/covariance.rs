//! The covariance of two numbers over a sliding window: means and a co-moment that are updated when
//! a pair enters or leaves.

use sheaf_bson::Value;

/// The number of pairs, their means and their co-moment.
#[derive(Debug, Default)]
pub(super) struct Covariance {
    /// Number of pairs.
    pub(super) count: u64,
    mean_x: f64,
    mean_y: f64,
    together: f64,
}

impl Covariance {
    pub(super) fn add(&mut self, x: f64, y: f64) {
        self.count += 1;
        let dx = x - self.mean_x;
        self.mean_x += dx / self.count as f64;
        self.mean_y += (y - self.mean_y) / self.count as f64;
        self.together += dx * (y - self.mean_y);
    }

    pub(super) fn remove(&mut self, x: f64, y: f64) {
        if self.count <= 1 {
            *self = Covariance::default();
            return;
        }
        self.count -= 1;
        let dy = y - self.mean_y;
        self.mean_x -= (x - self.mean_x) / self.count as f64;
        self.mean_y -= dy / self.count as f64;
        self.together -= (x - self.mean_x) * dy;
    }

    pub(super) fn value(&self, sample: bool) -> Value {
        let divisor = if sample {
            self.count.saturating_sub(1)
        } else {
            self.count
        };
        match divisor {
            0 => Value::Null,
            n => Value::Double(self.together / n as f64),
        }
    }
}
