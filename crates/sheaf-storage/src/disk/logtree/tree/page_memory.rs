//! Memory for pages: whole granules from the operating system, returned to it individually.
//!
//! ```text
//!   chunk, mapped         | piece | piece | piece | ...           of one length each
//!   a piece is dropped ───> warm: the next piece of its length reuses it
//!                      └──> beyond the limit: cold, memory returned to the system, address kept
//! ```
//!
//! Heap memory does not work here: a cache that evicts thousands of pages for a value of 16 MB
//! frees blocks between others, and the allocator does not return these to the system. The budget
//! counts only memory in use, so resident memory would exceed it by half.
//!
//! Invariant: a piece is with its holder or in one list, never in two places.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use super::pointer::GRANULE;

const PIECE: usize = GRANULE as usize;
/// Longer pieces come from the heap, which returns blocks of that length to the system by itself.
const GRANULES_MAX: usize = 32;
const CHUNK: usize = 1 << 20;
/// Maximum bytes of one length that are kept warm; at least one piece is.
const WARM_BYTES: usize = 128 << 10;
const WARM_MAX: usize = 32;

/// See the module's head.
pub(super) struct PageMemory {
    /// Indexed by granules minus one.
    by_length: [Mutex<Pieces>; GRANULES_MAX],
}

/// The unused pieces of one length.
#[derive(Default)]
struct Pieces {
    warm: Vec<NonNull<u8>>,
    cold: Vec<NonNull<u8>>,
    chunks: Vec<NonNull<u8>>,
}

// SAFETY: no thread owns the memory at these addresses; a thread that removes one from a list owns
// it exclusively.
unsafe impl Send for Pieces {}

/// Bytes of a page or a large value.
pub(super) enum PageBuf {
    Piece(Piece),
    Heap(Vec<u8>),
}

/// A piece of a [`PageMemory`].
pub(super) struct Piece {
    start: NonNull<u8>,
    len: usize,
    granules: usize,
    home: Arc<PageMemory>,
}

// SAFETY: a piece owns its memory as a `Vec<u8>` does, and lends it by the same rules.
unsafe impl Send for Piece {}
// SAFETY: as for `Send`.
unsafe impl Sync for Piece {}

impl Default for PageMemory {
    fn default() -> PageMemory {
        PageMemory {
            by_length: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl PageMemory {
    /// A buffer of `len` bytes, which are zeros or remains of another page.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> PageBuf {
        let granules = len.div_ceil(PIECE).max(1);
        let start = match self.by_length.get(granules - 1) {
            Some(pieces) => pieces.lock().take(granules * PIECE),
            None => None,
        };
        match start {
            Some(start) => PageBuf::Piece(Piece {
                start,
                len,
                granules,
                home: self.clone(),
            }),
            None => PageBuf::Heap(vec![0; len]),
        }
    }

    /// The number of warm and of cold pieces with this number of granules.
    #[cfg(test)]
    pub(super) fn kept(&self, granules: usize) -> (usize, usize) {
        let pieces = self.by_length[granules - 1].lock();
        (pieces.warm.len(), pieces.cold.len())
    }
}

impl Pieces {
    fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        if let Some(start) = self.warm.pop().or_else(|| self.cold.pop()) {
            return Some(start);
        }
        let chunk = map_chunk()?;
        self.chunks.push(chunk);
        for at in (0..CHUNK / bytes).rev() {
            // SAFETY: inside the chunk.
            self.cold.push(unsafe { chunk.add(at * bytes) });
        }
        self.cold.pop()
    }

    fn put_back(&mut self, start: NonNull<u8>, bytes: usize) {
        if self.warm.len() < (WARM_BYTES / bytes).clamp(1, WARM_MAX) {
            self.warm.push(start);
            return;
        }
        empty(start, bytes);
        self.cold.push(start);
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        for pieces in &mut self.by_length {
            for chunk in pieces.get_mut().chunks.drain(..) {
                // SAFETY: mapped by `map_chunk` with this length; every holder of a piece of it
                // held `self` too.
                unsafe { libc::munmap(chunk.as_ptr().cast(), CHUNK) };
            }
        }
    }
}

/// Zeroed memory from the system; `None` if it is out of memory.
fn map_chunk() -> Option<NonNull<u8>> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping, of no file.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), CHUNK, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the mapping just made. A huge page would undo the return of single granules; a system
    // without them returns an error, which is ignored.
    unsafe {
        libc::madvise(start, CHUNK, libc::MADV_NOHUGEPAGE)
    };
    NonNull::new(start.cast())
}

/// Returns the memory of a piece to the system; its bytes become zeros. If the system's pages are
/// larger than a granule the call fails, and the piece stays as it is.
fn empty(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the caller owns the piece exclusively, and does not need its bytes.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED)
    };
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (start, bytes);
}

impl PageBuf {
    /// Size of the memory in bytes.
    pub(super) fn capacity(&self) -> usize {
        match self {
            PageBuf::Piece(piece) => piece.granules * PIECE,
            PageBuf::Heap(bytes) => bytes.capacity(),
        }
    }

    /// Shortens the buffer to `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            PageBuf::Piece(piece) => piece.len = piece.len.min(len),
            PageBuf::Heap(bytes) => bytes.truncate(len),
        }
    }
}

impl Deref for PageBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            // SAFETY: the piece has that many initialised bytes, and is lent as it is borrowed.
            PageBuf::Piece(piece) => unsafe {
                std::slice::from_raw_parts(piece.start.as_ptr(), piece.len)
            },
            PageBuf::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as in `deref`; the piece is owned exclusively.
            PageBuf::Piece(piece) => unsafe {
                std::slice::from_raw_parts_mut(piece.start.as_ptr(), piece.len)
            },
            PageBuf::Heap(bytes) => bytes,
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut pieces = self.home.by_length[self.granules - 1].lock();
        pieces.put_back(self.start, self.granules * PIECE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_reused_and_exclusive() {
        let memory = Arc::new(PageMemory::default());
        let mut held: Vec<PageBuf> = (0..300).map(|_| memory.take(5000)).collect();
        for (n, piece) in held.iter_mut().enumerate() {
            assert_eq!((piece.len(), piece.capacity()), (5000, 8192));
            // Only write to both ends, because Miri is slow.
            (piece[0], piece[4999]) = (n as u8, !n as u8);
        }
        for (n, piece) in held.iter().enumerate() {
            assert_eq!((piece[0], piece[4999]), (n as u8, !n as u8));
        }
        drop(held);
        // All pieces of three chunks are unused again.
        assert_eq!(memory.kept(2), (16, 3 * 128 - 16));
        let again: Vec<PageBuf> = (0..300).map(|_| memory.take(8192)).collect();
        assert_eq!(memory.kept(2), (0, 3 * 128 - 300));
        let thread = std::thread::spawn(move || drop(again));
        thread.join().unwrap();
        assert_eq!(memory.kept(2), (16, 3 * 128 - 16));
    }

    #[test]
    fn long_pieces_come_from_the_heap() {
        let memory = Arc::new(PageMemory::default());
        let mut bytes = memory.take(GRANULES_MAX * PIECE);
        assert!(matches!(bytes, PageBuf::Piece(_)));
        bytes.truncate(7);
        assert_eq!(bytes.len(), 7);
        let bytes = memory.take(GRANULES_MAX * PIECE + 1);
        assert!(matches!(&bytes, PageBuf::Heap(bytes) if bytes.iter().all(|byte| *byte == 0)));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn cold_pieces_are_returned_to_the_system() {
        let memory = Arc::new(PageMemory::default());
        let mut held: Vec<PageBuf> = (0..100).map(|_| memory.take(4096)).collect();
        held.iter_mut().for_each(|piece| piece.fill(1));
        drop(held);
        let resident = |start: NonNull<u8>| {
            let mut state = [0_u8; 1];
            // SAFETY: of one page of a mapping; one byte is written.
            let done = unsafe { libc::mincore(start.as_ptr().cast(), 4096, state.as_mut_ptr()) };
            assert_eq!(done, 0);
            state[0] & 1 == 1
        };
        let pieces = memory.by_length[0].lock();
        let count = |list: &[NonNull<u8>]| list.iter().filter(|start| resident(**start)).count();
        assert_eq!((count(&pieces.warm), count(&pieces.cold)), (32, 0));
    }
}
