//! `--fork`: the server in the background.
//!
//! ```text
//!  caller ── fork ──> child: new session, starts the server
//!    │                  │ ready: one byte through the pipe, then no output
//!    └─ waits ──────────┘ failed: the pipe closes; the caller exits with its code
//! ```

use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

/// The process that `fork` returned in.
pub enum Forked {
    /// The background process, which must report when it is ready.
    Child(Readiness),
    /// The caller's process; the background process is ready or has exited.
    Parent {
        /// Process id of the background process.
        pid: i32,
        /// Exit code of the background process; `None` if it is ready.
        failed: Option<u8>,
    },
}

/// Reports to the waiting caller that the server is ready.
pub struct Readiness(Option<PipeWriter>);

impl Readiness {
    /// For a server in the foreground: no process waits.
    pub fn foreground() -> Readiness {
        Readiness(None)
    }

    /// Reports readiness and detaches from the terminal.
    pub fn ready(self) -> io::Result<()> {
        let Some(mut pipe) = self.0 else {
            return Ok(());
        };
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: `null` is open, and no Rust object owns the standard descriptors. Output
            // to them is discarded from now on.
            if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        pipe.write_all(&[1])
    }
}

/// Forks. The parent waits until the child is ready or has exited.
///
/// # Safety
/// The process has one thread. A lock that another thread holds, such as the heap's, would
/// never be released in the child.
pub unsafe fn fork() -> io::Result<Forked> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: the caller guarantees that the process has one thread, and the child keeps it.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            // SAFETY: accesses no memory of the process. Fails only for a group
            // leader, which a new child never is.
            unsafe { libc::setsid() };
            Ok(Forked::Child(Readiness(Some(writer))))
        }
        pid => {
            drop(writer);
            Ok(Forked::Parent {
                pid,
                failed: wait_ready(reader, pid),
            })
        }
    }
}

fn wait_ready(mut reader: PipeReader, pid: i32) -> Option<u8> {
    let mut byte = [0];
    if matches!(reader.read(&mut byte), Ok(1)) {
        return None;
    }
    let mut status = 0;
    // SAFETY: the pointer is valid for the call.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    match waited == pid && libc::WIFEXITED(status) {
        true => Some(libc::WEXITSTATUS(status) as u8),
        false => Some(super::Exit::Uncaught.code()),
    }
}
