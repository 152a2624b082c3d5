//! Builds a reply in the buffer it is sent from.
//!
//! ```text
//!  begin     [ header ?? | flags | kind 0 ]
//!  body      [ header ?? | flags | kind 0 | {ok: 1, ...} ]   the command appends
//!  finish    [ header    | flags | kind 0 | {ok: 1, ...} | crc32c ]
//!  compress  [ header | opcode size id | bytes ]             when both sides may
//! ```
//!
//! The body is written once, in its final place; lengths are patched afterwards.

use sheaf_bson::DocBuilder;

use crate::checksum;
use crate::command_error;
use crate::compression::{self, Compressor};
use crate::header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op};
use crate::message::{Flags, Message, Protocol};
use crate::rejection::{Answer, Rejection};
use crate::{Error, ErrorCode};

/// A reply buffer larger than this is released after use.
const RETAINED_BYTES: usize = 256 << 10;

/// Length of responseFlags, cursorID, startingFrom and numberReturned in an OP_REPLY.
const OP_REPLY_PREFIX_BYTES: usize = 4 + 8 + 4 + 4;

/// OP_REPLY flag: the server understands AwaitData.
const AWAIT_CAPABLE: i32 = 1 << 3;

/// The reply to the current request of one connection.
#[derive(Default)]
pub struct ReplyWriter {
    out: Vec<u8>,
    /// The compressed form; empty if the reply is sent uncompressed.
    packed: Vec<u8>,
    /// Offset in `out` of the body document.
    body: usize,
    form: Form,
    next_id: i32,
    more_to_come: bool,
}

/// The properties of the reply that the request determines.
#[derive(Clone, Copy)]
struct Form {
    protocol: Protocol,
    response_to: i32,
    checksum: bool,
    compressor: Option<Compressor>,
}

impl Default for Form {
    fn default() -> Self {
        Form {
            protocol: Protocol::OpMsg,
            response_to: 0,
            checksum: false,
            compressor: None,
        }
    }
}

impl ReplyWriter {
    /// A writer without allocations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts the reply to this request. Discards previous content.
    pub fn begin(&mut self, request: &Message<'_>) {
        self.begin_form(Form {
            protocol: request.protocol(),
            response_to: request.request_id(),
            checksum: request.checksum_present(),
            compressor: request.compressor(),
        });
    }

    /// Sends the reply uncompressed, also when the request was compressed. For commands that the
    /// compression specification excludes, because a length would leak information on a secret.
    pub fn leave_uncompressed(&mut self) {
        self.form.compressor = None;
    }

    /// Starts the next reply of an exhaust stream, which responds to the previous reply.
    pub fn begin_next(&mut self) {
        let response_to = self.next_id;
        self.begin_form(Form {
            response_to,
            ..self.form
        });
    }

    /// Writes the complete reply to a request that was rejected before it reached any command.
    /// Returns false if the sender does not expect a reply.
    pub fn reject(&mut self, rejection: &Rejection) -> bool {
        let (protocol, response_to) = match rejection.answer {
            None => return false,
            Some(Answer::Raw(bytes)) => {
                self.out.clear();
                self.packed.clear();
                self.out.extend_from_slice(bytes);
                return true;
            }
            Some(Answer::OpMsg { response_to }) => (Protocol::OpMsg, response_to),
            Some(Answer::OpReply { response_to }) => (Protocol::OpQuery, response_to),
        };
        self.begin_form(Form {
            protocol,
            response_to,
            ..Form::default()
        });
        self.error(&rejection.error);
        self.finish();
        true
    }

    fn begin_form(&mut self, form: Form) {
        self.form = form;
        self.more_to_come = false;
        self.packed.clear();
        self.out.clear();
        self.out.extend_from_slice(&[0; HEADER_BYTES]);
        match form.protocol {
            Protocol::OpMsg => self.out.extend_from_slice(&[0; 4 + 1]),
            Protocol::OpQuery => {
                let prefix = self.out.len();
                self.out.extend_from_slice(&[0; OP_REPLY_PREFIX_BYTES]);
                self.out[prefix..prefix + 4].copy_from_slice(&AWAIT_CAPABLE.to_le_bytes());
                let number_returned = prefix + OP_REPLY_PREFIX_BYTES - 4;
                self.out[number_returned..].copy_from_slice(&1i32.to_le_bytes());
            }
        }
        self.body = self.out.len();
    }

    /// Writes the body in place. Called again, it replaces the body.
    pub fn write(&mut self, fill: impl FnOnce(&mut DocBuilder)) {
        let mut body = self.take_body();
        fill(&mut body);
        self.put_body(body);
    }

    /// Lends out the buffer as a builder of the body, for callers that build it in several steps.
    /// Return it with [`put_body`](Self::put_body).
    ///
    /// Dropping the builder instead loses only its content: the body can be started again.
    pub fn take_body(&mut self) -> DocBuilder {
        if self.out.len() < self.body {
            self.begin_form(self.form);
        }
        self.out.truncate(self.body);
        DocBuilder::with_vec(std::mem::take(&mut self.out))
    }

    /// Returns the builder that [`take_body`](Self::take_body) lent out.
    pub fn put_body(&mut self, body: DocBuilder) {
        self.out = body.finish_into();
    }

    /// Replaces the body with an error.
    pub fn error(&mut self, error: &Error) {
        self.write(|body| command_error::append(error, body));
    }

    /// Length of the body so far in bytes.
    pub fn body_length(&self) -> usize {
        self.out.len().saturating_sub(self.body)
    }

    /// Whether no body has been written.
    pub fn is_empty(&self) -> bool {
        self.out.len() <= self.body
    }

    /// Sets whether another reply follows this one without a request.
    pub fn set_more_to_come(&mut self, more: bool) {
        self.more_to_come = more;
    }

    /// Completes the message: header, flags, checksum, compression.
    ///
    /// A missing body, or one that exceeds the limit of a message, is replaced by an error.
    pub fn finish(&mut self) {
        if self.out.len() + checksum::CHECKSUM_BYTES > MAX_MESSAGE_BYTES {
            let length = self.body_length();
            self.error(&Error::new(
                ErrorCode::BSON_OBJECT_TOO_LARGE,
                format!("the reply of {length} bytes exceeds the maximum message size"),
            ));
        } else if self.is_empty() {
            self.error(&Error::new(
                ErrorCode::INTERNAL_ERROR,
                "the command wrote no reply",
            ));
        }
        self.next_id = self.next_id.wrapping_add(1);
        let header = Header {
            message_length: self.out.len() as i32,
            request_id: self.next_id,
            response_to: self.form.response_to,
            op_code: match self.form.protocol {
                Protocol::OpMsg => op::MSG,
                Protocol::OpQuery => op::REPLY,
            },
        };
        self.out[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        if self.form.protocol == Protocol::OpMsg {
            let flags = match self.more_to_come {
                true => Flags::MORE_TO_COME,
                false => 0,
            };
            self.set_flags(flags);
        }
        if let Some(compressor) = self.form.compressor
            && self.pack(compressor, header)
        {
            return;
        }
        if self.form.checksum && self.form.protocol == Protocol::OpMsg {
            self.append_checksum();
        }
    }

    fn set_flags(&mut self, flags: u32) {
        self.out[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&flags.to_le_bytes());
    }

    fn append_checksum(&mut self) {
        let length = (self.out.len() + checksum::CHECKSUM_BYTES) as i32;
        self.out[..4].copy_from_slice(&length.to_le_bytes());
        self.out[HEADER_BYTES] |= Flags::CHECKSUM_PRESENT as u8;
        let sum = checksum::of(&self.out);
        self.out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Fills `packed` with the compressed form; false if it is not shorter. A compressed reply
    /// carries no checksum.
    fn pack(&mut self, compressor: Compressor, header: Header) -> bool {
        let plain = &self.out[HEADER_BYTES..];
        self.packed.clear();
        self.packed.extend_from_slice(&[0; HEADER_BYTES]);
        self.packed.extend_from_slice(&header.op_code.to_le_bytes());
        self.packed
            .extend_from_slice(&(plain.len() as i32).to_le_bytes());
        self.packed.push(compressor as u8);
        if !compression::compress(compressor, plain, &mut self.packed) {
            self.packed.clear();
            return false;
        }
        let header = Header {
            message_length: self.packed.len() as i32,
            op_code: op::COMPRESSED,
            ..header
        };
        self.packed[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        true
    }

    /// The finished message, ready to send.
    pub fn bytes(&self) -> &[u8] {
        match self.packed.is_empty() {
            true => &self.out,
            false => &self.packed,
        }
    }

    /// The compressor of the finished message and its uncompressed length, including the header;
    /// `None` if the message is not compressed.
    pub fn compressed(&self) -> Option<(Compressor, usize)> {
        let compressor = self.form.compressor?;
        (!self.packed.is_empty()).then_some((compressor, self.out.len()))
    }

    /// Releases large buffers. Call it after a reply was sent.
    pub fn release_large(&mut self) {
        for buffer in [&mut self.out, &mut self.packed] {
            if buffer.capacity() > RETAINED_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// Releases all memory, for an idle connection.
    pub fn release(&mut self) {
        self.out = Vec::new();
        self.packed = Vec::new();
    }
}
