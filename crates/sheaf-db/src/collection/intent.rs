//! Locks between writers of a collection's documents and changes of its shape.
//!
//! ```text
//!   readers   no lock: a catalog snapshot and a storage snapshot
//!   writers   shared, from the lookup of the collection to the commit of their unit
//!   DDL       exclusive, while the collection's shape changes
//! ```
//!
//! A writer that holds the intent sees one set of indexes, and a change of that set sees no
//! unfinished write. A waiter for the exclusive intent blocks new writers; its wait ends when the
//! operation is killed or times out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheaf_bson::{Error, ErrorCode, Result};

use crate::op_context::OpContext;

/// Interval at which a wait checks whether the operation was killed.
const WAIT_SLICE: Duration = Duration::from_millis(50);

/// The intents on one collection.
#[derive(Debug, Default)]
pub struct CollectionIntents {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shared: usize,
    exclusive: bool,
    exclusive_waiting: usize,
}

/// A writer's intent, released on drop.
#[derive(Debug)]
pub struct SharedIntent(Arc<CollectionIntents>);

/// The intent to change the collection's shape, released on drop.
#[derive(Debug)]
pub struct ExclusiveIntent(Arc<CollectionIntents>);

impl CollectionIntents {
    /// Acquires a shared intent, waiting at most `limit` if given.
    /// Errors: `LockTimeout`, `Interrupted`, `MaxTimeMSExpired`.
    pub fn shared(
        self: &Arc<Self>,
        op: &OpContext,
        limit: Option<Duration>,
    ) -> Result<SharedIntent> {
        let mut state = self.state.lock();
        if state.exclusive || state.exclusive_waiting > 0 {
            let since = Instant::now();
            while state.exclusive || state.exclusive_waiting > 0 {
                op.check_interrupt_now()?;
                if limit.is_some_and(|limit| since.elapsed() >= limit) {
                    return Err(Error::new(
                        ErrorCode::LOCK_TIMEOUT,
                        "the collection is being changed by another command; try again later",
                    ));
                }
                let slice = limit.map_or(WAIT_SLICE, |limit| {
                    WAIT_SLICE.min(limit.saturating_sub(since.elapsed()))
                });
                self.changed.wait_for(&mut state, slice);
            }
        }
        debug_assert!(!state.exclusive, "a writer during a change of the shape");
        state.shared += 1;
        Ok(SharedIntent(self.clone()))
    }

    /// Waits until all writers have finished.
    /// Errors: `Interrupted`, `MaxTimeMSExpired`.
    pub fn exclusive(self: &Arc<Self>, op: &OpContext) -> Result<ExclusiveIntent> {
        let mut state = self.state.lock();
        state.exclusive_waiting += 1;
        while state.exclusive || state.shared > 0 {
            if let Err(error) = op.check_interrupt_now() {
                state.exclusive_waiting -= 1;
                drop(state);
                self.changed.notify_all();
                return Err(error);
            }
            self.changed.wait_for(&mut state, WAIT_SLICE);
        }
        debug_assert!(state.exclusive_waiting > 0 && state.shared == 0 && !state.exclusive);
        state.exclusive_waiting -= 1;
        state.exclusive = true;
        Ok(ExclusiveIntent(self.clone()))
    }
}

impl Drop for SharedIntent {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(
            state.shared > 0 && !state.exclusive,
            "intents are not balanced"
        );
        state.shared -= 1;
        let wake = state.shared == 0 && state.exclusive_waiting > 0;
        drop(state);
        if wake {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for ExclusiveIntent {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        debug_assert!(
            state.exclusive && state.shared == 0,
            "intents are not balanced"
        );
        state.exclusive = false;
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn writers_share_and_ddl_excludes() {
        let intents = Arc::new(CollectionIntents::default());
        let op = OpContext::new();
        let first = intents.shared(&op, None).unwrap();
        let second = intents.shared(&op, None).unwrap();
        let entered = Arc::new(AtomicBool::new(false));
        let ddl = {
            let (intents, entered) = (intents.clone(), entered.clone());
            std::thread::spawn(move || {
                let held = intents.exclusive(&OpContext::new()).unwrap();
                entered.store(true, Ordering::SeqCst);
                drop(held);
            })
        };
        // Once the other thread waits, new writers are blocked.
        let refused = loop {
            match intents.shared(&op, Some(Duration::from_millis(1))) {
                Ok(intent) => drop(intent),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code(), ErrorCode::LOCK_TIMEOUT);
        assert!(!entered.load(Ordering::SeqCst));
        drop((first, second));
        ddl.join().unwrap();
        assert!(entered.load(Ordering::SeqCst));
        assert!(intents.shared(&op, Some(Duration::ZERO)).is_ok());
    }

    #[test]
    fn a_killed_waiter_lets_writers_in_again() {
        let intents = Arc::new(CollectionIntents::default());
        let op = OpContext::new();
        let _writer = intents.shared(&op, None).unwrap();
        let killed = OpContext::new();
        killed.kill(ErrorCode::INTERRUPTED);
        assert_eq!(
            intents.exclusive(&killed).unwrap_err().code(),
            ErrorCode::INTERRUPTED
        );
        assert!(intents.shared(&op, Some(Duration::ZERO)).is_ok());
    }
}
