//! A server to measure, and commands to it.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_wire::{Flags, HEADER_BYTES};

use crate::load::exchange;

/// Appends the request of a command.
pub fn message(body: RawDoc<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&sheaf_wire::request::op_msg(1, Flags::default(), body, &[]));
}

/// Runs a command and returns the reply, including error replies.
pub fn ask(stream: &mut TcpStream, body: RawDoc<'_>) -> io::Result<DocBuf> {
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    message(body, &mut request);
    exchange(stream, &request, &mut reply)?;
    // Skip the flags and the kind of the first section.
    let body = RawDoc::parse(&reply[HEADER_BYTES + 5..]).map_err(io::Error::other)?;
    Ok(body.to_buf())
}

/// Runs a command. Errors: the reply is an error.
pub fn run_command(stream: &mut TcpStream, body: RawDoc<'_>) -> io::Result<DocBuf> {
    let reply = ask(stream, body)?;
    match reply.get("ok").and_then(|ok| ok.as_f64()) {
        Some(1.0) => Ok(reply),
        _ => Err(io::Error::other(format!("{body}: {reply}"))),
    }
}

/// A running server on a temporary directory, killed when dropped.
pub struct Sheafd {
    child: Child,
    /// The address it listens on.
    pub address: SocketAddr,
    /// Time from start to the first reply.
    pub ready: Duration,
    _folder: tempfile::TempDir,
}

impl Sheafd {
    /// Starts the binary on a temporary directory and a free port.
    pub fn start(binary: &Path) -> io::Result<Sheafd> {
        Sheafd::start_as(binary, |_| ())
    }

    /// As [`Sheafd::start`]; `prepare` may change the command.
    pub fn start_as(binary: &Path, prepare: impl FnOnce(&mut Command)) -> io::Result<Sheafd> {
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let started = Instant::now();
        let mut command = Command::new(binary);
        command
            .args(["--port", &port.to_string(), "--nounixsocket", "--quiet"])
            .arg("--dbpath")
            .arg(folder.path())
            .stdout(Stdio::null());
        prepare(&mut command);
        let child = command.spawn()?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Sheafd {
            child,
            address,
            ready: Duration::ZERO,
            _folder: folder,
        };
        while started.elapsed() < Duration::from_secs(10) {
            if let Ok(mut stream) = TcpStream::connect(address) {
                run_command(&mut stream, doc! {"ping": 1, "$db": "admin"}.as_raw())?;
                server.ready = started.elapsed();
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other("sheafd did not start"))
    }

    /// The exit status, if the server has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Sheafd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = io::stdout().flush();
    }
}
