//! The machine and the process: name, memory, processor time, file systems, heap.

mod heap;
mod resources;

pub use heap::{resident_anonymous, set_up_heap, trim_heap};
pub use resources::{
    SystemLimits, cpu_times, file_system, machine_memory, memory_limit, page_faults, system_limits,
    threads_limit,
};

/// The name of this machine.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer and its length are valid for the call.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    match failed {
        true => "localhost".to_string(),
        false => String::from_utf8_lossy(&name[..end]).into_owned(),
    }
}
