//! The atomics that the skiplist is made of: the standard library's, or those of the model checker that
//! explores every interleaving (`--cfg explore`).

#[cfg(not(explore))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

#[cfg(explore)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
