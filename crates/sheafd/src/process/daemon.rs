//! `--fork`: the server in the background.
//!
//! ```text
//!  caller ── fork ──> child: new session, starts the server
//!    │                  │ ready: a byte through the pipe, then silence
//!    └─ waits ──────────┘ failed: the pipe closes, its exit code is ours
//! ```

use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

/// Which of the two processes this is.
pub enum Forked {
    /// The background process; it tells when it is ready.
    Child(Readiness),
    /// The caller's: the background process is ready, or ended with this code.
    Parent {
        /// The background process.
        pid: i32,
        /// `None` when it is ready.
        failed: Option<u8>,
    },
}

/// Tells the waiting caller that the server is ready.
pub struct Readiness(Option<PipeWriter>);

impl Readiness {
    /// Of a server in the foreground: nobody waits.
    pub fn nobody_waits() -> Readiness {
        Readiness(None)
    }

    /// Tells it, and turns away from the terminal.
    pub fn ready(self) -> io::Result<()> {
        let Some(mut pipe) = self.0 else {
            return Ok(());
        };
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: `null` is open. The standard descriptors belong to nobody who would close them; what is
            // written to them from now on goes nowhere.
            if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        pipe.write_all(&[1])
    }
}

/// Forks.
///
/// # Safety
/// The process has one thread. A lock that another thread holds, of the heap say, nobody would release in the child.
pub unsafe fn fork() -> io::Result<Forked> {
    let (reader, writer) = io::pipe()?;
    // SAFETY: the process has one thread, as the caller promises, so the child has all there is.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            // SAFETY: touches no memory of ours. Fails only for a group's leader,
            // which a fresh child never is.
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
