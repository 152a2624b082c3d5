//! Handshakes of hostile clients: silent, slow, endless, damaged. None ends the server, holds a
//! connection beyond its time, or disturbs another client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use sheaf_bson::doc;
use sheaf_testkit::fuzz::{Random, mutate};
use sheafd::tls::TlsMode;

use super::client::Client;
use super::echo::EchoServer;
use super::tls::Files;

const VERSIONS: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS12, &rustls::version::TLS13];

/// The first flight of a client.
fn client_hello(files: &Files) -> (ClientConnection, Vec<u8>) {
    let name = "localhost".try_into().expect("a name");
    let config = files.client(Some("client.pem"), VERSIONS);
    let mut client = ClientConnection::new(Arc::clone(&config), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("into memory");
    (client, bytes)
}

/// Reads until the server closes.
fn drain(socket: &mut TcpStream) {
    let mut sink = Vec::new();
    // A reset is an end, too.
    let _ = socket.read_to_end(&mut sink);
}

fn assert_alive(server: &EchoServer, files: &Files) {
    let (client, _) = {
        let name = "localhost".try_into().expect("a name");
        let config = files.client(Some("client.pem"), VERSIONS);
        (ClientConnection::new(config, name).expect("a client"), ())
    };
    let mut client = Client::over_tls(server.socket(), client);
    client.ok(&doc! {"echo": 1});
}

#[test]
fn stalled_handshakes_end_in_time() {
    let files = Files::new();
    let limit = Duration::from_millis(200);
    let server = EchoServer::start_tls(files.options(), Some(limit));
    let (_, hello) = client_hello(&files);
    for sent in [
        0,
        1,
        2,
        3,
        5,
        6,
        hello.len() / 2,
        hello.len() - 1,
        hello.len(),
    ] {
        let mut socket = server.socket();
        socket.write_all(&hello[..sent]).unwrap();
        let begin = Instant::now();
        drain(&mut socket);
        assert!(begin.elapsed() < Duration::from_secs(10), "{sent} bytes");
    }
    // No session of commands was ever made for them.
    assert_eq!(
        server
            .seen
            .handlers
            .load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    assert_alive(&server, &files);
}

#[test]
fn a_handshake_byte_by_byte_has_no_more_time() {
    let files = Files::new();
    let limit = Duration::from_millis(300);
    let server = EchoServer::start_tls(files.options(), Some(limit));
    let (_, hello) = client_hello(&files);
    let mut socket = server.socket();
    let begin = Instant::now();
    for byte in &hello {
        if socket.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        if begin.elapsed() > limit * 3 {
            break;
        }
    }
    drain(&mut socket);
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    assert_alive(&server, &files);
}

#[test]
fn a_silent_plain_client_may_wait_where_plain_is_allowed() {
    let files = Files::new();
    let mut options = files.options();
    options.mode = TlsMode::Allow;
    let limit = Duration::from_millis(100);
    let server = EchoServer::start_tls(options, Some(limit));
    let mut silent = server.client();
    std::thread::sleep(limit * 3);
    silent.ok(&doc! {"echo": 1});
    // But a record of TLS that does not continue has begun a handshake.
    let mut socket = server.socket();
    socket.write_all(&[22]).unwrap();
    drain(&mut socket);
}

#[test]
fn an_endless_handshake_is_cut_off() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), Some(Duration::from_secs(60)));
    // Handshake messages of the greatest length, in records of the greatest length, without end.
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    let mut socket = server.socket();
    let begin = Instant::now();
    while socket.write_all(&record).is_ok() {
        // What arrives after the refusal is discarded for a moment, however much it is.
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "the server reads without end"
        );
    }
    assert_alive(&server, &files);
}

#[test]
fn damaged_handshakes_are_errors() {
    let files = Files::new();
    let limit = Duration::from_millis(500);
    let server = EchoServer::start_tls(files.options(), Some(limit));
    let mut random = Random::new(20_261_123);
    let (_, hello) = client_hello(&files);
    for round in 0..400 {
        let mut bytes = match round % 4 {
            // Noise that begins like a record.
            0 => {
                let length = random.below(600);
                let noise = (0..length).map(|_| random.number() as u8);
                [22, 3, 1].into_iter().chain(noise).collect()
            }
            _ => hello.clone(),
        };
        mutate(&mut bytes, &mut random);
        let mut socket = server.socket();
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        drain(&mut socket);
    }
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    assert_alive(&server, &files);
    assert_no_panic(&server);
}

#[test]
fn damage_after_the_first_flight_is_an_error() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), Some(Duration::from_millis(500)));
    let mut random = Random::new(11);
    for _ in 0..60 {
        let (mut client, hello) = client_hello(&files);
        let mut socket = server.socket();
        socket.write_all(&hello).unwrap();
        while client.is_handshaking() {
            if client.wants_write() {
                let mut bytes = Vec::new();
                client.write_tls(&mut bytes).expect("into memory");
                mutate(&mut bytes, &mut random);
                let _ = socket.write_all(&bytes);
                continue;
            }
            if !matches!(client.read_tls(&mut socket), Ok(1..))
                || client.process_new_packets().is_err()
            {
                break;
            }
        }
        let mut bytes = Vec::new();
        // The certificate, its signature, and the end of TLS 1.3's handshake.
        let _ = client.write_tls(&mut bytes);
        mutate(&mut bytes, &mut random);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        drain(&mut socket);
    }
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    assert_alive(&server, &files);
    assert_no_panic(&server);
}

#[test]
fn damaged_records_end_an_established_connection() {
    let files = Files::new();
    let server = EchoServer::start_tls(files.options(), None);
    let mut random = Random::new(12);
    for _ in 0..60 {
        let (mut client, hello) = client_hello(&files);
        let mut socket = server.socket();
        socket.write_all(&hello).unwrap();
        while client.is_handshaking() || client.wants_write() {
            client.complete_io(&mut socket).expect("a handshake");
        }
        let message = sheaf_wire::request::op_msg(
            1,
            Default::default(),
            doc! {"echo": "some text"}.as_raw(),
            &[],
        );
        client.writer().write_all(&message).expect("buffered");
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("into memory");
        mutate(&mut bytes, &mut random);
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        drain(&mut socket);
    }
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    assert_alive(&server, &files);
    assert_no_panic(&server);
}

fn assert_no_panic(server: &EchoServer) {
    let (_, lines) = server.log.recent();
    let panics: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("invariant"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}
