//! Limits on the cost of one evaluation. Expressions come from clients, and a short one can request
//! more memory than any machine has.
//!
//! ```text
//!   {$reduce: {input: {$range: [0, 40]}, initialValue: "xx",
//!              in: {$concat: ["$$value", "$$value"]}}}            2 TB of text
//! ```
//!
//! There are three limits: on the bytes of one constructed value, on the total bytes of values held
//! while another is computed (variables, operands, partially filled arrays), and on the array
//! elements walked for one document. The caller can interrupt work between two documents; within
//! one document, the evaluation checks for interruption every [`STEPS_BETWEEN_CHECKS`] elements.

use std::cell::Cell;

use sheaf_bson::RawValue;
use sheaf_bson::error_code::{Error, ErrorCode, Result};

use super::eval::EvalValue;

/// Maximum size of a constructed value in bytes.
pub(super) const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A string must have fewer bytes than this: a document with it would have no room left.
const STRING_BYTES_END: usize = 16 * 1024 * 1024;
/// Maximum total size of the values held while another one is computed, in bytes.
const HELD_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Maximum number of array elements walked for one document. (Lower in tests, which run
/// unoptimised.)
const STEPS_MAX: u64 = if cfg!(test) {
    10_000_000
} else {
    10_000_000_000
};
/// Number of elements walked between two interruption checks: takes less than a millisecond.
pub(super) const STEPS_BETWEEN_CHECKS: u64 = 1024;

/// Bytes of a value that count as one step.
pub(super) const BYTES_A_STEP: usize = 256;

thread_local! {
    /// Steps of the evaluation on this thread. A thread runs one evaluation at a time.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Resets the step count for a new document.
pub(super) fn begin() {
    STEPS.set(0);
}

/// Counts one step of a loop. Errors: as [`steps`].
#[inline]
pub(super) fn step() -> Result<()> {
    steps(1)
}

/// Counts `more` steps, before they are taken. Errors: ExceededTimeLimit above the limit, or the
/// operation was interrupted.
#[inline]
pub(super) fn steps(more: u64) -> Result<()> {
    let before = STEPS.get();
    let steps = before.saturating_add(more);
    STEPS.set(steps);
    if before / STEPS_BETWEEN_CHECKS != steps / STEPS_BETWEEN_CHECKS {
        return check_steps(steps);
    }
    Ok(())
}

/// Counts a value passed to an operator as one walk over its bytes, which every operator may need.
/// Errors: as [`steps`].
#[inline]
pub(super) fn walk<'e>(value: Result<EvalValue<'e>>) -> Result<EvalValue<'e>> {
    if let Ok(found) = &value {
        let bytes = match found.as_raw() {
            Some(RawValue::Array(array)) => array.len_bytes(),
            Some(RawValue::String(text)) => text.len(),
            Some(RawValue::Document(doc)) => doc.len_bytes(),
            _ => 0,
        };
        if bytes >= BYTES_A_STEP {
            steps((bytes / BYTES_A_STEP) as u64)?;
        }
    }
    value
}

#[cold]
fn check_steps(steps: u64) -> Result<()> {
    if steps > STEPS_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_TIME_LIMIT,
            format!("an expression must not walk more than {STEPS_MAX} elements for one document"),
        ));
    }
    crate::interrupt::check()
}

/// Checks the size of a value to construct. Errors: ExceededMemoryLimit if it is too large.
#[inline]
pub(super) fn check_value(bytes: usize) -> Result<()> {
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_MEMORY_LIMIT,
            format!("an expression must not build values of more than {VALUE_BYTES_MAX} bytes"),
        ));
    }
    Ok(())
}

/// Checks the size of a string that an expression contains or builds. Errors: 16493 if it is too
/// large.
#[inline]
pub(super) fn check_string(bytes: usize) -> Result<()> {
    if bytes >= STRING_BYTES_END {
        return Err(Error::new(
            ErrorCode(16493),
            "Tried to create string longer than 16MB",
        ));
    }
    Ok(())
}

/// Checks the total size of values held while another one is computed. Errors: ExceededMemoryLimit
/// if it is too large.
#[inline]
pub(super) fn check_held(bytes: usize) -> Result<()> {
    if bytes > HELD_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_MEMORY_LIMIT,
            format!(
                "the variables and operands of an expression must not hold more than {HELD_BYTES_MAX} bytes in total"
            ),
        ));
    }
    Ok(())
}

/// Approximate heap size of a value in bytes; 0 if it is borrowed.
#[inline]
pub(super) fn heap_bytes(value: &EvalValue<'_>) -> usize {
    let EvalValue::Owned(value) = value else {
        return 0;
    };
    raw_bytes(value.as_raw())
}

/// Approximate heap size of an owned copy of a value, in bytes.
#[inline]
pub(super) fn raw_bytes(value: RawValue<'_>) -> usize {
    match value {
        RawValue::String(s) | RawValue::Symbol(s) | RawValue::JavaScript(s) => s.len(),
        RawValue::Document(d) => d.len_bytes(),
        RawValue::Array(a) => a.len_bytes(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 0,
    }
}
