//! Cuts a stream of bytes into frames, over one buffer that is used again.
//!
//! ```text
//!   bytes:  [ taken | frame | frame | part of a fra|   free   ]
//!                   ^start                         ^end
//! ```
//!
//! The buffer grows with what has arrived, not with what a header promises:
//! a header that claims 48 MB costs nothing until the bytes come. Bytes of a
//! refused frame are dropped as they arrive, so one bad frame costs neither
//! the connection nor memory.

use crate::header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op};
use crate::rejection::{Answer, Rejection};
use crate::{Error, ErrorCode};

/// A first read takes this much: most requests whole, and one page of memory.
const INITIAL_BYTES: usize = 4096;

/// Room made at once for a frame that is larger than the buffer.
const STEP_BYTES: usize = 256 << 10;

/// A buffer that grew past this is given back once it is empty.
const RETAINED_BYTES: usize = 1 << 20;

/// Bytes of one connection on their way to becoming frames.
#[derive(Default)]
pub struct FrameBuffer {
    /// Always initialised to its end; `start..end` are the bytes not yet taken.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes still to come that belong to a refused frame.
    skip: usize,
}

impl FrameBuffer {
    /// An empty buffer that owns no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room to read into, never empty. What was read is announced with [`filled`](Self::filled).
    pub fn spare(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.bytes[self.end..]
    }

    /// Says that the first `n` bytes of [`spare`](Self::spare) were filled.
    pub fn filled(&mut self, n: usize) {
        assert!(
            n <= self.bytes.len() - self.end,
            "more bytes filled than there was room"
        );
        self.end += n;
        self.drop_skipped();
    }

    /// Adds bytes that were read elsewhere.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = self.spare();
            let n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            self.filled(n);
            bytes = &bytes[n..];
        }
    }

    /// The length of the frame at the front, or `None` while it is incomplete.
    ///
    /// Errors: the frame's header is refused. The caller answers as the
    /// rejection says, then closes or calls [`reject`](Self::reject) and goes on.
    pub fn next_frame(&self) -> Result<Option<usize>, Rejection> {
        let pending = &self.bytes[self.start..self.end];
        let Some(header) = Header::read(pending) else {
            return match pending.starts_with(b"GET ") {
                true => Err(http_request()),
                false => Ok(None),
            };
        };
        let length = check_header(&header, pending)?;
        Ok((pending.len() >= length).then_some(length))
    }

    /// The bytes of the frame whose length [`next_frame`](Self::next_frame) gave.
    pub fn frame(&self, length: usize) -> &[u8] {
        &self.bytes[self.start..self.end][..length]
    }

    /// Takes that frame away.
    pub fn consume(&mut self, length: usize) {
        assert!(
            length <= self.end - self.start,
            "consumed more than there is"
        );
        self.start += length;
        self.settle();
    }

    /// Drops the frame that a rejection speaks of, also what of it is still to come.
    pub fn reject(&mut self, rejection: &Rejection) {
        self.skip += rejection.skip;
        self.drop_skipped();
    }

    /// True when no byte of a further frame has arrived.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// True while a frame has begun and not ended: a client that goes away now
    /// has broken off in the middle.
    pub fn in_frame(&self) -> bool {
        !self.is_empty() || self.skip > 0
    }

    /// Gives the memory back when nothing is in it, as for an idle connection.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.start = 0;
            self.end = 0;
        }
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    fn drop_skipped(&mut self) {
        let now = self.skip.min(self.end - self.start);
        self.skip -= now;
        self.start += now;
        self.settle();
    }

    fn settle(&mut self) {
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > RETAINED_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// Makes at least one byte of room at the end; for a frame under way as
    /// much as it needs, but no more than [`STEP_BYTES`] or twice what is here.
    fn make_room(&mut self) {
        let pending = self.end - self.start;
        let frame = Header::read(&self.bytes[self.start..self.end])
            .and_then(|header| usize::try_from(header.message_length).ok())
            .unwrap_or(HEADER_BYTES)
            .min(MAX_MESSAGE_BYTES);
        let needed = frame.min(STEP_BYTES.max(2 * pending)).max(pending + 1);
        if self.bytes.len() < needed {
            // A fresh zeroed vector rather than `resize`: the allocator hands
            // out untouched zero pages, and a page costs only once it is written.
            let mut larger = vec![0; needed.max(INITIAL_BYTES)];
            larger[..pending].copy_from_slice(&self.bytes[self.start..self.end]);
            self.bytes = larger;
            self.start = 0;
            self.end = pending;
        } else if self.bytes.len() - self.start < needed {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = pending;
        }
    }
}

/// The frame's length, if a frame of this kind can be read at all.
fn check_header(header: &Header, pending: &[u8]) -> Result<usize, Rejection> {
    let known = matches!(header.op_code, op::MSG | op::COMPRESSED | op::QUERY);
    let length = usize::try_from(header.message_length).unwrap_or(0);
    if length < HEADER_BYTES {
        // Where the next frame begins cannot be known.
        return Err(Rejection {
            error: Error::new(
                ErrorCode::INVALID_LENGTH,
                format!(
                    "message length {} is less than the {HEADER_BYTES} bytes of its header",
                    header.message_length
                ),
            ),
            answer: known.then_some(Answer::to(header)),
            skip: 0,
            close: true,
        });
    }
    if !known {
        if pending.starts_with(b"GET ") {
            return Err(http_request());
        }
        let what = match op::name(header.op_code) {
            Some(name) => format!(
                "{name} is not supported, the driver is too old: use one that speaks OP_MSG (MongoDB 3.6 or later)"
            ),
            None => format!(
                "unknown operation code {}: this port speaks MongoDB's wire protocol without TLS",
                header.op_code
            ),
        };
        let oversized = length > MAX_MESSAGE_BYTES;
        return Err(Rejection {
            error: Error::new(ErrorCode::PROTOCOL_ERROR, what),
            answer: Some(Answer::to(header)),
            skip: if oversized { 0 } else { length },
            // Neither code nor length make sense: this is another protocol.
            close: oversized,
        });
    }
    if length > MAX_MESSAGE_BYTES {
        return Err(Rejection {
            error: Error::new(
                ErrorCode::INVALID_LENGTH,
                format!(
                    "message of {length} bytes is larger than the limit of {MAX_MESSAGE_BYTES} bytes: send the batch in parts"
                ),
            ),
            answer: Some(Answer::to(header)),
            skip: length,
            close: false,
        });
    }
    Ok(length)
}

fn http_request() -> Rejection {
    Rejection {
        error: Error::new(
            ErrorCode::PROTOCOL_ERROR,
            "an HTTP request came to a port that speaks MongoDB's wire protocol",
        ),
        answer: Some(Answer::Raw(HTTP_ANSWER)),
        skip: 0,
        close: true,
    }
}

const HTTP_ANSWER: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\
Connection: close\r\n\
Content-Type: text/plain\r\n\
\r\n\
This port speaks MongoDB's wire protocol, not HTTP. Connect with a MongoDB driver or mongosh.\r\n";
