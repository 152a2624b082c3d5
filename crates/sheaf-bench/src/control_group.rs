//! A control group with a memory limit, for one child process.
//!
//! ```text
//!   version 1   <memory>/<own group>/sheaf-<pid>    limit_in_bytes, max_usage_in_bytes,
//!                                                   oom_control
//!   version 2   <own group's parent>/sheaf-<pid>    max, peak, events
//! ```
//!
//! In version 2, a group with processes cannot have child groups, so the new group is a sibling of
//! our own.
//!
//! A group's peak includes page cache, which is reclaimed on demand: with much data the peak always
//! equals the limit. The memory that a process itself needs is `RssAnon` in its status.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group, removed when dropped. Its process must have ended by then.
pub struct ControlGroup {
    folder: PathBuf,
    version: u8,
}

impl ControlGroup {
    /// Creates a group whose processes may use `bytes` bytes in total. Errors: no memory controller
    /// is mounted; this process may not create groups.
    pub fn with_memory(bytes: u64) -> io::Result<ControlGroup> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let (version, parent) = place(&own, &mounts)
            .ok_or_else(|| io::Error::other("no memory controller is mounted"))?;
        let folder = parent.join(format!("sheaf-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = ControlGroup { folder, version };
        let limit = match version {
            1 => "memory.limit_in_bytes",
            _ => "memory.max",
        };
        fs::write(group.folder.join(limit), bytes.to_string())?;
        // Disable swap if there is any: it would hide excess memory.
        let _ = match version {
            1 => fs::write(
                group.folder.join("memory.memsw.limit_in_bytes"),
                bytes.to_string(),
            ),
            _ => fs::write(group.folder.join("memory.swap.max"), "0"),
        };
        Ok(group)
    }

    /// The version of control groups: 1 or 2.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Makes the command's process enter the group before it executes anything.
    pub fn enter(&self, command: &mut Command) {
        let processes = self.folder.join("cgroup.procs");
        let processes = std::os::unix::ffi::OsStringExt::into_vec(processes.into_os_string());
        let processes = std::ffi::CString::new(processes).unwrap_or_default();
        // SAFETY: between fork and exec it only makes system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                let file = libc::open(processes.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                if file < 0 {
                    return Err(io::Error::last_os_error());
                }
                // 0 means the writing process.
                let written = libc::write(file, c"0".as_ptr().cast(), 1);
                let failed = io::Error::last_os_error();
                libc::close(file);
                match written {
                    1 => Ok(()),
                    _ => Err(failed),
                }
            });
        }
    }

    /// The maximum memory use in bytes, including page cache; `None` if the system does not report
    /// it.
    pub fn peak(&self) -> Option<u64> {
        let file = match self.version {
            1 => "memory.max_usage_in_bytes",
            _ => "memory.peak",
        };
        self.read(file)?.trim().parse().ok()
    }

    /// Number of processes of the group killed for lack of memory; `None` if the system does not
    /// report it.
    pub fn kills(&self) -> Option<u64> {
        let file = match self.version {
            1 => "memory.oom_control",
            _ => "memory.events",
        };
        let text = self.read(file)?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line?.trim().parse().ok()
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A process that has just ended may remain in the group for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("could not remove {}", self.folder.display());
    }
}

/// The version, and the directory in which a group can be created.
fn place(own: &str, mounts: &str) -> Option<(u8, PathBuf)> {
    let group = |controller: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let found = controllers.split(',').any(|one| one == controller);
            found.then_some(path.trim_start_matches('/'))
        })
    };
    let mounted = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (folder, its_kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            let found = its_kind == kind
                && (option.is_empty() || options.split(',').any(|one| one == option));
            found.then_some(folder)
        })
    };
    if let (Some(path), Some(folder)) = (group("memory"), mounted("cgroup", "memory")) {
        return Some((1, Path::new(folder).join(path)));
    }
    let (path, folder) = (group("")?, mounted("cgroup2", "")?);
    let own = Path::new(folder).join(path);
    Some((
        2,
        own.parent()
            .filter(|_| !path.is_empty())
            .map_or(own.clone(), Path::to_path_buf),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_group_is_made() {
        let first = place(
            "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n",
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
        );
        assert_eq!(first, Some((1, "/sys/fs/cgroup/memory/a/b".into())));
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let second = place("0::/user.slice/session-1.scope\n", mounts);
        assert_eq!(second, Some((2, "/sys/fs/cgroup/user.slice".into())));
        assert_eq!(place("0::/\n", mounts), Some((2, "/sys/fs/cgroup".into())));
        assert_eq!(place("0::/\n", "proc /proc proc rw 0 0\n"), None);
    }
}
