//! Numbers that tell one set of files from another.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A number that is not likely to come again. Not for secrets.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}
