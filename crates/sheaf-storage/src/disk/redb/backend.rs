//! redb's file backend, with counters, and a probe of the disk's free space.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// Traffic through a [`CountingBackend`].
#[derive(Debug, Default)]
pub(super) struct IoCounters {
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) syncs: AtomicU64,
    /// The file's length in bytes, as last set or read.
    pub(super) file_bytes: AtomicU64,
}

/// Passes every call to another backend and counts it.
pub(super) struct CountingBackend<B> {
    inner: B,
    counters: Arc<IoCounters>,
}

impl<B: StorageBackend> CountingBackend<B> {
    pub(super) fn new(inner: B, counters: Arc<IoCounters>) -> CountingBackend<B> {
        CountingBackend { inner, counters }
    }
}

impl<B: StorageBackend> fmt::Debug for CountingBackend<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<B: StorageBackend> StorageBackend for CountingBackend<B> {
    fn len(&self) -> io::Result<u64> {
        let len = self.inner.len()?;
        self.counters.file_bytes.store(len, Ordering::Relaxed);
        Ok(len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let read = &self.counters.bytes_read;
        read.fetch_add(out.len() as u64, Ordering::Relaxed);
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)?;
        self.counters.file_bytes.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = &self.counters.bytes_written;
        written.fetch_add(data.len() as u64, Ordering::Relaxed);
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

/// Reports how many bytes are available in the file system of a folder. Holds the folder open
/// instead of its path, which may change, and instead of the file, whose locks it would share.
pub(super) struct SpaceProbe(File);

impl SpaceProbe {
    /// Bytes available to this user; `None` if the system does not report them.
    pub(super) fn available(&self) -> Option<u64> {
        let mut stats = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the descriptor is open as long as `self.0`, and the pointer is to a buffer of the
        // type that the call fills; the buffer is read only after the call has succeeded.
        let stats = unsafe {
            if libc::fstatvfs(self.0.as_raw_fd(), stats.as_mut_ptr()) != 0 {
                return None;
            }
            stats.assume_init()
        };
        Some((stats.f_bavail as u64).saturating_mul(stats.f_frsize as u64))
    }
}

/// Opens or creates the file for redb.
pub(super) fn open_file(path: &Path) -> io::Result<(FileBackend, SpaceProbe)> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder)?;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    // A file that was just created or renamed survives a crash only once its folder is on disk.
    folder.sync_all()?;
    let backend = FileBackend::new(file).map_err(io::Error::other)?;
    Ok((backend, SpaceProbe(folder)))
}
