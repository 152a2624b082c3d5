//! The bytes of a connection, plain or inside TLS.
//!
//! ```text
//!   accepted ─> wait for bytes ─> ClientHello? ─┬─ no  ──> plain   (refused by requireTLS)
//!                                               └─ yes ──> handshake ─> TLS
//! ```
//!
//! No TLS state is allocated for a client before its first byte, and its handshake is bounded in
//! time and bytes.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rustls::ServerConnection;

use super::connection::Ended;
use super::link::{Link, Peer, poll};
use super::server::NetOptions;
use super::stack::StackPages;
use crate::tls::{Beginning, Finished, Tls, TlsMode};

/// Time that a client has for its handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Bytes that a client may send before its handshake is complete; a chain of certificates has
/// some thousand.
const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// Pause before looking again at a connection that began like TLS and is silent.
const PEEK_PAUSE: Duration = Duration::from_millis(5);

/// After this long without a byte in a handshake, unused memory is released.
const STALLED_AFTER: Duration = Duration::from_millis(100);

/// How the bytes of a connection are encoded.
pub(super) enum Stream {
    /// As they are.
    Plain,
    /// As records of TLS.
    Tls(Box<ServerConnection>),
}

/// Which of the two a client begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    Plain,
    Tls,
}

impl Stream {
    /// Waits for the client's first bytes where they decide, and completes the handshake.
    pub fn accept(link: &Link, options: &NetOptions) -> Result<(Stream, Option<Finished>), Ended> {
        let (Some(tls), Peer::Tcp(_)) = (&options.tls, link.peer()) else {
            return Ok((Stream::Plain, None));
        };
        let limit = options.handshake_limit.unwrap_or(HANDSHAKE_LIMIT);
        let end = Instant::now() + limit;
        match first_bytes(link, tls.mode(), limit, end)? {
            Begins::Tls => {}
            Begins::Plain if tls.mode() == TlsMode::Require => {
                return Err(Ended::Handshake(
                    "The server is configured to only allow SSL connections".into(),
                ));
            }
            Begins::Plain => return Ok((Stream::Plain, None)),
        }
        let (connection, finished) = handshake(link, tls, limit)?;
        Ok((Stream::Tls(connection), Some(finished)))
    }

    /// Reads some bytes of messages; 0 after the last.
    pub fn read(&mut self, link: &Link, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain => (&link.socket).read(into),
            Stream::Tls(tls) => read_tls(tls, link, into),
        }
    }

    /// Sends all of `bytes`.
    pub fn write_all(&mut self, link: &Link, mut bytes: &[u8]) -> io::Result<()> {
        let tls = match self {
            Stream::Plain => return (&link.socket).write_all(bytes),
            Stream::Tls(tls) => tls,
        };
        while !bytes.is_empty() {
            let taken = tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            flush(tls, link)?;
        }
        Ok(())
    }

    /// Tells the client that no more bytes follow. The result does not matter: the connection ends.
    pub fn close(&mut self, link: &Link) {
        if let Stream::Tls(tls) = self {
            tls.send_close_notify();
            // A client that does not read must not delay the end.
            if link.socket.set_nonblocking(true).is_ok() {
                let _ = flush(tls, link);
                let _ = link.socket.set_nonblocking(false);
            }
        }
    }
}

/// Looks at the first bytes, which stay in the socket.
///
/// Where plain connections are allowed, a silent one is one of them and may stay silent.
fn first_bytes(
    link: &Link,
    mode: TlsMode,
    limit: Duration,
    mut end: Instant,
) -> Result<Begins, Ended> {
    if mode != TlsMode::Require {
        wait(link, None)?;
        end = Instant::now() + limit;
    }
    loop {
        wait(link, Some(end))?;
        let mut bytes = [MaybeUninit::uninit(); 3];
        let count = link.socket.peek(&mut bytes).map_err(Ended::Broken)?;
        // SAFETY: the call has initialised the first `count` bytes.
        let seen = bytes[..count].iter().map(|b| unsafe { b.assume_init() });
        match begins(seen) {
            Ok(begins) => return Ok(begins),
            Err(_) if count == 0 => return Err(Ended::ByClient),
            Err(_) if Instant::now() >= end => return Err(too_slow(limit)),
            Err(_) => std::thread::sleep(PEEK_PAUSE),
        }
    }
}

/// Whether a connection begins with a record of TLS: type 22, version 3.1 to 3.4. A message that
/// begins so would have at least 66,326 bytes, which no first message has.
///
/// Errors: more bytes are needed.
fn begins(mut bytes: impl Iterator<Item = u8>) -> Result<Begins, ()> {
    let is_expected: [fn(u8) -> bool; 3] = [|b| b == 22, |b| b == 3, |b| (1..=4).contains(&b)];
    for is_expected in is_expected {
        if !is_expected(bytes.next().ok_or(())?) {
            return Ok(Begins::Plain);
        }
    }
    Ok(Begins::Tls)
}

/// Waits until bytes can be read.
fn wait(link: &Link, end: Option<Instant>) -> Result<(), Ended> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        match poll(&link.socket, libc::POLLIN, left) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                return Err(Ended::Handshake(
                    "the client sent nothing in time".to_owned(),
                ));
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Ended::Broken(e)),
        }
    }
}

fn too_slow(limit: Duration) -> Ended {
    Ended::Handshake(format!(
        "the TLS handshake was not complete after {} ms",
        limit.as_millis()
    ))
}

fn handshake(
    link: &Link,
    tls: &Tls,
    limit: Duration,
) -> Result<(Box<ServerConnection>, Finished), Ended> {
    let failed = |e: rustls::Error| Ended::Handshake(e.to_string());
    let end = Instant::now() + limit;
    // A client that does not read the server's part.
    let limited = link.socket.set_write_timeout(Some(limit));
    limited.map_err(Ended::Broken)?;
    let mut beginning = tls.begin().map_err(failed)?;
    let mut received = 0;
    while beginning.connection.is_handshaking() || beginning.connection.wants_write() {
        if Instant::now() >= end {
            return Err(too_slow(limit));
        }
        if beginning.connection.wants_write() {
            flush(&mut beginning.connection, link).map_err(Ended::Broken)?;
            continue;
        }
        received += receive(&mut beginning, link, end, limit)?;
        if received > HANDSHAKE_BYTES_MAX {
            return Err(Ended::Handshake(format!(
                "the client sent more than {HANDSHAKE_BYTES_MAX} bytes without completing the handshake"
            )));
        }
    }
    let finished = tls.finish(&beginning);
    Ok((beginning.connection, finished))
}

/// Reads and processes some bytes of a handshake, and returns their number.
fn receive(
    beginning: &mut Beginning,
    link: &Link,
    end: Instant,
    limit: Duration,
) -> Result<usize, Ended> {
    if !poll(&link.socket, libc::POLLIN, Some(STALLED_AFTER)).unwrap_or(false)
        && let Some(stack) = StackPages::of_this_thread()
    {
        stack.release_unused();
    }
    wait(link, Some(end)).map_err(|ended| match ended {
        Ended::Handshake(_) => too_slow(limit),
        other => other,
    })?;
    let connection = &mut beginning.connection;
    match connection.read_tls(&mut &link.socket) {
        Ok(0) => Err(Ended::Handshake(
            "the client closed the connection during the TLS handshake".to_owned(),
        )),
        Ok(received) => match connection.process_new_packets() {
            Ok(_) => Ok(received),
            Err(e) => {
                // The alert, from which the client learns the reason.
                let _ = flush(connection, link);
                Err(Ended::Handshake(e.to_string()))
            }
        },
        Err(e) if is_passing(&e) => Ok(0),
        Err(e) => Err(Ended::Broken(e)),
    }
}

/// Reads from the socket until a record with bytes of messages is complete.
fn read_tls(tls: &mut ServerConnection, link: &Link, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(into) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // Messages have lengths, so an end without TLS's own end of data cannot shorten one.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            read => return read,
        }
        tls.read_tls(&mut &link.socket)?;
        let processed = tls.process_new_packets();
        if tls.wants_write() {
            // An answer to a change of keys, or an alert.
            flush(tls, link)?;
        }
        processed.map_err(io::Error::other)?;
    }
}

/// Sends the records that wait.
fn flush(tls: &mut ServerConnection, link: &Link) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(&mut &link.socket) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether a read can be repeated.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
