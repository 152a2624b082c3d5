//! Times as a program can take them: of this thread's processor, of the process, and of the clock.

use std::time::{Duration, Instant};

/// Processor time of the calling thread up to now.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of the process, all its threads together, up to now.
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

/// The most memory that the process has had resident, in bytes.
pub fn resident_bytes_max() -> u64 {
    status("VmHWM:")
}

/// The memory that the process has resident now, in bytes.
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

/// What the process has read and written up to now, as the system counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessIo {
    /// Bytes handed to the system to be written.
    pub bytes_written: u64,
    /// The calls that did so.
    pub writes: u64,
    /// Bytes that came from a disk, not from the system's memory.
    pub bytes_from_disk: u64,
}

/// See [`ProcessIo`]; zeros where the system does not tell.
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

/// Calls `operation` with 0, 1, 2, … for so long, and gives the processor time of one call in microseconds.
///
/// `operation` stands for `weight` operations.
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

/// The middle one of the numbers.
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Of sorted numbers, the one that so many of a thousand do not exceed.
pub fn per_mille(sorted: &[u64], part: usize) -> u64 {
    match sorted.len() {
        0 => 0,
        len => sorted[(len * part / 1000).min(len - 1)],
    }
}
