//! Decodes the bytes of one frame into a [`Message`].
//!
//! ```text
//!  OP_MSG         flags  (0 document | 1 size identifier document*)+  [crc32c]
//!  OP_COMPRESSED  originalOpcode uncompressedSize compressorId  bytes
//!  OP_QUERY       flags namespace skip return document [fields]
//! ```
//!
//! Invariant: a decoded message has exactly one body, every document in it is valid BSON and lies
//! within its section, identifiers are unique, and its checksum, if present, is correct. The
//! frame's length is known, so after an invalid message the server can reply and read on.

use sheaf_bson::RawDoc;
use sheaf_bson::validate::{ValidateOptions, validate_prefix};
use smallvec::SmallVec;

use crate::checksum;
use crate::compression::{self, Compressor, CompressorSet};
use crate::header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op, read_i32};
use crate::message::{DocumentSequence, Flags, Message, Protocol};
use crate::rejection::{Answer, Rejection};
use crate::{Error, ErrorCode};

/// Maximum length of a document in a message: 16 MiB, plus what a command around a document of that
/// size may add.
const MAX_DOCUMENT_BYTES: usize = (16 << 20) + (16 << 10);

/// A command may have 200 levels of documents and arrays below it, as in MongoDB. What it may store
/// is less ([`sheaf_bson::DOCUMENT_DEPTH_MAX`]).
const LIMITS: ValidateOptions = ValidateOptions { depth_max: 200 };

/// Maximum number of document sequences in a message: more than any command has array fields.
const MAX_SEQUENCES: usize = 16;

/// Length of originalOpcode, uncompressedSize and compressorId.
const COMPRESSED_PREFIX_BYTES: usize = 4 + 4 + 1;

/// A decompression buffer larger than this is released after use.
const RETAINED_BYTES: usize = 256 << 10;

/// Decodes the frames of one connection.
pub struct Decoder {
    accepted: CompressorSet,
    /// The last compressed message, decompressed.
    plain: Vec<u8>,
}

impl Decoder {
    /// A decoder that accepts these compressors, and noop, which costs nothing.
    pub fn new(accepted: CompressorSet) -> Self {
        Decoder {
            accepted,
            plain: Vec::new(),
        }
    }

    /// Decodes one complete frame, as returned by [`FrameBuffer`](crate::FrameBuffer). Errors: how
    /// to answer an invalid frame, and whether the stream can be read on.
    pub fn decode<'a>(&'a mut self, frame: &'a [u8]) -> Result<Message<'a>, Rejection> {
        self.release_above(RETAINED_BYTES);
        let header = Header::read(frame).ok_or_else(|| Rejection {
            error: invalid("the message ends within its header"),
            answer: None,
            skip: frame.len(),
            close: true,
        })?;
        let (plain, compressor, header) = if header.op_code == op::COMPRESSED {
            match self.unwrap(&header, frame) {
                Ok((compressor, header)) => (self.plain.as_slice(), Some(compressor), header),
                Err(error) => return Err(refuse(error, &header, frame)),
            }
        } else {
            (frame, None, header)
        };
        let message = match header.op_code {
            op::MSG => op_msg(&header, plain),
            op::QUERY => op_query(&header, plain).map_err(Refused::from),
            _ => Err(Refused::from(protocol_error(format!(
                "operation code {} cannot be a request",
                header.op_code
            )))),
        };
        match message {
            Ok(mut message) => {
                message.compressor = compressor;
                Ok(message)
            }
            Err(refused) => {
                let mut rejection = refuse(refused.error, &header, frame);
                rejection.close = refused.close;
                if refused.silent {
                    rejection.answer = None;
                }
                Err(rejection)
            }
        }
    }

    /// Releases the decompression buffer, for an idle connection.
    pub fn release(&mut self) {
        self.plain = Vec::new();
    }

    fn release_above(&mut self, bytes: usize) {
        if self.plain.capacity() > bytes {
            self.release();
        }
    }

    /// Decompresses the frame into `self.plain`, after the header it would have had uncompressed,
    /// so that the rest of the decoder sees an ordinary message.
    fn unwrap(&mut self, outer: &Header, frame: &[u8]) -> Result<(Compressor, Header), Error> {
        let body = &frame[HEADER_BYTES..];
        let (Some(original), Some(size), Some(&id)) =
            (read_i32(body, 0), read_i32(body, 4), body.get(8))
        else {
            return Err(invalid("an OP_COMPRESSED message ends within its header"));
        };
        let compressor = Compressor::from_id(id)
            .filter(|c| *c == Compressor::Noop || self.accepted.contains(*c))
            .ok_or_else(|| {
                let name = Compressor::from_id(id).map_or("unknown", Compressor::name);
                protocol_error(format!(
                    "compressor {id} ({name}) was not negotiated: this server accepts {:?}",
                    self.accepted
                ))
            })?;
        if original == op::COMPRESSED {
            return Err(protocol_error(
                "a compressed message within a compressed message",
            ));
        }
        let length = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_add(HEADER_BYTES))
            .filter(|length| *length <= MAX_MESSAGE_BYTES)
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::INVALID_LENGTH,
                    format!(
                        "a compressed message declares {size} bytes uncompressed: the limit is {MAX_MESSAGE_BYTES} bytes including its header"
                    ),
                )
            })?;
        let header = Header {
            message_length: length as i32,
            op_code: original,
            ..*outer
        };
        // Allocate a zeroed vector instead of resizing: pages that decompression never writes are
        // not committed.
        if self.plain.capacity() < length {
            self.plain = vec![0; length];
        } else {
            self.plain.resize(length, 0);
        }
        self.plain[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        compression::decompress(
            compressor,
            &body[COMPRESSED_PREFIX_BYTES..],
            &mut self.plain[HEADER_BYTES..],
        )
        .map_err(|e| Error::new(ErrorCode::INVALID_LENGTH, e.to_string()))?;
        Ok((compressor, header))
    }
}

/// Why a message is rejected, and how to answer.
struct Refused {
    error: Error,
    /// The sender does not expect a reply.
    silent: bool,
    close: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused {
            error,
            silent: false,
            close: false,
        }
    }
}

fn refuse(error: Error, header: &Header, frame: &[u8]) -> Rejection {
    Rejection {
        error,
        answer: Some(Answer::to(header)),
        skip: frame.len(),
        close: false,
    }
}

fn op_msg<'a>(header: &Header, message: &'a [u8]) -> Result<Message<'a>, Refused> {
    let Some(flags) = read_i32(message, HEADER_BYTES).map(|bits| Flags(bits as u32)) else {
        return Err(invalid("an OP_MSG ends within its flags").into());
    };
    let silent = flags.has(Flags::MORE_TO_COME);
    let refused = |error: Error| Refused {
        error,
        silent,
        close: false,
    };
    if flags.unknown_required() != 0 {
        return Err(refused(Error::new(
            ErrorCode::ILLEGAL_OP_MSG_FLAG,
            format!(
                "OP_MSG flag bits {:#x} are required and unknown",
                flags.unknown_required()
            ),
        )));
    }
    let mut rest = &message[HEADER_BYTES + 4..];
    if flags.has(Flags::CHECKSUM_PRESENT) {
        let Some(without) = rest.len().checked_sub(checksum::CHECKSUM_BYTES) else {
            return Err(refused(invalid("an OP_MSG ends within its checksum")));
        };
        if !checksum::holds(message) {
            return Err(refused(Error::new(
                ErrorCode::CHECKSUM_MISMATCH,
                "the OP_MSG's checksum does not match its content",
            )));
        }
        rest = &rest[..without];
    }

    let mut body = None;
    let mut sequences: SmallVec<[DocumentSequence<'a>; 1]> = SmallVec::new();
    while let Some((&kind, section)) = rest.split_first() {
        rest = match kind {
            0 => {
                let (document, after) = first_document(section).map_err(refused)?;
                if body.replace(document).is_some() {
                    return Err(refused(protocol_error("an OP_MSG has two body sections")));
                }
                after
            }
            1 => {
                let (sequence, after) = document_sequence(section).map_err(refused)?;
                if sequences.len() == MAX_SEQUENCES {
                    return Err(refused(Error::new(
                        ErrorCode::TOO_MANY_DOCUMENT_SEQUENCES,
                        format!("an OP_MSG has more than {MAX_SEQUENCES} document sequences"),
                    )));
                }
                if sequences
                    .iter()
                    .any(|s| s.identifier == sequence.identifier)
                {
                    return Err(refused(protocol_error(format!(
                        "an OP_MSG has two document sequences named '{}'",
                        sequence.identifier
                    ))));
                }
                sequences.push(sequence);
                after
            }
            other => {
                return Err(Refused {
                    close: true,
                    ..refused(protocol_error(format!(
                        "unknown OP_MSG section kind {other}"
                    )))
                });
            }
        };
    }
    let Some(body) = body else {
        return Err(refused(protocol_error("an OP_MSG has no body section")));
    };
    for sequence in &sequences {
        if body.get(sequence.identifier).is_some() {
            return Err(refused(protocol_error(format!(
                "'{}' is both a field of the body and a document sequence",
                sequence.identifier
            ))));
        }
    }
    Ok(Message {
        request_id: header.request_id,
        flags,
        protocol: Protocol::OpMsg,
        compressor: None,
        database: None,
        body,
        sequences,
        length: message.len(),
    })
}

fn document_sequence(section: &[u8]) -> Result<(DocumentSequence<'_>, &[u8]), Error> {
    let size = read_i32(section, 0).and_then(|size| usize::try_from(size).ok());
    let Some((payload, after)) = size
        .filter(|size| *size >= 4)
        .and_then(|size| section.split_at_checked(size))
    else {
        return Err(invalid(
            "a document sequence has an invalid size, or exceeds its message",
        ));
    };
    let (identifier, documents) = cstring(&payload[4..]).ok_or_else(|| {
        invalid("the identifier of a document sequence is unterminated or not valid UTF-8")
    })?;
    let mut rest = documents;
    let mut count = 0;
    while !rest.is_empty() {
        (_, rest) = first_document(rest)?;
        count += 1;
    }
    let sequence = DocumentSequence {
        identifier,
        documents,
        count,
    };
    Ok((sequence, after))
}

fn op_query<'a>(header: &Header, message: &'a [u8]) -> Result<Message<'a>, Error> {
    let rest = message
        .get(HEADER_BYTES + 4..)
        .ok_or_else(|| invalid("an OP_QUERY ends within its flags"))?;
    let (namespace, rest) = cstring(rest).ok_or_else(|| {
        invalid("the namespace of an OP_QUERY is unterminated or not valid UTF-8")
    })?;
    let rest = rest
        .get(8..)
        .ok_or_else(|| invalid("an OP_QUERY ends within numberToSkip or numberToReturn"))?;
    let (outer, rest) = first_document(rest)?;
    if !rest.is_empty() {
        let (_, rest) = first_document(rest)?;
        if !rest.is_empty() {
            return Err(invalid("an OP_QUERY has data after its documents"));
        }
    }
    // A legacy form wraps the command to add options: {$query: command, ...}.
    let first = outer.first();
    let body = first
        .filter(|field| matches!(field.key(), "$query" | "query"))
        .and_then(|field| field.value().as_document())
        .unwrap_or(outer);
    let command = body.first().map_or("", |field| field.key());
    let Some(database) = namespace.strip_suffix(".$cmd") else {
        return Err(unsupported_query("queries of a collection"));
    };
    if !matches!(command, "hello" | "isMaster" | "ismaster") {
        return Err(unsupported_query(&format!("the command '{command}'")));
    }
    Ok(Message {
        request_id: header.request_id,
        flags: Flags::default(),
        protocol: Protocol::OpQuery,
        compressor: None,
        database: Some(database),
        body,
        sequences: SmallVec::new(),
        length: message.len(),
    })
}

fn unsupported_query(what: &str) -> Error {
    Error::new(
        ErrorCode::UNSUPPORTED_OP_QUERY_COMMAND,
        format!(
            "OP_QUERY supports only hello and isMaster, not {what}: use a driver that supports OP_MSG (MongoDB 3.6 or later)"
        ),
    )
}

/// The valid document at the start of `bytes`, and the bytes after it.
fn first_document(bytes: &[u8]) -> Result<(RawDoc<'_>, &[u8]), Error> {
    let length = read_i32(bytes, 0)
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(0);
    if length > MAX_DOCUMENT_BYTES {
        return Err(Error::new(
            ErrorCode::BSON_OBJECT_TOO_LARGE,
            format!(
                "a document of {length} bytes is larger than the limit of {MAX_DOCUMENT_BYTES} bytes"
            ),
        ));
    }
    validate_prefix(bytes, &LIMITS).map_err(|e| match e.is_too_deep() {
        true => Error::new(ErrorCode::OVERFLOW, e.to_string()),
        false => invalid(e.to_string()),
    })
}

/// The string before the first zero byte, and the bytes after that zero byte.
fn cstring(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|b| *b == 0)?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_BSON, message)
}

fn protocol_error(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::PROTOCOL_ERROR, message)
}
