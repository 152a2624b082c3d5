//! The wish that the server stops, from whoever has it first.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use sheaf_bson::Error;
use sheaf_server::control::Control;

/// Who wants the server to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A signal, by its number.
    Signal(i32),
    /// The `shutdown` command of a client.
    Command,
}

/// A handle to ask for the end, and to wait for somebody to ask. Clones are
/// the same handle.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<Inner>);

#[derive(Default)]
struct Inner {
    wish: Mutex<Option<Reason>>,
    wished: Condvar,
}

impl Shutdown {
    /// Nobody has asked yet.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Asks. True for the first to do so; the others' reasons are forgotten.
    pub fn request(&self, reason: Reason) -> bool {
        let mut wish = self.0.wish.lock();
        let first = wish.is_none();
        if first {
            *wish = Some(reason);
            self.0.wished.notify_all();
        }
        first
    }

    /// True once somebody has asked.
    pub fn is_requested(&self) -> bool {
        self.0.wish.lock().is_some()
    }

    /// Waits until somebody asks.
    pub fn wait(&self) -> Reason {
        let mut wish = self.0.wish.lock();
        loop {
            match &*wish {
                Some(reason) => return reason.clone(),
                None => self.0.wished.wait(&mut wish),
            }
        }
    }
}

impl Control for Shutdown {
    fn request_shutdown(&self) -> Result<(), Error> {
        self.request(Reason::Command);
        Ok(())
    }
}
