//! A request as the commands see it: one body document, perhaps sequences of
//! further documents, and what the network layer must know to answer.

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
    /// The sender sends another message before it listens. On a request: no
    /// reply is wanted, not even an error. On a reply: further replies follow.
    pub const MORE_TO_COME: u32 = 1 << 1;
    /// The client takes several replies to this request.
    pub const EXHAUST_ALLOWED: u32 = 1 << 16;

    /// Bits that must be understood, and are not.
    pub(crate) fn unknown_required(self) -> u32 {
        self.0 & 0xffff & !(Self::CHECKSUM_PRESENT | Self::MORE_TO_COME)
    }

    /// True when all of these bits are set.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#x})", self.0)
    }
}

/// How a request came, and so how its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OP_MSG.
    OpMsg,
    /// OP_QUERY; only for a handshake.
    OpQuery,
}

impl Protocol {
    /// The name the log uses.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::OpMsg => "op_msg",
            Protocol::OpQuery => "op_query",
        }
    }
}

/// A decoded request. Borrows the frame: nothing was copied.
///
/// Every document in it is valid BSON; what they mean nobody has asked yet.
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
    /// The request's id, which its reply names.
    pub fn request_id(&self) -> i32 {
        self.request_id
    }

    /// The command document.
    pub fn body(&self) -> RawDoc<'a> {
        self.body
    }

    /// The command's name: the first field of the body; empty when there is none.
    pub fn command_name(&self) -> &'a str {
        self.body.first().map_or("", |field| field.key())
    }

    /// The database that an OP_QUERY names in its namespace. An OP_MSG names
    /// its database in the body's `$db`, and this is `None`.
    pub fn database(&self) -> Option<&'a str> {
        self.database
    }

    /// The document sequences, in the order sent. No two have one identifier.
    pub fn sequences(&self) -> &[DocumentSequence<'a>] {
        &self.sequences
    }

    /// The sequence that stands for this field of the body.
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

    /// The client wants no reply, not even an error.
    pub fn more_to_come(&self) -> bool {
        self.flags.has(Flags::MORE_TO_COME)
    }

    /// The client takes several replies to this request.
    pub fn exhaust_allowed(&self) -> bool {
        self.flags.has(Flags::EXHAUST_ALLOWED)
    }

    /// The request carried a checksum (which held), so its reply does too.
    pub fn checksum_present(&self) -> bool {
        self.flags.has(Flags::CHECKSUM_PRESENT)
    }

    /// The compressor the request came with; its reply may use the same.
    pub fn compressor(&self) -> Option<Compressor> {
        self.compressor
    }

    /// OP_MSG or OP_QUERY.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of the message uncompressed, header included.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// Documents sent beside the body in the place of one of its array fields.
#[derive(Clone, Copy)]
pub struct DocumentSequence<'a> {
    pub(crate) identifier: &'a str,
    pub(crate) documents: &'a [u8],
    pub(crate) count: usize,
}

impl<'a> DocumentSequence<'a> {
    /// The field this sequence stands for.
    pub fn identifier(&self) -> &'a str {
        self.identifier
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True for a sequence of no documents.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The documents' bytes, one after the other.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.documents
    }

    /// The documents in the order sent.
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
        // The decoder has walked and validated these very bytes.
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
