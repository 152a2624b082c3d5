//! Replies: built in place, patched, compressed, checked.

use sheaf_bson::{DocBuf, RawDoc, doc};
use sheaf_wire::request::{compressed, op_msg, op_query};
use sheaf_wire::{
    Compressor, CompressorSet, Decoder, Error, ErrorCode, Flags, HEADER_BYTES, Header, ReplyWriter,
    label, op,
};

/// The reply to this request, written by `fill`.
fn reply_to(request: &[u8], fill: impl FnOnce(&mut ReplyWriter)) -> Vec<u8> {
    let mut decoder = Decoder::new(CompressorSet::all());
    let message = decoder.decode(request).unwrap();
    let mut reply = ReplyWriter::new();
    reply.begin(&message);
    fill(&mut reply);
    reply.finish();
    reply.bytes().to_vec()
}

fn ok(reply: &mut ReplyWriter) {
    reply.write(|body| {
        body.append("text", "a text ".repeat(30).as_str());
        body.append("ok", 1.0);
    });
}

fn ok_body() -> DocBuf {
    doc! {"text": "a text ".repeat(30).as_str(), "ok": 1.0}
}

fn request(flags: u32) -> Vec<u8> {
    op_msg(
        7,
        Flags(flags),
        doc! {"find": "c", "$db": "test"}.as_raw(),
        &[],
    )
}

#[test]
fn a_plain_reply() {
    let bytes = reply_to(&request(0), ok);
    let header = Header::read(&bytes).unwrap();
    assert_eq!(header.message_length as usize, bytes.len());
    assert_eq!(header.response_to, 7);
    assert_eq!(header.op_code, op::MSG);
    let mut decoder = Decoder::new(CompressorSet::NONE);
    let message = decoder.decode(&bytes).unwrap();
    assert_eq!(message.body(), ok_body().as_raw());
    assert_eq!(message.flags(), Flags::default());
}

#[test]
fn a_reply_to_a_checked_request_is_checked() {
    let mut bytes = reply_to(&request(Flags::CHECKSUM_PRESENT), ok);
    let mut decoder = Decoder::new(CompressorSet::NONE);
    assert!(decoder.decode(&bytes).unwrap().checksum_present());
    *bytes.last_mut().unwrap() ^= 1;
    assert!(decoder.decode(&bytes).is_err());
}

#[test]
fn a_reply_to_a_compressed_request_is_compressed() {
    for compressor in Compressor::NEGOTIABLE {
        let text = "x".repeat(200);
        let plain = op_msg(
            7,
            Flags::default(),
            doc! {"find": text.as_str()}.as_raw(),
            &[],
        );
        let bytes = reply_to(&compressed(compressor, &plain), ok);
        assert_eq!(Header::read(&bytes).unwrap().op_code, op::COMPRESSED);
        let mut decoder = Decoder::new(CompressorSet::all());
        let message = decoder.decode(&bytes).unwrap();
        assert_eq!(message.compressor(), Some(compressor));
        assert_eq!(message.body(), ok_body().as_raw());

        // A reply that must not be compressed is not, nor one too short to benefit.
        let hello = op_msg(
            7,
            Flags::default(),
            doc! {"hello": text.as_str()}.as_raw(),
            &[],
        );
        let bytes = reply_to(&compressed(compressor, &hello), |reply| {
            reply.leave_uncompressed();
            ok(reply);
        });
        assert_eq!(Header::read(&bytes).unwrap().op_code, op::MSG);
        let bytes = reply_to(&compressed(compressor, &plain), |reply| {
            reply.write(|body| {
                body.append("ok", 1.0);
            });
        });
        assert_eq!(Header::read(&bytes).unwrap().op_code, op::MSG);
    }
}

#[test]
fn a_reply_to_an_op_query() {
    let bytes = reply_to(
        &op_query(7, "admin.$cmd", doc! {"isMaster": 1}.as_raw()),
        ok,
    );
    let header = Header::read(&bytes).unwrap();
    assert_eq!(header.op_code, op::REPLY);
    assert_eq!(header.response_to, 7);
    assert_eq!(header.message_length as usize, bytes.len());
    let numbers: Vec<u8> = [8i32, 0, 0, 0, 1]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(bytes[HEADER_BYTES..HEADER_BYTES + 20], numbers);
    assert_eq!(
        RawDoc::parse(&bytes[HEADER_BYTES + 20..]).unwrap(),
        ok_body().as_raw()
    );
}

#[test]
fn exhaust_replies_answer_each_other() {
    let frame = request(Flags::EXHAUST_ALLOWED);
    let mut decoder = Decoder::new(CompressorSet::NONE);
    let message = decoder.decode(&frame).unwrap();
    let mut reply = ReplyWriter::new();
    let mut expected = 7;
    for round in 0..3 {
        match round {
            0 => reply.begin(&message),
            _ => reply.begin_next(),
        }
        ok(&mut reply);
        reply.set_more_to_come(round < 2);
        reply.finish();
        let header = Header::read(reply.bytes()).unwrap();
        assert_eq!(header.response_to, expected, "round {round}");
        expected = header.request_id;
        let mut decoder = Decoder::new(CompressorSet::NONE);
        let got = decoder.decode(reply.bytes()).unwrap();
        assert_eq!(got.more_to_come(), round < 2, "round {round}");
    }
}

#[test]
fn an_error_replaces_a_partial_reply() {
    let error = Error::new(ErrorCode::DUPLICATE_KEY, "E11000 duplicate key")
        .with_label(label::TRANSIENT_TRANSACTION)
        .with_extra(doc! {"keyPattern": {"a": 1}});
    let expected = doc! {
        "ok": 0.0,
        "errmsg": "E11000 duplicate key",
        "code": 11000,
        "codeName": "DuplicateKey",
        "keyPattern": {"a": 1},
        "errorLabels": ["TransientTransactionError"],
    };
    for half_done in [
        (|reply: &mut ReplyWriter| ok(reply)) as fn(&mut ReplyWriter),
        // The body is started and dropped, and its buffer with it.
        |reply| drop(reply.take_body()),
    ] {
        let bytes = reply_to(&request(0), |reply| {
            half_done(reply);
            reply.error(&error);
        });
        let mut decoder = Decoder::new(CompressorSet::NONE);
        let message = decoder.decode(&bytes).unwrap();
        assert_eq!(message.body(), expected.as_raw());
        assert_eq!(Header::read(&bytes).unwrap().response_to, 7);
    }
}

#[test]
fn an_unwritten_reply_is_an_error() {
    let bytes = reply_to(&request(0), |_| {});
    let mut decoder = Decoder::new(CompressorSet::NONE);
    let message = decoder.decode(&bytes).unwrap();
    assert_eq!(
        message.body().get("code").and_then(|v| v.as_i64_exact()),
        Some(1)
    );
}

#[test]
fn a_reply_beyond_the_limit_is_an_error() {
    let bytes = reply_to(&request(0), |reply| {
        let text = "x".repeat(48_000_000);
        reply.write(|body| {
            body.append("text", text.as_str());
        });
    });
    let mut decoder = Decoder::new(CompressorSet::NONE);
    let message = decoder.decode(&bytes).unwrap();
    assert_eq!(
        message.body().get("codeName").and_then(|v| v.as_str()),
        Some("BSONObjectTooLarge")
    );
}
