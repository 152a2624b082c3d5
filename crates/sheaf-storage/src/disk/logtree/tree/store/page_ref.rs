//! A reader's reference to a page, and values that outlive it.

use std::sync::Arc;

use crate::disk::logtree::tree::cache::CachedPage;
use crate::disk::logtree::tree::page::Shape;

/// A value of at least this length is lent from the page instead of being copied.
const LEND_MIN: usize = 64 << 10;

/// The bytes of a page or a large value, in the mapped file or in the cache.
///
/// In the mapped file it is valid as long as the roots through which it was read are pinned and
/// their map lives; every holder of a `PageRef` keeps those roots: a cursor, a lent value, a
/// writer.
pub(in crate::disk::logtree::tree) struct PageRef {
    pub(super) start: *const u8,
    pub(super) len: usize,
    pub shape: Shape,
    pub hold: Option<Arc<CachedPage>>,
}

// SAFETY: the bytes are immutable and outlive the reference, whichever thread drops it. The other
// fields may be shared, which the compiler checks below.
unsafe impl Send for PageRef {}
// SAFETY: as above.
unsafe impl Sync for PageRef {}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<(Shape, Option<Arc<CachedPage>>)>();
};

impl PageRef {
    pub(super) fn held(page: Arc<CachedPage>) -> PageRef {
        PageRef {
            start: page.bytes.as_ptr(),
            len: page.bytes.len(),
            shape: page.shape,
            hold: Some(page),
        }
    }

    #[inline]
    pub(in crate::disk::logtree::tree) fn bytes(&self) -> &[u8] {
        // SAFETY: `hold` keeps the bytes, which do not change, or the pinned roots do; see the
        // type's comment.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Lends a large value to the holder of the `Bytes`, and pins what contains it.
struct Lent<P: Send + 'static> {
    page: PageRef,
    _pin: P,
}

impl<P: Send + 'static> AsRef<[u8]> for Lent<P> {
    fn as_ref(&self) -> &[u8] {
        self.page.bytes()
    }
}

/// An owned value: a small one is copied, a large one stays in place and pins its page.
pub(in crate::disk::logtree::tree) fn value_bytes<P: Send + 'static>(
    page: PageRef,
    pin: impl FnOnce() -> P,
) -> bytes::Bytes {
    if page.len < LEND_MIN {
        return bytes::Bytes::copy_from_slice(page.bytes());
    }
    bytes::Bytes::from_owner(Lent { page, _pin: pin() })
}

impl Clone for PageRef {
    fn clone(&self) -> PageRef {
        PageRef {
            start: self.start,
            len: self.len,
            shape: self.shape,
            hold: self.hold.clone(),
        }
    }
}
