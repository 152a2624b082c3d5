//! A request as the commands see it: one body document, optional sequences of further documents,
//! and what the network layer needs for the reply.

use std::fmt;

use sheaf_bson::RawDoc;
use smallvec::SmallVec;

use crate::Compressor;

/// The flag bits of an OP_MSG.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// The message ends with a CRC-32C.
    pub const CHECKSUM_PRESENT: u32 = 1;
    /// The sender sends another message before it reads. On a request: no reply is expected, not
    /// even an error. On a reply: further replies follow.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client accepts several replies to this request.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;

    /// Unknown bits in the range that the receiver must understand.
    pub(crate) fn unknown_required(self) -> u32 {
        self.0 & 0xffff & !(Self::CHECKSUM_PRESENT | Self::MORE_TO_COME)
    }

    /// Whether all of these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x})", self.0)
    }
}

/// The operation code of a request, which determines the form of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OP_MSG.
    OpMsg,
    /// OP_QUERY; accepted only for the handshake.
    OpQuery,
}

impl Protocol {
    /// The protocol's name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::OpMsg => "op_msg",
            Protocol::OpQuery => "op_query",
        }
    }
}

/// A decoded request. Borrows the frame without copying.
///
/// Every document in it is valid BSON; nothing is validated beyond that.
#[derive(Debug)]
pub struct Message<'a> {
    pub(crate) request_id: i32,
    pub(crate) flags: Flags,
    pub(crate) protocol: Protocol,
    pub(crate) compressor: Option<Compressor>,
    /// The database of an OP_QUERY's namespace.
    pub(crate) database: Option<&'a str>,
    pub(crate) body: RawDoc<'a>,
    pub(crate) sequences: SmallVec<[DocumentSequence<'a>; 1]>,
    pub(crate) length: usize,
}

impl<'a> Message<'a> {
    /// The request's id, which the reply repeats.
    pub fn request_id(&self) -> i32 {
        self.request_id
    }

    /// The command document.
    pub fn body(&self) -> RawDoc<'a> {
        self.body
    }

    /// The command's name: the first field of the body; empty if the body is empty.
    pub fn command_name(&self) -> &'a str {
        self.body.first().map_or("", |field| field.key())
    }

    /// The database in the namespace of an OP_QUERY; `None` for an OP_MSG, which names its database
    /// in the body's `$db`.
    pub fn database(&self) -> Option<&'a str> {
        self.database
    }

    /// The document sequences, in the order sent. Identifiers are unique.
    pub fn sequences(&self) -> &[DocumentSequence<'a>] {
        &self.sequences
    }

    /// The sequence that replaces this field of the body; `None` if there is none.
    pub fn sequence(&self, identifier: &str) -> Option<DocumentSequence<'a>> {
        self.sequences
            .iter()
            .find(|s| s.identifier == identifier)
            .copied()
    }

    /// Flag bits as sent; 0 for an OP_QUERY.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Whether the client expects no reply, not even an error.
    pub fn more_to_come(&self) -> bool {
        self.flags.has(Flags::MORE_TO_COME)
    }

    /// Whether the client accepts several replies to this request.
    pub fn exhaust_allowed(&self) -> bool {
        self.flags.has(Flags::EXHAUST_ALLOWED)
    }

    /// Whether the request carried a (correct) checksum; the reply then carries one as well.
    pub fn checksum_present(&self) -> bool {
        self.flags.has(Flags::CHECKSUM_PRESENT)
    }

    /// The compressor of the request, which the reply may use; `None` if it was not compressed.
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// OP_MSG or OP_QUERY.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Length of the uncompressed message in bytes, including the header.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// Documents sent alongside the body in place of one of its array fields.
#[derive(Clone, Copy)]
pub struct DocumentSequence<'a> {
    pub(crate) identifier: &'a str,
    pub(crate) documents: &'a [u8],
    pub(crate) count: usize,
}

impl<'a> DocumentSequence<'a> {
    /// The name of the body field that this sequence replaces.
    pub fn identifier(&self) -> &'a str {
        self.identifier
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the sequence has no documents.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of the documents, concatenated.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.documents
    }

    /// The documents, in the order sent.
    pub fn iter(&self) -> Documents<'a> {
        Documents {
            rest: self.documents,
            count: self.count,
        }
    }
}

impl<'a> IntoIterator for DocumentSequence<'a> {
    type Item = RawDoc<'a>;
    type IntoIter = Documents<'a>;

    fn into_iter(self) -> Documents<'a> {
        self.iter()
    }
}

impl fmt::Debug for DocumentSequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.identifier)?;
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The documents of a sequence, see [`DocumentSequence::iter`].
#[derive(Clone)]
pub struct Documents<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Iterator for Documents<'a> {
    type Item = RawDoc<'a>;

    fn next(&mut self) -> Option<RawDoc<'a>> {
        // The decoder has already walked and validated these bytes.
        let (document, rest) = RawDoc::parse_prefix(self.rest).ok()?;
        self.rest = rest;
        self.count -= 1;
        Some(document)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Documents<'_> {}
