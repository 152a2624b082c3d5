//! A service for tests of the network: it returns what it receives.
//!
//! | command          | what it does                                          |
//! |------------------|-------------------------------------------------------|
//! | `echo`           | the request's body and the lengths of its sequences   |
//! | `close`          | answers, and closes the connection                    |
//! | `hangUp`         | closes the connection without an answer               |
//! | `quiet`          | sends nothing                                         |
//! | `panic`          | panics                                                |
//! | `count: n`       | an exhaust stream of n replies                        |
//! | `whoami`         | the subject of the client's certificate               |
//! | `await`          | waits until its client is gone, or the server stops   |

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sheaf_server::ClientState;
use sheaf_server::log::Log;
use sheaf_wire::{CompressorSet, Message, ReplyWriter};
use sheafd::net::{
    ConnectionHandler, Connections, Endpoint, Link, Listener, MessageMemory, NetOptions, Next,
    Server, Service,
};

use sheafd::tls::{Tls, TlsOptions};

use super::client::Client;

/// Memory of large messages.
pub const MESSAGE_BYTES_MAX: usize = 100 << 20;
/// How long a large message waits for memory.
const MESSAGE_PATIENCE: Duration = Duration::from_millis(300);

const PATIENCE: Duration = Duration::from_secs(30);

/// Counters of the service.
#[derive(Default)]
pub struct Seen {
    /// Handlers alive.
    pub handlers: AtomicUsize,
    /// How often an idle connection released its memory.
    pub idle: AtomicUsize,
    /// How awaiting commands ended.
    ended: Mutex<Vec<ClientState>>,
    /// Commands that wait.
    waiting: AtomicUsize,
    changed: Condvar,
}

impl Seen {
    /// Waits until this number of awaiting commands have ended, and returns their outcomes.
    pub fn wait_ended(&self, number: usize) -> Vec<ClientState> {
        let mut ended = self.ended.lock();
        while ended.len() < number {
            let waited = self.changed.wait_for(&mut ended, PATIENCE);
            assert!(!waited.timed_out(), "{ended:?}");
        }
        ended.clone()
    }

    /// Waits until the condition holds.
    pub fn wait(&self, holds: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "the condition does not hold in time");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until this number of commands wait.
    pub fn wait_waiting(&self, number: usize) {
        self.wait(|seen| seen.waiting.load(Ordering::SeqCst) == number);
    }
}

struct Echo(Arc<Seen>);

struct Handler {
    seen: Arc<Seen>,
    link: Arc<Link>,
    left: i64,
}

impl Service for Echo {
    fn connection(&self, link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        self.0.handlers.fetch_add(1, Ordering::SeqCst);
        Box::new(Handler {
            seen: Arc::clone(&self.0),
            link: Arc::clone(link),
            left: 0,
        })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.seen.handlers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ConnectionHandler for Handler {
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        match request.command_name() {
            "close" => {
                ok(reply);
                Next::Close
            }
            "hangUp" => Next::Close,
            "quiet" => Next::NoReply,
            "panic" => panic!("requested by the client"),
            "count" => {
                let count = request.body().get("count").and_then(|v| v.as_i64_exact());
                self.left = count.unwrap_or(0);
                self.exhaust(request, reply)
            }
            "whoami" => {
                let subject = self.link.certificate().map(|c| c.subject.as_str());
                reply.write(|body| {
                    body.append("subject", subject.unwrap_or(""));
                    body.append("ok", 1.0);
                });
                Next::Reply
            }
            "await" => {
                self.seen.waiting.fetch_add(1, Ordering::SeqCst);
                let state = self.link.wait(PATIENCE);
                self.seen.ended.lock().push(state);
                self.seen.changed.notify_all();
                ok(reply);
                Next::Reply
            }
            _ => {
                echo(request, reply);
                Next::Reply
            }
        }
    }

    fn exhaust(&mut self, _request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        let left = self.left;
        reply.write(|body| {
            body.append("left", left);
            body.append("ok", 1.0);
        });
        self.left -= 1;
        match left {
            0 => Next::Reply,
            _ => Next::Exhaust,
        }
    }

    fn idle(&mut self) {
        self.seen.idle.fetch_add(1, Ordering::SeqCst);
    }
}

fn ok(reply: &mut ReplyWriter) {
    reply.write(|body| {
        body.append("ok", 1.0);
    });
}

fn echo(request: &Message<'_>, reply: &mut ReplyWriter) {
    reply.write(|body| {
        body.append("body", request.body());
        body.begin_document("sequences");
        for sequence in request.sequences() {
            body.append(sequence.identifier(), sequence.len() as i64);
        }
        body.end();
        body.append("protocol", request.protocol().name());
        body.append("ok", 1.0);
    });
}

/// A server of that service in this process.
pub struct EchoServer {
    server: Option<Server>,
    pub endpoint: Endpoint,
    pub connections: Arc<Connections>,
    pub seen: Arc<Seen>,
    pub log: Arc<Log>,
    pub tls: Option<Arc<Tls>>,
}

impl EchoServer {
    /// Starts on a free port of the loopback address.
    pub fn start() -> EchoServer {
        EchoServer::start_at("127.0.0.1:0", 10_000)
    }

    /// Starts at this address, with at most this number of connections.
    pub fn start_at(address: &str, connections_max: usize) -> EchoServer {
        let endpoint = Endpoint::Tcp(address.parse().expect("an address"));
        EchoServer::start_on(endpoint, connections_max)
    }

    /// Starts at this endpoint.
    pub fn start_on(endpoint: Endpoint, connections_max: usize) -> EchoServer {
        EchoServer::start_limited(endpoint, connections_max, None)
    }

    /// Starts at this endpoint, with this time limit for clients that do not read.
    pub fn start_limited(
        endpoint: Endpoint,
        connections_max: usize,
        send_limit: Option<Duration>,
    ) -> EchoServer {
        let options = NetOptions {
            send_limit,
            ..NetOptions::default()
        };
        EchoServer::start_with(endpoint, connections_max, options)
    }

    /// Starts on a free port of the loopback address, with TLS.
    pub fn start_tls(tls: TlsOptions, handshake_limit: Option<Duration>) -> EchoServer {
        let options = NetOptions {
            tls: Some(Tls::new(tls).expect("the files can be used")),
            handshake_limit,
            ..NetOptions::default()
        };
        let address = "127.0.0.1:0".parse().expect("an address");
        EchoServer::start_with(Endpoint::Tcp(address), 1000, options)
    }

    /// Starts at this endpoint, with these options and all compressors.
    pub fn start_with(
        endpoint: Endpoint,
        connections_max: usize,
        options: NetOptions,
    ) -> EchoServer {
        let tls = options.tls.clone();
        let listener = Listener::bind(endpoint).expect("we can listen there");
        let endpoint = listener.endpoint().clone();
        let connections = Connections::new(connections_max);
        let seen = Arc::new(Seen::default());
        let log = Log::in_memory();
        let options = NetOptions {
            compressors: CompressorSet::all(),
            message_memory: MessageMemory::new(MESSAGE_BYTES_MAX, MESSAGE_PATIENCE),
            ..options
        };
        let server = Server::start(
            vec![listener],
            Arc::new(Echo(Arc::clone(&seen))),
            Arc::clone(&connections),
            options,
            Arc::clone(&log),
        );
        EchoServer {
            server: Some(server.expect("the server starts")),
            endpoint,
            connections,
            seen,
            log,
            tls,
        }
    }

    /// A new connection to it.
    pub fn client(&self) -> Client {
        match &self.endpoint {
            Endpoint::Tcp(address) => {
                Client::over_tcp(std::net::TcpStream::connect(address).expect("the server accepts"))
            }
            Endpoint::Unix { path, .. } => Client::unix(path),
        }
    }

    /// A new connection to its TCP port, of which it has sent and received nothing.
    pub fn socket(&self) -> std::net::TcpStream {
        let Endpoint::Tcp(address) = &self.endpoint else {
            panic!("not a TCP port");
        };
        std::net::TcpStream::connect(address).expect("the server accepts")
    }

    /// Stops it.
    pub fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop(PATIENCE);
        }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop();
    }
}
