//! Interruption checks for loops within one document.
//!
//! Between documents, the source of the documents checks for interruption
//! ([`crate::pipeline::environment::Environment`]). An expression over one document can take as
//! long as over a million, and has no parameter through which it could check, so the current
//! operation is stored in a thread-local variable.
//!
//! ```text
//!   a command begins ── enter(operation) ──> this thread
//!       $map over 10,000,000 elements ── check(), every 1024th ──> operation: killed? out of time?
//!   a command ends ──── the guard is dropped
//! ```

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use sheaf_bson::error_code::Result;

/// An operation that can be interrupted.
pub trait Interrupt: Send + Sync {
    /// Checks for interruption. Errors: the operation was killed or exceeded its time limit.
    fn check(&self) -> Result<()>;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
}

/// A guard; when dropped, restores the previous operation of the thread.
#[must_use = "the thread works for the operation as long as this lives"]
pub struct Entered {
    before: Option<Arc<dyn Interrupt>>,
}

/// Sets the current operation of this thread, until the guard is dropped.
pub fn enter(operation: Arc<dyn Interrupt>) -> Entered {
    Entered {
        before: CURRENT.replace(Some(operation)),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// Checks the current operation of this thread for interruption. Always succeeds if there is no
/// operation.
///
/// Errors: those of [`Interrupt::check`].
pub fn check() -> Result<()> {
    CURRENT.with_borrow(|current| match current {
        Some(operation) => operation.check(),
        None => Ok(()),
    })
}

/// Number of steps between interruption checks in [`step`]; these take less than a millisecond.
const STEPS_BETWEEN_CHECKS: u64 = 1024;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step of a loop over client input; every 1024th step checks for interruption.
///
/// Errors: those of [`check`].
#[inline]
pub fn step() -> Result<()> {
    count(1);
    let steps = STEPS.get().wrapping_add(1);
    STEPS.set(steps);
    match steps % STEPS_BETWEEN_CHECKS {
        0 => check(),
        _ => Ok(()),
    }
}

/// Counts steps of a loop that is too short, or too hot, to check for interruption. Only counts in
/// tests, which compare how work grows with its input.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    COUNTED.set(COUNTED.get().wrapping_add(steps as u64));
    #[cfg(not(test))]
    let _ = steps;
}

/// Number of steps counted by this thread.
#[cfg(test)]
pub(crate) fn steps() -> u64 {
    COUNTED.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_bson::error_code::{Error, ErrorCode};

    struct Ended(bool);

    impl Interrupt for Ended {
        fn check(&self) -> Result<()> {
            match self.0 {
                true => Err(Error::new(
                    ErrorCode::INTERRUPTED,
                    "operation was interrupted",
                )),
                false => Ok(()),
            }
        }
    }

    /// The most recently entered operation is checked; dropping its guard restores the previous
    /// one.
    #[test]
    fn operations_nest() {
        assert!(check().is_ok());
        let outer = enter(Arc::new(Ended(false)));
        assert!(check().is_ok());
        let inner = enter(Arc::new(Ended(true)));
        assert_eq!(check().unwrap_err().code(), ErrorCode::INTERRUPTED);
        drop(inner);
        assert!(check().is_ok());
        drop(outer);
        assert!(check().is_ok());
    }
}
