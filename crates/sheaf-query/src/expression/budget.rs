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
//! filled), and on the array elements that loops walk for one document. Work between two documents can be interrupted by whoever feeds
//! them; within one document these limits bound it.

use std::cell::Cell;

use sheaf_bson::RawValue;
use sheaf_bson::error_code::{Error, ErrorCode, Result};

use super::eval::EvalValue;

/// Largest value that is built.
pub(super) const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// All values that wait for another one, together.
const HELD_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Array elements that `$map`, `$filter`, `$reduce` and `$range` walk for one document.
/// (Fewer in tests, which run unoptimised.)
const STEPS_MAX: u64 = if cfg!(test) { 200_000 } else { 20_000_000 };

thread_local! {
    /// Steps of the evaluation that runs on this thread: one at a time does.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Begins the count for a document.
pub(super) fn begin() {
    STEPS.set(0);
}

/// Counts one step of a loop.
/// Errors: there were too many.
#[inline]
pub(super) fn step() -> Result<()> {
    steps(1)
}

/// Counts so many steps, before they are taken.
/// Errors: there were too many.
#[inline]
pub(super) fn steps(more: u64) -> Result<()> {
    let steps = STEPS.get().saturating_add(more);
    STEPS.set(steps);
    if steps > STEPS_MAX {
        return Err(Error::new(
            ErrorCode::EXCEEDED_TIME_LIMIT,
            format!(
                "$map, $filter, $reduce and $range must not walk more than {STEPS_MAX} elements for one document"
            ),
        ));
    }
    Ok(())
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
    match value.as_raw() {
        RawValue::String(s) | RawValue::Symbol(s) | RawValue::JavaScript(s) => s.len(),
        RawValue::Document(d) => d.len_bytes(),
        RawValue::Array(a) => a.len_bytes(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 0,
    }
}
