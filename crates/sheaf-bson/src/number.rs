//! A common form for int, long, double and Decimal128 that compares exactly.
//!
//! Every finite nonzero number is represented as a binary expansion truncated after 64 significant
//! bits:
//!
//! ```text
//!   |x| = mantissa * 2^(exponent - 63) + rest,   2^63 <= mantissa < 2^64
//! ```
//!
//! Integers and doubles fit without rest. Most decimals do not (0.1 has no finite expansion). A
//! decimal with a rest keeps its decimal digits, which distinguish two decimals with the same
//! mantissa. Only decimals have a rest, so this decides every comparison exactly. KeyString writes
//! the same form.

use std::cmp::Ordering;

use crate::decimal128::Decimal128;

/// A number of any type, comparable with any other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    /// Any NaN. Lowest, and equal to itself.
    NaN,
    /// An infinity; true is negative.
    Infinite(bool),
    /// Any zero.
    Zero,
    /// Anything else.
    Finite(Finite),
}

/// A finite nonzero number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finite {
    pub negative: bool,
    /// The position of the leading bit: floor(log2(|x|)).
    pub exponent: i32,
    /// The leading 64 bits, the first of them 1.
    pub mantissa: u64,
    /// The decimal digits, if the mantissa does not hold the number exactly. Only decimals have
    /// them.
    pub rest: Option<DecimalDigits>,
}

/// The exact magnitude of a decimal, independent of trailing zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DecimalDigits {
    /// floor(log10(|x|)).
    pub exponent: i32,
    /// 34 digits, the first one not 0.
    pub digits: u128,
}

impl From<i64> for Number {
    #[inline]
    fn from(n: i64) -> Number {
        if n == 0 {
            return Number::Zero;
        }
        let magnitude = n.unsigned_abs();
        let zeros = magnitude.leading_zeros();
        Number::Finite(Finite {
            negative: n < 0,
            exponent: 63 - zeros as i32,
            mantissa: magnitude << zeros,
            rest: None,
        })
    }
}

impl From<f64> for Number {
    #[inline]
    fn from(x: f64) -> Number {
        let bits = x.to_bits();
        let negative = bits >> 63 == 1;
        let biased = (bits >> 52) as i32 & 0x7FF;
        let fraction = bits & ((1 << 52) - 1);
        match (biased, fraction) {
            (0x7FF, 0) => Number::Infinite(negative),
            (0x7FF, _) => Number::NaN,
            (0, 0) => Number::Zero,
            (0, _) => {
                let zeros = fraction.leading_zeros();
                // A subnormal is fraction * 2^-1074.
                let exponent = 63 - zeros as i32 - 1074;
                Number::Finite(Finite {
                    negative,
                    exponent,
                    mantissa: fraction << zeros,
                    rest: None,
                })
            }
            _ => {
                let mantissa = (1 << 63) | (fraction << 11);
                Number::Finite(Finite {
                    negative,
                    exponent: biased - 1023,
                    mantissa,
                    rest: None,
                })
            }
        }
    }
}

impl From<Decimal128> for Number {
    fn from(d: Decimal128) -> Number {
        if d.is_nan() {
            return Number::NaN;
        }
        let (negative, coefficient, exponent) = d.decompose();
        if d.is_infinite() {
            return Number::Infinite(negative);
        }
        if coefficient == 0 {
            return Number::Zero;
        }
        let (exponent2, mantissa, exact) = expand(coefficient, exponent);
        let rest = (!exact).then(|| DecimalDigits::new(coefficient, exponent));
        Number::Finite(Finite {
            negative,
            exponent: exponent2,
            mantissa,
            rest,
        })
    }
}

/// Compares two decimals as [`Number`] does, without the binary expansion.
pub(crate) fn cmp_decimal(a: Decimal128, b: Decimal128) -> Ordering {
    if !a.is_finite() || !b.is_finite() || a.is_zero() || b.is_zero() {
        return Number::from(a).cmp(&Number::from(b));
    }
    let ((na, ca, ea), (nb, cb, eb)) = (a.decompose(), b.decompose());
    if na != nb {
        return nb.cmp(&na);
    }
    let magnitude = DecimalDigits::new(ca, ea).cmp(&DecimalDigits::new(cb, eb));
    if na { magnitude.reverse() } else { magnitude }
}

impl DecimalDigits {
    fn new(coefficient: u128, exponent: i32) -> DecimalDigits {
        let length = coefficient.ilog10() as i32 + 1;
        DecimalDigits {
            exponent: exponent + length - 1,
            digits: coefficient * 10u128.pow((34 - length) as u32),
        }
    }
}

impl Number {
    /// The class of the number, in ascending order: NaN is -3, -infinity -2, then the signs -1, 0
    /// and 1, and infinity 2.
    fn side(&self) -> i8 {
        match self {
            Number::NaN => -3,
            Number::Infinite(true) => -2,
            Number::Finite(f) if f.negative => -1,
            Number::Zero => 0,
            Number::Finite(_) => 1,
            Number::Infinite(false) => 2,
        }
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Number) -> Ordering {
        match (self, other) {
            (Number::Finite(a), Number::Finite(b)) if a.negative == b.negative => {
                let magnitude =
                    (a.exponent, a.mantissa, a.rest).cmp(&(b.exponent, b.mantissa, b.rest));
                if a.negative {
                    magnitude.reverse()
                } else {
                    magnitude
                }
            }
            _ => self.side().cmp(&other.side()),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Number) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

/// Binary expansion of coefficient * 10^exponent10 (coefficient not 0): leading bit position,
/// leading 64 bits, and whether the expansion is exact.
fn expand(coefficient: u128, exponent10: i32) -> (i32, u64, bool) {
    // 10^e = 5^e * 2^e: the power of two only shifts the result.
    if let Some(expansion) = expand_short(coefficient, exponent10) {
        return expansion;
    }
    if exponent10 >= 0 {
        let product = Big::power_of_five(exponent10 as u32, coefficient);
        let (top, mantissa, exact) = product.leading();
        return (top + exponent10, mantissa, exact);
    }
    let power = exponent10.unsigned_abs();
    // Shift the coefficient so that the quotient has 64 bits or a few more, then divide.
    let divisor = Big::power_of_five(power, 1);
    let shift = (divisor.bits() + 66 - bits_of(coefficient)).max(0);
    let (quotient, remainder_zero) = Big::from_u128(coefficient)
        .shl(shift as u32)
        .div_small_quotient(&divisor);
    let (top, mantissa, exact) = Big::from_u128(quotient).leading();
    (
        top - shift - power as i32,
        mantissa,
        exact && remainder_zero,
    )
}

/// [`expand`] for exponents whose power of five fits 64 bits, without big integers.
fn expand_short(coefficient: u128, exponent10: i32) -> Option<(i32, u64, bool)> {
    let power = exponent10.unsigned_abs();
    if power > 27 {
        return None;
    }
    let five = 5u128.pow(power);
    let (number, exact, moved) = if exponent10 >= 0 {
        (coefficient.checked_mul(five)?, true, exponent10)
    } else {
        // With the coefficient shifted to 128 bits, the quotient has at least 65.
        let zeros = coefficient.leading_zeros();
        let wide = coefficient << zeros;
        (
            wide / five,
            wide.is_multiple_of(five),
            exponent10 - zeros as i32,
        )
    };
    let zeros = number.leading_zeros();
    let normal = number << zeros;
    let exact = exact && normal as u64 == 0;
    Some((127 - zeros as i32 + moved, (normal >> 64) as u64, exact))
}

fn bits_of(n: u128) -> i32 {
    128 - n.leading_zeros() as i32
}

/// An unsigned integer of any size: 64-bit limbs, least significant first, no zero limb on top.
struct Big {
    limbs: Vec<u64>,
}

impl Big {
    fn from_u128(n: u128) -> Big {
        let mut big = Big {
            limbs: vec![n as u64, (n >> 64) as u64],
        };
        big.trim();
        big
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    /// start * 5^power
    fn power_of_five(mut power: u32, start: u128) -> Big {
        // 5^27 is the largest power of five that fits 64 bits.
        const STEP: u32 = 27;
        let mut big = Big::from_u128(start);
        while power > 0 {
            let step = power.min(STEP);
            big.mul_small(5u64.pow(step));
            power -= step;
        }
        big
    }

    fn mul_small(&mut self, factor: u64) {
        let mut carry = 0u128;
        for limb in &mut self.limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        if carry > 0 {
            self.limbs.push(carry as u64);
        }
    }

    fn bits(&self) -> i32 {
        match self.limbs.last() {
            None => 0,
            Some(top) => self.limbs.len() as i32 * 64 - top.leading_zeros() as i32,
        }
    }

    fn shl(&self, by: u32) -> Big {
        let mut limbs = vec![0; by as usize / 64];
        let bits = by % 64;
        if bits == 0 {
            limbs.extend_from_slice(&self.limbs);
        } else {
            let mut carry = 0;
            for &limb in &self.limbs {
                limbs.push((limb << bits) | carry);
                carry = limb >> (64 - bits);
            }
            limbs.push(carry);
        }
        let mut big = Big { limbs };
        big.trim();
        big
    }

    /// Position of the leading bit, the leading 64 bits, and whether the remaining bits are zero.
    fn leading(&self) -> (i32, u64, bool) {
        let top = self.bits() - 1;
        let n = self.limbs.len();
        let limb = |i: usize| if i < n { self.limbs[n - 1 - i] } else { 0 };
        let zeros = limb(0).leading_zeros();
        let wide = ((u128::from(limb(0)) << 64) | u128::from(limb(1))) << zeros;
        let exact = wide as u64 == 0 && self.limbs.iter().rev().skip(2).all(|&l| l == 0);
        (top, (wide >> 64) as u64, exact)
    }

    /// The quotient, which must fit 128 bits, and whether the remainder is zero.
    ///
    /// Divides bit by bit: the quotient has about 67 bits, or up to 113 when the divisor is small
    /// and needs no shift, so this takes at most 128 subtractions.
    fn div_small_quotient(mut self, divisor: &Big) -> (u128, bool) {
        let mut quotient = 0u128;
        let excess = (self.bits() - divisor.bits()).max(0);
        let mut part = divisor.shl(excess as u32);
        for _ in 0..=excess {
            quotient <<= 1;
            if self.at_least(&part) {
                self.subtract(&part);
                quotient |= 1;
            }
            part.halve();
        }
        (quotient, self.limbs.is_empty())
    }

    fn halve(&mut self) {
        let mut carry = 0;
        for limb in self.limbs.iter_mut().rev() {
            let low = *limb << 63;
            *limb = *limb >> 1 | carry;
            carry = low;
        }
        self.trim();
    }

    fn at_least(&self, other: &Big) -> bool {
        let order = self
            .limbs
            .len()
            .cmp(&other.limbs.len())
            .then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()));
        order != Ordering::Less
    }

    fn subtract(&mut self, other: &Big) {
        let mut borrow = false;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let (a, b1) = limb.overflowing_sub(other.limbs.get(i).copied().unwrap_or(0));
            let (a, b2) = a.overflowing_sub(u64::from(borrow));
            *limb = a;
            borrow = b1 || b2;
        }
        self.trim();
    }
}

/// Compares an integer with a double exactly; NaN is below every integer.
#[inline]
pub(crate) fn cmp_i64_f64(n: i64, x: f64) -> Ordering {
    // Integers up to 2^53 are exact as doubles.
    if n.unsigned_abs() <= 1 << 53 {
        return cmp_f64(n as f64, x);
    }
    Number::from(n).cmp(&Number::from(x))
}

/// Compares doubles: NaN lowest and equal to NaN, zeros equal.
#[inline]
pub(crate) fn cmp_f64(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}
