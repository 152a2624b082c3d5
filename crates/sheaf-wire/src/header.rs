//! The sixteen bytes at the start of every message.
//!
//! ```text
//!  0              4             8              12         16
//!  messageLength  requestID     responseTo     opCode     body ...
//! ```
//!
//! The length includes the header. All integers on the wire are little-endian.

/// Length of a message header.
pub const HEADER_BYTES: usize = 16;

/// `maxMessageSizeBytes`: the maximum length of a message including its header, both compressed and
/// decompressed.
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;

/// Operation codes.
pub mod op {
    /// Reply to an [`QUERY`]; used only in the handshake.
    pub const REPLY: i32 = 1;
    /// Removed from the protocol; rejected by name.
    pub const UPDATE: i32 = 2001;
    /// Removed from the protocol; rejected by name.
    pub const INSERT: i32 = 2002;
    /// Accepted only for the handshake: `hello` and its older names.
    pub const QUERY: i32 = 2004;
    /// Removed from the protocol; rejected by name.
    pub const GET_MORE: i32 = 2005;
    /// Removed from the protocol; rejected by name.
    pub const DELETE: i32 = 2006;
    /// Removed from the protocol; rejected by name.
    pub const KILL_CURSORS: i32 = 2007;
    /// A compressed message with another operation code.
    pub const COMPRESSED: i32 = 2012;
    /// Every request and reply since MongoDB 3.6.
    pub const MSG: i32 = 2013;

    /// The name of an operation code, including removed ones; `None` if the code never existed.
    pub fn name(code: i32) -> Option<&'static str> {
        Some(match code {
            REPLY => "OP_REPLY",
            UPDATE => "OP_UPDATE",
            INSERT => "OP_INSERT",
            QUERY => "OP_QUERY",
            GET_MORE => "OP_GET_MORE",
            DELETE => "OP_DELETE",
            KILL_CURSORS => "OP_KILL_CURSORS",
            COMPRESSED => "OP_COMPRESSED",
            MSG => "OP_MSG",
            _ => return None,
        })
    }
}

/// A message header as sent; lengths and codes are not validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the whole message in bytes, including this header.
    pub message_length: i32,
    /// Chosen by the sender; the reply repeats it as `response_to`.
    pub request_id: i32,
    /// In replies: the `request_id` of the request. 0 in requests.
    pub response_to: i32,
    /// One of [`op`].
    pub op_code: i32,
}

impl Header {
    /// Reads a header; `None` if `bytes` has fewer than [`HEADER_BYTES`].
    pub fn read(bytes: &[u8]) -> Option<Header> {
        Some(Header {
            message_length: read_i32(bytes, 0)?,
            request_id: read_i32(bytes, 4)?,
            response_to: read_i32(bytes, 8)?,
            op_code: read_i32(bytes, 12)?,
        })
    }

    /// The header's bytes.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.message_length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.response_to.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.op_code.to_le_bytes());
        bytes
    }
}

/// The little-endian `i32` at `at`; `None` past the end.
pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(i32::from_le_bytes(four.try_into().ok()?))
}
