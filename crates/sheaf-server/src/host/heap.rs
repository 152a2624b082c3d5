//! The C library's heap, which keeps what is freed: told to keep large blocks apart, to join small ones at once, and to
//! give back the rest.
//!
//! What a cache evicts leaves holes between what it keeps, and the library gives back only what lies at the heap's end. A
//! budget that counts what is in use would hold, and twice of it be resident.

/// Blocks from this length on have pages of their own, which go back to the system when they are freed. By itself the
/// library raises that to the longest block that was ever freed: after one document of 16 MB, for all.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const APART_BYTES: libc::c_int = 128 << 10;

/// Has large blocks lie apart, and small ones joined with free neighbours when they are freed.
///
/// By itself the library keeps freed blocks of up to 128 bytes as they are, until a large one is freed: then it joins
/// all of them. Behind a million small blocks of a pipeline that takes 40 ms, in whatever operation happens to free
/// the large one.
///
/// # Safety
/// The process has one thread. The library reads what is set here without a lock.
pub unsafe fn set_up_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the library's, beside nobody, as the caller promises.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, APART_BYTES);
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Gives pages back to the system in which nothing is in use. Takes milliseconds, in which other threads may wait for
/// memory.
pub fn give_back_unused() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Memory of the process that is resident and no file's, in bytes.
pub fn resident_anonymous() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
