//! The lock file: one server per data folder.
//!
//! The kernel holds a lock on `sheafd.lock` for the lifetime of the process.
//! The file contains the process id. The lock ends with the process, however
//! that ends, so a stale file does not block the next server.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Error, ErrorCode};

/// The lock file's name in the data folder.
const LOCK_FILE: &str = "sheafd.lock";

/// Interval between two checks whether a server has stopped.
const POLL: Duration = Duration::from_millis(20);

/// Ensures that the data folder exists. Creates the default folder. A folder that the user named
/// must exist: a missing one usually means an unmounted disk.
pub fn prepare_folder(path: &Path, named: bool) -> Result<()> {
    let problem = |code: ErrorCode, what: String| Error::new(code, what);
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(problem(
            ErrorCode::INVALID_PATH,
            format!("the data folder {} is not a folder", path.display()),
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound && named => Err(problem(
            ErrorCode::NON_EXISTENT_PATH,
            format!(
                "the data folder {} does not exist: create it, or name another with --dbpath or storage.dbPath",
                path.display()
            ),
        )),
        Err(e) if e.kind() == io::ErrorKind::NotFound => std::fs::create_dir_all(path)
            .map_err(|e| io_error("cannot create the data folder", path, &e)),
        Err(e) => Err(io_error("cannot read the data folder", path, &e)),
    }
}

/// The lock on a data folder, held until dropped.
#[derive(Debug)]
pub struct LockFile {
    file: File,
}

impl LockFile {
    /// Locks the folder.
    ///
    /// Errors: `DBPathInUse` when another server holds it.
    pub fn acquire(folder: &Path) -> Result<LockFile> {
        let path = folder.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| io_error("cannot open the lock file", &path, &e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = match read_pid(&mut file) {
                    Some(pid) => format!(" (process {pid})"),
                    None => String::new(),
                };
                return Err(Error::new(
                    ErrorCode::DB_PATH_IN_USE,
                    format!(
                        "another server{holder} is running on the data folder {}: stop it, or choose another folder with --dbpath",
                        folder.display()
                    ),
                ));
            }
            Err(TryLockError::Error(e)) => {
                return Err(io_error("cannot lock the lock file", &path, &e));
            }
        }
        let mut lock = LockFile { file };
        lock.write_pid()
            .map_err(|e| io_error("cannot write the lock file", &path, &e))?;
        Ok(lock)
    }

    fn write_pid(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        writeln!(self.file, "{}", std::process::id())?;
        self.file.sync_all()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // An empty file records a clean shutdown.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Stops the server that runs on this folder and waits for its end.
/// Returns its process id.
///
/// Errors: no server is running there, it cannot be signalled, or it is still
/// running after `limit`.
pub fn stop_holder(folder: &Path, limit: Duration) -> Result<i32> {
    let path = folder.join(LOCK_FILE);
    let not_running = || {
        Error::new(
            ErrorCode::NO_SUCH_KEY,
            format!(
                "no server is running on the data folder {}",
                folder.display()
            ),
        )
    };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(not_running()),
        Err(e) => return Err(io_error("cannot open the lock file", &path, &e)),
    };
    if is_free(&file, &path)? {
        return Err(not_running());
    }
    let pid = read_pid(&mut file).ok_or_else(|| {
        Error::new(
            ErrorCode::FAILED_TO_PARSE,
            format!("the lock file {} contains no process id", path.display()),
        )
    })?;
    // SAFETY: sending a signal accesses no memory of the process.
    if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
        let e = io::Error::last_os_error();
        return Err(Error::new(
            ErrorCode::OPERATION_FAILED,
            format!("cannot stop process {pid}: {e}"),
        ));
    }
    let end = std::time::Instant::now() + limit;
    while !is_free(&file, &path)? {
        if std::time::Instant::now() >= end {
            return Err(Error::new(
                ErrorCode::EXCEEDED_TIME_LIMIT,
                format!("process {pid} was asked to stop and is still running"),
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(pid)
}

fn is_free(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            // This was only a test: leave the lock to other processes.
            let _ = file.unlock();
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(io_error("cannot test the lock file", path, &e)),
    }
}

fn io_error(what: &str, path: &Path, e: &io::Error) -> Error {
    let code = match e.kind() {
        io::ErrorKind::StorageFull => ErrorCode::OUT_OF_DISK_SPACE,
        _ => ErrorCode::FILE_OPEN_FAILED,
    };
    Error::new(code, format!("{what} {}: {e}", path.display()))
}

/// The file of `--pidfilepath`, removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the current process id to `path`.
    pub fn write(path: &Path) -> Result<PidFile> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| io_error("cannot write the pid file", path, &e))?;
        Ok(PidFile {
            path: path.to_path_buf(),
        })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.path);
    }
}
