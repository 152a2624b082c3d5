//! Splits a byte stream into frames, in one reused buffer.
//!
//! ```text
//!   bytes:  [ taken | frame | frame | part of a fra|   free   ]
//!                   ^start                         ^end
//! ```
//!
//! The buffer grows with the bytes received, not with what a header declares: a header that claims
//! 48 MB costs nothing until the bytes arrive. Bytes of a rejected frame are dropped as they
//! arrive, so a bad frame costs neither the connection nor memory.

use crate::header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op, read_i32};
use crate::rejection::{Answer, Rejection};
use crate::{Error, ErrorCode};

/// Size of the first read: holds most requests completely, and is one page of memory.
const INITIAL_BYTES: usize = 4096;

/// Minimum capacity allocated at once for a frame that exceeds the buffer.
const STEP_BYTES: usize = 256 << 10;

/// A buffer larger than this is released once it is empty.
const RETAINED_BYTES: usize = 1 << 20;

/// Where an OP_COMPRESSED message declares the length of its content.
const CONTENT_BYTES_AT: usize = HEADER_BYTES + 4;

/// Received bytes of one connection that are not yet consumed as frames.
#[derive(Default)]
pub struct FrameBuffer {
    /// Initialised to its full length; `start..end` are the bytes not yet consumed.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of a rejected frame that have not arrived yet.
    skip: usize,
}

impl FrameBuffer {
    /// An empty buffer without an allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Space to read into, never empty. Report the bytes read with [`filled`](Self::filled).
    pub fn spare(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.bytes[self.end..]
    }

    /// Records that the first `n` bytes of [`spare`](Self::spare) were filled. Panics if `spare` is
    /// shorter than `n`.
    pub fn filled(&mut self, n: usize) {
        assert!(
            n <= self.bytes.len() - self.end,
            "more bytes filled than spare() returned"
        );
        self.end += n;
        self.drop_skipped();
    }

    /// Appends bytes that were read elsewhere.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let spare = self.spare();
            let n = spare.len().min(bytes.len());
            spare[..n].copy_from_slice(&bytes[..n]);
            self.filled(n);
            bytes = &bytes[n..];
        }
    }

    /// The length of the first frame, or `None` while it is incomplete.
    ///
    /// Errors: the frame's header is rejected. The caller answers as the rejection specifies, then
    /// either closes the connection or calls [`reject`](Self::reject) and reads on.
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

    /// The bytes of the first frame, whose length [`next_frame`](Self::next_frame) returned.
    pub fn frame(&self, length: usize) -> &[u8] {
        &self.bytes[self.start..self.end][..length]
    }

    /// Bytes that the message in the first frame takes, as its header declares: those of the frame,
    /// and those of its content if it is compressed. 0 while the header is incomplete. Not checked
    /// against any limit.
    pub fn message_bytes(&self) -> usize {
        let pending = &self.bytes[self.start..self.end];
        let Some(header) = Header::read(pending) else {
            return 0;
        };
        let of = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        let content = match header.op_code {
            op::COMPRESSED => read_i32(pending, CONTENT_BYTES_AT).map_or(0, of),
            _ => 0,
        };
        of(header.message_length) + content
    }

    /// Refuses the first frame, whose header is complete, with this error.
    pub fn refusal(&self, error: Error) -> Rejection {
        let header = Header::read(&self.bytes[self.start..self.end]);
        let length = header.map_or(0, |header| header.message_length);
        Rejection {
            error,
            answer: header.as_ref().map(Answer::to),
            skip: usize::try_from(length).unwrap_or(0),
            close: false,
        }
    }

    /// Removes the first frame. Panics if fewer than `length` bytes are buffered.
    pub fn consume(&mut self, length: usize) {
        assert!(
            length <= self.end - self.start,
            "consumed more bytes than are buffered"
        );
        self.start += length;
        self.settle();
    }

    /// Drops the frame of a rejection, including its bytes that have not arrived yet.
    pub fn reject(&mut self, rejection: &Rejection) {
        self.skip += rejection.skip;
        self.drop_skipped();
    }

    /// Whether no unconsumed bytes are buffered.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether a frame has started and not ended: a client that disconnects now breaks off in the
    /// middle of a message.
    pub fn in_frame(&self) -> bool {
        !self.is_empty() || self.skip > 0
    }

    /// Releases the memory if the buffer is empty, for an idle connection.
    pub fn release(&mut self) {
        if self.is_empty() {
            self.bytes = Vec::new();
            self.start = 0;
            self.end = 0;
        }
    }

    /// Allocated bytes.
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

    /// Makes at least one byte of room at the end. For a partial frame, makes the room it needs,
    /// but at most [`STEP_BYTES`] or twice the bytes received so far.
    fn make_room(&mut self) {
        let pending = self.end - self.start;
        let frame = Header::read(&self.bytes[self.start..self.end])
            .and_then(|header| usize::try_from(header.message_length).ok())
            .unwrap_or(HEADER_BYTES)
            .min(MAX_MESSAGE_BYTES);
        let needed = frame.min(STEP_BYTES.max(2 * pending)).max(pending + 1);
        if self.bytes.len() < needed {
            // Allocate a zeroed vector instead of calling `resize`: the allocator returns untouched
            // zero pages, and a page is committed only when it is written.
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

/// The frame's length, if the header is acceptable.
fn check_header(header: &Header, pending: &[u8]) -> Result<usize, Rejection> {
    let known = matches!(header.op_code, op::MSG | op::COMPRESSED | op::QUERY);
    let length = usize::try_from(header.message_length).unwrap_or(0);
    if length < HEADER_BYTES {
        // The start of the next frame is unknown.
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
                "{name} is not supported: use a driver that supports OP_MSG (MongoDB 3.6 or later)"
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
            // Neither code nor length is plausible: this is another protocol.
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
            "received an HTTP request on a port that speaks MongoDB's wire protocol",
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
