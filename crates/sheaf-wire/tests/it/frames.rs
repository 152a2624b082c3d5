//! Splitting a stream into frames: partial, pipelined, rejected.

use proptest::prelude::*;
use sheaf_bson::doc;
use sheaf_wire::request::op_msg;
use sheaf_wire::{
    Answer, ErrorCode, Flags, FrameBuffer, HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op,
};

fn ping(id: i32) -> Vec<u8> {
    op_msg(
        id,
        Flags::default(),
        doc! {"ping": 1, "$db": "admin"}.as_raw(),
        &[],
    )
}

fn header(message_length: i32, op_code: i32) -> [u8; HEADER_BYTES] {
    Header {
        message_length,
        request_id: 7,
        response_to: 0,
        op_code,
    }
    .to_bytes()
}

/// Removes and returns all complete frames.
fn drain(buffer: &mut FrameBuffer) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(length) = buffer.next_frame().expect("no frame is refused") {
        frames.push(buffer.frame(length).to_vec());
        buffer.consume(length);
    }
    frames
}

#[test]
fn a_frame_is_returned_once_complete() {
    let message = ping(1);
    let mut buffer = FrameBuffer::new();
    for byte in &message[..message.len() - 1] {
        buffer.extend(&[*byte]);
        assert_eq!(buffer.next_frame().unwrap(), None);
        assert!(buffer.in_frame());
    }
    buffer.extend(&message[message.len() - 1..]);
    assert_eq!(drain(&mut buffer), [message]);
    assert!(!buffer.in_frame());
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_the_stream_is_cut(
        sizes in prop::collection::vec(0usize..20_000, 1..8),
        cuts in prop::collection::vec(1usize..9_000, 1..40),
    ) {
        let messages: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(i, size)| {
                let text = "x".repeat(*size);
                op_msg(i as i32, Flags::default(), doc! {"echo": text.as_str()}.as_raw(), &[])
            })
            .collect();
        let stream = messages.concat();
        let mut buffer = FrameBuffer::new();
        let mut frames = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            buffer.extend(now);
            frames.extend(drain(&mut buffer));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(frames, messages);
        prop_assert!(buffer.is_empty());
    }
}

#[test]
fn a_declared_length_costs_no_memory_until_bytes_arrive() {
    let mut buffer = FrameBuffer::new();
    buffer.extend(&header(MAX_MESSAGE_BYTES as i32, op::MSG));
    assert_eq!(buffer.next_frame().unwrap(), None);
    buffer.spare();
    assert!(buffer.capacity() <= 256 << 10, "{}", buffer.capacity());
    buffer.extend(&[0; 1 << 20]);
    buffer.spare();
    assert!(buffer.capacity() <= 4 << 20, "{}", buffer.capacity());
}

#[test]
fn buffers_release_memory() {
    let text = "x".repeat(3 << 20);
    let large = op_msg(
        1,
        Flags::default(),
        doc! {"echo": text.as_str()}.as_raw(),
        &[],
    );
    let mut buffer = FrameBuffer::new();
    buffer.extend(&large);
    assert_eq!(drain(&mut buffer).len(), 1);
    assert_eq!(
        buffer.capacity(),
        0,
        "a large buffer is released immediately"
    );

    buffer.extend(&ping(2));
    buffer.release();
    assert!(buffer.capacity() > 0, "a buffer with contents is kept");
    assert_eq!(drain(&mut buffer).len(), 1);
    buffer.release();
    assert_eq!(
        buffer.capacity(),
        0,
        "a small buffer is released on request"
    );
}

#[test]
fn refused_headers() {
    struct Case {
        what: &'static str,
        header: [u8; HEADER_BYTES],
        code: ErrorCode,
        answer: Option<Answer>,
        skip: usize,
        close: bool,
    }
    let msg = Some(Answer::OpMsg { response_to: 7 });
    let reply = Some(Answer::OpReply { response_to: 7 });
    let cases = [
        Case {
            what: "larger than a message may be: its bytes are passed over",
            header: header(48_000_001, op::MSG),
            code: ErrorCode::INVALID_LENGTH,
            answer: msg,
            skip: 48_000_001,
            close: false,
        },
        Case {
            what: "shorter than its header: the next frame cannot be found",
            header: header(15, op::MSG),
            code: ErrorCode::INVALID_LENGTH,
            answer: msg,
            skip: 0,
            close: true,
        },
        Case {
            what: "of negative length",
            header: header(-1, op::QUERY),
            code: ErrorCode::INVALID_LENGTH,
            answer: reply,
            skip: 0,
            close: true,
        },
        Case {
            what: "an operation of old",
            header: header(100, op::INSERT),
            code: ErrorCode::PROTOCOL_ERROR,
            answer: msg,
            skip: 100,
            close: false,
        },
        Case {
            what: "an operation of old that gets an OP_REPLY",
            header: header(100, op::GET_MORE),
            code: ErrorCode::PROTOCOL_ERROR,
            answer: reply,
            skip: 100,
            close: false,
        },
        Case {
            what: "an unknown operation",
            header: header(100, 4711),
            code: ErrorCode::PROTOCOL_ERROR,
            answer: msg,
            skip: 100,
            close: false,
        },
        Case {
            what: "neither length nor operation make sense",
            header: header(i32::MAX, 4711),
            code: ErrorCode::PROTOCOL_ERROR,
            answer: msg,
            skip: 0,
            close: true,
        },
    ];
    for case in cases {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&case.header);
        let rejection = buffer.next_frame().expect_err(case.what);
        assert_eq!(rejection.error.code(), case.code, "{}", case.what);
        assert_eq!(rejection.answer, case.answer, "{}", case.what);
        assert_eq!(rejection.skip, case.skip, "{}", case.what);
        assert_eq!(rejection.close, case.close, "{}", case.what);
    }
}

#[test]
fn the_frame_after_a_refused_one_is_read() {
    let mut buffer = FrameBuffer::new();
    let length = MAX_MESSAGE_BYTES + 1000;
    buffer.extend(&header(length as i32, op::MSG));
    buffer.extend(&[0; 500]);
    let rejection = buffer.next_frame().expect_err("too large");
    buffer.reject(&rejection);
    let mut left = length - HEADER_BYTES - 500;
    while left > 0 {
        assert_eq!(buffer.next_frame().unwrap(), None);
        assert!(buffer.in_frame());
        let now = left.min(1 << 20);
        buffer.extend(&vec![0; now]);
        left -= now;
        assert!(buffer.capacity() <= 1 << 20, "skipped bytes are not kept");
    }
    buffer.extend(&ping(8));
    assert_eq!(drain(&mut buffer), [ping(8)]);
}

#[test]
fn other_protocols_are_detected() {
    for start in ["GET ", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut buffer = FrameBuffer::new();
        buffer.extend(start.as_bytes());
        let rejection = buffer.next_frame().expect_err(start);
        assert!(rejection.close);
        let Some(Answer::Raw(bytes)) = rejection.answer else {
            panic!("an HTTP client gets an HTTP reply");
        };
        assert!(bytes.starts_with(b"HTTP/1.0 400"));
    }
    // The start of a TLS handshake.
    let hello = [
        0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0x5a, 0x11, 0x22, 0x33, 0x44,
    ];
    let mut buffer = FrameBuffer::new();
    buffer.extend(&hello);
    let rejection = buffer.next_frame().expect_err("TLS");
    assert!(rejection.error.message().contains("without TLS"));
}
