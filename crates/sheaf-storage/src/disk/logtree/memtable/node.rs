//! One version of one key, in one piece of the arena.
//!
//! ```text
//!   link[h-1] ... link[1] link[0] │ head  seq  prev  key_len  value │ key bytes │ value bytes
//!                                 ^ the pointer to the node                      or handle, or nothing
//! ```
//!
//! `link[0]`, the key's head and (for keys of usual length) the key are adjacent: a walk along the
//! lowest level touches one or two cache lines a node. The links of higher levels precede them, so
//! the node's height need not be stored.
//!
//! Invariant: everything but the links and `prev` is written before the node becomes reachable, and
//! never changes.

use std::cmp::Ordering as Compared;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use bytes::Bytes;

use super::arena::{ALIGN, Room};
use crate::disk::logtree::sync::{AtomicPtr, Ordering};

/// The levels of a list. One node in four reaches the next level, so 12 suffice for millions of
/// nodes.
#[cfg(not(explore))]
pub(super) const HEIGHT_MAX: usize = 12;
#[cfg(explore)]
pub(super) const HEIGHT_MAX: usize = 2;

/// Values up to this length are copied into the node; longer ones are held by handle and not
/// copied.
pub(super) const INLINE_BYTES_MAX: usize = 2048;

/// The parts of the header's `value`: the length of a value in the node, the number of the list,
/// and how the value is stored.
const LEN_BITS: u32 = 12;
const LEN_MASK: u32 = (1 << LEN_BITS) - 1;
const LIST_BITS: u32 = 18;
const HANDLE: u32 = 1 << 30;
const DELETED: u32 = 1 << 31;
const _: () = assert!(INLINE_BYTES_MAX <= LEN_MASK as usize && LEN_BITS + LIST_BITS == 30);

/// The greatest list number that a node can hold.
pub(super) const LIST_MAX: u32 = (1 << LIST_BITS) - 1;

pub(super) type Link = AtomicPtr<Header>;

#[repr(C)]
pub(super) struct Header {
    head: u64,
    seq: u64,
    /// A node before this one, usually the one directly before.
    prev: Link,
    key_len: u32,
    /// See [`LEN_BITS`].
    value: u32,
}

const LINK_BYTES: usize = size_of::<Link>();
const _: () = assert!(align_of::<Header>() <= ALIGN && align_of::<Link>() <= align_of::<Header>());
const _: () = assert!(LINK_BYTES.is_multiple_of(align_of::<Header>()));

/// The first eight bytes of a key as a big-endian number: where two heads differ, their keys
/// compare alike.
#[inline]
pub(super) fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

/// A node of a list that lives for `'g`.
#[derive(Clone, Copy)]
pub(in crate::disk::logtree) struct NodeRef<'g> {
    at: NonNull<Header>,
    generation: PhantomData<&'g Header>,
}

// SAFETY: what a node shares is immutable or atomic, and the handle it may hold is of a `Bytes`,
// which is `Send` and `Sync`; the arena owns it.
unsafe impl Send for NodeRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for NodeRef<'_> {}

impl PartialEq for NodeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<'g> NodeRef<'g> {
    /// Writes a node whose links are null.
    pub(super) fn write(
        room: &mut Room<'g>,
        list: u32,
        height: usize,
        key: &[u8],
        seq: u64,
        value: Option<&Bytes>,
    ) -> NodeRef<'g> {
        let inline = value.map_or(0, |value| match value.len() {
            len if len <= INLINE_BYTES_MAX => len,
            _ => size_of::<*const Bytes>(),
        });
        // Readers of the node rely on both. No batch has a longer key: the log's records are not
        // that long.
        debug_assert!(list <= LIST_MAX && (1..=HEIGHT_MAX).contains(&height));
        let Ok(key_len) = u32::try_from(key.len()) else {
            unreachable!("a key of {} bytes", key.len());
        };
        let tower = (height * LINK_BYTES).next_multiple_of(align_of::<Header>());
        let piece = room.piece(tower + size_of::<Header>() + key.len() + inline);
        let value_field = list << LEN_BITS
            | match value {
                None => DELETED,
                Some(value) if value.len() <= INLINE_BYTES_MAX => value.len() as u32,
                Some(_) => HANDLE,
            };
        // SAFETY: the piece is aligned for `Header` and as long as tower, header, key and value are
        // together; `tower` is a multiple of the alignment. No other thread knows the piece yet.
        unsafe {
            let at = piece.add(tower).cast::<Header>();
            for level in 0..height {
                at.cast::<Link>()
                    .sub(level + 1)
                    .write(Link::new(null_mut()));
            }
            at.write(Header {
                head: head_of(key),
                seq,
                prev: Link::new(null_mut()),
                key_len,
                value: value_field,
            });
            let key_at = at.add(1).cast::<u8>();
            key_at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let value_at = key_at.add(key.len());
            match value {
                None => {}
                Some(value) if value.len() <= INLINE_BYTES_MAX => {
                    let from = NonNull::from(&value[..]).cast();
                    value_at.copy_from_nonoverlapping(from, value.len());
                }
                Some(value) => {
                    let handle: *const Bytes = room.keep(value.clone()).as_ptr();
                    value_at.cast::<*const Bytes>().write_unaligned(handle);
                }
            }
            NodeRef {
                at,
                generation: PhantomData,
            }
        }
    }

    /// # Safety
    /// `at` is null or a node that [`NodeRef::write`] made, in an arena that lives for `'g`.
    #[inline]
    pub(super) unsafe fn from_link(at: *mut Header) -> Option<NodeRef<'g>> {
        NonNull::new(at).map(|at| NodeRef {
            at,
            generation: PhantomData,
        })
    }

    /// The value of a link to this node.
    #[inline]
    pub(super) fn as_link(self) -> *mut Header {
        self.at.as_ptr()
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: `write` made the header whole, and the arena lives for `'g`.
        unsafe { self.at.as_ref() }
    }

    /// # Safety
    /// The node is higher than `level`.
    #[inline]
    pub(super) unsafe fn link(self, level: usize) -> &'g Link {
        // SAFETY: `write` put a link there for every level below the node's height, and the arena
        // lives for `'g`.
        unsafe { self.at.cast::<Link>().sub(level + 1).as_ref() }
    }

    #[inline]
    pub(super) fn prev_link(self) -> &'g Link {
        &self.header().prev
    }

    /// The node after this one.
    #[inline]
    pub(in crate::disk::logtree) fn next(self) -> Option<NodeRef<'g>> {
        // SAFETY: every node has a link of level 0; it leads to a node of the same list, and so of
        // the same arena, or nowhere.
        unsafe { NodeRef::from_link(self.link(0).load(Ordering::Acquire)) }
    }

    #[inline]
    pub(super) fn head(self) -> u64 {
        self.header().head
    }

    /// The number of the list that the node belongs to.
    #[inline]
    pub(super) fn list(self) -> u32 {
        self.header().value >> LEN_BITS & LIST_MAX
    }

    /// Prefetches a node that will be read soon.
    #[inline]
    pub(super) fn prefetch(link: *mut Header) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch is a hint and is valid for any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(link.cast());
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = link;
    }

    /// The sequence of the batch that wrote the version.
    #[inline]
    pub(in crate::disk::logtree) fn seq(self) -> u64 {
        self.header().seq
    }

    #[inline]
    pub(in crate::disk::logtree) fn key(self) -> &'g [u8] {
        let len = self.header().key_len as usize;
        // SAFETY: `write` put the key's bytes after the header, in the same piece.
        unsafe { NonNull::slice_from_raw_parts(self.at.add(1).cast::<u8>(), len).as_ref() }
    }

    #[inline]
    fn value_at(self) -> NonNull<u8> {
        let key_len = self.header().key_len as usize;
        // SAFETY: the piece continues after the key, or ends there.
        unsafe { self.at.add(1).cast::<u8>().add(key_len) }
    }

    fn handle(self) -> &'g Bytes {
        // SAFETY: called only where the header says that a handle was written after the key; the
        // arena keeps what it points to.
        unsafe { &*self.value_at().cast::<*const Bytes>().read_unaligned() }
    }

    /// Whether the version is a deletion.
    #[inline]
    pub(in crate::disk::logtree) fn is_deleted(self) -> bool {
        self.header().value & DELETED != 0
    }

    /// The value; empty for a deleted key.
    #[inline]
    pub(in crate::disk::logtree) fn value(self) -> &'g [u8] {
        let value = self.header().value;
        if value & HANDLE != 0 {
            return self.handle();
        }
        let len = (value & LEN_MASK) as usize;
        // SAFETY: `write` put this many bytes after the key, none for a deleted one.
        unsafe { NonNull::slice_from_raw_parts(self.value_at(), len).as_ref() }
    }

    /// An owned value that does not point to the node: a small value is copied, a large one shares
    /// its handle.
    pub(in crate::disk::logtree) fn value_bytes(self) -> Bytes {
        if self.header().value & HANDLE != 0 {
            return self.handle().clone();
        }
        Bytes::copy_from_slice(self.value())
    }

    /// The value's length; `None` for a deleted key.
    #[inline]
    pub(in crate::disk::logtree) fn value_len(self) -> Option<usize> {
        (!self.is_deleted()).then(|| self.value().len())
    }

    #[inline]
    pub(in crate::disk::logtree) fn compare_key(self, head: u64, key: &[u8]) -> Compared {
        match self.head().cmp(&head) {
            Compared::Equal => self.key().cmp(key),
            unequal => unequal,
        }
    }

    #[inline]
    pub(in crate::disk::logtree) fn compare_node_key(self, other: NodeRef<'_>) -> Compared {
        self.compare_key(other.head(), other.key())
    }

    #[inline]
    pub(in crate::disk::logtree) fn same_key(self, other: NodeRef<'_>) -> bool {
        self.head() == other.head() && self.key() == other.key()
    }

    /// Whether the node orders before (`key`, `seq`): keys ascend, and the versions of one key
    /// descend by sequence.
    #[inline]
    pub(super) fn is_before(self, head: u64, key: &[u8], seq: u64) -> bool {
        match self.compare_key(head, key) {
            Compared::Less => true,
            Compared::Equal => self.seq() > seq,
            Compared::Greater => false,
        }
    }
}
