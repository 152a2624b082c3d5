//! Resource limits of the process and permissions of its files.

/// Creates all further files without permissions for group and others, as
/// MongoDB does: other accounts of the machine cannot read the data.
pub fn keep_files_private() {
    // SAFETY: the call cannot fail and changes only the mask.
    unsafe { libc::umask(0o077) };
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail like a write to a full disk,
/// instead of ending the process.
pub fn outlive_file_size_limit() {
    // SAFETY: installs no handler; the signal is ignored from now on.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Raises the limit of open files to the hard limit and returns it; `None` if
/// there is no limit or the system does not report it.
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
        // SAFETY: the pointer is valid for the call. On failure the old limit stays.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            limit = raised;
        }
    }
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
