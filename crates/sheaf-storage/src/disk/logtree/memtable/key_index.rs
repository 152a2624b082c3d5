//! Hash index of the newest version of each key, so that a look-up need not search the list.
//!
//! ```text
//!   hash of (table, key) ──> slot ─ slot ─ slot ─ empty
//!                             │      └─ another key that wanted the same slot
//!                             └─ the newest version of a key; older ones follow in the list
//! ```
//!
//! Slots with linear probing, sized for a full generation. When three in four slots are taken the
//! index accepts no new keys; a key that is then not found must be searched for in the list.
//!
//! Invariant: a slot that has been taken always belongs to the same key.

use super::node::{Header, NodeRef, head_of};
use crate::disk::logtree::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Bytes of a full generation for each slot.
const BYTES_PER_SLOT: u64 = 128;
/// Minimum number of slots.
const SLOTS_MIN: u64 = if cfg!(explore) { 4 } else { 16 };

/// See the module's head.
pub(super) struct KeyIndex {
    slots: Slots,
    /// Number of slots, which is a power of two, minus one.
    mask: u64,
    taken: AtomicU64,
    /// Whether every key has a slot.
    complete: AtomicBool,
}

/// The result of looking up a key.
pub(super) enum Known<'g> {
    /// The newest version.
    At(NodeRef<'g>),
    /// The generation has no version.
    Absent,
    /// The index does not decide: search the list.
    Unknown,
}

impl KeyIndex {
    /// An empty index for a generation of `expected_bytes`.
    pub(super) fn new(expected_bytes: u64) -> KeyIndex {
        let slots = (expected_bytes / BYTES_PER_SLOT)
            .clamp(SLOTS_MIN, 1 << 26)
            .next_power_of_two();
        KeyIndex {
            slots: Slots::new(slots),
            mask: slots - 1,
            taken: AtomicU64::new(0),
            complete: AtomicBool::new(true),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.mask + 1) * size_of::<AtomicPtr<Header>>() as u64
    }

    fn slot(&self, at: u64) -> &AtomicPtr<Header> {
        self.slots.at((at & self.mask) as usize)
    }

    /// Enters a version that is in list number `list`, unless a newer version of its key is
    /// entered. Returns whether it took a slot; the caller adds that to the count soon
    /// ([`KeyIndex::count`]).
    ///
    /// # Safety
    /// The node's arena lives as long as the index is used.
    pub(super) unsafe fn enter(&self, hash: u64, list: u32, node: NodeRef<'_>) -> bool {
        let room = self.taken.load(Ordering::Relaxed) < (self.mask + 1) / 4 * 3;
        let mut at = hash;
        let end = hash.wrapping_add(self.mask);
        let mut found = self.slot(at).load(Ordering::Acquire);
        loop {
            // SAFETY: slots lead to nodes that `enter` was given, whose arenas live.
            match unsafe { NodeRef::from_link(found) } {
                None if !room => {
                    self.complete.store(false, Ordering::Release);
                    return false;
                }
                Some(other) if other.list() != list || !other.same_key(node) => {
                    if at == end {
                        // Writers whose slots are not counted yet have taken the rest.
                        self.complete.store(false, Ordering::Release);
                        return false;
                    }
                    at = at.wrapping_add(1);
                    found = self.slot(at).load(Ordering::Acquire);
                    continue;
                }
                Some(other) if other.seq() > node.seq() => return false,
                _ => {}
            }
            let entered = self.slot(at).compare_exchange(
                found,
                node.as_link(),
                Ordering::Release,
                Ordering::Acquire,
            );
            match entered {
                Ok(before) => return before.is_null(),
                Err(now) => found = now,
            }
        }
    }

    /// Adds to the number of slots taken.
    pub(super) fn count(&self, taken: u64) {
        self.taken.fetch_add(taken, Ordering::Relaxed);
    }

    /// Looks up a key of list number `list`.
    pub(super) fn get(&self, hash: u64, list: u32, key: &[u8]) -> Known<'_> {
        let head = head_of(key);
        // Probing ends at an empty slot; as a rule there are some.
        for step in 0..=self.mask {
            let slot = self.slot(hash.wrapping_add(step));
            // SAFETY: as in `enter`, for as long as the index is borrowed.
            match unsafe { NodeRef::from_link(slot.load(Ordering::Acquire)) } {
                None if self.complete.load(Ordering::Acquire) => return Known::Absent,
                None => return Known::Unknown,
                Some(node) if node.list() == list && node.compare_key(head, key).is_eq() => {
                    return Known::At(node);
                }
                Some(_) => {}
            }
        }
        Known::Unknown
    }
}

#[cfg(not(explore))]
mod slots {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    use super::{AtomicPtr, Header};

    /// Memory that the system zeroes page by page, on first touch.
    pub(super) struct Slots {
        memory: NonNull<AtomicPtr<Header>>,
        count: usize,
    }

    // SAFETY: owned memory of atomics, freed once; the nodes that they lead to are shared between
    // threads anyway.
    unsafe impl Send for Slots {}
    // SAFETY: as above.
    unsafe impl Sync for Slots {}

    impl Slots {
        pub(super) fn new(count: u64) -> Slots {
            let count = count as usize;
            let layout = Slots::layout(count);
            // SAFETY: the size is not 0. Zeroed memory is a valid null `AtomicPtr`.
            let memory = unsafe { alloc_zeroed(layout) };
            let Some(memory) = NonNull::new(memory) else {
                handle_alloc_error(layout);
            };
            Slots {
                memory: memory.cast(),
                count,
            }
        }

        fn layout(count: usize) -> Layout {
            match Layout::array::<AtomicPtr<Header>>(count) {
                Ok(layout) => layout,
                Err(_) => unreachable!("at most 2^26 slots"),
            }
        }

        #[inline]
        pub(super) fn at(&self, at: usize) -> &AtomicPtr<Header> {
            debug_assert!(at < self.count);
            // SAFETY: there are `count` slots, a power of two, and the index masks positions with
            // `count - 1`.
            unsafe { self.memory.add(at).as_ref() }
        }
    }

    impl Drop for Slots {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with the same layout.
            unsafe { dealloc(self.memory.as_ptr().cast(), Slots::layout(self.count)) };
        }
    }
}

/// The model checker's atomics are not plain memory.
#[cfg(explore)]
mod slots {
    use super::{AtomicPtr, Header};

    pub(super) struct Slots(Vec<AtomicPtr<Header>>);

    impl Slots {
        pub(super) fn new(count: u64) -> Slots {
            let empty = |_| AtomicPtr::new(std::ptr::null_mut());
            Slots((0..count).map(empty).collect())
        }

        pub(super) fn at(&self, at: usize) -> &AtomicPtr<Header> {
            &self.0[at]
        }
    }
}

use self::slots::Slots;
