//! One server to a data folder.
//!
//! `sheafd.lock` in the folder is locked by the kernel for as long as the
//! process lives, and holds its process id: however the process ends, the lock
//! ends with it, so a file that is left behind stops nobody.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sheaf_bson::error_code::Result;
use sheaf_bson::{Error, ErrorCode};

/// The lock file's name in the data folder.
const LOCK_FILE: &str = "sheafd.lock";

/// Between two looks whether a server asked to stop has stopped.
const POLL: Duration = Duration::from_millis(20);

/// Sees to it that the data folder is there. The default folder is made; one
/// that was named must exist, since a missing one is more often a disk not
/// mounted than a wish.
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
        // An empty file says that the server ended as it should.
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

/// Asks the server that runs on this folder to stop, and waits until it has.
/// Returns its process id.
///
/// Errors: none is running there, it cannot be signalled, or it is still
/// running when `limit` is over.
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
            format!("the lock file {} holds no process id", path.display()),
        )
    })?;
    // SAFETY: sending a signal touches no memory of ours.
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
                format!("process {pid} was told to stop and is still running"),
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(pid)
}

fn is_free(file: &File, path: &Path) -> Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            // Only a look; whoever wants the folder may have it.
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
    /// Writes our process id there.
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
        // Gone already is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}
