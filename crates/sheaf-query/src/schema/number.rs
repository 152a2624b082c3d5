//! Limits and multiples of numbers of all four types.

use std::cmp::Ordering;

use sheaf_bson::{RawValue, compare_values};

use super::{Limit, NumberRules};
use crate::arithmetic::Number;

fn is_nan(value: RawValue<'_>) -> bool {
    Number::from_raw(value).is_some_and(Number::is_nan)
}

/// Whether `value` satisfies the limit. As in a query, NaN satisfies only the limit NaN.
fn within(value: RawValue<'_>, limit: &Limit, outside: Ordering) -> bool {
    let bound = limit.value.as_raw();
    match (is_nan(value), is_nan(bound)) {
        (true, true) => !limit.exclusive,
        (true, false) | (false, true) => false,
        (false, false) => match compare_values(value, bound) {
            Ordering::Equal => !limit.exclusive,
            order => order != outside,
        },
    }
}

/// Whether a number is a multiple of another, which is greater than zero. Integers are compared
/// exactly, other numbers as decimals: 0.3 is a multiple of 0.1.
pub(super) fn is_multiple(value: RawValue<'_>, of: RawValue<'_>) -> bool {
    if let (Some(value), Some(of)) = (value.as_i64_exact(), of.as_i64_exact()) {
        return value.checked_rem(of).unwrap_or(0) == 0;
    }
    let (Some(value), Some(of)) = (Number::from_raw(value), Number::from_raw(of)) else {
        return false;
    };
    let (value, of) = (value.to_decimal(), of.to_decimal());
    if !value.is_finite() || !of.is_finite() {
        return false;
    }
    crate::arithmetic::decimal::remainder(value, of).is_zero()
}

impl NumberRules {
    pub(super) fn minimum_holds(&self, value: RawValue<'_>) -> bool {
        let holds = |limit| within(value, limit, Ordering::Less);
        self.minimum.as_ref().is_none_or(holds)
    }

    pub(super) fn maximum_holds(&self, value: RawValue<'_>) -> bool {
        let holds = |limit| within(value, limit, Ordering::Greater);
        self.maximum.as_ref().is_none_or(holds)
    }

    pub(super) fn multiple_of_holds(&self, value: RawValue<'_>) -> bool {
        let holds = |of: &sheaf_bson::Value| is_multiple(value, of.as_raw());
        self.multiple_of.as_ref().is_none_or(holds)
    }
}
