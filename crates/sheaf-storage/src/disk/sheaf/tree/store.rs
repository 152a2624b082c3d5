//! The file under a tree, and the one way in which pages are read from it.
//!
//! ```text
//!   PagePtr ──> read ──┬── mapped: the page where it lies; checked once, a bit remembers it
//!                      └── cached: from the page cache, else read, checked, unpacked, kept
//! ```
//!
//! Whoever reads gets a [`PageRef`] and does not see which way it came. Packed pages take the second
//! way in a mapped file too.
//!
//! Invariant: a page is handed out only if its checksum, its birth and its level are those that the
//! pointer to it says, and its [`Shape`] was checked.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::PageReading;
use super::cache::{self, CachedPage, PageCache};
use super::page::{self, Header, Shape};
use super::pointer::{ExtentPtr, FIRST_GRANULE, GRANULE, PagePtr, Run, granules};
use super::space::Space;
use crate::disk::sheaf::budget::{Charge, MemoryBudget, MemoryKind};
use crate::disk::sheaf::files::{File, Map};
use crate::error::{Result, StorageError};

/// The most bytes of a value.
pub const VALUE_MAX: usize = 64 << 20;
/// The most bytes of a key.
pub const KEY_MAX: usize = 20 << 20;
/// A value from this length on is lent from the page rather than copied.
const LEND_MIN: usize = 64 << 10;

/// Numbers that count up while the file is open.
#[derive(Default)]
pub(super) struct Counters {
    pub pages_read: AtomicU64,
    pub bytes_read: AtomicU64,
    pub hits: AtomicU64,
    pub bytes_written: AtomicU64,
    pub pages_written: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub commits: AtomicU64,
    pub relocated: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// An open tree file.
pub(super) struct Store {
    pub file: Arc<dyn File>,
    /// The file's name in messages.
    pub name: String,
    pub budget: Arc<MemoryBudget>,
    pub cache: Arc<PageCache>,
    pub space: Mutex<Space>,
    pub counters: Counters,
    /// Length of the file in bytes, as last set or extended by a write.
    pub len: AtomicU64,
    reading: PageReading,
    unmappable: AtomicBool,
    /// Whether the newest roots read from a map.
    is_mapped: AtomicBool,
    map: RwLock<Option<Arc<Mapping>>>,
    checked: CheckedBits,
    /// The first write or sync that failed.
    failed: Mutex<Option<String>>,
}

impl Store {
    pub(super) fn new(
        file: Arc<dyn File>,
        name: String,
        len: u64,
        budget: Arc<MemoryBudget>,
        reading: PageReading,
        space: Space,
    ) -> Store {
        Store {
            file,
            name,
            cache: PageCache::new(&budget),
            budget,
            space: Mutex::new(space),
            counters: Counters::default(),
            len: AtomicU64::new(len),
            reading,
            unmappable: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            map: RwLock::new(None),
            checked: CheckedBits::default(),
            failed: Mutex::new(None),
        }
    }

    pub(super) fn corrupt(&self, offset: u64, detail: impl fmt::Display) -> StorageError {
        StorageError::Corrupt {
            file: self.name.clone(),
            detail: format!("at offset {offset}: {detail}"),
        }
    }

    /// Refuses when a write or a sync has failed before.
    pub(super) fn check_writable(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(why) => Err(StorageError::ReadOnly { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// What an error of a write or sync becomes. A full disk leaves the file as it was; after anything
    /// else, and after any failed sync (`fatal`), what the disk holds is not known, so nothing is
    /// written any more.
    fn write_failed(&self, context: &str, error: &io::Error, fatal: bool) -> StorageError {
        let context = format!("{context} {}", self.name);
        let error = StorageError::io(context, error);
        if fatal || !matches!(error, StorageError::NoSpace { .. }) {
            self.failed.lock().get_or_insert_with(|| error.to_string());
        }
        error
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, data.len() as u64);
        let written = self.file.write_at(offset, data);
        // Also after a failure: part of it may have been written.
        self.len
            .fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        written.map_err(|error| self.write_failed("write to", &error, false))
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.syncs, 1);
        let synced = self.file.sync();
        synced.map_err(|error| self.write_failed("sync", &error, true))
    }

    /// Writes what must not fail halfway: a superblock.
    pub(super) fn write_superblock(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        count(&self.counters.bytes_written, data.len() as u64);
        let written = self.file.write_at(offset, data);
        written.map_err(|error| self.write_failed("write to", &error, true))
    }

    /// Cuts off the end of the file that nobody uses, when that is at least one part in `parts` of it.
    pub(super) fn cut(&self, parts: u64) -> Result<()> {
        self.check_writable()?;
        let end = self.space.lock().end() * GRANULE;
        let len = self.len.load(Ordering::Relaxed);
        if len <= end || (len - end).saturating_mul(parts) < len {
            return Ok(());
        }
        let cut = self.file.set_len(end);
        cut.map_err(|error| self.write_failed("shorten", &error, false))?;
        self.len.store(end, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        if offset + len as u64 > self.len.load(Ordering::Relaxed) {
            return Err(self.corrupt(offset, "a pointer leads beyond the file's end"));
        }
        let mut bytes = self.cache.spare.take(len);
        bytes.resize(len, 0);
        count(&self.counters.pages_read, 1);
        count(&self.counters.bytes_read, len as u64);
        self.file
            .read_at(offset, &mut bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.corrupt(offset, "the file ends too early"),
                _ => StorageError::io(format!("read {} at offset {offset}", self.name), &error),
            })?;
        Ok(bytes)
    }

    /// The granules of a run as they lie in the file, the last one perhaps in part.
    pub(super) fn read_run(&self, run: Run) -> Result<Vec<u8>> {
        let offset = run.start.saturating_mul(GRANULE);
        let left = self.len.load(Ordering::Relaxed).saturating_sub(offset);
        let len = (run.len * GRANULE).min(left);
        self.read_at(offset, len as usize)
    }

    /// A mapping of at least the first `granules` of the file; `None` when the file is not to be
    /// mapped, or cannot be.
    pub(super) fn map(&self, granules: u64) -> Option<Arc<Mapping>> {
        let need = granules * GRANULE;
        let mapped = self.wants_map(need).then(|| self.mapped(need)).flatten();
        self.is_mapped.store(mapped.is_some(), Ordering::Relaxed);
        if mapped.is_none() {
            // Older roots may still read from it; then it goes with the last of them.
            *self.map.write() = None;
        }
        mapped
    }

    fn mapped(&self, need: u64) -> Option<Arc<Mapping>> {
        let fits = |map: &&Arc<Mapping>| map.map.len() as u64 >= need;
        let mut current = self.map.write();
        if let Some(mapping) = current.as_ref().filter(fits) {
            mapping.charge.lock().set(need);
            return Some(mapping.clone());
        }
        // Addresses are cheap: with room to grow, the file is mapped anew only a few times.
        let len = (need * 2).next_power_of_two().max(1 << 30);
        match self.file.map(0, len) {
            Ok(Some(map)) => {
                // Two maps of one file share its pages: what the new one counts the old one does not.
                if let Some(before) = current.take() {
                    before.charge.lock().set(0);
                }
                let charge = Charge::new(&self.budget, MemoryKind::Mapped, need);
                let mapping = Arc::new(Mapping {
                    map,
                    charge: Mutex::new(charge),
                });
                *current = Some(mapping.clone());
                Some(mapping)
            }
            // A limit on addresses, say. The cache serves as well.
            Ok(None) | Err(_) => {
                self.unmappable.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// Forgets what was known of granules that are about to be written.
    pub(super) fn forget(&self, run: Run) {
        self.checked.clear(run);
    }

    /// The page that `ptr` points to, which must be of this level and lie before `end`.
    #[inline]
    pub(super) fn page(&self, ptr: PagePtr, level: u8, within: &Within) -> Result<PageRef> {
        if ptr.granule < FIRST_GRANULE
            || ptr.granules == 0
            || ptr.granule + u64::from(ptr.granules) > within.end
        {
            return Err(self.corrupt(ptr.granule * GRANULE, "a pointer leads outside the file"));
        }
        if let Some(map) = &within.map
            && self.checked.get(ptr.granule)
        {
            // SAFETY: the map covers `within.end` granules, as do the file and what it may be cut to
            // while the roots that `within` belongs to are pinned.
            let bytes = unsafe { mapped(map, ptr.run()) };
            prefetch(bytes, 0, EARLY);
            if let Some(header) = Header::read(bytes)
                && header.crc == ptr.crc
                && header.birth == ptr.birth
                && header.level == level
                && header.stored <= bytes.len()
            {
                let shape = Shape::of(&header);
                prefetch(bytes, EARLY, shape.searched().min(LATE_MAX));
                count_hit(&self.counters);
                return Ok(PageRef {
                    start: bytes.as_ptr(),
                    len: header.stored,
                    shape,
                    hold: None,
                });
            }
        }
        self.page_unchecked(ptr, level, within, true)
    }

    /// As [`Store::page`], for a pass that reads every page once: what is not in memory is read and
    /// not kept.
    pub(super) fn page_once(&self, ptr: PagePtr, level: u8, within: &Within) -> Result<PageRef> {
        if within.map.is_some() {
            return self.page(ptr, level, within);
        }
        if ptr.granule < FIRST_GRANULE
            || ptr.granules == 0
            || ptr.granule + u64::from(ptr.granules) > within.end
        {
            return Err(self.corrupt(ptr.granule * GRANULE, "a pointer leads outside the file"));
        }
        self.page_unchecked(ptr, level, within, false)
    }

    #[cold]
    #[inline(never)]
    fn not_as_pointed(&self, ptr: PagePtr) -> StorageError {
        self.corrupt(
            ptr.granule * GRANULE,
            "another page lies where the pointer leads",
        )
    }

    #[inline(never)]
    fn page_unchecked(
        &self,
        ptr: PagePtr,
        level: u8,
        within: &Within,
        keep: bool,
    ) -> Result<PageRef> {
        if let Some(page) = self.cache.get(ptr.granule, ptr.birth, ptr.crc) {
            if page.shape.level != level || page.shape.count == 0 {
                return Err(self.not_as_pointed(ptr));
            }
            prefetch(&page.bytes, 0, page.shape.searched().min(LATE_MAX));
            count_hit(&self.counters);
            return Ok(PageRef::held(page));
        }
        let offset = ptr.granule * GRANULE;
        let damaged = |detail: &str| self.corrupt(offset, detail);
        let check = |bytes: &[u8]| {
            let header = page::check_stored(bytes).map_err(damaged)?;
            if header.crc != ptr.crc || header.birth != ptr.birth || header.level != level {
                return Err(self.not_as_pointed(ptr));
            }
            Ok(header)
        };
        let mut charge = None;
        let bytes = if let Some(map) = &within.map {
            // SAFETY: as in `page`.
            let bytes = unsafe { mapped(map, ptr.run()) };
            let header = check(bytes)?;
            count(&self.counters.pages_read, 1);
            count(&self.counters.bytes_read, header.stored as u64);
            if !header.lz4 {
                let bytes = &bytes[..header.stored];
                let shape = Shape::check(bytes, &header).map_err(damaged)?;
                self.checked.set(ptr.granule);
                return Ok(PageRef {
                    start: bytes.as_ptr(),
                    len: bytes.len(),
                    shape,
                    hold: None,
                });
            }
            std::borrow::Cow::Borrowed(bytes)
        } else {
            charge = Some(cache::charge(
                &self.budget,
                (ptr.run().len * GRANULE) as usize,
            ));
            std::borrow::Cow::Owned(self.read_run(ptr.run())?)
        };
        let header = check(&bytes)?;
        let image = match bytes {
            std::borrow::Cow::Owned(mut bytes) if !header.lz4 => {
                bytes.truncate(header.stored);
                bytes
            }
            bytes => page::unpack(&bytes, &header).map_err(damaged)?,
        };
        let shape = Shape::check(&image, &header).map_err(damaged)?;
        let charge = charge.unwrap_or_else(|| cache::charge(&self.budget, image.len()));
        let page = self.page_of(image, shape, ptr.birth, ptr.crc, charge);
        if keep {
            self.cache.insert(ptr.granule, &page);
        }
        Ok(PageRef::held(page))
    }

    /// Checks once more what may have been checked long ago: a page as it lies in the mapped file. A
    /// page that came from the cache is read again from the file.
    pub(super) fn recheck(&self, page: &PageRef, ptr: PagePtr) -> Result<()> {
        let offset = ptr.granule * GRANULE;
        let read;
        let stored = match page.hold {
            None => page.bytes(),
            Some(_) => {
                read = self.read_run(ptr.run())?;
                &read[..]
            }
        };
        let header = page::check_stored(stored).map_err(|detail| self.corrupt(offset, detail))?;
        if header.crc != ptr.crc {
            return Err(self.not_as_pointed(ptr));
        }
        Ok(())
    }

    /// As [`Store::recheck`], for a large value.
    pub(super) fn recheck_extent(&self, value: &PageRef, ptr: ExtentPtr) -> Result<()> {
        let offset = ptr.granule * GRANULE;
        let read;
        let stored = match value.hold {
            None => value.bytes(),
            Some(_) => {
                read = self.read_at(offset, ptr.stored as usize)?;
                &read[..]
            }
        };
        if crc32c::crc32c(stored) != ptr.crc {
            return Err(self.corrupt(offset, "the checksum of a value is wrong"));
        }
        Ok(())
    }

    /// Whether the page is in the cache.
    pub(super) fn is_cached(&self, ptr: PagePtr) -> bool {
        self.cache.get(ptr.granule, ptr.birth, ptr.crc).is_some()
    }

    /// The large value that `ptr` points to.
    pub(super) fn extent(&self, ptr: ExtentPtr, within: &Within, keep: bool) -> Result<PageRef> {
        let run = ptr.run();
        let (stored, raw) = (ptr.stored as usize, ptr.raw as usize);
        let offset = ptr.granule * GRANULE;
        if run.start < FIRST_GRANULE || run.len == 0 || run.end() > within.end {
            return Err(self.corrupt(offset, "a pointer to a value leads outside the file"));
        }
        if stored > raw || raw > VALUE_MAX {
            return Err(self.corrupt(offset, "the length of a value is wrong"));
        }
        if stored == raw
            && let Some(map) = &within.map
        {
            // SAFETY: as in `page`.
            let bytes = unsafe { &mapped(map, run)[..stored] };
            if !self.checked.get(ptr.granule) {
                if crc32c::crc32c(bytes) != ptr.crc {
                    return Err(self.corrupt(offset, "the checksum of a value is wrong"));
                }
                count(&self.counters.pages_read, 1);
                count(&self.counters.bytes_read, stored as u64);
                self.checked.set(ptr.granule);
            }
            return Ok(PageRef {
                start: bytes.as_ptr(),
                len: stored,
                shape: Shape::default(),
                hold: None,
            });
        }
        if let Some(page) = self.cache.get(ptr.granule, ptr.birth, ptr.crc)
            && page.bytes.len() == raw
        {
            count_hit(&self.counters);
            return Ok(PageRef::held(page));
        }
        // Packed and unpacked, for a moment.
        let both = raw + if stored < raw { stored } else { 0 };
        let charge = cache::charge(&self.budget, both);
        let mut bytes = self.read_at(offset, stored)?;
        if crc32c::crc32c(&bytes) != ptr.crc {
            return Err(self.corrupt(offset, "the checksum of a value is wrong"));
        }
        if stored < raw {
            let mut value = vec![0; raw];
            match lz4_flex::block::decompress_into(&bytes, &mut value) {
                Ok(len) if len == raw => bytes = value,
                _ => return Err(self.corrupt(offset, "a value does not unpack")),
            }
        }
        let page = self.page_of(bytes, Shape::default(), ptr.birth, ptr.crc, charge);
        if keep {
            self.cache.insert(ptr.granule, &page);
        }
        Ok(PageRef::held(page))
    }

    fn page_of(
        &self,
        bytes: Vec<u8>,
        shape: Shape,
        birth: u32,
        crc: u32,
        charge: Charge,
    ) -> Arc<CachedPage> {
        CachedPage::new(bytes, shape, birth, crc, charge, &self.cache.spare)
    }

    /// A copy of a page's image, for [`Store::keep_written`].
    pub(super) fn copied(&self, image: &[u8]) -> Vec<u8> {
        let mut copy = self.cache.spare.take(image.len());
        copy.extend_from_slice(image);
        copy
    }

    /// Puts a page that was just written into the cache.
    pub(super) fn keep_written(&self, ptr: PagePtr, image: Vec<u8>) {
        let Some(header) = Header::read(&image) else {
            return;
        };
        let shape = Shape::of(&header);
        let charge = cache::charge(&self.budget, image.len());
        let page = self.page_of(image, shape, ptr.birth, ptr.crc, charge);
        self.cache.insert(ptr.granule, &page);
    }

    /// Whether a file of `len` bytes is to be mapped.
    fn wants_map(&self, len: u64) -> bool {
        let wanted = match self.reading {
            // What is mapped cannot be evicted: half of the budget stays for what else there is, and all of it
            // must fit beside what there is now. Pages in the cache give way.
            PageReading::Auto => {
                let budget = &self.budget;
                let aside = budget.used_for(MemoryKind::Mapped) + self.cache.bytes();
                let others = budget.used().saturating_sub(aside);
                len <= budget.limit() / 2 && others + len <= budget.limit()
            }
            PageReading::Mapped => true,
            PageReading::Cached => false,
        };
        wanted && !self.unmappable.load(Ordering::Relaxed)
    }

    /// Whether pages are read through the cache.
    pub(super) fn is_cached_reading(&self) -> bool {
        !self.is_mapped.load(Ordering::Relaxed)
    }
}

/// How much of a page is asked for before its header is known, in bytes.
const EARLY: usize = 256;
/// How much of it at most is asked for then.
const LATE_MAX: usize = 1536;

/// Has the processor fetch a part of a page that is about to be searched, all lines at once rather than
/// one after the other as the search comes to them.
#[inline]
fn prefetch(bytes: &[u8], from: usize, to: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (from..to.min(bytes.len())).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing; the address is inside the slice.
        unsafe { _mm_prefetch(bytes.as_ptr().add(line).cast(), _MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (bytes, from, to);
}

#[inline]
fn count_hit(counters: &Counters) {
    // A shared counter for every page touched would cost more than the page: one in 64, by the
    // reader's own count, is entered for all.
    thread_local!(static HITS: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });
    HITS.with(|hits| {
        let seen = hits.get().wrapping_add(1);
        hits.set(seen);
        if seen % 64 == 0 {
            count(&counters.hits, 64);
        }
    });
}

/// The bytes of a run in the mapped file.
///
/// # Safety
/// The run lies inside the map and inside the file, and stays so while the bytes are used: the file
/// is cut only behind what pinned roots may reach. No other program shortens the file.
#[inline]
unsafe fn mapped(mapping: &Mapping, run: Run) -> &[u8] {
    let map = &mapping.map;
    let start = (run.start * GRANULE) as usize;
    let len = (run.len * GRANULE) as usize;
    debug_assert!(start + len <= map.len());
    // SAFETY: inside the map and the file, as the caller promises.
    unsafe { std::slice::from_raw_parts(map.as_ptr().add(start), len) }
}

/// The file in memory, counted as far as it is used.
pub(super) struct Mapping {
    map: Map,
    charge: Mutex<Charge>,
}

impl Mapping {
    /// Whether it covers so many granules of the file.
    pub(super) fn reaches(&self, granules: u64) -> bool {
        granules * GRANULE <= self.map.len() as u64
    }
}

/// What a reader may touch: the file up to the end that its roots knew.
#[derive(Clone)]
pub(super) struct Within {
    pub end: u64,
    pub map: Option<Arc<Mapping>>,
}

/// The bytes of a page or a large value, in the mapped file or in the cache.
///
/// In the mapped file it is valid as long as the roots through which it was read are pinned and their
/// map lives; all who keep a `PageRef` keep those roots.
pub(super) struct PageRef {
    start: *const u8,
    len: usize,
    pub shape: Shape,
    pub hold: Option<Arc<CachedPage>>,
}

// SAFETY: the bytes are immutable and outlive the reference, whichever thread drops it.
unsafe impl Send for PageRef {}
// SAFETY: as above.
unsafe impl Sync for PageRef {}

impl PageRef {
    fn held(page: Arc<CachedPage>) -> PageRef {
        PageRef {
            start: page.bytes.as_ptr(),
            len: page.bytes.len(),
            shape: page.shape,
            hold: Some(page),
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `hold` keeps the bytes, or the pinned roots do; see the type's comment.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Lends a large value to whoever holds the `Bytes`, and pins what it lies in.
struct Lent<P: Send + 'static> {
    page: PageRef,
    _pin: P,
}

impl<P: Send + 'static> AsRef<[u8]> for Lent<P> {
    fn as_ref(&self) -> &[u8] {
        self.page.bytes()
    }
}

/// A value to keep: a small one is copied, a large one stays where it is and pins it.
pub(super) fn value_bytes<P: Send + 'static>(
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

/// 64 bits to a word; made when the first of them is set.
type Words = OnceLock<Box<[AtomicU64]>>;

/// One bit for each granule: whether the page that begins there has been checked since it was written.
struct CheckedBits {
    chunks: Box<[Words]>,
}

impl CheckedBits {
    /// Granules to a chunk: four gigabytes of file to 128 kilobytes of bits.
    const CHUNK: u64 = 1 << 20;

    /// The word and the bit. Beyond sixteen terabytes nothing is remembered.
    #[inline]
    fn at(&self, granule: u64) -> Option<(&Words, usize, u64)> {
        let chunk = self.chunks.get((granule / Self::CHUNK) as usize)?;
        let within = granule % Self::CHUNK;
        Some((chunk, (within / 64) as usize, 1 << (within % 64)))
    }

    #[inline]
    fn get(&self, granule: u64) -> bool {
        match self.at(granule) {
            Some((chunk, word, bit)) => chunk
                .get()
                .is_some_and(|words| words[word].load(Ordering::Relaxed) & bit != 0),
            None => false,
        }
    }

    fn set(&self, granule: u64) {
        if let Some((chunk, word, bit)) = self.at(granule) {
            let words =
                chunk.get_or_init(|| (0..Self::CHUNK / 64).map(|_| AtomicU64::new(0)).collect());
            words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn clear(&self, run: Run) {
        for granule in run.start..run.end() {
            if let Some((chunk, word, bit)) = self.at(granule)
                && let Some(words) = chunk.get()
            {
                words[word].fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }
}

impl Default for CheckedBits {
    fn default() -> CheckedBits {
        CheckedBits {
            chunks: (0..4096).map(|_| OnceLock::new()).collect(),
        }
    }
}

/// Whether a value of this length gets granules of its own, in a table whose leaves are of `leaf` bytes.
pub(super) fn is_large(value_len: usize, leaf: usize) -> bool {
    value_len > leaf && granules(value_len) >= 2
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Change, Changes, PageReading, TableOptions, TreeFile, TreeOptions};
    use crate::disk::sheaf::budget::MemoryBudget;
    use crate::disk::sheaf::files::Folder;
    use crate::engine::TableId;
    use crate::error::Result;
    use crate::fault::FaultFolder;

    /// Puts of the numbers from the first to below the second.
    struct Numbers(u32, u32, Vec<[u8; 4]>, Vec<u8>);

    impl Numbers {
        fn new(from: u32, to: u32, value: Vec<u8>) -> Numbers {
            Numbers(
                from,
                from,
                (from..to).map(u32::to_be_bytes).collect(),
                value,
            )
        }
    }

    impl Changes for Numbers {
        fn current(&self) -> Option<Change<'_>> {
            let key = self.2.get((self.1 - self.0) as usize)?;
            Some(Change::Put(key, &self.3))
        }

        fn advance(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }
    }

    /// Small enough for Miri, which looks after the bytes that page references lend.
    #[test]
    fn what_is_lent_outlives_the_cache_the_cursor_and_the_roots() {
        const TABLE: TableId = TableId(1);
        let folder: Arc<dyn Folder> = Arc::new(FaultFolder::default());
        let options = TreeOptions {
            reading: PageReading::Cached,
            // Next to nothing stays in the cache.
            budget: MemoryBudget::new(600_000),
        };
        let file = TreeFile::create(&folder, "tree", options).unwrap();
        let mut writer = file.writer().unwrap();
        writer.create_table(TABLE, TableOptions::default()).unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(0, 150, vec![1; 60]))
            .unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(150, 152, vec![2; 70_000]))
            .unwrap();
        let roots = writer.commit(1).unwrap();
        let mut cursor = roots.cursor(TABLE).unwrap();
        assert!(cursor.seek_first().unwrap());
        let walked = std::thread::spawn(move || {
            let mut lent = Vec::new();
            loop {
                lent.push(cursor.value_bytes());
                if !cursor.next().unwrap() {
                    return lent;
                }
            }
        });
        let got = roots.get(TABLE, &151_u32.to_be_bytes()).unwrap().unwrap();
        let lent = walked.join().unwrap();
        drop(roots);
        let mut writer = file.writer().unwrap();
        writer
            .apply(TABLE, &mut Numbers::new(0, 152, vec![3; 10]))
            .unwrap();
        writer.commit(2).unwrap();
        drop(file);
        assert_eq!(
            (lent.len(), &lent[149][..], &lent[151]),
            (152, &[1; 60][..], &got)
        );
        assert!(got.iter().step_by(999).all(|byte| *byte == 2));
    }
}
