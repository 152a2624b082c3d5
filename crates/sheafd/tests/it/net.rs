//! The network layer over real sockets, with the echo service.

use std::sync::atomic::Ordering;

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_server::ClientState;
use sheaf_wire::request::{compressed, op_msg};
use sheaf_wire::{Compressor, Flags, HEADER_BYTES, Header, op};
use sheafd::net::{Endpoint, Listener};

use super::client::Client;
use super::echo::EchoServer;

fn echo(text: &str) -> DocBuf {
    doc! {"echo": text, "$db": "test"}
}

/// The text of the echo.
fn echoed(body: &DocBuf) -> String {
    let inner = body.get("body").and_then(|v| v.as_document());
    let text = inner.and_then(|d| d.get("echo")).and_then(|v| v.as_str());
    text.unwrap_or("").to_string()
}

fn message(id: i32, text: &str) -> Vec<u8> {
    op_msg(id, Flags::default(), echo(text).as_raw(), &[])
}

#[test]
fn one_request_after_the_other() {
    let server = EchoServer::start();
    let mut client = server.client();
    for text in ["a", "b", "c"] {
        assert_eq!(echoed(&client.ok(&echo(text))), text);
    }
    let documents = [doc! {"_id": 1}, doc! {"_id": 2}];
    let raws: Vec<RawDoc<'_>> = documents.iter().map(|d| d.as_raw()).collect();
    let reply = client.run_with(&echo("d"), &[("documents", &raws)]);
    let sequences = reply.body.get("sequences").and_then(|v| v.as_document());
    let count = sequences.and_then(|s| s.get("documents"));
    assert_eq!(count.and_then(|v| v.as_i64_exact()), Some(2));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = EchoServer::start();
    let mut client = server.client();
    let texts: Vec<String> = (0..100).map(|i| "x".repeat(i * 37)).collect();
    let stream: Vec<u8> = texts
        .iter()
        .enumerate()
        .flat_map(|(i, text)| message(i as i32, text))
        .collect();
    client.send(&stream);
    for (i, text) in texts.iter().enumerate() {
        let reply = client.receive();
        assert_eq!(reply.header.response_to, i as i32);
        assert_eq!(&echoed(&reply.body), text);
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = EchoServer::start();
    let mut client = server.client();
    for byte in message(1, "slowly") {
        client.send(&[byte]);
    }
    assert_eq!(echoed(&client.receive().body), "slowly");
}

#[test]
fn a_large_message_passes_both_ways() {
    let server = EchoServer::start();
    let mut client = server.client();
    let text = "0123456789abcdef".repeat(1 << 19);
    let reply = client.ok(&echo(&text));
    assert!(echoed(&reply) == text);
    // A small message after it, with new buffers.
    assert_eq!(echoed(&client.ok(&echo("small"))), "small");
}

#[test]
fn every_compressor_both_ways() {
    let server = EchoServer::start();
    let mut client = server.client();
    let text = "again and ".repeat(100);
    for compressor in Compressor::NEGOTIABLE {
        client.send(&compressed(compressor, &message(1, &text)));
        let reply = client.receive();
        assert_eq!(reply.compressor, Some(compressor));
        assert_eq!(echoed(&reply.body), text);
    }
    client.send(&compressed(Compressor::Noop, &message(1, &text)));
    let reply = client.receive();
    assert_eq!(reply.compressor, None);
    assert_eq!(echoed(&reply.body), text);
}

#[test]
fn a_checked_request_gets_a_checked_reply() {
    let server = EchoServer::start();
    let mut client = server.client();
    let good = op_msg(1, Flags(Flags::CHECKSUM_PRESENT), echo("sum").as_raw(), &[]);
    client.send(&good);
    let reply = client.receive();
    assert!(reply.flags.has(Flags::CHECKSUM_PRESENT));
    assert_eq!(echoed(&reply.body), "sum");

    let mut damaged = good.clone();
    damaged[40] ^= 1;
    client.send(&damaged);
    assert_eq!(client.receive().code_name(), "ChecksumMismatch");
    client.send(&good);
    assert!(client.receive().is_ok(), "the connection continues");
}

#[test]
fn refused_messages_leave_the_connection_usable() {
    let server = EchoServer::start();
    let mut client = server.client();
    let good = message(7, "fine");
    let mut unknown_flag = good.clone();
    unknown_flag[HEADER_BYTES] = 0x80;
    let mut wrong_opcode = good.clone();
    wrong_opcode[12..16].copy_from_slice(&4711i32.to_le_bytes());
    let mut old_opcode = good.clone();
    old_opcode[12..16].copy_from_slice(&op::INSERT.to_le_bytes());
    let mut not_utf8 = good.clone();
    let at = not_utf8.len() - 20;
    not_utf8[at..].fill(0xff);
    let mut bomb = compressed(Compressor::Zstd, &message(7, &"boom".repeat(1000)));
    bomb[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&i32::MAX.to_le_bytes());
    let mut small_claim = compressed(Compressor::Zlib, &message(7, &"boom".repeat(1000)));
    small_claim[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&50i32.to_le_bytes());
    for (what, bytes, name) in [
        ("unknown flag", &unknown_flag, "IllegalOpMsgFlag"),
        ("wrong opcode", &wrong_opcode, "ProtocolError"),
        ("opcode of old", &old_opcode, "ProtocolError"),
        ("damaged document", &not_utf8, "InvalidBSON"),
        ("claims 2 GB uncompressed", &bomb, "InvalidLength"),
        ("is larger than it claims", &small_claim, "InvalidLength"),
    ] {
        client.send(bytes);
        let reply = client.receive();
        assert_eq!(reply.code_name(), name, "{what}");
        assert_eq!(reply.header.response_to, 7, "{what}");
        assert_eq!(echoed(&client.ok(&echo(what))), what);
    }
}

#[test]
fn an_oversized_message_is_refused_and_skipped() {
    let server = EchoServer::start();
    let mut client = server.client();
    let length = 48_000_016;
    let header = Header {
        message_length: length,
        request_id: 9,
        response_to: 0,
        op_code: op::MSG,
    };
    client.send(&header.to_bytes());
    let reply = client.receive();
    assert_eq!(reply.code_name(), "InvalidLength");
    assert_eq!(reply.header.response_to, 9);
    client.send(&vec![0; length as usize - HEADER_BYTES]);
    assert_eq!(echoed(&client.ok(&echo("behind it"))), "behind it");
}

#[test]
fn unreadable_streams_are_answered_and_closed() {
    let server = EchoServer::start();
    let unframed = Header {
        message_length: 3,
        request_id: 9,
        response_to: 0,
        op_code: op::MSG,
    };
    let mut client = server.client();
    client.send(&unframed.to_bytes());
    assert_eq!(client.receive().code_name(), "InvalidLength");
    assert_eq!(client.receive_rest(), []);

    let mut client = server.client();
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = client.receive_rest();
    assert!(answer.starts_with(b"HTTP/1.0 400"));

    let mut client = server.client();
    client.send(&[0xff; 64]);
    assert_eq!(
        client.receive_rest(),
        [],
        "the bytes are not recognizable as a message"
    );
}

#[test]
fn a_broken_connection_affects_no_other() {
    let server = EchoServer::start();
    let mut other = server.client();
    other.ok(&echo("before"));
    for cut in [1, 15, 16, 20, 40] {
        let mut client = server.client();
        client.send(&message(1, "cut off")[..cut]);
        client.finish_sending();
        assert_eq!(client.receive_rest(), []);
    }
    other.ok(&echo("after"));
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 1);
}

#[test]
fn more_to_come_requests_get_no_reply() {
    let server = EchoServer::start();
    let mut client = server.client();
    for command in [echo("unheard"), doc! {"quiet": 1}] {
        let flags = Flags(Flags::MORE_TO_COME);
        client.send(&op_msg(1, flags, command.as_raw(), &[]));
    }
    // Not even an error.
    let mut wrong = op_msg(2, Flags(Flags::MORE_TO_COME), echo("x").as_raw(), &[]);
    wrong[20] = 1;
    client.send(&wrong);
    assert_eq!(echoed(&client.ok(&echo("heard"))), "heard");
}

#[test]
fn an_exhaust_stream_ends_by_itself() {
    let server = EchoServer::start();
    let mut client = server.client();
    let count = doc! {"count": 3};
    client.send(&op_msg(
        1,
        Flags(Flags::EXHAUST_ALLOWED),
        count.as_raw(),
        &[],
    ));
    let mut answers = 1;
    for left in (0..=3).rev() {
        let reply = client.receive();
        let got = reply.body.get("left").and_then(|v| v.as_i64_exact());
        assert_eq!(got, Some(left));
        assert_eq!(reply.header.response_to, answers);
        assert_eq!(reply.flags.has(Flags::MORE_TO_COME), left > 0);
        answers = reply.header.request_id;
    }
    // Without the flag the client receives one plain reply.
    let reply = client.run(&count);
    assert!(!reply.flags.has(Flags::MORE_TO_COME));
    client.ok(&echo("next"));
}

#[test]
fn a_handler_may_close_the_connection() {
    let server = EchoServer::start();
    let mut client = server.client();
    client.ok(&doc! {"close": 1});
    assert_eq!(client.receive_rest(), []);
    let mut client = server.client();
    client.send(&op_msg(
        1,
        Flags::default(),
        doc! {"hangUp": 1}.as_raw(),
        &[],
    ));
    assert_eq!(client.receive_rest(), []);
}

#[test]
fn a_panic_ends_one_connection_only() {
    let server = EchoServer::start();
    let mut other = server.client();
    other.ok(&echo("before"));
    let mut client = server.client();
    let reply = client.run(&doc! {"panic": 1});
    assert_eq!(reply.code_name(), "InternalError");
    assert_eq!(client.receive_rest(), []);
    other.ok(&echo("after"));
    let (_, lines) = server.log.recent();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("requested by the client"))
    );
}

#[test]
fn a_handler_is_notified_of_a_disconnect() {
    let server = EchoServer::start();
    let mut client = server.client();
    client.send(&op_msg(
        1,
        Flags::default(),
        doc! {"await": 1}.as_raw(),
        &[],
    ));
    server.seen.wait_waiting(1);
    assert_eq!(server.connections.stats().active, 1);
    drop(client);
    assert_eq!(server.seen.wait_ended(1), [ClientState::Gone]);
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 0);
}

#[test]
fn stopping_interrupts_and_answers() {
    let mut server = EchoServer::start();
    let mut idle = server.client();
    idle.ok(&echo("idle"));
    let mut busy = server.client();
    busy.send(&op_msg(
        1,
        Flags::default(),
        doc! {"await": 1}.as_raw(),
        &[],
    ));
    server.seen.wait_waiting(1);
    server.stop();
    assert_eq!(server.seen.wait_ended(1), [ClientState::Stopping]);
    assert!(busy.receive().is_ok(), "the reply under way was sent");
    assert_eq!(busy.receive_rest(), []);
    assert_eq!(idle.receive_rest(), []);
    assert_eq!(server.seen.handlers.load(Ordering::SeqCst), 0);
    assert_eq!(server.connections.stats().current, 0);
}

#[test]
fn counts() {
    let server = EchoServer::start();
    let request = message(1, "counted");
    let mut reply_bytes = 0;
    for _ in 0..2 {
        let mut client = server.client();
        client.send(&request);
        reply_bytes += client.receive().header.message_length as u64;
    }
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 0);
    server
        .seen
        .wait(|_| server.connections.stats().current == 0);
    let network = server.connections.network();
    assert_eq!(network.requests, 2);
    assert_eq!(network.bytes_in, 2 * request.len() as u64);
    assert_eq!(network.bytes_out, reply_bytes);
    let stats = server.connections.stats();
    assert_eq!((stats.total_created, stats.available), (2, 10_000));
}

#[test]
fn the_connection_limit_holds() {
    let server = EchoServer::start_at("127.0.0.1:0", 2);
    let mut first = server.client();
    let mut second = server.client();
    first.ok(&echo("first"));
    second.ok(&echo("second"));
    let mut third = server.client();
    assert_eq!(third.receive_rest(), []);
    assert_eq!(server.connections.stats().rejected, 1);
    first.ok(&echo("still there"));
    drop(second);
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 1);
    server
        .seen
        .wait(|_| server.connections.stats().current == 1);
    server.client().ok(&echo("room again"));
}

#[test]
fn a_thousand_idle_connections() {
    // Both ends are in this process; many systems begin with 1024 descriptors.
    sheafd::process::raise_open_files();
    let server = EchoServer::start();
    let mut clients: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for client in &mut clients {
        client.ok(&echo("hello"));
    }
    assert_eq!(server.connections.stats().current, 1000);
    // Each connection releases its memory when idle, and handles the next request.
    server
        .seen
        .wait(|seen| seen.idle.load(Ordering::SeqCst) >= 1000);
    for client in &mut clients {
        assert_eq!(echoed(&client.ok(&echo("awake"))), "awake");
    }
    drop(clients);
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 0);
}

#[test]
fn ipv6() {
    let server = EchoServer::start_at("[::1]:0", 10);
    assert_eq!(echoed(&server.client().ok(&echo("six"))), "six");
}

#[test]
fn unix_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mongodb-1.sock");
    let endpoint = Endpoint::Unix {
        path: path.clone(),
        permissions: 0o700,
    };
    let mut server = EchoServer::start_on(endpoint.clone(), 10);
    assert_eq!(echoed(&server.client().ok(&echo("local"))), "local");

    let taken = Listener::bind(endpoint.clone())
        .err()
        .expect("it is in use");
    assert_eq!(taken.source.raw_os_error(), Some(libc::EADDRINUSE));
    server.stop();
    assert!(!path.exists(), "the server removes the socket file");

    // The socket file of a killed server is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = EchoServer::start_on(endpoint.clone(), 10);
    assert_eq!(echoed(&server.client().ok(&echo("again"))), "again");
    drop(server);

    // A file of another kind is not.
    std::fs::write(&path, "somebody's data").unwrap();
    assert!(Listener::bind(endpoint).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's data");
}

#[test]
fn a_port_in_use_is_named_in_the_error() {
    let server = EchoServer::start();
    let error = Listener::bind(server.endpoint.clone())
        .err()
        .expect("taken");
    assert!(error.to_string().contains(&server.endpoint.to_string()));
    assert_eq!(error.source.raw_os_error(), Some(libc::EADDRINUSE));
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let endpoint = Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"));
    let limit = std::time::Duration::from_millis(100);
    let server = EchoServer::start_limited(endpoint, 10, Some(limit));
    let mut client = server.client();
    // The socket buffers of both sides hold some replies; then the server waits, and closes the
    // connection.
    let text = "0123456789abcdef".repeat(1 << 19);
    while client.try_send(&message(1, &text)).is_ok() {}
    server
        .seen
        .wait(|seen| seen.handlers.load(Ordering::SeqCst) == 0);
    // A client that reads receives the whole reply.
    let mut reading = server.client();
    assert!(echoed(&reading.ok(&echo(&text))) == text);
}

/// Large messages of all connections share a limit: one that does not fit is refused, and its
/// connection goes on.
#[test]
fn large_messages_share_a_limit() {
    let server = EchoServer::start();
    // Of 40 MB, in four documents.
    let part = doc! {"s": "x".repeat(10 << 20)};
    let documents = [("documents", &[part.as_raw(); 4][..])];
    let whole = op_msg(7, Flags::default(), echo("large").as_raw(), &documents);
    // Two clients begin messages that they do not end.
    let mut unfinished: Vec<Client> = (0..2).map(|_| server.client()).collect();
    for client in &mut unfinished {
        client.send(&whole[..2 << 20]);
    }
    let mut client = server.client();
    let until_refused = |client: &mut Client, bytes: &[u8]| loop {
        client.send(bytes);
        let reply = client.receive();
        if reply.code() == 146 {
            break reply;
        }
        assert_eq!(reply.body.get("ok").and_then(|v| v.as_f64()), Some(1.0));
    };
    until_refused(&mut client, &whole);
    // A small compressed message with a large content counts as that.
    let packed = compressed(Compressor::Zstd, &whole);
    assert!(packed.len() < 1 << 20);
    until_refused(&mut client, &packed);
    assert_eq!(echoed(&client.ok(&echo("small"))), "small");
    drop(unfinished);
    let reply = loop {
        client.send(&packed);
        let reply = client.receive();
        if reply.code() != 146 {
            break reply;
        }
    };
    assert_eq!(echoed(&reply.body), "large");
}
