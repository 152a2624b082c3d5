//! The folder of an engine's files. Traits cover everything that an engine requires of a disk, so
//! that the whole engine also runs on a simulated disk.
//!
//! ```text
//!   engine ── Folder / File ──┬── DiskFolder             the operating system
//!                             └── fault::FaultFolder     loses, tears, reorders, fails
//! ```
//!
//! Invariant: an error of a write or a sync is final. No caller repeats the call and trusts the
//! second result: after a failed sync the system may have dropped the data that it could not write.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::error::{Result, StorageError};

/// A flat folder of files.
pub trait Folder: Send + Sync {
    /// Opens a file for reading and writing. With `create` a missing file is created empty; without
    /// it a missing file is `NotFound`. The new entry is durable after [`Folder::sync`].
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>>;
    /// The names of the files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Renames a file, replacing an existing one. Durable after [`Folder::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name; open handles stay valid. Durable after [`Folder::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the folder's entries durable.
    fn sync(&self) -> io::Result<()>;
    /// Free space for files, in bytes; `None` if it is not known.
    fn free_bytes(&self) -> io::Result<Option<u64>>;
    /// The folder's path, for messages; `None` if it is not in the file system.
    fn path(&self) -> Option<&Path>;
    /// Locks the folder against other processes until the result is dropped. Errors: `InUse`, `Io`.
    fn lock(&self) -> Result<FolderLock>;

    /// A file's name for messages.
    fn display(&self, name: &str) -> String {
        match self.path() {
            Some(path) => path.join(name).display().to_string(),
            None => name.to_owned(),
        }
    }
}

/// Holds a [`Folder::lock`] until it is dropped.
pub struct FolderLock(
    #[expect(dead_code, reason = "held, and released by its drop")] Box<dyn Send + Sync>,
);

impl FolderLock {
    /// A lock that is released when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> FolderLock {
        FolderLock(Box::new(held))
    }
}

/// An open file. All methods may be called from many threads concurrently.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`. `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data`. A write after the end extends the file, with zeros in the gap.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes written data and the length durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Maps a range for reading. The range may reach beyond the end of the file; that part must not
    /// be accessed until the file has grown that far. `None`: this file cannot be mapped.
    fn map(&self, offset: u64, len: u64) -> io::Result<Option<Map>>;
}

/// A range of a file mapped into memory: writes to the file are visible in it.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only memory that any thread may read; unmapping happens once, on
// drop.
unsafe impl Send for Map {}
// SAFETY: as above; no method changes the mapping.
unsafe impl Sync for Map {}

impl Map {
    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Length in bytes, including the part beyond the file's end.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty, which is always false.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: start and len are those of a successful mmap, which is unmapped only here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A folder of the file system.
#[derive(Debug)]
pub struct DiskFolder {
    path: PathBuf,
}

impl DiskFolder {
    /// Opens the folder at `path`, creating it if it does not exist.
    pub fn open(path: &Path) -> io::Result<DiskFolder> {
        fs::create_dir_all(path)?;
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(DiskFolder { path: path.into() })
    }
}

impl Folder for DiskFolder {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let path = std::ffi::CString::new(self.path.as_os_str().as_encoded_bytes())?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero byte and `found` has room for the answer.
        if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: statvfs succeeded, so it filled the structure.
        let found = unsafe { found.assume_init() };
        // The widths of the fields differ between systems.
        #[allow(clippy::unnecessary_cast)]
        Ok(Some(
            (found.f_bavail as u64).saturating_mul(found.f_frsize as u64),
        ))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn lock(&self) -> Result<FolderLock> {
        let path = self.path.join(LOCK_NAME);
        let failed =
            |error: io::Error| StorageError::io(format!("lock {}", path.display()), &error);
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(StorageError::InUse {
                file: self.path.display().to_string(),
            }),
            Err(fs::TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// The file whose lock represents the folder's.
pub const LOCK_NAME: &str = "sheaf.lock";

struct DiskFile(fs::File);

impl File for DiskFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn map(&self, offset: u64, len: u64) -> io::Result<Option<Map>> {
        let (Ok(offset), Ok(len)) = (libc::off_t::try_from(offset), usize::try_from(len)) else {
            return Ok(None);
        };
        // SAFETY: a new read-only mapping at an address that the system chooses does not affect
        // existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                self.0.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(NonNull::new(start.cast()).map(|start| Map { start, len }))
    }
}
