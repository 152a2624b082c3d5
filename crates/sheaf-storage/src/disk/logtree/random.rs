//! Random identifiers of sets of files.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A number that is unlikely to recur. Not for secrets.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}
