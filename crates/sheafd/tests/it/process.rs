//! The server as a process: start, stop, lock, options, exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::server::{Server, command};

fn sheafd(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sheafd"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("sheafd runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_signal_stops_it_cleanly() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut server = Server::start();
        let socket = server.unix_socket();
        assert!(socket.exists());
        server.signal(signal);
        // A second signal changes nothing.
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0));
        assert!(!socket.exists());
        let log = server.log();
        assert!(
            log.iter().any(|line| line.contains("\"exitCode\":0")),
            "{log:#?}"
        );
        let lock = server.folder().join("sheafd.lock");
        assert_eq!(std::fs::read_to_string(lock).unwrap(), "");
    }
}

#[test]
fn one_server_per_folder() {
    let mut server = Server::start();
    let second = command(server.folder(), &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(100));
    let log = String::from_utf8_lossy(&second.stdout);
    assert!(log.contains("DBPathInUse"), "{log}");
    assert!(
        log.contains(&server.folder().display().to_string()),
        "{log}"
    );
    assert!(log.contains(&format!("process {}", server.pid())), "{log}");

    // However the server ended, the folder is unlocked afterwards.
    server.kill();
    let folder = server.folder().to_path_buf();
    let again = Server::start_on(&folder, &[]);
    assert!(again.stop().success());
}

#[test]
fn shutdown_by_folder() {
    let mut server = Server::start();
    let folder = server.folder().display().to_string();
    let stopped = sheafd(&["--shutdown", "--dbpath", &folder]);
    assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
    assert_eq!(server.wait().code(), Some(0));
    let again = sheafd(&["--shutdown", "--dbpath", &folder]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("no server is running"));
}

#[test]
fn a_port_in_use() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let port = server.port().to_string();
    let second = sheafd(&[
        "--dbpath",
        &folder.path().display().to_string(),
        "--port",
        &port,
        "--nounixsocket",
    ]);
    assert_eq!(second.status.code(), Some(48));
    assert!(String::from_utf8_lossy(&second.stdout).contains(&port));
}

#[test]
fn wrong_options() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sheafd.conf");
    std::fs::write(&config, "net:\n  port: 1\n  prot: 2\n").unwrap();
    let config = config.display().to_string();
    for (arguments, expected) in [
        (vec!["--prot", "1"], "--prot"),
        (vec!["--port", "99999"], "--port"),
        (vec!["--transitionToAuth"], "--transitionToAuth is refused"),
        (vec!["--fork"], "--logpath"),
        (
            vec!["--config", config.as_str()],
            "line 3: unknown key 'net.prot'",
        ),
    ] {
        let output = sheafd(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_missing_folder() {
    let output = sheafd(&["--dbpath", "/nowhere/at/all", "--port", "0"]);
    assert_eq!(output.status.code(), Some(100));
    assert!(String::from_utf8_lossy(&output.stdout).contains("/nowhere/at/all"));

    // The default folder is created.
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sheafd"))
        .args(["--port", "0", "--nounixsocket", "--logpath", "log"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let lock = folder.path().join("data/sheafd.lock");
    wait_for(|| lock.exists());
    wait_for(|| read(&folder.path().join("log")).contains("Waiting for connections"));
    // SAFETY: touches no memory; the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn help_and_version() {
    let version = sheafd(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(version.stdout.starts_with(b"sheafd version "));
    let help = sheafd(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("--dbpath") && help.contains("--wiredTigerCacheSizeGB"));
    assert!(
        !help.contains("--transitionToAuth"),
        "refused options are not listed"
    );
}

#[test]
fn in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("sheafd.log");
    let pid_file = folder.path().join("pid");
    let output = command(
        folder.path(),
        &[
            "--fork",
            "--logpath",
            log.to_str().unwrap(),
            "--pidfilepath",
            pid_file.to_str().unwrap(),
        ],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let pid = read(&pid_file).trim().to_string();
    let _ended = Ended(pid.parse().expect("the pid file holds a process id"));
    assert!(read(&log).contains("Waiting for connections"));
    assert!(String::from_utf8_lossy(&output.stdout).contains(&pid));

    let second = command(folder.path(), &["--fork", "--logpath", "/dev/null"])
        .output()
        .unwrap();
    assert_eq!(
        second.status.code(),
        Some(100),
        "the child's code is the caller's"
    );

    let dbpath = folder.path().display().to_string();
    let stopped = sheafd(&["--shutdown", "--dbpath", &dbpath]);
    assert_eq!(stopped.status.code(), Some(0), "{}", stderr(&stopped));
    assert!(!pid_file.exists());
}

#[test]
fn the_log_file_rotates() {
    let folder = tempfile::tempdir().unwrap();
    let logs = tempfile::tempdir().unwrap();
    let log = logs.path().join("log");
    std::fs::write(&log, "from an earlier run\n").unwrap();
    let count = || std::fs::read_dir(logs.path()).unwrap().count();
    let mut child = command(folder.path(), &["--logpath", log.to_str().unwrap()])
        .spawn()
        .unwrap();
    wait_for(|| read(&log).contains("Waiting for connections"));
    assert!(!read(&log).contains("earlier"), "the old file was renamed");
    assert_eq!(count(), 2);
    // SAFETY: touches no memory; the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) }, 0);
    wait_for(|| read(&log).contains("Log rotated"));
    assert!(!read(&log).contains("Waiting for connections"));
    assert_eq!(count(), 3);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    assert!(child.wait().unwrap().success());
}

/// Kills a background server at the end of its test, whatever the result.
struct Ended(i32);

impl Drop for Ended {
    fn drop(&mut self) {
        // Only if it is still ours: the id may have been reused.
        let command_line = read(Path::new(&format!("/proc/{}/cmdline", self.0)));
        if command_line.starts_with(env!("CARGO_BIN_EXE_sheafd")) {
            // SAFETY: touches no memory.
            unsafe { libc::kill(self.0, libc::SIGKILL) };
        }
    }
}

/// The file's text; empty while it is not there.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn wait_for(holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !holds() {
        assert!(
            std::time::Instant::now() < end,
            "the condition does not hold in time"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn an_open_address_needs_access_control_or_an_explicit_no() {
    let folder = tempfile::tempdir().unwrap();
    let refused = command(folder.path(), &["--bind_ip_all"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let log = String::from_utf8_lossy(&refused.stdout);
    assert!(log.contains("--auth") && log.contains("--noauth"), "{log}");
    for option in ["--auth", "--noauth"] {
        let server = Server::start_with(&["--bind_ip_all", option]);
        assert!(server.stop().success(), "{option}");
    }
}

#[test]
fn before_a_login_messages_are_small() {
    use std::io::{Read, Write};
    let server = Server::start_with(&["--auth"]);
    let declare = |length: i32, code: i32, size: i32| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        let limit = std::time::Duration::from_secs(5);
        stream.set_read_timeout(Some(limit)).unwrap();
        let mut bytes = Vec::new();
        for number in [length, 1, 0, code, 2013, size] {
            bytes.extend(number.to_le_bytes());
        }
        stream.write_all(&bytes).unwrap();
        // 0: closed. An error: still open.
        stream.read(&mut [0; 1]).ok()
    };
    assert_eq!(declare(1 << 20, 2013, 0), Some(0));
    assert_eq!(declare(1000, 2012, 40_000_000), Some(0));
    assert!(server.stop().success());
}
