//! Measurements that a program can take of itself: CPU time, memory, I/O.

use std::time::{Duration, Instant};

/// CPU time of the calling thread so far.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process so far, over all its threads.
pub fn process_cpu() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a valid timespec, which the call fills.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Maximum resident memory of the process so far, in bytes.
pub fn resident_bytes_max() -> u64 {
    status("VmHWM:")
}

/// Current resident memory of the process, in bytes.
pub fn resident_bytes() -> u64 {
    status("VmRSS:")
}

fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// I/O of the process so far, as counted by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessIo {
    /// Bytes passed to write calls.
    pub bytes_written: u64,
    /// Number of write calls.
    pub writes: u64,
    /// Bytes read from a disk, not from the page cache.
    pub bytes_from_disk: u64,
}

/// The I/O of the process so far; zeros if the system does not report it.
pub fn process_io() -> ProcessIo {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let number = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
    };
    ProcessIo {
        bytes_written: number("wchar:"),
        writes: number("syscw:"),
        bytes_from_disk: number("read_bytes:"),
    }
}

/// Calls `operation` with 0, 1, 2, ... for `duration`; returns CPU time per operation in
/// microseconds.
///
/// One call counts as `weight` operations.
pub fn cpu_micros(duration: Duration, weight: u64, mut operation: impl FnMut(u64)) -> f64 {
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut count = 0;
    loop {
        operation(count);
        count += 1;
        if (weight >= 100 || count % 64 == 0) && start.elapsed() >= duration {
            break;
        }
    }
    (thread_cpu() - cpu).as_secs_f64() * 1e6 / (count * weight) as f64
}

/// The median; sorts the numbers.
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The number that `part` of 1000 do not exceed; `sorted` must be in ascending order.
pub fn per_mille(sorted: &[u64], part: usize) -> u64 {
    match sorted.len() {
        0 => 0,
        len => sorted[(len * part / 1000).min(len - 1)],
    }
}
