//! The least a server of OP_MSG can do: read a message, answer `{ok: 1}`.
//!
//! What a request costs here is system calls and framing, so the cost of a
//! real command is told as a ratio to it. It exists in two forms, one blocking
//! thread a connection and tasks of an async runtime, to choose between them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use sheaf_bson::{RawDoc, doc};
use sheaf_wire::request::op_msg;
use sheaf_wire::{Flags, FrameBuffer, Header};

/// How connections are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One blocking thread a connection.
    Threads,
    /// The same, with a time-out on every read as an idle connection needs it
    /// to notice that it is idle.
    ThreadsWithTimeout,
    /// Tasks on a runtime with a thread a core.
    Tasks,
    /// Tasks on a runtime with one thread.
    TasksOneThread,
}

impl Form {
    /// All forms.
    pub const ALL: [Form; 4] = [
        Form::Threads,
        Form::ThreadsWithTimeout,
        Form::Tasks,
        Form::TasksOneThread,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Threads => "threads",
            Form::ThreadsWithTimeout => "threads-timeout",
            Form::Tasks => "tasks",
            Form::TasksOneThread => "tasks-one-thread",
        }
    }

    /// The form of this name.
    pub fn from_name(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }
}

/// Serves until the process is killed. `ready` gets the address once it listens.
pub fn serve(form: Form, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    match form {
        Form::Threads | Form::ThreadsWithTimeout => {
            ready(address);
            serve_threads(&listener, form == Form::ThreadsWithTimeout)
        }
        Form::Tasks | Form::TasksOneThread => {
            let mut builder = match form {
                Form::Tasks => tokio::runtime::Builder::new_multi_thread(),
                _ => tokio::runtime::Builder::new_current_thread(),
            };
            builder.enable_io().build()?.block_on(async {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                ready(address);
                serve_tasks(&listener).await
            })
        }
    }
}

fn serve_threads(listener: &TcpListener, with_timeout: bool) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        if with_timeout {
            stream.set_read_timeout(Some(std::time::Duration::from_secs(1)))?;
        }
        std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(move || {
                let mut answerer = Answerer::new();
                loop {
                    match stream.read(answerer.frames.spare()) {
                        Ok(0) => return,
                        Ok(n) => answerer.frames.filled(n),
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(_) => return,
                    }
                    let Some(answers) = answerer.answers() else {
                        return;
                    };
                    if !answers.is_empty() && stream.write_all(answers).is_err() {
                        return;
                    }
                }
            })?;
    }
}

async fn serve_tasks(listener: &tokio::net::TcpListener) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut answerer = Answerer::new();
            loop {
                match stream.read(answerer.frames.spare()).await {
                    Ok(0) | Err(_) => return,
                    Ok(n) => answerer.frames.filled(n),
                }
                let Some(answers) = answerer.answers() else {
                    return;
                };
                if !answers.is_empty() && stream.write_all(answers).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The part both forms share.
struct Answerer {
    frames: FrameBuffer,
    /// An answer with everything in place but the id it responds to.
    template: Vec<u8>,
    out: Vec<u8>,
}

impl Answerer {
    fn new() -> Self {
        let body = doc! {"ok": 1.0};
        Answerer {
            frames: FrameBuffer::new(),
            template: op_msg(1, Flags::default(), body.as_raw(), &[]),
            out: Vec::new(),
        }
    }

    /// The answers to all messages that are whole; `None` when what came is no
    /// message.
    fn answers(&mut self) -> Option<&[u8]> {
        self.out.clear();
        while let Some(length) = self.frames.next_frame().ok()? {
            let header = Header::read(self.frames.frame(length))?;
            let start = self.out.len();
            self.out.extend_from_slice(&self.template);
            self.out[start + 8..start + 12].copy_from_slice(&header.request_id.to_le_bytes());
            self.frames.consume(length);
        }
        Some(&self.out)
    }
}

/// A request of the size of a find by `_id`, as a driver sends it.
pub fn small_request() -> Vec<u8> {
    let id = sheaf_bson::ObjectId([7; 12]);
    let session = [9u8; 16];
    let session = sheaf_bson::RawValue::Binary {
        subtype: 4,
        bytes: &session,
    };
    let body = doc! {
        "find": "orders",
        "filter": {"_id": id},
        "limit": 1i64,
        "singleBatch": true,
        "lsid": {"id": session},
        "$db": "test",
    };
    let body: RawDoc<'_> = body.as_raw();
    op_msg(1, Flags::default(), body, &[])
}

/// A null server in a process of its own; killed when dropped.
pub struct NullServer {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl NullServer {
    /// Starts the running program again with `serve <form>`, which it must
    /// answer by calling [`serve`] and printing the address.
    pub fn start(form: Form) -> io::Result<NullServer> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", form.name()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim().parse().map_err(io::Error::other)?;
        Ok(NullServer { child, address })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program does that was started by [`NullServer::start`].
pub fn serve_named(form: &str) -> io::Result<()> {
    let form = Form::from_name(form).ok_or(io::ErrorKind::InvalidInput)?;
    serve(form, |address| {
        // The parent reads it, or there is nobody to serve.
        let _ = writeln!(io::stdout(), "{address}");
    })
}
