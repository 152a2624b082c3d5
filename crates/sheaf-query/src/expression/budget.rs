//! What one evaluation may cost: expressions come from clients, and a short one
//! can ask for more than any machine has.
//!
//! ```text
//!   {$reduce: {input: {$range: [0, 40]}, initialValue: "xx",
//!              in: {$concat: ["$$value", "$$value"]}}}            2 TB of text
//! ```
//!
//! Three limits hold: on the bytes of one value that is built, on the bytes of
//! all values held while another is computed (variables, operands, arrays being
//! filled), and on the array elements that are walked for one document. Work
//! between two documents can be interrupted by whoever feeds them; within one
//! document every [`STEPS_BETWEEN_CHECKS`] elements ask whether to go on.

use std::cell::Cell;

use sheaf_bson::RawValue;
use sheaf_bson::error_code::{Error, ErrorCode, Result};

use super::eval::EvalValue;

/// Largest value that is built.
pub(super) const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// All values that wait for another one, together.
const HELD_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Array elements that are walked for one document. (Fewer in tests, which run unoptimised.)
const STEPS_MAX: u64 = if cfg!(test) {
    10_000_000
} else {
    10_000_000_000
};
/// Elements walked between two questions whether the operation is to go on: less than a millisecond.
pub(super) const STEPS_BETWEEN_CHECKS: u64 = 1024;

/// So many bytes of a value count as an element.
const BYTES_A_STEP: usize = 256;

thread_local! {
    /// Steps of the evaluation that runs on this thread: one at a time does.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Begins the count for a document.
pub(super) fn begin() {
    STEPS.set(0);
}

/// Counts one step of a loop.
/// Errors: there were too many; the operation is to end.
#[inline]
pub(super) fn step() -> Result<()> {
    steps(1)
}

/// Counts so many steps, before they are taken.
/// Errors: there were too many; the operation is to end.
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

/// Counts a value that is handed to an operator: whatever that does, it walks what is large once.
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

/// Errors: a value of so many bytes is too large to build.
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

/// Errors: so many bytes are too much to hold while another value is computed.
#[inline]
pub(super) fn check_held(bytes: usize) -> Result<()> {
    if bytes > HELD_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_MEMORY_LIMIT,
            format!(
                "the variables and operands of an expression must not hold more than {HELD_BYTES_MAX} bytes together"
            ),
        ));
    }
    Ok(())
}

/// Bytes that a value holds on the heap, roughly: none, when it is borrowed.
#[inline]
pub(super) fn heap_bytes(value: &EvalValue<'_>) -> usize {
    let EvalValue::Owned(value) = value else {
        return 0;
    };
    raw_bytes(value.as_raw())
}

/// Bytes that a value holds on the heap once it is no longer borrowed, roughly.
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
