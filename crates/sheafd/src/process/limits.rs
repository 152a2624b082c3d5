//! What the system lets the process have, and what the process lets others have.

/// Makes every file from now on the user's own, as MongoDB does: whoever else
/// has an account on the machine cannot read the data.
pub fn keep_files_private() {
    // SAFETY: it cannot fail, and changes nothing but the mask.
    unsafe { libc::umask(0o077) };
}

/// A write beyond the limit on the size of a file (`ulimit -f`) fails as one to a full disk does, instead of ending
/// the process.
pub fn outlive_file_size_limit() {
    // SAFETY: no handler runs; the signal has no other effect from now on.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Raises the limit of open files as far as we may, and returns it; `None`
/// where there is none or the system does not say.
pub fn raise_open_files() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is valid for the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return None;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit {
            rlim_cur: limit.rlim_max,
            ..limit
        };
        // SAFETY: the pointer is valid for the call. When it fails the old limit stays.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            limit = raised;
        }
    }
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
