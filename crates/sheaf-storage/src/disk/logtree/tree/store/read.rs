//! Reading pages and large values: in place from the map, or through the cache.
//!
//! ```text
//!   page ──┬─ mapped, checked before ─────────────> in place
//!          ├─ mapped, for the first time ─ check ─> in place, and a bit records it
//!          └─ in the cache, or read, checked, decompressed and cached
//! ```

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::mapping::mapped;
use super::{Counters, PageRef, Store, VALUE_MAX, Within, count};
use crate::disk::logtree::budget::Charge;
use crate::disk::logtree::tree::cache::{self, CachedPage};
use crate::disk::logtree::tree::page::{self, Header, Shape};
use crate::disk::logtree::tree::page_memory::PageBuf;
use crate::disk::logtree::tree::pointer::{ExtentPtr, FIRST_GRANULE, GRANULE, PagePtr, Run};
use crate::error::{Result, StorageError};

impl Store {
    fn read_at(&self, offset: u64, len: usize) -> Result<PageBuf> {
        if offset + len as u64 > self.len.load(Ordering::Relaxed) {
            return Err(self.corrupt(offset, "a pointer refers beyond the end of the file"));
        }
        let mut bytes = self.cache.memory.take(len);
        count(&self.counters.pages_read, 1);
        count(&self.counters.bytes_read, len as u64);
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.read_at(offset, bytes);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.corrupt(offset, "the file ends too early"),
            _ => StorageError::io(format!("read {} at offset {offset}", self.name), &error),
        })
    }

    /// The granules of a run as stored in the file; the last one may be partial.
    pub(in crate::disk::logtree::tree) fn read_run(&self, run: Run) -> Result<PageBuf> {
        let offset = run.start.saturating_mul(GRANULE);
        let left = self.len.load(Ordering::Relaxed).saturating_sub(offset);
        let len = (run.len * GRANULE).min(left);
        self.read_at(offset, len as usize)
    }

    /// The page that `ptr` points to, which must have this level and be before `within.end`.
    #[inline]
    pub(in crate::disk::logtree::tree) fn page(
        &self,
        ptr: PagePtr,
        level: u8,
        within: &Within,
    ) -> Result<PageRef> {
        if ptr.granule < FIRST_GRANULE
            || ptr.granules == 0
            || ptr.granule + u64::from(ptr.granules) > within.end
        {
            return Err(self.corrupt(ptr.granule * GRANULE, "a pointer refers outside the file"));
        }
        if let Some(map) = &within.map
            && self.checked.get(ptr.granule)
        {
            // SAFETY: the run ends before `within.end`, which the map covers. The bit states that
            // it was inside the file when it was read before, and is cleared when the file is cut
            // there; and the roots that `within` belongs to are pinned, so the page is not written.
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

    /// Like [`Store::page`], for a pass that reads every page once: a page that is not in memory is
    /// not cached.
    pub(in crate::disk::logtree::tree) fn page_once(
        &self,
        ptr: PagePtr,
        level: u8,
        within: &Within,
    ) -> Result<PageRef> {
        if within.map.is_some() {
            return self.page(ptr, level, within);
        }
        if ptr.granule < FIRST_GRANULE
            || ptr.granules == 0
            || ptr.granule + u64::from(ptr.granules) > within.end
        {
            return Err(self.corrupt(ptr.granule * GRANULE, "a pointer refers outside the file"));
        }
        self.page_unchecked(ptr, level, within, false)
    }

    /// Returns an error for a run that is not inside the file: accessing the map there would raise
    /// a signal.
    fn check_written(&self, run: Run) -> Result<()> {
        if run.end() * GRANULE > self.len.load(Ordering::Relaxed) {
            return Err(self.corrupt(
                run.start * GRANULE,
                "a pointer refers beyond the end of the file",
            ));
        }
        Ok(())
    }

    /// Reads a run by a system call before its first access in the map: a read error of the disk is
    /// returned as an error here, but would raise a signal in the map.
    fn fetch(&self, run: Run) -> Result<()> {
        let mut piece = [0; FETCHED];
        let (mut offset, mut left) = (run.start * GRANULE, run.len * GRANULE);
        while left > 0 {
            let len = left.min(FETCHED as u64);
            self.read_into(offset, &mut piece[..len as usize])?;
            offset += len;
            left -= len;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn not_as_pointed(&self, ptr: PagePtr) -> StorageError {
        self.corrupt(ptr.granule * GRANULE, "the pointer refers to another page")
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
        let unpacked = |bytes: &[u8], header: &Header| {
            let mut image = self.cache.memory.take(page::unpacked_len(header));
            page::unpack_into(bytes, header, &mut image).map_err(damaged)?;
            Ok(image)
        };
        let mut charge = None;
        let (image, header) = if let Some(map) = &within.map {
            self.check_written(ptr.run())?;
            self.fetch(ptr.run())?;
            // SAFETY: before `within.end`, as the callers have checked, and inside the file;
            // otherwise as in `page`.
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
            (unpacked(bytes, &header)?, header)
        } else {
            charge = Some(cache::charge(
                &self.budget,
                (ptr.run().len * GRANULE) as usize,
            ));
            let mut bytes = self.read_run(ptr.run())?;
            let header = check(&bytes)?;
            if header.lz4 {
                bytes = unpacked(&bytes, &header)?;
            } else {
                bytes.truncate(header.stored);
            }
            (bytes, header)
        };
        let shape = Shape::check(&image, &header).map_err(damaged)?;
        let charge = charge.unwrap_or_else(|| cache::charge(&self.budget, image.len()));
        let page = self.page_of(image, shape, ptr.birth, ptr.crc, charge);
        if keep {
            self.cache.insert(ptr.granule, &page);
        }
        Ok(PageRef::held(page))
    }

    /// Verifies a page again: a mapped page may have been checked long ago. A page that came from
    /// the cache is read from the file again.
    pub(in crate::disk::logtree::tree) fn recheck(
        &self,
        page: &PageRef,
        ptr: PagePtr,
    ) -> Result<()> {
        let offset = ptr.granule * GRANULE;
        let read;
        let stored = match page.hold {
            None => {
                self.fetch(ptr.run())?;
                page.bytes()
            }
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

    /// Like [`Store::recheck`], for a large value.
    pub(in crate::disk::logtree::tree) fn recheck_extent(
        &self,
        value: &PageRef,
        ptr: ExtentPtr,
    ) -> Result<()> {
        let offset = ptr.granule * GRANULE;
        let read;
        let stored = match value.hold {
            None => {
                self.fetch(ptr.run())?;
                value.bytes()
            }
            Some(_) => {
                read = self.read_at(offset, ptr.stored as usize)?;
                &read[..]
            }
        };
        if crc32c::crc32c(stored) != ptr.crc {
            return Err(self.corrupt(offset, "a value has a wrong checksum"));
        }
        Ok(())
    }

    /// Whether the page is in the cache.
    pub(in crate::disk::logtree::tree) fn is_cached(&self, ptr: PagePtr) -> bool {
        self.cache.get(ptr.granule, ptr.birth, ptr.crc).is_some()
    }

    /// The large value that `ptr` points to.
    pub(in crate::disk::logtree::tree) fn extent(
        &self,
        ptr: ExtentPtr,
        within: &Within,
        keep: bool,
    ) -> Result<PageRef> {
        let run = ptr.run();
        let (stored, raw) = (ptr.stored as usize, ptr.raw as usize);
        let offset = ptr.granule * GRANULE;
        if run.start < FIRST_GRANULE || run.len == 0 || run.end() > within.end {
            return Err(self.corrupt(offset, "a pointer to a value refers outside the file"));
        }
        if stored > raw || raw > VALUE_MAX {
            return Err(self.corrupt(offset, "the length of a value is wrong"));
        }
        if stored == raw
            && let Some(map) = &within.map
        {
            let checked = self.checked.get(ptr.granule);
            if !checked {
                self.check_written(run)?;
                self.fetch(run)?;
            }
            // SAFETY: before `within.end`, and inside the file; otherwise as in `page`.
            let bytes = unsafe { &mapped(map, run)[..stored] };
            if !checked {
                if crc32c::crc32c(bytes) != ptr.crc {
                    return Err(self.corrupt(offset, "a value has a wrong checksum"));
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
        // The compressed and the uncompressed form are in memory at the same time.
        let both = raw + if stored < raw { stored } else { 0 };
        let charge = cache::charge(&self.budget, both);
        let mut bytes = self.read_at(offset, stored)?;
        if crc32c::crc32c(&bytes) != ptr.crc {
            return Err(self.corrupt(offset, "a value has a wrong checksum"));
        }
        if stored < raw {
            let mut value = self.cache.memory.take(raw);
            match lz4_flex::block::decompress_into(&bytes, &mut value) {
                Ok(len) if len == raw => bytes = value,
                _ => return Err(self.corrupt(offset, "a value cannot be decompressed")),
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
        bytes: PageBuf,
        shape: Shape,
        birth: u32,
        crc: u32,
        charge: Charge,
    ) -> Arc<CachedPage> {
        CachedPage::new(bytes, shape, birth, crc, charge)
    }

    /// A copy of a page's image, for [`Store::keep_written`].
    pub(in crate::disk::logtree::tree) fn copied(&self, image: &[u8]) -> PageBuf {
        let mut copy = self.cache.memory.take(image.len());
        copy.copy_from_slice(image);
        copy
    }

    /// Caches a page that was just written.
    pub(in crate::disk::logtree::tree) fn keep_written(&self, ptr: PagePtr, image: PageBuf) {
        let Some(header) = Header::read(&image) else {
            return;
        };
        let shape = Shape::of(&header);
        let charge = cache::charge(&self.budget, image.len());
        let page = self.page_of(image, shape, ptr.birth, ptr.crc, charge);
        self.cache.insert(ptr.granule, &page);
    }
}

/// Bytes of the map that are read by one call.
const FETCHED: usize = 8 << 10;
/// Bytes of a page that are prefetched before its header is known.
const EARLY: usize = 256;
/// Maximum bytes that are prefetched after that.
const LATE_MAX: usize = 1536;

/// Prefetches a part of a page that is about to be searched, all cache lines at once instead of one
/// after the other.
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
    // A shared counter for every page access would cost more than the access: one in 64, counted
    // per thread, is added to it.
    thread_local!(static HITS: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });
    HITS.with(|hits| {
        let seen = hits.get().wrapping_add(1);
        hits.set(seen);
        if seen % 64 == 0 {
            count(&counters.hits, 64);
        }
    });
}
