//! A client of a server in this process, and commands in shell notation.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use sheaf_bson::json::{parse_doc, shell_doc};
use sheaf_bson::{DocBuf, DocBuilder, RawValue};
use sheaf_server::Session;

/// Stack size of the thread that runs commands, equal to a connection's.
const STACK_BYTES: usize = 8 << 20;

/// One session on a dedicated thread, as on a connection.
pub struct Client {
    commands: Option<mpsc::Sender<DocBuf>>,
    replies: mpsc::Receiver<DocBuf>,
    thread: Option<JoinHandle<()>>,
}

/// A reply.
#[derive(Debug)]
pub struct Reply {
    pub body: DocBuf,
}

impl Reply {
    /// `ok: 1`.
    pub fn is_ok(&self) -> bool {
        self.body.get("ok").and_then(|v| v.as_f64()) == Some(1.0)
    }

    /// The error's code; 0 without one.
    pub fn code(&self) -> i64 {
        let code = self.body.get("code").and_then(|v| v.as_i64_exact());
        code.unwrap_or(0)
    }

    /// The error's name; empty without one.
    pub fn code_name(&self) -> &str {
        let name = self.body.get("codeName").and_then(|v| v.as_str());
        name.unwrap_or("")
    }
}

impl Client {
    pub fn new(server: &Arc<sheaf_server::Server>) -> Client {
        let (commands, received) = mpsc::channel::<DocBuf>();
        let (answer, replies) = mpsc::channel();
        let server = server.clone();
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut session = Session::new(&server);
                for command in received {
                    let db = match command.get("$db") {
                        Some(RawValue::String(db)) => db,
                        _ => "test",
                    };
                    let reply = session.run(db, command.as_raw());
                    if answer.send(reply).is_err() {
                        return;
                    }
                }
            });
        Client {
            commands: Some(commands),
            replies,
            thread: Some(thread.expect("a thread")),
        }
    }

    /// Runs a command and returns its reply.
    pub fn run(&mut self, command: &DocBuf) -> Reply {
        let commands = self.commands.as_ref().expect("not dropped");
        commands.send(command.clone()).expect("the session lives");
        let body = self.replies.recv().expect("the session answers");
        Reply { body }
    }

    /// Runs a command; `None` when the session ended without a reply.
    pub fn try_run(&mut self, command: &DocBuf) -> Option<Reply> {
        self.commands.as_ref()?.send(command.clone()).ok()?;
        let body = self.replies.recv().ok()?;
        Some(Reply { body })
    }

    /// Runs a command that must succeed, and returns its reply.
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
}

impl Drop for Client {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A command in shell notation.
pub fn command(text: &str) -> DocBuf {
    let command = parse_doc(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut out = DocBuilder::from_doc(command.as_raw());
    if command.get("$db").is_none() {
        out.append("$db", "test");
    }
    out.finish()
}

/// Commands with the replies they must have; only the named fields are compared.
pub fn script(client: &mut Client, rows: &[(&str, &str)]) {
    for (text, wanted) in rows {
        let reply = client.run(&command(text)).body;
        let wanted = parse_doc(wanted).unwrap_or_else(|e| panic!("{wanted}: {e}"));
        let mut shown = DocBuilder::new();
        for element in wanted.iter() {
            match reply.get(element.key()) {
                Some(value) => drop(shown.append(element.key(), value)),
                None => drop(shown.append(element.key(), "(absent)")),
            }
        }
        assert_eq!(
            shell_doc(shown.finish().as_raw()),
            shell_doc(wanted.as_raw()),
            "{text}: {reply:?}"
        );
    }
}
