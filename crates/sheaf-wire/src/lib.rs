//! MongoDB's wire protocol: frames in, frames out, compression, the shape of error replies.
//!
//! This crate knows neither sockets nor the meaning of commands. It transforms bytes into messages
//! and replies into bytes:
//!
//! ```text
//!  socket ──> FrameBuffer ──> one frame ──> Decoder ──> Message<'a>
//!                 (partial, pipelined)       (OP_MSG, OP_QUERY, OP_COMPRESSED)
//!
//!  socket <── finished bytes <── ReplyWriter <── body written in place
//! ```
//!
//! Invariant: no byte sequence makes this crate panic, recurse without bound, or hold more memory
//! than a small multiple of the bytes received or of [`MAX_MESSAGE_BYTES`]. Input that cannot be
//! decoded becomes a [`Rejection`], which specifies how to answer and whether the stream can be
//! read on.
//!
//! The error codes are in `sheaf_bson::error_code`; this crate re-exports them.

#![forbid(unsafe_code)]

mod checksum;
pub mod command_error;
pub mod compression;
mod decode;
mod frame;
mod header;
mod message;
mod rejection;
mod reply;
pub mod request;

pub use compression::{Compressor, CompressorSet};
pub use decode::Decoder;
pub use frame::FrameBuffer;
pub use header::{HEADER_BYTES, Header, MAX_MESSAGE_BYTES, op};
pub use message::{DocumentSequence, Flags, Message, Protocol};
pub use rejection::{Answer, Rejection};
pub use reply::ReplyWriter;

pub use sheaf_bson::error_code::{self, Error, ErrorCode, label};
