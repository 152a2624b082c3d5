//! Releases the stack pages that an idle thread no longer uses.
//!
//! ```text
//!   low                                               high
//!   | guard | untouched | touched by the last command | in use |
//!             <------------ released -------------->  ^ here
//! ```
//!
//! A command may touch a hundred kilobytes of stack once. Without the release
//! its thread would hold them for as long as the client stays connected.

use std::marker::PhantomData;

/// The bounds of the current thread's stack. Not `Send`, because of the marker.
pub(super) struct StackPages {
    low: usize,
    page: usize,
    _of_this_thread: PhantomData<*const u8>,
}

/// Bytes kept below the current frame for the calls that release the pages.
const RED_ZONE_BYTES: usize = 4096;

impl StackPages {
    /// The bounds of the calling thread's stack; `None` if the system does not report them.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of_this_thread() -> Option<StackPages> {
        None
    }

    /// The bounds of the calling thread's stack; `None` if the system does not report them.
    #[cfg(target_os = "linux")]
    pub(super) fn of_this_thread() -> Option<StackPages> {
        // SAFETY: `attributes` is initialised by pthread_getattr_np before it is read, and
        // destroyed once; the other pointers are to variables of the types that the call expects.
        unsafe {
            let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let mut low = std::ptr::null_mut();
            let mut size = 0;
            let got = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            let page = usize::try_from(page).ok().filter(|p| p.is_power_of_two())?;
            (got == 0).then_some(StackPages {
                low: low as usize,
                page,
                _of_this_thread: PhantomData,
            })
        }
    }

    /// Releases the pages below the current frame. They read as zero when
    /// touched again.
    #[inline(never)]
    pub(super) fn release_unused(&self) {
        let local = 0u8;
        let frame = &raw const local as usize;
        let low = self.low.next_multiple_of(self.page);
        let high = frame.saturating_sub(RED_ZONE_BYTES + self.page) & !(self.page - 1);
        if high <= low {
            return;
        }
        // SAFETY: the value belongs to this thread, so the range lies within
        // the running stack and below this frame, which is the last one; the
        // call itself needs less than the red zone. A signal handler that ran
        // there has returned before the call. So no page that is still read
        // loses its content. A failure leaves the pages unchanged.
        unsafe {
            libc::madvise(low as *mut libc::c_void, high - low, libc::MADV_DONTNEED);
        }
    }
}
