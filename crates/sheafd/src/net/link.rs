//! One client's connection, as its handler and the server see it.
//!
//! The connection's thread reads and writes the socket. Other threads only
//! observe it: a long operation checks periodically whether its client is still
//! connected, and the server closes the connection when it stops.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sheaf_auth::restriction::Ends;
use sheaf_server::client::{Client, ClientState};
use socket2::Socket;

use super::compression::CompressionCounters;
use crate::tls::Identity;

/// The address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client's address.
    Tcp(SocketAddr),
    /// A client of the Unix domain socket at this path; it has no address itself.
    Unix(PathBuf),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix(_) => f.write_str("anonymous unix socket"),
        }
    }
}

/// A connection, shared between its thread and its observers.
pub struct Link {
    id: u64,
    peer: Peer,
    local: Option<SocketAddr>,
    opened: Instant,
    pub(super) socket: Socket,
    closed: AtomicBool,
    /// The client's valid certificate, after the TLS handshake.
    pub(super) certificate: OnceLock<Identity>,
    pub(super) counters: Counters,
}

/// Traffic counters of one connection. Only its thread writes them.
#[derive(Default)]
pub(super) struct Counters {
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub requests: AtomicU64,
    pub compression: CompressionCounters,
    /// A request is being handled.
    pub active: AtomicBool,
}

impl Link {
    pub(super) fn new(id: u64, peer: Peer, local: Option<SocketAddr>, socket: Socket) -> Arc<Link> {
        Arc::new(Link {
            id,
            peer,
            local,
            opened: Instant::now(),
            socket,
            closed: AtomicBool::new(false),
            certificate: OnceLock::new(),
            counters: Counters::default(),
        })
    }

    /// The connection's number, from 1, in the order accepted.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name of its operations in log lines and currentOp: `conn12`.
    pub fn name(&self) -> String {
        format!("conn{}", self.id)
    }

    /// The client's address.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The server's address that the client connected to; `None` on a Unix domain socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The valid certificate that the client presented in its TLS handshake.
    pub fn certificate(&self) -> Option<&Identity> {
        self.certificate.get()
    }

    /// When the connection was accepted.
    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// True while a request of this connection is being handled.
    pub fn is_active(&self) -> bool {
        self.counters.active.load(Ordering::Relaxed)
    }

    /// Whether the client is still connected. Costs one system call: for loops
    /// that run for milliseconds between two checks, not for each document.
    ///
    /// A client that closed only its sending side counts as gone.
    pub fn state(&self) -> ClientState {
        self.wait(Duration::ZERO)
    }

    /// Waits until the client disconnects, the server stops, or `limit` has
    /// passed (then the state is `Connected`).
    pub fn wait(&self, limit: Duration) -> ClientState {
        let end = Instant::now().checked_add(limit);
        loop {
            if self.closed.load(Ordering::Acquire) {
                return ClientState::Stopping;
            }
            let left = end.map_or(limit, |end| end.saturating_duration_since(Instant::now()));
            match poll(&self.socket, PEER_CLOSED, Some(left)) {
                Ok(true) if self.closed.load(Ordering::Acquire) => return ClientState::Stopping,
                Ok(true) => return ClientState::Gone,
                Ok(false) if left.is_zero() => return ClientState::Connected,
                Ok(false) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ClientState::Gone,
            }
        }
    }

    /// Closes the connection after its current request: no more is read from
    /// it, and a reply in progress is still sent.
    pub fn close_soon(&self) {
        self.closed.store(true, Ordering::Release);
        // An error means that the client has disconnected already.
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
    }

    /// Closes the connection immediately, even in the middle of a reply.
    pub fn close_now(&self) {
        self.closed.store(true, Ordering::Release);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// True after the server has closed it.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl Client for Link {
    fn id(&self) -> u64 {
        self.id
    }

    fn remote(&self) -> String {
        self.peer.to_string()
    }

    fn local_port(&self) -> Option<u16> {
        self.local.map(|address| address.port())
    }

    fn certificate_subject(&self) -> Option<&str> {
        self.certificate().map(|identity| identity.subject.as_str())
    }

    fn ends(&self) -> Option<Ends> {
        match (&self.peer, self.local) {
            (Peer::Tcp(client), Some(server)) => Some(Ends {
                client: client.ip(),
                server: server.ip(),
            }),
            _ => None,
        }
    }

    fn is_local(&self) -> bool {
        match &self.peer {
            Peer::Tcp(client) => client.ip().to_canonical().is_loopback(),
            Peer::Unix(_) => true,
        }
    }

    fn wait_until_gone(&self, limit: Duration) -> ClientState {
        self.wait(limit)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn{} from {}", self.id, self.peer)
    }
}

/// The event of a peer that has closed its sending side. Where the system has none, a peer counts
/// as gone when it has closed both.
#[cfg(target_os = "linux")]
const PEER_CLOSED: libc::c_short = libc::POLLRDHUP;
#[cfg(not(target_os = "linux"))]
const PEER_CLOSED: libc::c_short = libc::POLLHUP;

/// Waits for one of `events`, an error or a hang-up on the socket; `None`
/// waits indefinitely. True if an event occurred, false if `limit` passed.
pub(super) fn poll(
    socket: &impl AsRawFd,
    events: libc::c_short,
    limit: Option<Duration>,
) -> io::Result<bool> {
    let mut watched = [watch(socket, events)];
    poll_all(&mut watched, limit)
}

/// An entry for [`poll_all`].
pub(super) fn watch(socket: &impl AsRawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    }
}

/// Waits for an event on any entry and stores it in the entry's `revents`.
pub(super) fn poll_all(watched: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<bool> {
    let milliseconds = match limit {
        None => -1,
        // Rounded up, so that a wait does not spin during its last millisecond.
        Some(limit) => limit
            .as_nanos()
            .div_ceil(1_000_000)
            .min(libc::c_int::MAX as u128) as libc::c_int,
    };
    // SAFETY: the pointer and count describe an exclusively borrowed slice.
    let ready = unsafe {
        libc::poll(
            watched.as_mut_ptr(),
            watched.len() as libc::nfds_t,
            milliseconds,
        )
    };
    match ready {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}
