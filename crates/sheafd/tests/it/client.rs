//! A client that sends raw frames: valid ones, and ones that no driver sends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use sheaf_bson::{DocBuf, RawDoc};
use sheaf_wire::request::{op_msg, op_query};
use sheaf_wire::{Compressor, CompressorSet, Decoder, Flags, HEADER_BYTES, Header, op};

/// The maximum time for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub struct Client {
    stream: Stream,
    next_id: i32,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A reply as received.
#[derive(Debug)]
pub struct Reply {
    pub header: Header,
    pub flags: Flags,
    /// The compressor of the reply.
    pub compressor: Option<Compressor>,
    pub body: DocBuf,
}

impl Reply {
    /// `ok: 1`.
    pub fn is_ok(&self) -> bool {
        self.body.get("ok").and_then(|v| v.as_f64()) == Some(1.0)
    }

    /// The error's code; 0 without one.
    pub fn code(&self) -> i64 {
        self.body
            .get("code")
            .and_then(|v| v.as_i64_exact())
            .unwrap_or(0)
    }

    /// The error's name; empty without one.
    pub fn code_name(&self) -> &str {
        self.body
            .get("codeName")
            .and_then(|v| v.as_str())
            .unwrap_or("")
    }
}

impl Client {
    /// Connects to a port of the loopback address.
    pub fn tcp(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts");
        Client::over_tcp(stream)
    }

    /// Uses this stream.
    pub fn over_tcp(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client {
            stream: Stream::Tcp(stream),
            next_id: 0,
        }
    }

    /// Uses this stream, after a TLS handshake.
    pub fn over_tls(stream: TcpStream, connection: ClientConnection) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client {
            stream: Stream::Tls(Box::new(StreamOwned::new(connection, stream))),
            next_id: 0,
        }
    }

    /// Connects to a unix socket.
    pub fn unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client {
            stream: Stream::Unix(stream),
            next_id: 0,
        }
    }

    /// A request id not used before.
    pub fn next_id(&mut self) -> i32 {
        self.next_id += 1;
        self.next_id
    }

    /// Runs a command and returns its reply, which must answer it.
    pub fn run(&mut self, command: &DocBuf) -> Reply {
        self.run_with(command, &[])
    }

    /// Runs a command; `None` if the server has exited.
    pub fn try_run(&mut self, command: &DocBuf) -> Option<Reply> {
        let id = self.next_id();
        self.try_send(&op_msg(id, Flags::default(), command.as_raw(), &[]))
            .ok()?;
        self.try_receive().ok()
    }

    /// Runs a command with document sequences.
    pub fn run_with(&mut self, command: &DocBuf, sequences: &[(&str, &[RawDoc<'_>])]) -> Reply {
        let id = self.next_id();
        self.send(&op_msg(id, Flags::default(), command.as_raw(), sequences));
        let reply = self.receive();
        assert_eq!(reply.header.response_to, id, "{:?}", reply.body);
        reply
    }

    /// Runs a command that must succeed, and returns its reply's body.
    pub fn ok(&mut self, command: &DocBuf) -> DocBuf {
        let reply = self.run(command);
        assert!(reply.is_ok(), "{command:?}: {:?}", reply.body);
        reply.body
    }

    /// Runs a command that must fail, and returns its code and message.
    pub fn fails(&mut self, command: &DocBuf) -> (i64, String) {
        let reply = self.run(command);
        assert!(!reply.is_ok(), "{command:?}: {:?}", reply.body);
        let message = reply.body.get("errmsg").and_then(|v| v.as_str());
        (reply.code(), message.unwrap_or("").to_string())
    }

    /// Runs a command as an OP_QUERY.
    pub fn query(&mut self, namespace: &str, command: &DocBuf) -> Reply {
        let id = self.next_id();
        self.send(&op_query(id, namespace, command.as_raw()));
        let reply = self.receive();
        assert_eq!(reply.header.response_to, id, "{:?}", reply.body);
        reply
    }

    /// Sends these bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server takes what is sent");
    }

    /// Sends these bytes to a server that may have closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes),
        }
    }

    /// Reads the next reply.
    pub fn receive(&mut self) -> Reply {
        self.try_receive().expect("the server answers")
    }

    /// Reads the next reply; an error of kind `UnexpectedEof` if the server has closed the
    /// connection.
    pub fn try_receive(&mut self) -> io::Result<Reply> {
        let mut frame = vec![0; HEADER_BYTES];
        self.read(&mut frame)?;
        let header = Header::read(&frame).expect("a whole header");
        let length = usize::try_from(header.message_length).expect("a length");
        assert!(length > HEADER_BYTES, "{header:?}");
        frame.resize(length, 0);
        self.read(&mut frame[HEADER_BYTES..])?;
        if header.op_code == op::REPLY {
            let body = RawDoc::parse(&frame[HEADER_BYTES + 20..]).expect("one document");
            return Ok(Reply {
                header,
                flags: Flags::default(),
                compressor: None,
                body: body.to_buf(),
            });
        }
        let mut decoder = Decoder::new(CompressorSet::all());
        let message = decoder.decode(&frame).expect("a well-formed reply");
        Ok(Reply {
            header,
            flags: message.flags(),
            compressor: message.compressor(),
            body: message.body().to_buf(),
        })
    }

    /// Reads everything until the server closes the connection.
    pub fn receive_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read_to_end(&mut rest),
            Stream::Unix(stream) => stream.read_to_end(&mut rest),
            Stream::Tls(stream) => stream.read_to_end(&mut rest),
        };
        match read {
            Err(e) if e.kind() != io::ErrorKind::ConnectionReset => {
                panic!("the connection is still open: {e}")
            }
            _ => rest,
        }
    }

    /// Closes the sending side.
    pub fn finish_sending(&mut self) {
        let shut = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => stream.sock.shutdown(Shutdown::Write),
        };
        shut.expect("the connection is open");
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.read_exact(into),
            Stream::Unix(stream) => stream.read_exact(into),
            Stream::Tls(stream) => stream.read_exact(into),
        }
    }
}
