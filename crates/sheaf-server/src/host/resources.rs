//! Resources of the machine, and their use by the process.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Memory of the machine, in bytes; `None` where the system does not report it.
pub fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Memory of the machine, or of the container if that has less, in bytes.
pub fn memory_limit() -> Option<u64> {
    let machine = machine_memory()?;
    Some(MEMORY.limit().map_or(machine, |limit| machine.min(limit)))
}

/// Maximum number of threads of the process and the processes that share its control groups; `None`
/// without a limit.
pub fn threads_limit() -> Option<u64> {
    let machine = read_number(Path::new("/proc/sys/kernel/threads-max"));
    PIDS.limit().into_iter().chain(machine).min()
}

/// A limit of control groups: where versions 1 and 2 store it.
struct GroupLimit {
    /// The file in a group's folder, version 2.
    file: &'static str,
    /// The controller, version 1.
    controller: &'static str,
    /// The file in a group's folder, version 1.
    file_v1: &'static str,
}

const MEMORY: GroupLimit = GroupLimit {
    file: "memory.max",
    controller: "memory",
    file_v1: "memory.limit_in_bytes",
};

const PIDS: GroupLimit = GroupLimit {
    file: "pids.max",
    controller: "pids",
    file_v1: "pids.max",
};

impl GroupLimit {
    /// The lowest limit of the process's group and its ancestors.
    fn limit(&self) -> Option<u64> {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let files = self.files(&own);
        files.iter().filter_map(|file| read_number(file)).min()
    }

    /// The files that may hold a limit for a process with these control groups: those of its group
    /// and all ancestors, version 2 and version 1. Inside a container, the container's group often
    /// appears as the root.
    fn files(&self, groups: &str) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let root_v1 = root.join(self.controller);
        let mut files = vec![root.join(self.file), root_v1.join(self.file_v1)];
        for line in groups.lines() {
            // number:controllers:path
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let (root, file) = if controllers.is_empty() {
                (root, self.file)
            } else if controllers.split(',').any(|name| name == self.controller) {
                (root_v1.as_path(), self.file_v1)
            } else {
                continue;
            };
            let group = Path::new(path.trim_start_matches('/'));
            let groups = group.ancestors().filter(|group| *group != Path::new(""));
            files.extend(groups.map(|group| root.join(group).join(file)));
        }
        files
    }
}

/// "max" does not parse and means no limit.
fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Size and used bytes of the file system that holds `path`.
pub fn file_system(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut stats = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: both pointers are valid for the call, which fills the structure when it returns 0.
    let stats = unsafe {
        if libc::statvfs(path.as_ptr(), stats.as_mut_ptr()) != 0 {
            return None;
        }
        stats.assume_init()
    };
    // The fields' types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    let (block, blocks, free) = (
        stats.f_frsize as u64,
        stats.f_blocks as u64,
        stats.f_bfree as u64,
    );
    let total = blocks * block;
    Some((total, total.saturating_sub(free * block)))
}

/// Processor time used so far: (user, system).
pub fn cpu_times() -> Option<(Duration, Duration)> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for the call, which fills the structure when it returns 0.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    let duration = |time: libc::timeval| {
        Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
    };
    Some((duration(usage.ru_utime), duration(usage.ru_stime)))
}

/// Page faults of the process that needed input or output.
// The field's type differs between systems.
#[allow(clippy::unnecessary_cast)]
pub fn page_faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for the call, which fills the structure when it returns 0.
    unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return 0;
        }
        usage.assume_init().ru_majflt as i64
    }
}

/// Facts about the system for `hostInfo`.
pub struct SystemLimits {
    /// The C library's version.
    pub libc_version: String,
    /// Bytes of a page of memory.
    pub page_bytes: i64,
    /// Number of pages of the machine.
    pub pages: i64,
    /// How many files the process may open.
    pub open_files: i32,
}

/// Reads them.
// The results' type differs between systems.
#[allow(clippy::unnecessary_cast)]
pub fn system_limits() -> SystemLimits {
    // SAFETY: sysconf has no preconditions; it returns -1 for what it does not know.
    let (page_bytes, pages, open_files) = unsafe {
        (
            libc::sysconf(libc::_SC_PAGESIZE),
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_OPEN_MAX),
        )
    };
    SystemLimits {
        libc_version: libc_version(),
        page_bytes: page_bytes as i64,
        pages: pages as i64,
        open_files: i32::try_from(open_files).unwrap_or(i32::MAX),
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn libc_version() -> String {
    // SAFETY: returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn libc_version() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_include_parent_groups() {
        let shown = |groups: &str| -> Vec<String> {
            let files = MEMORY.files(groups).into_iter().skip(2);
            files.map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            shown("0::/a.slice/b.service\n"),
            [
                "/sys/fs/cgroup/a.slice/b.service/memory.max",
                "/sys/fs/cgroup/a.slice/memory.max"
            ]
        );
        assert_eq!(
            shown("12:cpu,cpuacct:/x\n4:memory:/docker/7f\n1:name=systemd:/y\n"),
            [
                "/sys/fs/cgroup/memory/docker/7f/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/docker/memory.limit_in_bytes"
            ]
        );
        assert!(shown("0::/\nnothing").is_empty());
        let pids = PIDS.files("0::/a.service\n7:pids:/b\n");
        let pids: Vec<_> = pids.iter().map(|file| file.to_str().unwrap()).collect();
        assert_eq!(
            pids,
            [
                "/sys/fs/cgroup/pids.max",
                "/sys/fs/cgroup/pids/pids.max",
                "/sys/fs/cgroup/a.service/pids.max",
                "/sys/fs/cgroup/pids/b/pids.max"
            ]
        );
    }
}
