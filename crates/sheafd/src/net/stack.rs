//! Hands back the stack pages that an idle thread no longer uses.
//!
//! ```text
//!   low                                               high
//!   | guard | untouched | touched by the last command | in use |
//!             <----------- given back ------------->  ^ here
//! ```
//!
//! A command may touch a hundred kilobytes of stack once; without this its
//! thread would hold them for as long as the client stays connected.

/// The bounds of this thread's stack.
pub(super) struct StackPages {
    low: usize,
    page: usize,
}

/// Kept below the current frame: the calls made while giving back.
const RED_ZONE_BYTES: usize = 4096;

impl StackPages {
    /// Those of the calling thread; `None` where the system does not say.
    pub(super) fn of_this_thread() -> Option<StackPages> {
        // SAFETY: `attributes` is initialised by pthread_getattr_np before it
        // is read, and destroyed once.
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
            })
        }
    }

    /// Gives back what lies below the current frame. To be called from the
    /// thread it belongs to; what is given back reads as zero when touched again.
    #[inline(never)]
    pub(super) fn release_unused(&self) {
        let local = 0u8;
        let frame = &raw const local as usize;
        let low = self.low.next_multiple_of(self.page);
        let high = frame.saturating_sub(RED_ZONE_BYTES + self.page) & !(self.page - 1);
        if high <= low {
            return;
        }
        // SAFETY: the range lies within this thread's stack and below every
        // live frame, so nothing that is still read loses its content.
        // A failure leaves the pages as they are.
        unsafe {
            libc::madvise(low as *mut libc::c_void, high - low, libc::MADV_DONTNEED);
        }
    }
}
