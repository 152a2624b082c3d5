//! Configures the C library's heap, which retains freed memory: large blocks get dedicated pages,
//! small blocks are coalesced when freed, and unused pages are returned to the system.
//!
//! Cache eviction leaves holes between the blocks that remain, and by default the library returns
//! only the memory at the end of the heap. A budget of bytes in use would be kept while twice as
//! many bytes are resident.

/// Blocks of at least this length get dedicated pages, which return to the system when the block
/// is freed. By default the library raises the threshold to the longest such block freed so far:
/// one document of 16 MB raises it for all later blocks.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const APART_BYTES: libc::c_int = 128 << 10;

/// Gives large blocks dedicated pages, and coalesces small blocks with free neighbours when they
/// are freed.
///
/// By default the library leaves freed blocks of up to 128 bytes uncoalesced until a large block is
/// freed, and then coalesces all of them. After a pipeline with a million small blocks that takes
/// 40 ms, in whichever operation frees the large block.
///
/// # Safety
/// The process has one thread. The library reads these settings without a lock.
pub unsafe fn set_up_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the library; no other thread runs, as the caller guarantees.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Returns pages without blocks in use to the system. Takes milliseconds, during which other
/// threads may wait for memory.
pub fn trim_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Resident memory of the process that no file backs, in bytes.
pub fn resident_anonymous() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
