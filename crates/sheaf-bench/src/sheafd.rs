//! The server under measurement, and commands to it.

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

/// Runs a command; the reply, errors of the server included.
pub fn ask(stream: &mut TcpStream, body: RawDoc<'_>) -> io::Result<DocBuf> {
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    message(body, &mut request);
    exchange(stream, &request, &mut reply)?;
    // Flags, and the kind of the first section.
    let body = RawDoc::parse(&reply[HEADER_BYTES + 5..]).map_err(io::Error::other)?;
    Ok(body.to_buf())
}

/// Runs a command that must succeed.
pub fn run_command(stream: &mut TcpStream, body: RawDoc<'_>) -> io::Result<DocBuf> {
    let reply = ask(stream, body)?;
    match reply.get("ok").and_then(|ok| ok.as_f64()) {
        Some(1.0) => Ok(reply),
        _ => Err(io::Error::other(format!("{body}: {reply}"))),
    }
}

/// A running server.
pub struct Sheafd {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// How long it took to be ready.
    pub ready: Duration,
    _folder: tempfile::TempDir,
}

impl Sheafd {
    /// Starts the binary on a folder and a port of its own.
    pub fn start(binary: &Path) -> io::Result<Sheafd> {
        Sheafd::start_as(binary, |_| ())
    }

    /// As [`Sheafd::start`]; `prepare` adds to the command.
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

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Sheafd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = io::stdout().flush();
    }
}
