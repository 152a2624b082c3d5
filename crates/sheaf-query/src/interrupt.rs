//! Whom loops within one document ask whether to go on.
//!
//! Between two documents whoever feeds them asks ([`crate::pipeline::environment::Environment`]). An
//! expression over one document can take as long as over a million, and is handed nothing that could
//! be asked: so the operation that a thread works for is known to the thread.
//!
//! ```text
//!   a command begins ── enter(operation) ──> this thread
//!       $map over 10,000,000 elements ── check(), every 1024th ──> operation: killed? out of time?
//!   a command ends ──── the guard goes
//! ```

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use sheaf_bson::error_code::Result;

/// An operation that can be ended from outside.
pub trait Interrupt: Send + Sync {
    /// Errors: it was killed, or has outrun its time.
    fn check(&self) -> Result<()>;
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
}

/// Takes the operation away from the thread when dropped, and gives back the one before.
#[must_use = "the thread works for the operation as long as this lives"]
pub struct Entered {
    before: Option<Arc<dyn Interrupt>>,
}

/// From now on this thread works for the operation.
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

/// Asks the operation of this thread; a thread that works for none goes on.
/// Errors: the operation's.
pub(crate) fn check() -> Result<()> {
    CURRENT.with_borrow(|current| match current {
        Some(operation) => operation.check(),
        None => Ok(()),
    })
}

/// Steps between two interruption checks of [`step`]: less than a millisecond.
const STEPS_BETWEEN_CHECKS: u64 = 1024;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step of a loop over what a client sent; every 1024th checks for interruption.
/// Errors: as [`check`].
#[inline]
pub(crate) fn step() -> Result<()> {
    count(1);
    let steps = STEPS.get().wrapping_add(1);
    STEPS.set(steps);
    match steps % STEPS_BETWEEN_CHECKS {
        0 => check(),
        _ => Ok(()),
    }
}

/// Counts steps of a loop that is too short, or too hot, to check for interruption. Counted in
/// tests only, which compare how work grows with its input.
#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(test)]
    COUNTED.set(COUNTED.get().wrapping_add(steps as u64));
    #[cfg(not(test))]
    let _ = steps;
}

/// The steps that this thread has counted.
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

    /// The operation entered last is asked, and the one before when it has gone.
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
