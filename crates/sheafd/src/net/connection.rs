//! Serves one connection, on a dedicated thread.
//!
//! ```text
//!          ┌──────────────────────────────────────────────┐
//!          v                                              │
//!   read until a frame is whole ──> decode ──> handle ──> send
//!          │ nothing for IDLE_AFTER      │
//!          v                             └─ refused: answer, skip the frame
//!   release memory, wait
//! ```

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sheaf_server::guard::caught;
use sheaf_server::log::{Component, Log, events};
use sheaf_wire::{Decoder, Error, ErrorCode, FrameBuffer, Rejection, ReplyWriter};

use super::link::{Link, poll};
use super::message_memory::{COUNTED_BYTES_MIN, MessageMemory, Reservation};
use super::server::{NetOptions, SEND_LIMIT_DEFAULT};
use super::service::{ConnectionHandler, Next, Service};
use super::stack::StackPages;
use super::stream::Stream;
use crate::tls::Finished;

/// A connection that receives nothing for this long releases its memory.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// How long the server keeps reading from a client before it closes the connection.
const LINGER: Duration = Duration::from_millis(200);

/// Maximum size of a message before a login: a hello with the first message of a login is a tenth.
const STRANGER_BYTES_MAX: usize = 16 << 10;

/// Time that a client has for each message before its login.
const STRANGER_LIMIT: Duration = Duration::from_secs(30);

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The client closed it between two messages.
    ByClient,
    /// The client closed it in the middle of a message.
    Truncated,
    /// The handler ended it.
    ByHandler,
    /// The client sent a message after which reading cannot continue.
    Refused(Error),
    /// The handler panicked.
    Panicked,
    /// The TLS handshake failed, or the client began none where it is required.
    Handshake(String),
    /// The server is stopping.
    Stopping,
    /// The client read nothing of a reply for too long.
    Unread,
    /// The client did not complete a message before its login.
    Slow,
    /// The connection broke.
    Broken(io::Error),
}

/// Serves one client until one side ends it.
pub(super) fn serve(
    link: &Arc<Link>,
    service: &dyn Service,
    options: &NetOptions,
    log: &Log,
) -> Ended {
    let ended = match Stream::accept(link, options) {
        Ok((stream, finished)) => {
            if let Some(finished) = finished {
                greet(link, finished, options, log);
            }
            serve_messages(link, stream, service, options, log)
        }
        Err(ended) => {
            // What the client has sent after its mistake must not cost it the reason.
            if let Ended::Handshake(_) = ended {
                linger(link);
            }
            ended
        }
    };
    match link.is_closed() {
        true if !matches!(ended, Ended::Panicked) => Ended::Stopping,
        _ => ended,
    }
}

fn serve_messages(
    link: &Arc<Link>,
    stream: Stream,
    service: &dyn Service,
    options: &NetOptions,
    log: &Log,
) -> Ended {
    let send_limit = options.send_limit.unwrap_or(SEND_LIMIT_DEFAULT);
    let limited = (link.socket)
        // Without it a blocking read would never release memory; poll waits longer.
        .set_read_timeout(Some(IDLE_AFTER))
        .and_then(|()| link.socket.set_write_timeout(Some(send_limit)));
    if let Err(e) = limited {
        return Ended::Broken(e);
    }
    let mut connection = Connection {
        link,
        stream,
        log,
        handler: service.connection(link),
        frames: FrameBuffer::new(),
        frame_since: None,
        decoder: Decoder::new(options.compressors),
        reply: ReplyWriter::new(),
        stack: StackPages::of_this_thread(),
        memory: &options.message_memory,
        reserved: None,
    };
    loop {
        if let Err(ended) = connection.step() {
            connection.stream.close(link);
            return ended;
        }
    }
}

/// Records what a TLS handshake showed about the client.
fn greet(link: &Link, finished: Finished, options: &NetOptions, log: &Log) {
    let version = finished.version;
    if options.tls.as_ref().is_some_and(|tls| tls.logs(version)) {
        log.info(
            Component::Network,
            events::TLS_VERSION_ACCEPTED,
            "Connection accepted with TLS",
            |attr| {
                attr.append("remote", link.peer().to_string().as_str());
                attr.append("connectionId", link.id() as i64);
                attr.append("version", version.number());
            },
        );
    }
    if let Some(error) = &finished.invalid {
        log.warning(
            Component::Network,
            events::INVALID_CERTIFICATE_ACCEPTED,
            "Invalid client certificate accepted; it identifies no user",
            |attr| {
                attr.append("remote", link.peer().to_string().as_str());
                attr.append("connectionId", link.id() as i64);
                attr.append("error", error.as_str());
            },
        );
    }
    if let Some(client) = finished.client {
        // Set once: there is one handshake.
        let _ = link.certificate.set(client);
    }
}

struct Connection<'l> {
    link: &'l Link,
    stream: Stream,
    log: &'l Log,
    handler: Box<dyn ConnectionHandler>,
    frames: FrameBuffer,
    /// When the incomplete message of a client that has not logged in began.
    frame_since: Option<Instant>,
    decoder: Decoder,
    reply: ReplyWriter,
    stack: Option<StackPages>,
    memory: &'l Arc<MessageMemory>,
    /// For the large message that is being received or handled.
    reserved: Option<Reservation>,
}

impl Connection<'_> {
    /// Reads some bytes, or answers one request.
    fn step(&mut self) -> Result<(), Ended> {
        if !self.handler.is_trusted() {
            self.limit_stranger()?;
        }
        let next = self.frames.next_frame().and_then(|length| {
            self.reserve()?;
            Ok(length)
        });
        match next {
            Ok(None) => self.read(),
            Ok(Some(length)) => self.request(length),
            Err(rejection) => self.refuse(rejection),
        }
    }

    /// Reserves the memory of the first frame, before more of it is read or it is decompressed.
    /// Errors: there is none; the frame is to be skipped.
    fn reserve(&mut self) -> Result<(), Rejection> {
        let bytes = self.frames.message_bytes();
        if bytes <= COUNTED_BYTES_MIN || self.reserved.is_some() {
            return Ok(());
        }
        self.reserved = self.memory.reserve(bytes, || self.link.is_closed());
        match self.reserved {
            Some(_) => Ok(()),
            None => Err(self.frames.refusal(Error::new(
                ErrorCode::EXCEEDED_MEMORY_LIMIT,
                format!(
                    "there is no memory for a message of {bytes} bytes, because large messages of other connections take it; try again, or send smaller batches"
                ),
            ))),
        }
    }

    /// Ends the connection of a client that has not logged in and sends a large message, or one
    /// that does not end.
    fn limit_stranger(&mut self) -> Result<(), Ended> {
        if !self.frames.in_frame() {
            self.frame_since = None;
            return Ok(());
        }
        let since = *self.frame_since.get_or_insert_with(Instant::now);
        if since.elapsed() > STRANGER_LIMIT {
            return Err(Ended::Slow);
        }
        if self.frames.message_bytes() <= STRANGER_BYTES_MAX {
            return Ok(());
        }
        self.refuse(Rejection {
            error: Error::new(
                ErrorCode::UNAUTHORIZED,
                format!("messages before a login are limited to {STRANGER_BYTES_MAX} bytes"),
            ),
            answer: None,
            skip: 0,
            close: true,
        })
    }

    fn read(&mut self) -> Result<(), Ended> {
        loop {
            match self.stream.read(self.link, self.frames.spare()) {
                Ok(0) if self.frames.in_frame() => return Err(Ended::Truncated),
                Ok(0) => return Err(Ended::ByClient),
                Ok(n) => {
                    self.frames.filled(n);
                    add(&self.link.counters.bytes_in, n);
                    return Ok(());
                }
                Err(e) => match e.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.wait_idle()?,
                    _ => return Err(Ended::Broken(e)),
                },
            }
        }
    }

    /// Waits indefinitely for the next byte, with as little memory as possible.
    fn wait_idle(&mut self) -> Result<(), Ended> {
        self.frames.release();
        self.decoder.release();
        self.reply.release();
        self.handler.idle();
        if let Some(stack) = &self.stack {
            stack.release_unused();
        }
        let is_stranger = self.frames.in_frame() && !self.handler.is_trusted();
        let limit = is_stranger.then_some(STRANGER_LIMIT);
        match poll(&self.link.socket, libc::POLLIN, limit) {
            Ok(false) if is_stranger => Err(Ended::Slow),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(Ended::Broken(e)),
        }
    }

    /// Answers the request in the complete frame at the front.
    fn request(&mut self, length: usize) -> Result<(), Ended> {
        match self.answer(length) {
            Ok(()) => {
                self.link.counters.active.store(false, Ordering::Relaxed);
                self.frames.consume(length);
                if self.reserved.is_some() {
                    self.decoder.release();
                    self.reserved = None;
                }
                self.reply.release_large();
                Ok(())
            }
            Err(Unanswered::Refused(rejection)) => self.refuse(rejection),
            Err(Unanswered::Ended(ended)) => Err(ended),
        }
    }

    fn answer(&mut self, length: usize) -> Result<(), Unanswered> {
        let request = self.decoder.decode(self.frames.frame(length))?;
        let Connection {
            link,
            stream,
            log,
            handler,
            reply,
            memory,
            ..
        } = self;
        add(&link.counters.requests, 1);
        link.counters.active.store(true, Ordering::Relaxed);
        let wants_reply = !request.more_to_come();
        if let Some(compressor) = request.compressor() {
            let counters = &link.counters.compression;
            counters.unpacked(compressor, length, request.length());
        }
        reply.begin(&request);
        if request.compressor().is_some() && !handler.is_compressible(request.command_name()) {
            reply.leave_uncompressed();
        }
        let mut called = caught(|| handler.handle(&request, reply));
        loop {
            let next = match called {
                Ok(Next::Exhaust)
                    if wants_reply && request.exhaust_allowed() && !link.is_closed() =>
                {
                    Next::Exhaust
                }
                Ok(Next::Exhaust) => Next::Reply,
                Ok(next) => next,
                Err(panic) => {
                    panicked(log, &panic, request.command_name());
                    reply.error(&Error::new(
                        ErrorCode::INTERNAL_ERROR,
                        format!("internal error: {panic}"),
                    ));
                    if wants_reply {
                        reply.finish();
                        send_reply(link, stream, memory, reply)?;
                    }
                    return Err(Ended::Panicked.into());
                }
            };
            let nothing = next == Next::NoReply || next == Next::Close && reply.is_empty();
            if wants_reply && !nothing {
                reply.set_more_to_come(next == Next::Exhaust);
                reply.finish();
                send_reply(link, stream, memory, reply)?;
            }
            handler.replied();
            match next {
                Next::Reply | Next::NoReply => return Ok(()),
                Next::Close => return Err(Ended::ByHandler.into()),
                Next::Exhaust => {
                    reply.begin_next();
                    called = caught(|| handler.exhaust(&request, reply));
                }
            }
        }
    }

    /// Answers a rejected frame, which no command receives, and skips it.
    fn refuse(&mut self, rejection: Rejection) -> Result<(), Ended> {
        add(&self.link.counters.requests, 1);
        self.log.info(
            Component::Network,
            events::MESSAGE_REFUSED,
            "Message rejected",
            |attr| {
                attr.append("remote", self.link.peer().to_string().as_str());
                attr.append("connectionId", self.link.id() as i64);
                attr.append("codeName", rejection.error.code_name().as_ref());
                let error = rejection.error.message();
                attr.append("error", self.log.client_text(error));
            },
        );
        if self.reply.reject(&rejection) {
            send(self.link, &mut self.stream, self.reply.bytes())?;
        }
        if rejection.close {
            self.stream.close(self.link);
            linger(self.link);
            return Err(Ended::Refused(rejection.error));
        }
        self.frames.reject(&rejection);
        self.reserved = None;
        Ok(())
    }
}

/// Why a frame got no reply from the handler.
enum Unanswered {
    Refused(Rejection),
    Ended(Ended),
}

impl From<Rejection> for Unanswered {
    fn from(rejection: Rejection) -> Self {
        Unanswered::Refused(rejection)
    }
}

impl From<Ended> for Unanswered {
    fn from(ended: Ended) -> Self {
        Unanswered::Ended(ended)
    }
}

fn send(link: &Link, stream: &mut Stream, bytes: &[u8]) -> Result<(), Ended> {
    // The socket's limit applies to each write: sending fails only if it makes no progress.
    let sent = stream.write_all(link, bytes);
    sent.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ended::Unread,
        _ => Ended::Broken(error),
    })?;
    add(&link.counters.bytes_out, bytes.len());
    Ok(())
}

fn send_reply(
    link: &Link,
    stream: &mut Stream,
    memory: &Arc<MessageMemory>,
    reply: &ReplyWriter,
) -> Result<(), Ended> {
    let bytes = reply.bytes().len();
    let _held = (bytes > COUNTED_BYTES_MIN).then(|| memory.hold(bytes));
    send(link, stream, reply.bytes())?;
    if let Some((compressor, plain)) = reply.compressed() {
        let counters = &link.counters.compression;
        counters.packed(compressor, plain, reply.bytes().len());
    }
    Ok(())
}

/// Adds to a counter that only this thread writes.
fn add(counter: &AtomicU64, n: usize) {
    let sum = counter.load(Ordering::Relaxed) + n as u64;
    counter.store(sum, Ordering::Relaxed);
}

/// Reads for a short time what the client is still sending: closing a socket with unread bytes
/// would reset the connection, and the client would lose the reply.
fn linger(link: &Link) {
    let end = Instant::now() + LINGER;
    let mut sink = [0; 1024];
    let _ = link.socket.shutdown(std::net::Shutdown::Write);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        match poll(&link.socket, libc::POLLIN, Some(left)) {
            Ok(true) => match (&link.socket).read(&mut sink) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            Ok(false) | Err(_) => return,
        }
    }
}

fn panicked(log: &Log, panic: &str, command: &str) {
    log.error(
        Component::Command,
        events::COMMAND_PANICKED,
        "A command failed on a broken invariant; its connection is closed",
        |attr| {
            attr.append("command", command);
            attr.append("error", log.client_text(panic));
        },
    );
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::ByClient => f.write_str("the client closed the connection"),
            Ended::Truncated => {
                f.write_str("the client closed the connection in the middle of a message")
            }
            Ended::ByHandler => f.write_str("a command ended the connection"),
            Ended::Refused(error) => write!(f, "{error}"),
            Ended::Panicked => f.write_str("a command failed on a broken invariant"),
            Ended::Handshake(error) => f.write_str(error),
            Ended::Stopping => f.write_str("the server is stopping"),
            Ended::Unread => f.write_str("the client did not read its reply"),
            Ended::Slow => f.write_str("the client did not complete a message before its login"),
            Ended::Broken(error) => write!(f, "{error}"),
        }
    }
}
