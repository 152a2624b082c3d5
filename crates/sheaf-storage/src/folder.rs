//! The folder that the engine's files lie in, and the files: what the engine asks of a disk, and no
//! more, so that a simulated disk can stand under the whole engine.
//!
//! ```text
//!   log, tree ── Folder / File ──┬── DiskFolder             the operating system
//!                                └── fault::FaultFolder     loses, tears, reorders, refuses
//! ```
//!
//! Invariant: an error of a write or a sync is final. Nobody repeats the call and trusts the second
//! answer: after a failed sync the system may have dropped what it could not write.

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
    /// Opens a file for reading and writing. With `create` a missing file is made, empty; without it
    /// a missing file is `NotFound`. The new entry is durable after [`Folder::sync`].
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>>;
    /// The names of the files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Gives a file another name, in place of a file that has it. Durable after [`Folder::sync`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file's name; whoever has the file open keeps it. Durable after [`Folder::sync`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the folder's entries durable.
    fn sync(&self) -> io::Result<()>;
    /// Space that is left for files, in bytes; `None` where that is not known.
    fn free_bytes(&self) -> io::Result<Option<u64>>;
    /// Where the folder is, for messages; `None` for one that is not in the file system.
    fn path(&self) -> Option<&Path>;
    /// Keeps other processes out until the answer is dropped.
    /// Errors: `InUse`, `Io`.
    fn lock(&self) -> Result<FolderLock>;

    /// A file's name as messages show it.
    fn display(&self, name: &str) -> String {
        match self.path() {
            Some(path) => path.join(name).display().to_string(),
            None => name.to_owned(),
        }
    }
}

/// Holds a [`Folder::lock`].
pub struct FolderLock(
    #[expect(dead_code, reason = "held, and released by its drop")] Box<dyn Send + Sync>,
);

impl FolderLock {
    /// A lock that is released when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> FolderLock {
        FolderLock(Box::new(held))
    }
}

/// An open file. All calls may be made from many threads at once.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`. `UnexpectedEof` when the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data`, beyond the end too: the file grows, with zeros in the gap.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes durable what was written, and the length (fdatasync).
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file holds nothing.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts the file or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Maps a range for reading, which may reach beyond the end of the file: what lies beyond must
    /// not be touched until the file has grown that far. `None`: this file cannot be mapped.
    fn map(&self, offset: u64, len: u64) -> io::Result<Option<Map>>;
}

/// A range of a file in memory, shared with it: what is written to the file is seen.
#[derive(Debug)]
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is read-only memory that any thread may read; unmapping happens once, on drop.
unsafe impl Send for Map {}
// SAFETY: as above; no method changes the mapping.
unsafe impl Sync for Map {}

impl Map {
    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Length in bytes, what lies beyond the file's end included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is empty. It never is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: start and len are those of a successful mmap, which nobody else unmaps.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A folder of the file system.
#[derive(Debug)]
pub struct DiskFolder {
    path: PathBuf,
}

impl DiskFolder {
    /// The folder at `path`, made if there is none.
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
        // The fields' widths differ between systems.
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

/// The file whose lock stands for the folder's.
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
        // SAFETY: a new read-only mapping at an address of the system's choosing touches no memory
        // of ours.
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
