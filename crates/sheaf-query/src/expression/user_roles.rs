//! `$$USER_ROLES`: the roles of the user whose command runs on this thread.
//!
//! The user is a fact about the operation and not about the expression, so the server sets it for
//! the thread, as it does with interrupts.

use std::cell::RefCell;
use std::sync::Arc;

use sheaf_bson::{ArrayBuilder, Value};

thread_local! {
    static ROLES: RefCell<Option<Arc<Value>>> = const { RefCell::new(None) };
}

/// Restores the roles that were set before, when dropped.
pub struct Entered(Option<Arc<Value>>);

/// Sets the roles until the guard is dropped.
pub fn enter(roles: Arc<Value>) -> Entered {
    Entered(ROLES.replace(Some(roles)))
}

impl Drop for Entered {
    fn drop(&mut self) {
        ROLES.set(self.0.take());
    }
}

/// The roles of the current user; an empty array without one.
pub(super) fn current() -> Arc<Value> {
    let roles = ROLES.with_borrow(Clone::clone);
    roles.unwrap_or_else(|| Arc::new(Value::Array(ArrayBuilder::new().finish())))
}
