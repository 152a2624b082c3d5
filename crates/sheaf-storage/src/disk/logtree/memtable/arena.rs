//! Bump allocation in chunks, all freed at once with the generation.
//!
//! ```text
//!   thread ──> its shard ──> chunk 4K ─ 8K ─ ... ─ 256K │ free
//!   thread ──> its shard ──> chunk ...                    ^ the next piece
//!                        └─> large values, held by handle
//! ```
//!
//! A writer locks a shard for the duration of one batch. The shard depends on the writer's thread,
//! so writers seldom contend; a writer that finds its shard locked tries the others first. Within a
//! shard an allocation is one addition.
//!
//! Invariant: a piece stays at its address, and belongs to one owner, until the arena is dropped.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::disk::logtree::budget::{MemoryBudget, MemoryKind};

/// The alignment of every piece.
pub(super) const ALIGN: usize = 16;

const SHARDS: usize = 16;
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// See the module's head.
pub(super) struct Arena {
    shards: [Mutex<Shard>; SHARDS],
    /// Bytes held, charged here and in the engine's budget.
    bytes: AtomicU64,
    budget: Arc<MemoryBudget>,
}

#[derive(Default)]
struct Shard {
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// The unused end of the newest ordinary chunk.
    free: Option<NonNull<u8>>,
    left: usize,
    chunk_bytes: usize,
    large: Vec<NonNull<Bytes>>,
}

// SAFETY: the pointers own what they point to: chunks, and boxes of `Bytes`, which is `Send`. They
// are used under the shard's lock and when the arena is dropped; the holder of a piece is
// responsible for its use.
unsafe impl Send for Shard {}

/// A number of the calling thread, for spreading threads over shards.
pub(in crate::disk::logtree) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Arena {
    pub(super) fn new(budget: Arc<MemoryBudget>) -> Arena {
        Arena {
            shards: Default::default(),
            bytes: AtomicU64::new(0),
            budget,
        }
    }

    /// Memory held, in bytes: whole chunks, and the large values.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Charges memory that is held outside the chunks.
    pub(super) fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.charge(MemoryKind::Generations, bytes);
    }

    /// Locks a shard to allocate from, until the result is dropped.
    pub(super) fn room(&self) -> Room<'_> {
        let own = thread_number();
        let free = (0..SHARDS).find_map(|at| self.shards[(own + at) % SHARDS].try_lock());
        let shard = free.unwrap_or_else(|| self.shards[own % SHARDS].lock());
        Room { shard, arena: self }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.budget
            .release(MemoryKind::Generations, *self.bytes.get_mut());
        for shard in &mut self.shards {
            let shard = shard.get_mut();
            for large in shard.large.drain(..) {
                // SAFETY: created by `Box::leak` in `keep`, and dropped only here.
                drop(unsafe { Box::from_raw(large.as_ptr()) });
            }
            for (chunk, layout) in shard.chunks.drain(..) {
                // SAFETY: allocated in `chunk` with this layout, and freed here only.
                unsafe { dealloc(chunk.as_ptr(), layout) };
            }
        }
    }
}

/// A locked shard.
pub(super) struct Room<'a> {
    shard: MutexGuard<'a, Shard>,
    arena: &'a Arena,
}

impl Room<'_> {
    /// Uninitialised memory of at least one byte, aligned to [`ALIGN`].
    pub(super) fn piece(&mut self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        let shard = &mut *self.shard;
        if let Some(free) = shard.free
            && bytes <= shard.left
        {
            shard.left -= bytes;
            // SAFETY: `left` bytes follow `free` in the same chunk, and `bytes` is no more than
            // they were.
            shard.free = Some(unsafe { free.add(bytes) });
            return free;
        }
        if bytes > CHUNK_BYTES_MAX / 4 {
            // Use a dedicated chunk: enough of the current one is left to keep it.
            return self.chunk(bytes);
        }
        let chunk_bytes = (shard.chunk_bytes * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        let chunk_bytes = chunk_bytes.max(bytes);
        shard.chunk_bytes = chunk_bytes;
        let chunk = self.chunk(chunk_bytes);
        self.shard.left = chunk_bytes - bytes;
        // SAFETY: the chunk is at least `bytes` long.
        self.shard.free = Some(unsafe { chunk.add(bytes) });
        chunk
    }

    /// Holds a value that is too large to be copied.
    pub(super) fn keep(&mut self, value: Bytes) -> NonNull<Bytes> {
        self.arena.count(value.len() as u64 + 64);
        let large = NonNull::from(Box::leak(Box::new(value)));
        self.shard.large.push(large);
        large
    }

    fn chunk(&mut self, bytes: usize) -> NonNull<u8> {
        let Ok(layout) = Layout::from_size_align(bytes, ALIGN) else {
            // Keys are limited far below half of the address space.
            unreachable!("a chunk of {bytes} bytes");
        };
        // SAFETY: `bytes` is not 0.
        let chunk = unsafe { alloc(layout) };
        let Some(chunk) = NonNull::new(chunk) else {
            handle_alloc_error(layout);
        };
        self.arena.count(bytes as u64);
        self.shard.chunks.push((chunk, layout));
        chunk
    }
}
