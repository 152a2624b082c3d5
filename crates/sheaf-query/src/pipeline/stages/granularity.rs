//! Preferred numbers, to which `$bucketAuto` rounds boundaries.
//!
//! A series repeats in every decade: R5 is 1, 1.6, 2.5, 4, 6.3, 10, 16, ... The Renard series (R)
//! and the E series of resistors are tables of ISO 3 and IEC 60063; powers of two are computed.

use sheaf_bson::{RawValue, Value};

/// A series of preferred numbers.
#[derive(Debug, Clone)]
pub(super) enum Granularity {
    /// The numbers of one decade, ascending, from 100 to below 1000.
    Decades(Vec<f64>),
    /// 1, 2, 4, 8, ...
    PowersOfTwo,
}

/// R80; R40, R20, R10 and R5 are every second, fourth, eighth and sixteenth number of it.
const R80: [f64; 80] = [
    100.0, 103.0, 106.0, 109.0, 112.0, 115.0, 118.0, 122.0, 125.0, 128.0, 132.0, 136.0, 140.0,
    145.0, 150.0, 155.0, 160.0, 165.0, 170.0, 175.0, 180.0, 185.0, 190.0, 195.0, 200.0, 206.0,
    212.0, 218.0, 224.0, 230.0, 236.0, 243.0, 250.0, 258.0, 265.0, 272.0, 280.0, 290.0, 300.0,
    307.0, 315.0, 325.0, 335.0, 345.0, 355.0, 365.0, 375.0, 387.0, 400.0, 412.0, 425.0, 437.0,
    450.0, 462.0, 475.0, 487.0, 500.0, 515.0, 530.0, 545.0, 560.0, 580.0, 600.0, 615.0, 630.0,
    650.0, 670.0, 690.0, 710.0, 730.0, 750.0, 775.0, 800.0, 825.0, 850.0, 875.0, 900.0, 925.0,
    950.0, 975.0,
];

/// E24; E12 and E6 are every second and fourth number of it.
const E24: [f64; 24] = [
    100.0, 110.0, 120.0, 130.0, 150.0, 160.0, 180.0, 200.0, 220.0, 240.0, 270.0, 300.0, 330.0,
    360.0, 390.0, 430.0, 470.0, 510.0, 560.0, 620.0, 680.0, 750.0, 820.0, 910.0,
];

fn every(series: &[f64], step: usize) -> Granularity {
    Granularity::Decades(series.iter().copied().step_by(step).collect())
}

/// The finer E series are powers of a root of ten, rounded to three digits; one value of E192 is an
/// exception.
fn roots(count: i32) -> Granularity {
    let value = |i: i32| {
        let rounded = (10f64.powf(f64::from(i) / f64::from(count)) * 100.0).round();
        if count == 192 && rounded == 919.0 {
            920.0
        } else {
            rounded
        }
    };
    Granularity::Decades((0..count).map(value).collect())
}

impl Granularity {
    /// The series with this name; `None` for an unknown name.
    pub(super) fn find(name: &str) -> Option<Granularity> {
        Some(match name {
            "R5" => every(&R80, 16),
            "R10" => every(&R80, 8),
            "R20" => every(&R80, 4),
            "R40" => every(&R80, 2),
            "R80" => every(&R80, 1),
            "1-2-5" => every(&[100.0, 200.0, 500.0], 1),
            "E6" => every(&E24, 4),
            "E12" => every(&E24, 2),
            "E24" => every(&E24, 1),
            "E48" => roots(48),
            "E96" => roots(96),
            "E192" => roots(192),
            "POWERSOF2" => Granularity::PowersOfTwo,
            _ => return None,
        })
    }

    /// Preferred numbers around x, ascending, at least one below and one above it.
    fn around(&self, x: f64) -> Vec<f64> {
        match self {
            Granularity::PowersOfTwo => {
                let exponent = x.log2().floor() as i32;
                (exponent - 2..exponent + 3).map(|e| 2f64.powi(e)).collect()
            }
            Granularity::Decades(series) => {
                let decade = x.log10().floor() as i32;
                let scaled = |e: i32| {
                    // Division by a power of ten is correctly rounded; multiplication by its
                    // inverse is not.
                    series.iter().map(move |n| match e - 2 {
                        up @ 0.. => n * 10f64.powi(up),
                        down => n / 10f64.powi(-down),
                    })
                };
                (decade - 1..decade + 2).flat_map(scaled).collect()
            }
        }
    }

    /// A number of the series as a value: whole powers of two are integers.
    pub(super) fn value(&self, x: f64) -> Value {
        match self {
            Granularity::PowersOfTwo if x.fract() == 0.0 && x < i64::MAX as f64 => {
                RawValue::int_or_long(x as i64).to_value()
            }
            _ => Value::Double(x),
        }
    }

    /// The least preferred number above x; 0 for 0.
    pub(super) fn above(&self, x: f64) -> f64 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let found = self.around(x).into_iter().find(|n| *n > x);
        found.unwrap_or(f64::INFINITY)
    }

    /// The greatest preferred number below x; 0 for 0.
    pub(super) fn below(&self, x: f64) -> f64 {
        if x == 0.0 || !x.is_finite() {
            return x;
        }
        let found = self.around(x).into_iter().rev().find(|n| *n < x);
        found.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours() {
        let table = [
            ("R20", 19.0, 18.0, 20.0),
            ("R20", 20.0, 18.0, 22.4),
            ("R5", 0.5, 0.4, 0.63),
            ("R10", 1000.0, 800.0, 1250.0),
            ("1-2-5", 39.0, 20.0, 50.0),
            ("1-2-5", 50.0, 20.0, 100.0),
            ("E24", 39.0, 36.0, 43.0),
            ("E6", 68.0, 47.0, 100.0),
            ("E12", 0.0012, 0.001, 0.0015),
            ("E48", 105.0, 100.0, 110.0),
            ("E192", 919.0, 909.0, 920.0),
            ("POWERSOF2", 19.0, 16.0, 32.0),
            ("POWERSOF2", 32.0, 16.0, 64.0),
            ("POWERSOF2", 0.3, 0.25, 0.5),
        ];
        for (name, x, below, above) in table {
            let series = Granularity::find(name).unwrap();
            assert_eq!(series.below(x), below, "{name} below {x}");
            assert_eq!(series.above(x), above, "{name} above {x}");
        }
        for (name, count) in [("R40", 40), ("E48", 48), ("E96", 96), ("E192", 192)] {
            let Some(Granularity::Decades(series)) = Granularity::find(name) else {
                panic!("{name}")
            };
            assert_eq!(series.len(), count);
            assert!(series.windows(2).all(|pair| pair[0] < pair[1]), "{name}");
        }
        let r5 = Granularity::find("R5").unwrap();
        assert_eq!((r5.above(0.0), r5.below(0.0)), (0.0, 0.0));
        r5.above(f64::MAX);
        r5.below(f64::MIN_POSITIVE);
    }
}
