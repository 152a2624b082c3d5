//! The real `sheafd`, on a free port, in a temporary folder.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::client::Client;

/// The maximum time in which a server starts or stops.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    port: u16,
    /// `None` if the folder belongs to the test.
    _own_folder: Option<TempDir>,
    folder: PathBuf,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// A server on a new folder.
    pub fn start() -> Server {
        Server::start_with(&[])
    }

    /// A server on a new folder with these additional options.
    pub fn start_with(options: &[&str]) -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_path_buf();
        Server::launch(command(&path, options), &path, Some(folder))
    }

    /// A server on the test's folder, which can be restarted on it.
    pub fn start_on(folder: &Path, options: &[&str]) -> Server {
        Server::launch(command(folder, options), folder, None)
    }

    /// Starts a server on this folder with this command.
    pub fn launch(mut command: Command, folder: &Path, own_folder: Option<TempDir>) -> Server {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("sheafd starts");
        let stdout = child.stdout.take().expect("its output is a pipe");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (ready, waiting) = mpsc::channel();
        let lines = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(port) = ready_port(&line) {
                    // Only the first line is awaited.
                    let _ = ready.send(port);
                }
                lines.lock().expect("no reader panicked").push(line);
            }
        });
        let port = waiting.recv_timeout(PATIENCE);
        let mut server = Server {
            child,
            port: port.unwrap_or(0),
            _own_folder: own_folder,
            folder: folder.to_path_buf(),
            log,
            reader: Some(reader),
        };
        if port.is_err() {
            server.kill();
            panic!("sheafd did not become ready:\n{}", server.log().join("\n"));
        }
        server
    }

    /// A new connection to it.
    pub fn client(&self) -> Client {
        Client::tcp(self.port)
    }

    /// Its TCP port, on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of its Unix domain socket.
    pub fn unix_socket(&self) -> PathBuf {
        self.folder.join(format!("mongodb-{}.sock", self.port))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no reader panicked").clone()
    }

    /// Waits until a log line contains this text.
    pub fn wait_log(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.log().iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(
                Instant::now() < end,
                "no log line contains '{text}':\n{}",
                self.log().join("\n")
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the server with SIGTERM, and waits for its exit.
    pub fn stop(mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.wait()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: touches no memory; the child is ours and not yet waited for.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "the server can be signalled");
    }

    /// Waits for its exit, and until all of its log is read.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("the log is read");
                }
                return status;
            }
            if Instant::now() >= end {
                self.kill();
                panic!("sheafd did not stop:\n{}", self.log().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The command that starts a server on this folder and a port chosen by the system.
pub fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sheafd"));
    command
        .arg("--dbpath")
        .arg(folder)
        .args(["--port", "0", "--unixSocketPrefix"])
        .arg(folder)
        .args(options)
        .stdin(Stdio::null());
    command
}

/// The port in the log line that reports readiness.
fn ready_port(line: &str) -> Option<u16> {
    if !line.contains("\"msg\":\"Waiting for connections\"") {
        return None;
    }
    let (_, after) = line.split_once("\"port\":")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
