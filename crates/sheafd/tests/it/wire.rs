//! Invalid input to the real server: it answers and keeps running.

use sheaf_bson::{DocBuf, doc};
use sheaf_wire::request::{compressed, op_msg};
use sheaf_wire::{Compressor, Flags, HEADER_BYTES, Header, op};

use super::client::{Client, Reply};
use super::server::Server;

/// Checks that the server replies; the commands are tested elsewhere.
fn answers(client: &mut Client) {
    let reply = client.run(&doc! {"ping": 1, "$db": "admin"});
    assert!(reply.body.get("ok").is_some(), "{:?}", reply.body);
}

fn ping(id: i32) -> Vec<u8> {
    let body = doc! {"ping": 1, "$db": "admin", "comment": "x".repeat(400).as_str()};
    op_msg(id, Flags::default(), body.as_raw(), &[])
}

#[test]
fn tcp_and_unix_socket() {
    let server = Server::start();
    answers(&mut server.client());
    answers(&mut Client::unix(&server.unix_socket()));
    assert!(server.stop().success());
}

#[test]
fn an_unknown_command() {
    let server = Server::start();
    let mut client = server.client();
    let (code, message) = client.fails(&doc! {"noSuchCommand": 1, "$db": "admin"});
    assert_eq!(code, 59);
    assert!(message.contains("noSuchCommand"), "{message}");
    server.wait_log("Connection accepted");
}

#[test]
fn the_handshake_of_old_and_new() {
    let server = Server::start();
    let offer = |command: &str| {
        doc! {command: 1, "$db": "admin", "compression": ["zstd", "lz4", "snappy"]}
    };
    let names = |reply: &Reply| {
        let list = reply.body.get("compression").and_then(|v| v.as_array());
        let list = list.expect("compressors in common");
        let names = list.iter().filter_map(|v| v.as_str());
        names.map(str::to_string).collect::<Vec<_>>()
    };
    let mut old = server.client();
    let reply = old.query("admin.$cmd", &offer("isMaster"));
    assert_eq!(reply.header.op_code, op::REPLY);
    assert!(reply.is_ok());
    assert_eq!(names(&reply), ["zstd", "snappy"]);

    let mut new = server.client();
    let reply = new.run(&offer("hello"));
    assert_eq!(reply.header.op_code, op::MSG);
    assert_eq!(names(&reply), ["zstd", "snappy"]);

    // A reply too short for compression is sent plain.
    new.send(&compressed(Compressor::Zstd, &ping(3)));
    assert!(new.receive().is_ok());
    let long = doc! {"listCommands": 1, "$db": "admin", "comment": "x".repeat(400).as_str()};
    let long = op_msg(4, Flags::default(), long.as_raw(), &[]);
    new.send(&compressed(Compressor::Zstd, &long));
    let reply = new.receive();
    assert!(reply.is_ok());
    assert_eq!(reply.compressor, Some(Compressor::Zstd));
}

#[test]
fn a_streamed_handshake() {
    let server = Server::start();
    let mut client = server.client();
    let hello = client.ok(&doc! {"hello": 1, "$db": "admin"});
    let ours = hello.get("topologyVersion").and_then(|v| v.as_document());
    let ours = ours.expect("a topology version").to_buf();
    let anothers = doc! {"processId": sheaf_bson::ObjectId([1; 12]), "counter": 0i64};
    for known in [ours, anothers] {
        let mut client = server.client();
        let request = doc! {
            "hello": 1,
            "topologyVersion": known,
            "maxAwaitTimeMS": 30,
            "$db": "admin",
        };
        let flags = Flags(Flags::EXHAUST_ALLOWED);
        client.send(&op_msg(1, flags, request.as_raw(), &[]));
        let mut answered = 1;
        for _ in 0..4 {
            let reply = client.receive();
            assert!(reply.is_ok(), "{:?}", reply.body);
            assert!(reply.flags.has(Flags::MORE_TO_COME));
            assert_eq!(reply.header.response_to, answered);
            answered = reply.header.request_id;
        }
    }
    // A stopping server ends the stream with a last reply.
    let request = doc! {
        "hello": 1,
        "topologyVersion": hello.get("topologyVersion").unwrap(),
        "maxAwaitTimeMS": 60_000,
        "$db": "admin",
    };
    let flags = Flags(Flags::EXHAUST_ALLOWED);
    client.send(&op_msg(1, flags, request.as_raw(), &[]));
    let stopping = std::thread::spawn(move || server.stop());
    let reply = client.receive();
    assert!(reply.is_ok() && !reply.flags.has(Flags::MORE_TO_COME));
    assert!(stopping.join().unwrap().success());
}

#[test]
fn refused_messages() {
    let server = Server::start();
    let mut client = server.client();
    let mut flags = ping(5);
    flags[HEADER_BYTES + 1] = 0x40;
    let mut opcode = ping(5);
    opcode[12..16].copy_from_slice(&2010i32.to_le_bytes());
    let mut length_within = ping(5);
    length_within[HEADER_BYTES + 5..HEADER_BYTES + 9].copy_from_slice(&i32::MAX.to_le_bytes());
    let mut checksum = op_msg(
        5,
        Flags(Flags::CHECKSUM_PRESENT),
        doc! {"ping": 1}.as_raw(),
        &[],
    );
    *checksum.last_mut().unwrap() ^= 1;
    let mut bomb = compressed(Compressor::Snappy, &ping(5));
    bomb[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&47_000_000i32.to_le_bytes());
    for (bytes, name) in [
        (flags, "IllegalOpMsgFlag"),
        (opcode, "ProtocolError"),
        (length_within, "BSONObjectTooLarge"),
        (checksum, "ChecksumMismatch"),
        (bomb, "InvalidLength"),
    ] {
        client.send(&bytes);
        let reply = client.receive();
        assert_eq!(reply.code_name(), name);
        assert_eq!(reply.header.response_to, 5);
        answers(&mut client);
    }
    let reply = client.query("test.c", &doc! {"a": 1});
    assert_eq!(reply.code_name(), "UnsupportedOpQueryCommand");
    assert_eq!(reply.header.op_code, op::REPLY);
    answers(&mut client);
}

#[test]
fn garbage_ends_only_its_own_connection() {
    let server = Server::start();
    let mut witness = server.client();
    for garbage in [
        b"GET /status HTTP/1.1\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20),
        vec![0; 100],
        vec![0xff; 100],
        Header {
            message_length: -5,
            request_id: 1,
            response_to: 0,
            op_code: op::MSG,
        }
        .to_bytes()
        .to_vec(),
    ] {
        let mut client = server.client();
        client.send(&garbage);
        client.finish_sending();
        client.receive_rest();
        answers(&mut witness);
    }
}

#[test]
fn claims_of_large_messages_hold_no_memory() {
    let server = Server::start();
    let before = resident_kb(server.pid());
    let claim = Header {
        message_length: 47_999_999,
        request_id: 1,
        response_to: 0,
        op_code: op::MSG,
    };
    let mut clients: Vec<Client> = (0..100).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(&claim.to_bytes());
    }
    answers(&mut server.client());
    let grown = resident_kb(server.pid()).saturating_sub(before);
    // A hundred claims of 48 MB; the threads themselves need little.
    assert!(grown < 50_000, "{grown} kB");
}

/// Resident memory of a process.
fn resident_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("its memory is known");
    line.trim_end_matches("kB")
        .trim()
        .parse()
        .expect("a number")
}

/// `{name: {name: ... innermost}}`, with an array around each level if the name is an operator.
fn nested(levels: usize, name: &str, innermost: DocBuf) -> DocBuf {
    (0..levels).fold(innermost, |inner, _| match name.starts_with('$') {
        true => doc! {name: [inner]},
        false => doc! {name: inner},
    })
}

#[test]
fn nesting_to_the_limit_and_beyond() {
    let server = Server::start();
    let mut client = server.client();
    let deep = nested(95, "a", doc! {"x": 1});
    client.ok(&doc! {"insert": "c", "documents": [deep.clone()], "$db": "test"});
    client.ok(&doc! {
        "createIndexes": "c",
        "indexes": [{"key": {"a": 1}, "name": "a_1"}],
        "$db": "test",
    });
    let found = client.ok(&doc! {"find": "c", "filter": deep.clone(), "$db": "test"});
    let batch = found.get("cursor").and_then(|v| v.as_document());
    let batch = batch
        .and_then(|c| c.get("firstBatch"))
        .and_then(|v| v.as_array());
    assert_eq!(batch.map(|b| b.count()), Some(1));
    for filter in [
        nested(49, "$and", doc! {"x": 1}),
        nested(49, "$or", doc! {"x": {"$gt": 1}}),
        nested(49, "$nor", doc! {"x": 1}),
        nested(90, "$elemMatch", doc! {"x": 1}),
        doc! {"$expr": nested(45, "$add", doc! {"$add": [1, 2]})},
        doc! {"x": nested(40, "$not", doc! {"$eq": 1})},
        doc! {"x": {"$in": [deep.clone()]}},
    ] {
        // Answered or refused; the server keeps running.
        client.run(&doc! {"find": "c", "filter": filter.clone(), "$db": "test"});
        client.run(&doc! {
            "explain": {"find": "c", "filter": filter, "$db": "test"},
            "$db": "test",
        });
    }
    // Deeper than a message may be nested.
    for levels in [250, 10_000] {
        let reply = client.run(&doc! {
            "find": "c",
            "filter": nested(levels, "a", doc! {}),
            "$db": "test",
        });
        assert_eq!(reply.code_name(), "Overflow");
    }
    answers(&mut client);
}

#[test]
fn no_descriptor_left() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let mut command = super::server::command(folder.path(), &[]);
    let few = libc::rlimit {
        rlim_cur: 40,
        rlim_max: 40,
    };
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_NOFILE, &few) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let server = Server::launch(command, folder.path(), None);
    let clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    server.wait_log("Error accepting new connection");
    drop(clients);
    answers(&mut server.client());
}
