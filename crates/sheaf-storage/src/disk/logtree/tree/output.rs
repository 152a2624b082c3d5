//! Writes new pages and values to free granules, in large writes.
//!
//! ```text
//!   page ── seal ──> granules of a reserved chunk ── gathered to 1 MB ──> one write
//! ```
//!
//! An output owns what it allocates. If it is dropped without having been committed or made a
//! subtree, it frees everything: no roots have seen it.

use std::sync::Arc;

use super::page;
use super::pointer::{ExtentPtr, GRANULE, PagePtr, Run, granules};
use super::space::{CHUNK, Owner};
use super::store::{Store, Within, count};
use crate::disk::logtree::budget::{Charge, MemoryKind};
use crate::error::{Result, StorageError};

/// Number of bytes that are gathered before they are written.
const GATHER: usize = 1 << 20;

/// Called after about every megabyte, with the number of bytes written.
pub type WrittenHook = Box<dyn FnMut(u64) + Send>;

pub(super) struct Output {
    pub store: Arc<Store>,
    pub owner: Owner,
    /// The commit that these pages belong to, or an earlier one, but not a later one: no roots
    /// before this version refer to the pages.
    pub birth: u32,
    chunk: Run,
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Bytes written since the hook was last called.
    unreported: u64,
    pub written: u64,
    pub hook: Option<WrittenHook>,
    kept: bool,
}

impl Output {
    pub(super) fn new(store: &Arc<Store>, birth: u32) -> Output {
        Output {
            store: store.clone(),
            owner: store.space.lock().owner(),
            birth,
            chunk: Run { start: 0, len: 0 },
            buffer: Vec::new(),
            buffer_at: 0,
            unreported: 0,
            written: 0,
            hook: None,
            kept: false,
        }
    }

    fn allocate(&mut self, need: u64) -> Run {
        if self.chunk.len < need {
            let mut space = self.store.space.lock();
            space.return_unused(
                self.owner,
                std::mem::replace(&mut self.chunk, Run { start: 0, len: 0 }),
            );
            self.chunk = space.allocate(self.owner, need, need.max(CHUNK));
        }
        let run = Run {
            start: self.chunk.start,
            len: need,
        };
        self.chunk.start += need;
        self.chunk.len -= need;
        run
    }

    /// Writes bytes to newly allocated granules.
    fn place(&mut self, bytes: &[u8]) -> Result<Run> {
        let run = self.allocate(granules(bytes.len()));
        self.place_at(run, bytes)?;
        Ok(run)
    }

    fn place_at(&mut self, run: Run, bytes: &[u8]) -> Result<()> {
        self.store.forget(run);
        let offset = run.start * GRANULE;
        if self.buffer_at + self.buffer.len() as u64 != offset {
            self.flush()?;
            self.buffer_at = offset;
        }
        let whole = (run.len * GRANULE) as usize;
        let mut rest = bytes;
        if bytes.len() >= GATHER {
            // Write directly without a copy, except for the bytes that do not fill the last
            // granule.
            self.flush()?;
            let (direct, last) = bytes.split_at(bytes.len() / GRANULE as usize * GRANULE as usize);
            self.write(offset, direct)?;
            self.buffer_at = offset + direct.len() as u64;
            rest = last;
        }
        self.buffer.extend_from_slice(rest);
        self.buffer
            .resize(self.buffer.len() + whole - bytes.len(), 0);
        if self.buffer.len() >= GATHER {
            self.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.store.write_at(offset, bytes)?;
        self.written += bytes.len() as u64;
        self.unreported += bytes.len() as u64;
        if self.unreported >= GATHER as u64
            && let Some(hook) = &mut self.hook
        {
            hook(std::mem::take(&mut self.unreported));
        }
        Ok(())
    }

    /// Writes what has been gathered.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let offset = self.buffer_at;
        self.buffer_at += buffer.len() as u64;
        if buffer.is_empty() {
            return Ok(());
        }
        let written = self.write(offset, &buffer);
        buffer.clear();
        self.buffer = buffer;
        written
    }

    /// Flushes, and frees what was allocated in advance.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.flush()?;
        let chunk = std::mem::replace(&mut self.chunk, Run { start: 0, len: 0 });
        self.store.space.lock().return_unused(self.owner, chunk);
        Ok(())
    }

    /// Writes a page; `image` is the result of [`page::encode`]. With `warm` it is also cached, if
    /// pages are read through the cache. `below`: only to a place before this granule, or not at
    /// all.
    pub(super) fn page(
        &mut self,
        image: &mut Vec<u8>,
        lz4: bool,
        warm: bool,
        below: Option<u64>,
    ) -> Result<Option<PagePtr>> {
        let header = page::Header::read(image).expect("made by encode");
        let plain = (warm && self.store.is_cached_reading()).then(|| self.store.copied(image));
        let crc = page::seal(image, self.birth, lz4, GRANULE as usize);
        let need = granules(image.len());
        if need > PagePtr::GRANULES_MAX {
            return Err(StorageError::TooLarge {
                bytes: image.len() as u64,
                limit: PagePtr::GRANULES_MAX * GRANULE,
            });
        }
        let run = match below {
            None => self.place(image)?,
            Some(limit) => {
                let Some(run) = self
                    .store
                    .space
                    .lock()
                    .allocate_below(self.owner, need, limit)
                else {
                    return Ok(None);
                };
                self.place_at(run, image)?;
                run
            }
        };
        count(&self.store.counters.pages_written, 1);
        let ptr = PagePtr {
            granule: run.start,
            granules: run.len as u16,
            extents: header.extents,
            crc,
            birth: self.birth,
        };
        if let Some(plain) = plain {
            self.store.keep_written(ptr, plain);
        }
        Ok(Some(ptr))
    }

    /// Writes a large value.
    pub(super) fn extent(&mut self, value: &[u8], lz4: bool) -> Result<ExtentPtr> {
        let _charge =
            lz4.then(|| Charge::new(&self.store.budget, MemoryKind::Batches, value.len() as u64));
        let packed = lz4
            .then(|| lz4_flex::block::compress(value))
            .filter(|packed| granules(packed.len()) < granules(value.len()));
        let stored = packed.as_deref().unwrap_or(value);
        let run = self.place(stored)?;
        Ok(ExtentPtr {
            granule: run.start,
            stored: stored.len() as u32,
            raw: value.len() as u32,
            crc: crc32c::crc32c(stored),
            birth: self.birth,
        })
    }

    /// Copies a large value in its stored form to a place before `limit`; `None` if there is none.
    pub(super) fn move_extent(&mut self, ptr: ExtentPtr, limit: u64) -> Result<Option<ExtentPtr>> {
        let run = ptr.run();
        let Some(to) = self
            .store
            .space
            .lock()
            .allocate_below(self.owner, run.len, limit)
        else {
            return Ok(None);
        };
        let _charge = Charge::new(
            &self.store.budget,
            MemoryKind::Batches,
            u64::from(ptr.stored),
        );
        let mut bytes = self.store.read_run(run)?;
        bytes.truncate(ptr.stored as usize);
        if crc32c::crc32c(&bytes) != ptr.crc {
            return Err(self
                .store
                .corrupt(run.start * GRANULE, "a value has a wrong checksum"));
        }
        self.place_at(to, &bytes)?;
        Ok(Some(ExtentPtr {
            granule: to.start,
            birth: self.birth,
            ..ptr
        }))
    }

    /// Writes bytes that are not a page: the list of free granules.
    pub(super) fn raw(&mut self, bytes: &[u8], run: Run) -> Result<()> {
        self.place_at(run, bytes)
    }

    /// How this output's own pages are read: gathered bytes are written first, and the file is read
    /// instead of the map.
    pub(super) fn own_pages(&mut self) -> Result<Within> {
        self.flush()?;
        Ok(Within {
            end: self.store.space.lock().end(),
            map: None,
        })
    }

    /// Keeps the pages allocated: they now belong to a commit or a subtree.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            self.store.space.lock().abandon(self.owner);
        }
    }
}
