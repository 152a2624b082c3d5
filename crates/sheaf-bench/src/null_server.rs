//! A minimal OP_MSG server: reads a message, replies `{ok: 1}`.
//!
//! Its cost per request is system calls and framing, so it is the baseline to which the cost of a
//! real command is given as a ratio. It has a form with one blocking thread per connection and one
//! with tasks on an async runtime, to compare the two.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use sheaf_bson::{RawDoc, doc};
use sheaf_wire::request::op_msg;
use sheaf_wire::{Flags, FrameBuffer, Header};

/// How connections are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One blocking thread per connection.
    Threads,
    /// The same, with a timeout on every read, which an idle connection needs to notice that it is
    /// idle.
    ThreadsWithTimeout,
    /// Tasks on a runtime with one thread per core.
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

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Form::Threads => "threads",
            Form::ThreadsWithTimeout => "threads-timeout",
            Form::Tasks => "tasks",
            Form::TasksOneThread => "tasks-one-thread",
        }
    }

    /// The form with this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Form> {
        Form::ALL.into_iter().find(|form| form.name() == name)
    }
}

/// Serves until the process is killed. Calls `ready` with the address once it listens.
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

/// The part that all forms share.
struct Answerer {
    frames: FrameBuffer,
    /// A complete reply except for the id it responds to.
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

    /// The replies to all complete messages received; `None` if the input is not a message.
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

/// A request of the size of a find by `_id`, as sent by a driver.
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

/// A null server in a separate process, killed when dropped.
pub struct NullServer {
    child: Child,
    /// The address it listens on.
    pub address: SocketAddr,
}

impl NullServer {
    /// Starts the current program again with the arguments `serve <form>`. The program must handle
    /// them with [`serve_named`], which prints the address.
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

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a server for [`NullServer::start`] and prints its address.
pub fn serve_named(form: &str) -> io::Result<()> {
    let form = Form::from_name(form).ok_or(io::ErrorKind::InvalidInput)?;
    serve(form, |address| {
        // If the parent does not read the address, there are no clients to serve.
        let _ = writeln!(io::stdout(), "{address}");
    })
}
