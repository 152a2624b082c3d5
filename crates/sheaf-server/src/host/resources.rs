//! What the machine has and the process uses.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Memory of the machine, in bytes.
pub fn machine_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Memory of the machine, or of the container if that is less, in bytes.
pub fn memory_limit() -> Option<u64> {
    let machine = machine_memory()?;
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // "max" does not parse and means no limit.
    let limit_in = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let container = limit_files(&own).into_iter().filter_map(limit_in).min();
    Some(container.map_or(machine, |limit| machine.min(limit)))
}

/// The files that may hold a limit for a process with these control groups: those of its group and of all above it,
/// version 2 and version 1. Inside a container its group is often shown as the topmost.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = vec![
        PathBuf::from("/sys/fs/cgroup/memory.max"),
        PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ];
    for line in groups.lines() {
        // number:controllers:path
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let group = Path::new(path.trim_start_matches('/'));
        let groups = group.ancestors().filter(|group| *group != Path::new(""));
        files.extend(groups.map(|group| Path::new(root).join(group).join(file)));
    }
    files
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
    let block = stats.f_frsize;
    let total = stats.f_blocks * block;
    Some((total, total.saturating_sub(stats.f_bfree * block)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_of_the_own_group_and_of_those_above() {
        let shown = |groups: &str| -> Vec<String> {
            let files = limit_files(groups).into_iter().skip(2);
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
    }
}
