//! Decoding frames into messages, and the errors of invalid frames.

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_wire::request::{compressed, op_msg, op_query};
use sheaf_wire::{
    Answer, Compressor, CompressorSet, Decoder, ErrorCode, Flags, HEADER_BYTES, Protocol,
    Rejection, op,
};

fn decoder() -> Decoder {
    Decoder::new(CompressorSet::all())
}

fn refused(frame: &[u8]) -> Rejection {
    let mut decoder = decoder();
    match decoder.decode(frame) {
        Ok(message) => panic!("decoded to {message:?}"),
        Err(rejection) => rejection,
    }
}

/// An OP_MSG with these flags, followed by these bytes.
fn raw(flags: u32, sections: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + 4 + sections.len()) as i32;
    let mut out = Vec::new();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&7i32.to_le_bytes());
    out.extend_from_slice(&0i32.to_le_bytes());
    out.extend_from_slice(&op::MSG.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(sections);
    out
}

fn body_section(body: &DocBuf) -> Vec<u8> {
    [&[0], body.as_raw().as_bytes()].concat()
}

fn sequence_section(identifier: &[u8], documents: &[u8]) -> Vec<u8> {
    let size = (4 + identifier.len() + 1 + documents.len()) as i32;
    [
        &[1],
        size.to_le_bytes().as_slice(),
        identifier,
        &[0],
        documents,
    ]
    .concat()
}

#[test]
fn an_op_msg_with_sequences() {
    let body = doc! {"insert": "c", "$db": "test"};
    let documents = [doc! {"_id": 1}, doc! {"_id": 2, "a": "x"}];
    let raws: Vec<RawDoc<'_>> = documents.iter().map(|d| d.as_raw()).collect();
    let frame = op_msg(
        7,
        Flags(Flags::MORE_TO_COME | Flags::EXHAUST_ALLOWED),
        body.as_raw(),
        &[("documents", &raws), ("other", &[])],
    );
    let mut decoder = decoder();
    let message = decoder.decode(&frame).unwrap();
    assert_eq!(message.request_id(), 7);
    assert_eq!(message.protocol(), Protocol::OpMsg);
    assert_eq!(message.command_name(), "insert");
    assert_eq!(message.body(), body.as_raw());
    assert_eq!(message.length(), frame.len());
    assert!(message.more_to_come() && message.exhaust_allowed());
    assert!(!message.checksum_present());
    assert_eq!(message.database(), None);
    assert_eq!(message.compressor(), None);
    assert_eq!(message.sequences().len(), 2);
    let sequence = message.sequence("documents").unwrap();
    assert_eq!(sequence.len(), 2);
    assert_eq!(sequence.iter().len(), 2);
    assert_eq!(sequence.iter().collect::<Vec<_>>(), raws);
    assert!(message.sequence("other").unwrap().is_empty());
    assert!(message.sequence("documents_").is_none());
}

#[test]
fn sections_may_come_in_any_order() {
    let body = doc! {"insert": "c"};
    let document = doc! {"_id": 1};
    let sections = [
        sequence_section(b"documents", document.as_raw().as_bytes()),
        body_section(&body),
    ]
    .concat();
    let frame = raw(0, &sections);
    let mut decoder = decoder();
    let message = decoder.decode(&frame).unwrap();
    assert_eq!(message.command_name(), "insert");
    assert_eq!(message.sequence("documents").unwrap().len(), 1);
}

#[test]
fn unknown_optional_flags_pass() {
    let frame = raw(1 << 20, &body_section(&doc! {"ping": 1}));
    assert!(decoder().decode(&frame).is_ok());
}

#[test]
fn checksums_are_verified() {
    let frame = op_msg(
        7,
        Flags(Flags::CHECKSUM_PRESENT),
        doc! {"ping": 1}.as_raw(),
        &[],
    );
    let mut decoder = decoder();
    assert!(decoder.decode(&frame).unwrap().checksum_present());
    for at in HEADER_BYTES + 5..frame.len() {
        let mut damaged = frame.clone();
        damaged[at] ^= 0x40;
        assert_eq!(
            refused(&damaged).error.code(),
            ErrorCode::CHECKSUM_MISMATCH,
            "byte {at}"
        );
    }
}

#[test]
fn refused_messages_are_answered_and_skipped() {
    let ping = doc! {"ping": 1};
    let body = body_section(&ping);
    let document = doc! {"_id": 1};
    let document = document.as_raw().as_bytes();
    let mut bad_utf8 = body.clone();
    bad_utf8[6] = 0xff;
    let long = doc! {"a": "x".repeat(17 << 20).as_str()};
    let mut deep = doc! {"a": 1};
    for _ in 0..201 {
        deep = doc! {"a": deep};
    }
    let cases: Vec<(&str, Vec<u8>, ErrorCode)> = vec![
        (
            "required flag",
            raw(1 << 5, &body),
            ErrorCode::ILLEGAL_OP_MSG_FLAG,
        ),
        ("no sections", raw(0, &[]), ErrorCode::PROTOCOL_ERROR),
        (
            "no room for a checksum",
            raw(1, &[1, 2]),
            ErrorCode::INVALID_BSON,
        ),
        (
            "two bodies",
            raw(0, &[&body[..], &body].concat()),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "body cut off",
            raw(0, &body[..body.len() - 1]),
            ErrorCode::INVALID_BSON,
        ),
        (
            "body's key is not UTF-8",
            raw(0, &bad_utf8),
            ErrorCode::INVALID_BSON,
        ),
        (
            "body of negative length",
            raw(0, &[0, 0xff, 0xff, 0xff, 0xff]),
            ErrorCode::INVALID_BSON,
        ),
        (
            "nested too deep",
            raw(0, &body_section(&deep)),
            ErrorCode::OVERFLOW,
        ),
        (
            "document too long",
            raw(0, &body_section(&long)),
            ErrorCode::BSON_OBJECT_TOO_LARGE,
        ),
        (
            "only sequences",
            raw(0, &sequence_section(b"documents", document)),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "two sequences of one name",
            raw(
                0,
                &[
                    body.clone(),
                    sequence_section(b"d", document),
                    sequence_section(b"d", &[]),
                ]
                .concat(),
            ),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "a field and a sequence of one name",
            raw(
                0,
                &[body.clone(), sequence_section(b"ping", document)].concat(),
            ),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "a sequence that ends within a document",
            raw(
                0,
                &[body.clone(), sequence_section(b"d", &document[..7])].concat(),
            ),
            ErrorCode::INVALID_BSON,
        ),
        (
            "a sequence longer than its message",
            raw(0, &[&body[..], &[1, 100, 0, 0, 0, b'd', 0]].concat()),
            ErrorCode::INVALID_BSON,
        ),
        (
            "a sequence shorter than its size field",
            raw(0, &[&body[..], &[1, 3, 0, 0, 0, b'd', 0]].concat()),
            ErrorCode::INVALID_BSON,
        ),
        (
            "a sequence whose name does not end",
            raw(0, &[&body[..], &[1, 6, 0, 0, 0, b'd', b'e']].concat()),
            ErrorCode::INVALID_BSON,
        ),
        (
            "more sequences than any command has",
            raw(
                0,
                &(0..20u8).fold(body.clone(), |all, i| {
                    [all, sequence_section(&[b'a' + i], &[])].concat()
                }),
            ),
            ErrorCode::TOO_MANY_DOCUMENT_SEQUENCES,
        ),
    ];
    for (what, frame, code) in cases {
        let rejection = refused(&frame);
        assert_eq!(
            rejection.error.code(),
            code,
            "{what}: {:?}",
            rejection.error
        );
        assert_eq!(
            rejection.answer,
            Some(Answer::OpMsg { response_to: 7 }),
            "{what}"
        );
        assert_eq!(rejection.skip, frame.len(), "{what}");
        assert!(!rejection.close, "{what}");
    }
}

#[test]
fn an_unknown_section_kind_ends_the_connection() {
    let rejection = refused(&raw(0, &[2, 0]));
    assert_eq!(rejection.error.code(), ErrorCode::PROTOCOL_ERROR);
    assert!(rejection.answer.is_some() && rejection.close);
}

#[test]
fn requests_without_reply_get_no_error() {
    let rejection = refused(&raw(Flags::MORE_TO_COME, &[]));
    assert_eq!(rejection.answer, None);
    assert!(!rejection.close);
}

#[test]
fn op_query_carries_the_handshake_only() {
    let mut decoder = decoder();
    for command in ["hello", "isMaster", "ismaster"] {
        let frame = op_query(7, "admin.$cmd", doc! {command: 1}.as_raw());
        let message = decoder.decode(&frame).unwrap();
        assert_eq!(message.protocol(), Protocol::OpQuery);
        assert_eq!(message.command_name(), command);
        assert_eq!(message.database(), Some("admin"));
    }
    let wrapped = doc! {"$query": {"isMaster": 1}, "$readPreference": {"mode": "nearest"}};
    let frame = op_query(7, "admin.$cmd", wrapped.as_raw());
    assert_eq!(decoder.decode(&frame).unwrap().command_name(), "isMaster");

    for (namespace, query) in [
        ("test.c", doc! {"isMaster": 1}),
        ("admin.$cmd", doc! {"find": "c"}),
        ("admin.$cmd", doc! {}),
        ("admin.$cmd", doc! {"$query": 1}),
    ] {
        let rejection = refused(&op_query(7, namespace, query.as_raw()));
        assert_eq!(
            rejection.error.code(),
            ErrorCode::UNSUPPORTED_OP_QUERY_COMMAND
        );
        assert_eq!(rejection.answer, Some(Answer::OpReply { response_to: 7 }));
    }
    let whole = op_query(7, "admin.$cmd", doc! {"isMaster": 1}.as_raw());
    for length in HEADER_BYTES..whole.len() {
        assert_eq!(
            refused(&whole[..length]).error.code(),
            ErrorCode::INVALID_BSON,
            "{length}"
        );
    }
}

#[test]
fn a_compressed_message_is_the_message() {
    let text = "compress me ".repeat(50);
    let body = doc! {"echo": text.as_str()};
    let plain = op_msg(7, Flags(Flags::CHECKSUM_PRESENT), body.as_raw(), &[]);
    for compressor in [
        Compressor::Noop,
        Compressor::Snappy,
        Compressor::Zlib,
        Compressor::Zstd,
    ] {
        let frame = compressed(compressor, &plain);
        let mut decoder = decoder();
        let message = decoder.decode(&frame).unwrap();
        assert_eq!(message.body(), body.as_raw());
        assert_eq!(message.compressor(), Some(compressor));
        assert_eq!(message.request_id(), 7);
        // The checksum covers the message before compression.
        assert!(message.checksum_present());
    }
}

#[test]
fn refused_compressed_messages() {
    let text = "compress me ".repeat(50);
    let plain = op_msg(
        7,
        Flags::default(),
        doc! {"echo": text.as_str()}.as_raw(),
        &[],
    );
    let good = compressed(Compressor::Zstd, &plain);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    const ORIGINAL: usize = HEADER_BYTES;
    const SIZE: usize = HEADER_BYTES + 4;
    const ID: usize = HEADER_BYTES + 8;
    let cases = [
        (
            "nested",
            with(ORIGINAL, &op::COMPRESSED.to_le_bytes()),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "not a request",
            with(ORIGINAL, &op::REPLY.to_le_bytes()),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "unknown compressor",
            with(ID, &[9]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            "another compressor",
            with(ID, &[2]),
            ErrorCode::INVALID_LENGTH,
        ),
        (
            "claims too much",
            with(SIZE, &48_000_000i32.to_le_bytes()),
            ErrorCode::INVALID_LENGTH,
        ),
        (
            "claims less than nothing",
            with(SIZE, &(-1i32).to_le_bytes()),
            ErrorCode::INVALID_LENGTH,
        ),
        (
            "claims less than there is",
            with(SIZE, &10i32.to_le_bytes()),
            ErrorCode::INVALID_LENGTH,
        ),
        (
            "claims more than there is",
            with(SIZE, &100_000i32.to_le_bytes()),
            ErrorCode::INVALID_LENGTH,
        ),
        (
            "ends within its header",
            good[..HEADER_BYTES + 8].to_vec(),
            ErrorCode::INVALID_BSON,
        ),
        (
            "is cut off",
            good[..good.len() - 3].to_vec(),
            ErrorCode::INVALID_LENGTH,
        ),
    ];
    for (what, frame, code) in cases {
        let rejection = refused(&frame);
        assert_eq!(
            rejection.error.code(),
            code,
            "{what}: {:?}",
            rejection.error
        );
        assert_eq!(rejection.skip, frame.len(), "{what}");
    }
    // Only negotiated compressors are accepted.
    let mut only_snappy = Decoder::new([Compressor::Snappy].into_iter().collect());
    let rejection = only_snappy.decode(&good).expect_err("zstd is not accepted");
    assert_eq!(rejection.error.code(), ErrorCode::PROTOCOL_ERROR);
    assert!(
        rejection.error.message().contains("snappy"),
        "{:?}",
        rejection.error
    );
}
