//! Compares one stored value with one operand: the rules of `$eq`, `$lt`, ...
//!
//! ```text
//!   different brackets     false, regardless of the order of types
//!   operand MinKey         every value is above it     ($gt, $gte true)
//!   operand MaxKey         every value is below it     ($lt, $lte true)
//!   NaN on either side     only NaN with NaN, and not $lt, $gt
//!   missing field          like null; not below or above other values
//!   stored undefined       in a separate bracket; null does not match it
//! ```
//!
//! A bracket is a rank in the order of types: all numbers share one, string and symbol share one,
//! and every other type has its own.

use std::cmp::Ordering;

use sheaf_bson::{Collator, RawValue, compare_values_with};

use super::{Comparison, ComparisonOp, In, RegexMatch};

impl ComparisonOp {
    /// Whether the ordering of a stored value relative to the operand satisfies the operator.
    pub(super) fn accepts(self, order: Ordering) -> bool {
        match self {
            ComparisonOp::Eq => order.is_eq(),
            ComparisonOp::Lte => order.is_le(),
            ComparisonOp::Lt => order.is_lt(),
            ComparisonOp::Gt => order.is_gt(),
            ComparisonOp::Gte => order.is_ge(),
        }
    }
}

fn is_nan(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(x) => x.is_nan(),
        RawValue::Decimal128(d) => d.to_f64().is_nan(),
        _ => false,
    }
}

impl Comparison {
    /// Whether this value passes (`None`: the field is missing). Does not traverse arrays; the
    /// caller must.
    #[inline]
    pub fn test(&self, stored: Option<RawValue<'_>>) -> bool {
        compare(
            self.op,
            stored,
            self.value.as_raw(),
            self.collator.as_deref(),
        )
    }
}

/// `stored op operand`; see the head of the module.
pub(super) fn compare(
    op: ComparisonOp,
    stored: Option<RawValue<'_>>,
    operand: RawValue<'_>,
    collator: Option<&Collator>,
) -> bool {
    let stored = stored.unwrap_or(RawValue::Null);
    let rank = stored.element_type().canonical_rank();
    let operand_rank = operand.element_type().canonical_rank();
    if rank != operand_rank {
        return match operand {
            RawValue::MinKey => op.accepts(Ordering::Greater),
            RawValue::MaxKey => op.accepts(Ordering::Less),
            _ => false,
        };
    }
    if operand.is_number() && (is_nan(stored) || is_nan(operand)) {
        return is_nan(stored) && is_nan(operand) && op.accepts(Ordering::Equal);
    }
    op.accepts(compare_values_with(stored, operand, collator))
}

impl In {
    /// Whether this value is in the list (`None`: the field is missing). Does not traverse arrays.
    ///
    /// Errors: a regular expression that exceeds its limits.
    pub fn test(&self, stored: Option<RawValue<'_>>) -> Result<bool, sheaf_bson::Error> {
        let value = stored.unwrap_or(RawValue::Null);
        let collator = self.collator.as_deref();
        if self
            .equalities
            .binary_search_by(|candidate| compare_values_with(candidate.as_raw(), value, collator))
            .is_ok()
        {
            return Ok(true);
        }
        for regex in &self.regexes {
            if regex.test(stored)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl RegexMatch {
    /// Whether this value passes: a string or symbol that matches, or an equal stored regex.
    ///
    /// Errors: the match exceeds its limits.
    pub fn test(&self, stored: Option<RawValue<'_>>) -> Result<bool, sheaf_bson::Error> {
        match stored {
            Some(RawValue::String(s) | RawValue::Symbol(s)) => self.compiled.is_match(s),
            Some(RawValue::Regex { pattern, options }) => {
                Ok(*pattern == *self.pattern && same_letters(options, &self.options))
            }
            _ => Ok(false),
        }
    }
}

/// Whether two option strings have the same letters, in any order.
fn same_letters(stored: &str, sorted: &str) -> bool {
    stored == sorted
        || (stored.chars().all(|c| sorted.contains(c))
            && sorted.chars().all(|c| stored.contains(c)))
}
