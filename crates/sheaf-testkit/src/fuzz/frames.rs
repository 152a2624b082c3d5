//! Any bytes as the input of a connection, in chunks of any size.

use sheaf_wire::{CompressorSet, Decoder, FrameBuffer, Rejection, ReplyWriter};

/// Compressed messages that claim a larger size are skipped, so that the fuzzer does not spend its
/// time zeroing memory.
const CLAIM_MAX: i32 = 1 << 20;

/// Feeds the bytes as a connection would, answers rejected frames and walks decoded messages. The
/// first byte determines the chunk size.
pub fn frames(data: &[u8]) {
    let Some((&portion, stream)) = data.split_first() else {
        return;
    };
    let portion = usize::from(portion).max(1) * 3;
    let mut buffer = FrameBuffer::new();
    let mut decoder = Decoder::new(CompressorSet::all());
    let mut reply = ReplyWriter::new();
    for bytes in stream.chunks(portion) {
        buffer.extend(bytes);
        loop {
            let refused = match buffer.next_frame() {
                Ok(None) => break,
                Ok(Some(length)) => match answer(buffer.frame(length), &mut decoder, &mut reply) {
                    Ok(()) => {
                        buffer.consume(length);
                        continue;
                    }
                    Err(rejection) => {
                        assert!(rejection.skip == length || rejection.close);
                        rejection
                    }
                },
                Err(rejection) => rejection,
            };
            reply.reject(&refused);
            if refused.close {
                return;
            }
            assert!(
                refused.skip > 0,
                "a stream that is read on must make progress"
            );
            buffer.reject(&refused);
        }
        assert!(buffer.capacity() <= 2 * stream.len() + (512 << 10));
    }
}

fn answer(frame: &[u8], decoder: &mut Decoder, reply: &mut ReplyWriter) -> Result<(), Rejection> {
    if claims_much(frame) {
        return Ok(());
    }
    let message = decoder.decode(frame)?;
    let mut elements = 0;
    for sequence in message.sequences() {
        assert_eq!(sequence.iter().count(), sequence.len());
        for document in sequence.iter() {
            elements += document.iter().count();
        }
    }
    reply.begin(&message);
    reply.write(|body| {
        body.extend(message.body());
        body.append("elements", elements as i64);
    });
    reply.finish();
    assert!(!reply.bytes().is_empty());
    Ok(())
}

fn claims_much(frame: &[u8]) -> bool {
    let number = |at: usize| {
        let bytes = frame.get(at..at + 4)?;
        Some(i32::from_le_bytes(bytes.try_into().ok()?))
    };
    number(12) == Some(2012) && number(20).is_some_and(|size| size > CLAIM_MAX)
}
