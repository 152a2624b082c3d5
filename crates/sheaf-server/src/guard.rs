//! Contains a panic in the operation that caused it.

use std::panic::{self, AssertUnwindSafe};

/// Calls `call`. Returns a panic's message as the error.
///
/// A panic may leave what the call changed half done; the caller must discard it.
pub fn caught<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    panic::catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        match (
            payload.downcast_ref::<&str>(),
            payload.downcast_ref::<String>(),
        ) {
            (Some(text), _) => (*text).to_string(),
            (_, Some(text)) => text.clone(),
            _ => "an internal invariant does not hold".to_string(),
        }
    })
}
