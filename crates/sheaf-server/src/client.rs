//! The client of a connection, as commands see it.
//!
//! Commands need three facts about their client: which one it is, where it is, and whether it
//! still waits for the reply. The network implements this over a socket; a program that runs
//! commands in process uses [`InProcessClient`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sheaf_auth::restriction::Ends;

/// Whether a client still waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// The client is connected, as far as the system knows.
    Connected,
    /// The client has closed its end, or the connection broke.
    Gone,
    /// The server is stopping, or this connection was closed by the server.
    Stopping,
}

/// One client. Shared between the thread that runs its commands and the threads that observe it.
pub trait Client: Send + Sync {
    /// The connection's number, from 1, in the order accepted.
    fn id(&self) -> u64;

    /// The client's address, as logs and `currentOp` show it.
    fn remote(&self) -> String;

    /// The port that the client connected to; `None` without TCP.
    fn local_port(&self) -> Option<u16>;

    /// The subject of the valid certificate that the client presented in its TLS handshake, in the
    /// form of RFC 2253: the name of its user in `$external`.
    fn certificate_subject(&self) -> Option<&str> {
        None
    }

    /// The addresses of both ends; `None` without TCP.
    fn ends(&self) -> Option<Ends> {
        None
    }

    /// Whether the client is on this machine: in this process, on the loopback address, or on a
    /// Unix domain socket.
    fn is_local(&self) -> bool;

    /// Whether the client still waits. May cost a system call: for loops that run for
    /// milliseconds between two checks, not for each document.
    fn state(&self) -> ClientState {
        self.wait_until_gone(Duration::ZERO)
    }

    /// Waits until the client goes away, the server stops, or the limit has passed, which returns
    /// `Connected`.
    fn wait_until_gone(&self, limit: Duration) -> ClientState;
}

/// A client in the server's own process: always connected.
#[derive(Debug)]
pub struct InProcessClient {
    id: u64,
}

impl InProcessClient {
    /// A client with the next number of the process.
    pub fn new() -> InProcessClient {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        InProcessClient {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Default for InProcessClient {
    fn default() -> Self {
        Self::new()
    }
}

impl Client for InProcessClient {
    fn id(&self) -> u64 {
        self.id
    }

    fn remote(&self) -> String {
        "in process".to_string()
    }

    fn local_port(&self) -> Option<u16> {
        None
    }

    fn is_local(&self) -> bool {
        true
    }

    fn wait_until_gone(&self, limit: Duration) -> ClientState {
        std::thread::sleep(limit);
        ClientState::Connected
    }
}
