//! The collation with which the model compares text.
//!
//! It affects a query everywhere, so it is set once per thread around a call:
//! `by_collation(collator, || matching(docs, filter))`. Without it, text compares by bytes.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::{Collator, RawValue, compare_values_with};

thread_local! {
    static COLLATOR: RefCell<Option<Arc<Collator>>> = const { RefCell::new(None) };
}

/// The result of `question` with text compared by `collator`.
pub fn by_collation<T>(collator: Option<Arc<Collator>>, question: impl FnOnce() -> T) -> T {
    let before = COLLATOR.replace(collator);
    let answer = question();
    COLLATOR.set(before);
    answer
}

/// Compares values, text by the collation in effect.
pub fn compare(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    COLLATOR.with_borrow(|collator| compare_values_with(a, b, collator.as_deref()))
}
