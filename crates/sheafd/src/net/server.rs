//! Accepts connections, starts a thread for each, and stops them in order.
//!
//! ```text
//!  start:  listeners ──> "listener" thread ──poll──> accept ──> "conn<n>" threads
//!  stop:   no more accepting; each connection ends after its current reply;
//!          the service interrupts long operations; the rest is cut off
//! ```

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sheaf_server::guard::caught;
use sheaf_server::log::{self, Component, Log, Severity, events};
use sheaf_wire::{CompressorSet, Error, ErrorCode};

use crate::tls::Tls;

use super::connection::{self, Ended};
use super::link::{Link, poll_all, watch};
use super::listener::Listener;
use super::message_memory::MessageMemory;
use super::{Connections, Service};

/// Address space for a connection's stack; only the part in use takes memory. It has room for a
/// request of the deepest nesting. In optimised builds less than a huge page, so that the kernel
/// never uses one. Frames of unoptimised builds are several times as large.
const STACK_BYTES: usize = if cfg!(debug_assertions) {
    8 << 20
} else {
    (2 << 20) - (64 << 10)
};

/// How long accepting pauses after an error, such as a lack of descriptors or memory.
const REST_AFTER_ERROR: Duration = Duration::from_millis(50);

/// How connections are served.
#[derive(Clone, Debug, Default)]
pub struct NetOptions {
    /// Compressors that requests may use.
    pub compressors: CompressorSet,
    /// Do not log connections opening and closing (`--quiet`).
    pub quiet: bool,
    /// How long a client may read nothing of a reply that is being sent, before its connection is
    /// ended; `None` for [`SEND_LIMIT_DEFAULT`].
    pub send_limit: Option<Duration>,
    /// TLS of TCP connections; `None` if they are plain.
    pub tls: Option<Arc<Tls>>,
    /// How long a client may take for its TLS handshake; `None` for ten seconds.
    pub handshake_limit: Option<Duration>,
    /// Memory of large messages.
    pub message_memory: Arc<MessageMemory>,
}

/// How long a client may read nothing of a reply. Its thread and the reply are kept for that long.
pub const SEND_LIMIT_DEFAULT: Duration = Duration::from_secs(300);

/// A running server. Dropping it without [`stop`](Server::stop) leaves its
/// threads running.
pub struct Server {
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
    /// Closing it ends the listener thread.
    wake: UnixStream,
}

struct Shared {
    service: Arc<dyn Service>,
    connections: Arc<Connections>,
    options: NetOptions,
    log: Arc<Log>,
}

impl Server {
    /// Begins to accept on these listeners.
    ///
    /// Errors: no thread could be started.
    pub fn start(
        listeners: Vec<Listener>,
        service: Arc<dyn Service>,
        connections: Arc<Connections>,
        options: NetOptions,
        log: Arc<Log>,
    ) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            service,
            connections,
            options,
            log,
        });
        let (wake, woken) = UnixStream::pair()?;
        let listening = Arc::clone(&shared);
        let listener = std::thread::Builder::new()
            .name("listener".into())
            .spawn(move || {
                log::set_context("listener");
                accept_all(&listening, &listeners, &woken);
            })?;
        Ok(Server {
            shared,
            listener,
            wake,
        })
    }

    /// Stops accepting, waits up to `grace` for current operations, then cuts off the remaining
    /// connections. When it returns no handler exists any more, unless one does not return from an
    /// operation for another `grace`.
    pub fn stop(self, grace: Duration) {
        drop(self.wake);
        // It ends soon: its loop blocks only in the poll just woken, or pauses after an error.
        let _ = self.listener.join();
        let connections = &self.shared.connections;
        connections.close_soon();
        self.shared.service.interrupt();
        if !connections.wait_closed(grace) {
            connections.close_now();
            if !connections.wait_closed(grace) {
                self.shared.log.warning(
                    Component::Network,
                    events::CONNECTIONS_BUSY,
                    "Connections are still busy; stopping without them",
                    |attr| {
                        attr.append("connections", connections.stats().current as i64);
                    },
                );
            }
        }
    }
}

/// The listener thread.
fn accept_all(shared: &Arc<Shared>, listeners: &[Listener], woken: &UnixStream) {
    let mut watched: Vec<libc::pollfd> = listeners
        .iter()
        .map(|listener| watch(&listener.socket, libc::POLLIN))
        .collect();
    watched.push(watch(woken, libc::POLLIN));
    loop {
        if let Err(e) = poll_all(&mut watched, None)
            && e.kind() != io::ErrorKind::Interrupted
        {
            accept_failed(shared, &e);
            continue;
        }
        let (woken, waiting) = match watched.split_last() {
            Some((woken, waiting)) => (woken.revents, waiting),
            None => return,
        };
        if woken != 0 {
            return;
        }
        for (listener, watched) in listeners.iter().zip(waiting) {
            if watched.revents != 0 {
                accept_waiting(shared, listener);
            }
        }
    }
}

/// Accepts every pending connection of a listener.
fn accept_waiting(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        match listener.accept() {
            Ok((socket, peer, local)) => {
                let Some(id) = shared.connections.admit() else {
                    refuse(shared, &peer.to_string());
                    continue;
                };
                // Linux does not pass this on to accepted sockets; some other systems do.
                if let Err(e) = socket.set_nonblocking(false) {
                    accept_failed(shared, &e);
                    continue;
                }
                start_connection(shared, Link::new(id, peer, local, socket));
            }
            Err(e) => match e.kind() {
                io::ErrorKind::WouldBlock => return,
                // The client has already disconnected.
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                _ => return accept_failed(shared, &e),
            },
        }
    }
}

fn accept_failed(shared: &Shared, error: &io::Error) {
    shared.log.error(
        Component::Network,
        22949,
        "Error accepting new connection",
        |attr| {
            attr.append("error", error.to_string().as_str());
        },
    );
    std::thread::sleep(REST_AFTER_ERROR);
}

fn refuse(shared: &Shared, remote: &str) {
    shared.log.info(
        Component::Network,
        22942,
        "Connection refused because there are too many open connections",
        |attr| {
            attr.append("remote", remote);
            attr.append("connectionCount", shared.connections.stats().current as i64);
        },
    );
}

fn start_connection(shared: &Arc<Shared>, link: Arc<Link>) {
    let count = shared.connections.insert(&link);
    if !shared.options.quiet {
        shared
            .log
            .info(Component::Network, 22943, "Connection accepted", |attr| {
                about(&link, count, attr);
            });
    }
    let own = Arc::clone(shared);
    let served = Arc::clone(&link);
    let thread = std::thread::Builder::new()
        .name(link.name())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            log::set_context(served.name());
            // A handler that panics while it is created or dropped must not affect other
            // connections.
            let ended =
                caught(|| connection::serve(&served, &*own.service, &own.options, &own.log))
                    .unwrap_or(Ended::Panicked);
            let left = own.connections.remove(&served);
            log_end(&own, &served, left, &ended);
        });
    if let Err(e) = thread {
        shared.connections.remove(&link);
        accept_failed(shared, &e);
    }
}

fn log_end(shared: &Shared, link: &Link, left: usize, ended: &Ended) {
    if let Ended::Handshake(error) = ended {
        log_failed_handshake(shared, link, error);
    }
    if shared.options.quiet {
        return;
    }
    let log = &shared.log;
    match ended {
        Ended::Broken(_) | Ended::Truncated | Ended::Unread => log.line(
            Severity::Info,
            Component::Network,
            22989,
            "Error sending response to client or reading its request. Ending connection",
            |attr| {
                about(link, left, attr);
                attr.append("error", ended.to_string().as_str());
            },
        ),
        _ => log.line(
            Severity::Info,
            Component::Network,
            22944,
            "Connection ended",
            |attr| about(link, left, attr),
        ),
    }
}

fn log_failed_handshake(shared: &Shared, link: &Link, error: &str) {
    let failed = Error::new(ErrorCode::SSL_HANDSHAKE_FAILED, error);
    shared.log.info(
        Component::Network,
        22988,
        "Error receiving request from client. Ending connection from remote",
        |attr| {
            attr.begin_document("error");
            attr.append("code", failed.code().0);
            attr.append("codeName", failed.code_name().as_ref());
            attr.append("errmsg", failed.message());
            attr.end();
            attr.append("remote", link.peer().to_string().as_str());
            attr.append("connectionId", link.id() as i64);
        },
    );
}

fn about(link: &Link, count: usize, attr: &mut sheaf_bson::DocBuilder) {
    attr.append("remote", link.peer().to_string().as_str());
    attr.append("connectionId", link.id() as i64);
    attr.append("connectionCount", count as i64);
}
