//! The atomics that the skiplist and the sizes are made of: the standard library's, or those of the model checker that
//! explores every interleaving (`--cfg explore`).

#[cfg(not(explore))]
pub(super) use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

#[cfg(explore)]
pub(super) use loom::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
