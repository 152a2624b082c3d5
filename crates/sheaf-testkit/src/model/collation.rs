//! By which collation the model compares text.
//!
//! What a query means depends on it everywhere, so it is said once, around the
//! question: `by_collation(collator, || matching(docs, filter))`. Without that
//! text compares by bytes.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

use sheaf_bson::{Collator, RawValue, compare_values_with};

thread_local! {
    static COLLATOR: RefCell<Option<Arc<Collator>>> = const { RefCell::new(None) };
}

/// What `question` gives where text compares by `collator`.
pub fn by_collation<T>(collator: Option<Arc<Collator>>, question: impl FnOnce() -> T) -> T {
    let before = COLLATOR.replace(collator);
    let answer = question();
    COLLATOR.set(before);
    answer
}

/// The order of values.
pub fn compare(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    COLLATOR.with_borrow(|collator| compare_values_with(a, b, collator.as_deref()))
}
