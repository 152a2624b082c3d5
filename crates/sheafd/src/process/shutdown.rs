//! The request to stop the server; the first reason wins.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The origin of a shutdown request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A signal, by its number.
    Signal(i32),
    /// The `shutdown` command of a client.
    Command,
}

/// Requests a shutdown and waits for one. Clones share the request.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<Inner>);

#[derive(Default)]
struct Inner {
    wish: Mutex<Option<Reason>>,
    wished: Condvar,
}

impl Shutdown {
    /// A handle without a request.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Requests a shutdown. Returns true for the first request; later reasons
    /// are ignored.
    pub fn request(&self, reason: Reason) -> bool {
        let mut wish = self.0.wish.lock();
        let first = wish.is_none();
        if first {
            *wish = Some(reason);
            self.0.wished.notify_all();
        }
        first
    }

    /// True after the first request.
    pub fn is_requested(&self) -> bool {
        self.0.wish.lock().is_some()
    }

    /// Waits for a request and returns its reason.
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
