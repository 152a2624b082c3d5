//! The real `sheafd` with TLS: files that cannot be used, passwords, rotation, what is reported.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustls::ClientConnection;
use sheaf_bson::{DocBuf, doc};

use super::certificates::{self, Authority, CLIENT, SERVER, Wanted};
use super::client::Client;
use super::server::{Server, command};
use super::tls::Files;

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The options of `requireTLS` with these files.
fn options(files: &Files) -> Vec<String> {
    let path = |name| files.path().join(name).display().to_string();
    [
        "--tlsMode",
        "requireTLS",
        "--tlsCertificateKeyFile",
        &path("server.pem"),
        "--tlsCAFile",
        &path("ca.pem"),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn start(files: &Files, more: &[&str]) -> Server {
    let options = options(files);
    let all: Vec<&str> = options
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    Server::start_with(&all)
}

fn client(server: &Server, files: &Files) -> Client {
    let stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).expect("it accepts");
    let name = "localhost".try_into().expect("a name");
    let config = files.client(Some("client.pem"), VERSIONS);
    Client::over_tls(
        stream,
        ClientConnection::new(config, name).expect("a client"),
    )
}

/// The error with which the start of a server fails.
fn refused(files: &Files, more: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(files);
    let all: Vec<&str> = options
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let output = command(folder.path(), &all).output().expect("sheafd runs");
    assert_eq!(output.status.code(), Some(2), "{more:?}");
    let log = String::from_utf8_lossy(&output.stdout);
    let line = log
        .lines()
        .find(|line| line.contains("\"id\":20573,"))
        .expect("an error");
    let (_, error) = line.split_once("\"error\":\"").expect("an error");
    let (error, _) = error.split_once("\",\"exitCode\"").expect("its end");
    error.to_owned()
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let files = Files::new();
    let write = |name: &str, text: &str| {
        certificates::write(files.path(), name, text)
            .unwrap()
            .display()
            .to_string()
    };
    let ca = Authority::new("ca");
    let (pair, other) = (ca.issue(SERVER), ca.issue(SERVER));
    let key_at = pair.find("-----BEGIN PRIVATE").expect("a key");
    let other_key = &other[other.find("-----BEGIN PRIVATE").expect("a key")..];
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tls");
    let p521 = std::fs::read_to_string(keys.join("ec-p521.pem")).unwrap();
    let encrypted = std::fs::read_to_string(keys.join("ec-aes256-hmacWithSHA256.pem")).unwrap();
    let missing = files.path().join("missing.pem").display().to_string();
    let mine = "--tlsCertificateKeyFile";
    for (option, path, error) in [
        (
            mine,
            missing.clone(),
            "No such file or directory (os error 2): the server needs to be able to read the file",
        ),
        (
            mine,
            write("a.pem", &pair[key_at..]),
            "the file has no certificate: it needs a section '-----BEGIN CERTIFICATE-----'",
        ),
        (
            mine,
            write("b.pem", &pair[..key_at]),
            "the file has no private key: append the key to the certificate, in PEM",
        ),
        (
            mine,
            write("c.pem", &(pair.clone() + other_key)),
            "the file has several private keys: keep one",
        ),
        (
            mine,
            write("d.pem", &(pair[..key_at].to_owned() + other_key)),
            "the private key does not belong to the first certificate: the server's certificate comes first, those of authorities after it",
        ),
        (
            mine,
            write("e.pem", &(pair[..key_at].to_owned() + &p521)),
            "the private key is of a type that is not supported: use RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519",
        ),
        (
            mine,
            write("f.pem", &(pair[..key_at].to_owned() + &encrypted)),
            "the private key is encrypted: give its password with --tlsCertificateKeyFilePassword, or start the server on a terminal, where it asks",
        ),
        (
            mine,
            files
                .path()
                .join("expired-server.pem")
                .display()
                .to_string(),
            "the certificate expired on 2021-01-01T00:00:00Z: renew it, or start with --tlsAllowInvalidCertificates",
        ),
        (
            "--tlsCAFile",
            write("g.pem", "nothing"),
            "the file has no certificate: it needs a section '-----BEGIN CERTIFICATE-----'",
        ),
        (
            "--tlsCRLFile",
            write("h.pem", &pair),
            "the file has no revocation list: it needs a section '-----BEGIN X509 CRL-----'",
        ),
        (
            "--tlsClusterCAFile",
            missing.clone(),
            "No such file or directory (os error 2): the server needs to be able to read the file",
        ),
        (
            "--tlsClusterFile",
            missing,
            "No such file or directory (os error 2): the server needs to be able to read the file",
        ),
    ] {
        // A later option takes the place of an earlier one only in the file.
        let mut all = options(&files);
        match all.iter().position(|word| word == option) {
            Some(at) => all[at + 1] = path.clone(),
            None => all.extend([option.to_owned(), path.clone()]),
        }
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let output = command(folder.path(), &all).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        let log = String::from_utf8_lossy(&output.stdout);
        assert!(
            log.contains(&format!("\"error\":\"{option} {path}: {error}\"")),
            "{error}\n{log}"
        );
    }
}

#[test]
fn an_expired_certificate_starts_where_the_option_says_so_and_is_warned_of() {
    let files = Files::new();
    std::fs::copy(
        files.path().join("expired-server.pem"),
        files.path().join("server.pem"),
    )
    .unwrap();
    let server = start(&files, &["--tlsAllowInvalidCertificates"]);
    let line = server.wait_log("\"id\":9000060,");
    assert!(
        line.contains("The server's certificate has expired"),
        "{line}"
    );
    assert!(line.contains("2021-01-01T00:00:00"), "{line}");
}

#[test]
fn rotation_and_status() {
    let files = Files::new();
    let mut server = start(
        &files,
        &[
            "--setParameter",
            "tlsX509ExpirationWarningThresholdDays=60000",
        ],
    );
    server.wait_log("\"ssl\":\"on\"");
    server.wait_log("The server's certificate expires soon");
    let mut open = client(&server, &files);
    open.ok(&doc! {"ping": 1, "$db": "admin"});
    let line = server.wait_log("The client's certificate expires soon");
    assert!(line.contains("CN=client,OU=tests,O=sheaf"), "{line}");

    let status =
        |client: &mut Client| -> DocBuf { client.ok(&doc! {"serverStatus": 1, "$db": "admin"}) };
    let before = status(&mut open);
    let security = before
        .get("security")
        .and_then(|v| v.as_document())
        .unwrap();
    let name = security
        .get("SSLServerSubjectName")
        .and_then(|v| v.as_str());
    assert_eq!(name, Some("CN=server,OU=tests,O=sheaf"));
    let has_authority = security.get("SSLServerHasCertificateAuthority");
    assert_eq!(has_authority.and_then(|v| v.as_bool()), Some(true));
    let expires = security.get("SSLServerCertificateExpirationDate");
    let end = sheaf_bson::json::parse_date("2120-01-01T00:00:00Z").expect("a date");
    let end = sheaf_bson::RawValue::DateTime(sheaf_bson::DateTime(end));
    assert_eq!(expires, Some(end));
    let versions = before
        .get("transportSecurity")
        .and_then(|v| v.as_document())
        .unwrap();
    let counts: Vec<(&str, Option<i64>)> = versions
        .iter()
        .map(|version| (version.key(), version.value().as_i64_exact()))
        .collect();
    let expected = [
        ("1.0", 0),
        ("1.1", 0),
        ("1.2", 0),
        ("1.3", 1),
        ("unknown", 0),
    ];
    assert_eq!(
        counts,
        expected.map(|(version, count)| (version, Some(count)))
    );

    let ca = Authority::new("ca");
    certificates::write(files.path(), "ca.pem", &ca.pem()).unwrap();
    let (code, error) = open.fails(&doc! {"rotateCertificates": 1, "message": 5, "$db": "admin"});
    assert_eq!(
        (code, error.contains("rotateCertificates.message")),
        (14, true)
    );
    std::fs::write(files.path().join("server.pem"), "nothing").unwrap();
    let (code, error) = open.fails(&doc! {"rotateCertificates": 1, "$db": "admin"});
    assert_eq!(code, 140, "{error}");
    assert!(error.starts_with("--tlsCertificateKeyFile "), "{error}");
    let new = Wanted {
        name: "new",
        ..SERVER
    };
    certificates::write(files.path(), "server.pem", &ca.issue(new)).unwrap();
    certificates::write(files.path(), "client.pem", &ca.issue(CLIENT)).unwrap();
    open.ok(&doc! {"rotateCertificates": 1, "message": "yearly", "$db": "admin"});
    let line = server.wait_log("\"id\":9000061,");
    assert!(
        line.contains("\"message\":\"yearly\",\"subject\":\"CN=new,OU=tests,O=sheaf\""),
        "{line}"
    );
    open.ok(&doc! {"ping": 1, "$db": "admin"});
    client(&server, &files).ok(&doc! {"ping": 1, "$db": "admin"});

    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn without_tls_there_is_nothing_to_rotate() {
    let server = Server::start();
    let mut client = server.client();
    let (code, error) = client.fails(&doc! {"rotateCertificates": 1, "$db": "admin"});
    assert_eq!((code, error.contains("--tlsMode")), (20, true), "{error}");
    let status = client.ok(&doc! {"serverStatus": 1, "$db": "admin"});
    let security = status
        .get("security")
        .and_then(|v| v.as_document())
        .unwrap();
    assert!(security.get("SSLServerSubjectName").is_none());
    assert!(status.get("transportSecurity").is_some());
}

/// Makes `server.pem` a certificate (of X.509 version 1) with an encrypted key, whose password is
/// `secret ä`.
fn encrypt_key(files: &Files) {
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tls");
    let certificate = std::fs::read_to_string(keys.join("subject.pem")).unwrap();
    let key = std::fs::read_to_string(keys.join("ec-aes256-hmacWithSHA256.pem")).unwrap();
    certificates::write(files.path(), "server.pem", &(certificate + &key)).unwrap();
}

#[test]
fn the_password_of_a_key_by_option_and_by_file() {
    let files = Files::new();
    encrypt_key(&files);
    let server = start(&files, &["--tlsCertificateKeyFilePassword", "secret ä"]);
    assert!(!server.log().iter().any(|line| line.contains("secret ä")));
    assert!(server.stop().success());
    let word = certificates::write(files.path(), "word", "secret ä\n").unwrap();
    let server = start(
        &files,
        &[
            "--tlsCertificateKeyFilePasswordFile",
            &word.display().to_string(),
        ],
    );
    assert!(server.stop().success());
    let error = refused(&files, &["--tlsCertificateKeyFilePassword", "wrong"]);
    assert!(
        error.ends_with(
            "the password of --tlsCertificateKeyFilePassword does not decrypt the private key"
        ),
        "{error}"
    );
}

#[test]
fn the_password_of_a_key_by_prompt() {
    let files = Files::new();
    encrypt_key(&files);
    let folder = tempfile::tempdir().unwrap();
    let (mut terminal, slave) = terminal();
    let options = options(&files);
    let all: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut command: Command = command(folder.path(), &all);
    let fd = slave.as_raw_fd();
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            match libc::ioctl(fd, libc::TIOCSCTTY, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command.stdin(Stdio::null());
    let asked = std::thread::spawn(move || {
        let mut shown = String::new();
        let mut bytes = [0; 256];
        while !shown.contains(": ") {
            let count = terminal.read(&mut bytes).expect("the terminal is open");
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        terminal
            .write_all("secret ä\n".as_bytes())
            .expect("the terminal is open");
        (terminal, shown)
    });
    let server = Server::launch(command, folder.path(), None);
    let (_terminal, shown) = asked.join().expect("the prompt is answered");
    assert!(shown.contains("Password of the private key in "), "{shown}");
    assert!(server.stop().success());
}

/// The two sides of a pseudo terminal.
fn terminal() -> (File, File) {
    let (mut master, mut slave) = (0, 0);
    // SAFETY: the pointers are to variables of the types that the call expects; pointers that may
    // be null are null.
    let opened = unsafe {
        libc::openpty(
            &mut master,
            &mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0, "a pseudo terminal");
    // SAFETY: the descriptors are open and have no other owner.
    unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) }
}
