//! Elementary functions of decimals, exact to 34 digits.
//!
//! Everything is computed with 102 digits and rounded once at the end, so that cancellation (as in
//! `1 - x` near 1) does not show in the result. decNumber provides square roots, logarithms and
//! powers; the circular and hyperbolic functions are built from those and from series.

use dec::{Context, Decimal};
use sheaf_bson::Decimal128;

use super::decimal::{self, from_dec, to_dec};

/// 34 units of three digits: 102 digits.
type Wide = Decimal<34>;

/// Pi to 101 digits.
const PI: &str = "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679";

/// Beyond this, the digits of PI do not suffice to reduce the argument to one turn.
const CIRCLE_MAX: &str = "1E+50";

/// Below this, a function with slope 1 at 0 equals its argument to 34 digits.
const TINY: &str = "1E-20";

struct Calculator(Context<Wide>);

impl Calculator {
    fn new() -> Calculator {
        let mut cx: Context<Wide> = Context::default();
        // decNumber's functions do not accept larger exponents.
        let _ = cx.set_max_exponent(999_999);
        let _ = cx.set_min_exponent(-999_999);
        Calculator(cx)
    }

    fn number(&mut self, text: &str) -> Wide {
        self.0.parse(text).unwrap_or_else(|_| Wide::nan())
    }

    fn pi(&mut self) -> Wide {
        self.number(PI)
    }

    fn add(&mut self, a: Wide, b: Wide) -> Wide {
        let mut out = a;
        self.0.add(&mut out, &b);
        out
    }

    fn sub(&mut self, a: Wide, b: Wide) -> Wide {
        let mut out = a;
        self.0.sub(&mut out, &b);
        out
    }

    fn mul(&mut self, a: Wide, b: Wide) -> Wide {
        let mut out = a;
        self.0.mul(&mut out, &b);
        out
    }

    fn div(&mut self, a: Wide, b: Wide) -> Wide {
        let mut out = a;
        self.0.div(&mut out, &b);
        out
    }

    fn neg(&mut self, a: Wide) -> Wide {
        let mut out = a;
        self.0.minus(&mut out);
        out
    }

    fn abs(&mut self, a: Wide) -> Wide {
        match a.is_negative() {
            true => self.neg(a),
            false => a,
        }
    }

    fn sqrt(&mut self, a: Wide) -> Wide {
        let mut out = a;
        self.0.sqrt(&mut out);
        out
    }

    fn exp(&mut self, a: Wide) -> Wide {
        let mut out = a;
        self.0.exp(&mut out);
        out
    }

    fn ln(&mut self, a: Wide) -> Wide {
        let mut out = a;
        self.0.ln(&mut out);
        out
    }

    fn less(&mut self, a: &Wide, b: &str) -> bool {
        let b = self.number(b);
        a.partial_cmp(&b).is_some_and(|order| order.is_lt())
    }

    fn is_tiny(&mut self, a: Wide) -> bool {
        let magnitude = self.abs(a);
        self.less(&magnitude, TINY)
    }

    /// Sums first - first * x^2 / ((k+1)(k+2)) + ..., with k starting at `start` and signs
    /// alternating. The sine is (x, x, 1), the cosine (1, x, 0).
    fn circular_series(&mut self, first: Wide, x: Wide, start: i32) -> Wide {
        let square = self.mul(x, x);
        let (mut term, mut sum) = (first, first);
        let mut k = start;
        loop {
            term = self.mul(term, square);
            term = self.div(term, Wide::from((k + 1) * (k + 2)));
            term = self.neg(term);
            let next = self.add(sum, term);
            if next == sum || k > 400 {
                return sum;
            }
            sum = next;
            k += 2;
        }
    }

    /// Sine and cosine; `None` if `x` is too far from 0 for the digits of pi.
    fn sin_cos(&mut self, x: Wide) -> Option<(Wide, Wide)> {
        let magnitude = self.abs(x);
        if !self.less(&magnitude, CIRCLE_MAX) {
            return None;
        }
        // x = quarters * pi/2 + rest, |rest| <= pi/4.
        let pi = self.pi();
        let half = self.div(pi, Wide::from(2));
        let mut quarters = self.div(x, half);
        self.0.round(&mut quarters);
        let whole = self.mul(quarters, half);
        let rest = self.sub(x, whole);
        let one = Wide::from(1);
        let sin = self.circular_series(rest, rest, 1);
        let cos = self.circular_series(one, rest, 0);
        let mut turn = quarters;
        self.0.rem(&mut turn, &Wide::from(4));
        let turn: i32 = turn.try_into().unwrap_or(0);
        let (minus_sin, minus_cos) = (self.neg(sin), self.neg(cos));
        Some(match turn.rem_euclid(4) {
            0 => (sin, cos),
            1 => (cos, minus_sin),
            2 => (minus_sin, minus_cos),
            _ => (minus_cos, sin),
        })
    }

    fn atan(&mut self, x: Wide) -> Wide {
        let pi = self.pi();
        let half = self.div(pi, Wide::from(2));
        if x.is_infinite() {
            return match x.is_negative() {
                true => self.neg(half),
                false => half,
            };
        }
        if self.is_tiny(x) {
            return x;
        }
        let one = Wide::from(1);
        let magnitude = self.abs(x);
        if magnitude > one {
            let inverse = self.div(one, magnitude);
            let inner = self.atan(inverse);
            let out = self.sub(half, inner);
            return match x.is_negative() {
                true => self.neg(out),
                false => out,
            };
        }
        // Halve the angle three times: atan(x) = 2 atan(x / (1 + sqrt(1 + x^2))).
        let mut small = x;
        for _ in 0..3 {
            let square = self.mul(small, small);
            let root = self.add(one, square);
            let root = self.sqrt(root);
            let below = self.add(one, root);
            small = self.div(small, below);
        }
        let square = self.mul(small, small);
        let (mut power, mut sum) = (small, small);
        let mut k = 1;
        loop {
            power = self.mul(power, square);
            power = self.neg(power);
            k += 2;
            let term = self.div(power, Wide::from(k));
            let next = self.add(sum, term);
            if next == sum || k > 600 {
                break;
            }
            sum = next;
        }
        self.mul(sum, Wide::from(8))
    }

    fn asin(&mut self, x: Wide) -> Wide {
        let one = Wide::from(1);
        let square = self.mul(x, x);
        let rest = self.sub(one, square);
        let root = self.sqrt(rest);
        if root.is_zero() {
            let infinite = match x.is_negative() {
                true => self.neg(Wide::infinity()),
                false => Wide::infinity(),
            };
            return self.atan(infinite);
        }
        let ratio = self.div(x, root);
        self.atan(ratio)
    }

    fn atan2(&mut self, y: Wide, x: Wide) -> Wide {
        let pi = self.pi();
        let (zero_x, zero_y) = (x.is_zero(), y.is_zero());
        let signed = |this: &mut Self, out: Wide| match y.is_negative() {
            true => this.neg(out),
            false => out,
        };
        if zero_y || (x.is_infinite() && !y.is_infinite()) {
            return match x.is_negative() {
                true => signed(self, pi),
                false => signed(self, Wide::zero()),
            };
        }
        if zero_x || (y.is_infinite() && !x.is_infinite()) {
            let half = self.div(pi, Wide::from(2));
            return signed(self, half);
        }
        let ratio = match (x.is_infinite(), y.is_infinite()) {
            (true, true) => Wide::from(1),
            _ => {
                let ratio = self.div(y, x);
                self.abs(ratio)
            }
        };
        let angle = self.atan(ratio);
        let angle = match x.is_negative() {
            true => self.sub(pi, angle),
            false => angle,
        };
        signed(self, angle)
    }

    /// (e^x - e^-x, e^x + e^-x): twice the hyperbolic sine and cosine.
    fn hyperbolic(&mut self, x: Wide) -> (Wide, Wide) {
        let minus = self.neg(x);
        let (up, down) = (self.exp(x), self.exp(minus));
        (self.sub(up, down), self.add(up, down))
    }

    fn asinh(&mut self, x: Wide) -> Wide {
        if self.is_tiny(x) || x.is_infinite() {
            return x;
        }
        let magnitude = self.abs(x);
        let square = self.mul(magnitude, magnitude);
        let root = self.add(square, Wide::from(1));
        let root = self.sqrt(root);
        let sum = self.add(magnitude, root);
        let out = self.ln(sum);
        match x.is_negative() {
            true => self.neg(out),
            false => out,
        }
    }
}

/// A function of one decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names are self-explanatory
pub enum Function {
    Exp,
    Ln,
    Log10,
    Sqrt,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    DegreesToRadians,
    RadiansToDegrees,
}

fn wide(d: Decimal128) -> Wide {
    Wide::from(to_dec(d))
}

fn narrow(w: &Wide) -> Decimal128 {
    from_dec(w.to_decimal128())
}

/// The function's value. The caller has checked the domain; NaN returns NaN. `None` if the argument
/// of a circular function is too far from 0 for the digits of pi.
pub fn apply(function: Function, d: Decimal128) -> Option<Decimal128> {
    if d.is_nan() {
        return Some(d);
    }
    let mut c = Calculator::new();
    let x = wide(d);
    let tiny = c.is_tiny(x);
    let out = match function {
        Function::Exp => c.exp(x),
        Function::Ln => c.ln(x),
        Function::Log10 => {
            let mut out = x;
            c.0.log10(&mut out);
            out
        }
        Function::Sqrt => c.sqrt(x),
        Function::Sin | Function::Tan if tiny => x,
        Function::Sin => c.sin_cos(x)?.0,
        Function::Cos => c.sin_cos(x)?.1,
        Function::Tan => {
            let (sin, cos) = c.sin_cos(x)?;
            c.div(sin, cos)
        }
        Function::Asin if tiny => x,
        Function::Asin => c.asin(x),
        Function::Acos => {
            let pi = c.pi();
            let half = c.div(pi, Wide::from(2));
            let sine = c.asin(x);
            c.sub(half, sine)
        }
        Function::Atan => c.atan(x),
        Function::Sinh | Function::Tanh | Function::Atanh if tiny => x,
        Function::Sinh => {
            let (sine, _) = c.hyperbolic(x);
            c.div(sine, Wide::from(2))
        }
        Function::Cosh => {
            let (_, cosine) = c.hyperbolic(x);
            c.div(cosine, Wide::from(2))
        }
        Function::Tanh => {
            // Beyond this, the quotient is 1 to 100 digits.
            let magnitude = c.abs(x);
            if !c.less(&magnitude, "200") {
                let one = Wide::from(1);
                if x.is_negative() { c.neg(one) } else { one }
            } else {
                let (sine, cosine) = c.hyperbolic(x);
                c.div(sine, cosine)
            }
        }
        Function::Asinh => c.asinh(x),
        Function::Acosh if x.is_infinite() => x,
        Function::Acosh => {
            let square = c.mul(x, x);
            let root = c.sub(square, Wide::from(1));
            let root = c.sqrt(root);
            let sum = c.add(x, root);
            c.ln(sum)
        }
        Function::Atanh => {
            let one = Wide::from(1);
            let (above, below) = (c.add(one, x), c.sub(one, x));
            let ratio = match below.is_zero() {
                true => Wide::infinity(),
                false => c.div(above, below),
            };
            let out = c.ln(ratio);
            c.div(out, Wide::from(2))
        }
        Function::DegreesToRadians => {
            let pi = c.pi();
            let out = c.mul(x, pi);
            c.div(out, Wide::from(180))
        }
        Function::RadiansToDegrees => {
            let pi = c.pi();
            let out = c.mul(x, Wide::from(180));
            c.div(out, pi)
        }
    };
    Some(narrow(&out))
}

/// The angle of the point (x, y), in radians.
pub fn atan2(y: Decimal128, x: Decimal128) -> Decimal128 {
    if x.is_nan() || y.is_nan() {
        return Decimal128::NAN;
    }
    let mut c = Calculator::new();
    let out = c.atan2(wide(y), wide(x));
    narrow(&out)
}

/// Beyond this, a base is infinite to MongoDB's library, which computes powers in binary.
const BASE_MAX: &str = "1.189731495357231765085759326628007E+4932";

/// `base` to the power of `exponent`, with all 34 digits; NaN if that is not a real number.
pub fn pow(base: Decimal128, exponent: Decimal128) -> Decimal128 {
    let mut c = Calculator::new();
    let mut out = wide(base);
    let magnitude = c.abs(out);
    if !base.is_nan() && !c.less(&magnitude, BASE_MAX) {
        out = match base.is_negative() {
            true => c.neg(Wide::infinity()),
            false => Wide::infinity(),
        };
    }
    c.0.pow(&mut out, &wide(exponent));
    with_all_digits(narrow(&out))
}

/// Pads the coefficient with trailing zeros to 34 digits, by adding the zero with the smallest
/// exponent.
fn with_all_digits(d: Decimal128) -> Decimal128 {
    let zero = Decimal128::from_parts(false, 0, -6176).unwrap_or(Decimal128::ZERO);
    decimal::add(d, zero)
}

/// The logarithm of `x` to the given base: the quotient of two logarithms that are rounded to 34
/// digits, padded to 34 digits.
pub fn log(x: Decimal128, base: Decimal128) -> Decimal128 {
    let mut c = Calculator::new();
    let (above, below) = (c.ln(wide(x)), c.ln(wide(base)));
    with_all_digits(decimal::divide(narrow(&above), narrow(&below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    /// Expected values were computed by an independent program with 60 digits and rounded to 34.
    #[test]
    fn values() {
        use Function::*;
        let table = include!("decimal_functions_table.in");
        for (function, x, expected) in table {
            let found = apply(function, d(x)).unwrap();
            let exact = found.cmp_value(d(expected)).is_eq();
            assert!(exact, "{function:?} {x}: {found} for {expected}");
        }
    }

    #[test]
    fn edges() {
        assert_eq!(
            pow(d("2"), d("10")).to_string(),
            "1024.000000000000000000000000000000"
        );
        assert_eq!(
            pow(d("10"), d("-3")).to_string(),
            "0.001000000000000000000000000000000000"
        );
        assert_eq!(pow(d("-9E+6144"), d("1")), Decimal128::NEG_INFINITY);
        assert!(pow(d("-8"), d("0.5")).is_nan());
        assert_eq!(log(d("100"), d("10")).to_i64_exact(), Some(2));
        assert_eq!(
            apply(Function::Sqrt, d("25")).unwrap().to_i64_exact(),
            Some(5)
        );
        assert_eq!(
            apply(Function::Sqrt, d("Infinity")).unwrap(),
            Decimal128::INFINITY
        );
        assert_eq!(
            apply(Function::Exp, d("-Infinity")).unwrap().to_i64_exact(),
            Some(0)
        );
        assert_eq!(
            apply(Function::Exp, d("1E+6000")).unwrap(),
            Decimal128::INFINITY
        );
        assert_eq!(
            apply(Function::Atanh, d("1")).unwrap(),
            Decimal128::INFINITY
        );
        assert_eq!(
            apply(Function::Atanh, d("-1")).unwrap(),
            Decimal128::NEG_INFINITY
        );
        assert_eq!(apply(Function::Cos, d("1E+60")), None);
        assert_eq!(
            apply(Function::Tanh, d("-1E+6000")).unwrap().to_i64_exact(),
            Some(-1)
        );
        assert!(apply(Function::Sin, d("NaN")).unwrap().is_nan());
    }
}
