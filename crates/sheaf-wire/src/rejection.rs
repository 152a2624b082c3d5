//! Why a frame was rejected, and how to proceed.

use crate::Error;
use crate::header::{Header, op};

/// A frame rejected before it reached any command.
#[derive(Debug)]
pub struct Rejection {
    /// The error to report to the client.
    pub error: Error,
    /// The form of the reply; `None` if the sender does not expect one.
    pub answer: Option<Answer>,
    /// Length of the rejected frame in the stream, from its first byte.
    pub skip: usize,
    /// Whether to close the connection after the reply, because the stream cannot be read on.
    pub close: bool,
}

/// The form in which the sender of a rejected frame expects the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An OP_MSG to this request.
    OpMsg {
        /// The request's id.
        response_to: i32,
    },
    /// An OP_REPLY to this request.
    OpReply {
        /// The request's id.
        response_to: i32,
    },
    /// These bytes, for a sender that does not speak the protocol.
    Raw(&'static [u8]),
}

impl Answer {
    /// The form of the reply to a message with this header.
    pub fn to(header: &Header) -> Answer {
        let response_to = header.request_id;
        match header.op_code {
            op::QUERY | op::GET_MORE => Answer::OpReply { response_to },
            _ => Answer::OpMsg { response_to },
        }
    }
}
