//! Why a frame was not understood, and what to do about it.

use crate::Error;
use crate::header::{Header, op};

/// A frame refused before any command saw it.
#[derive(Debug)]
pub struct Rejection {
    /// What the client did wrong.
    pub error: Error,
    /// The form of the answer; `None` when nobody waits for one.
    pub answer: Option<Answer>,
    /// Bytes the refused frame takes up in the stream, counted from its first.
    pub skip: usize,
    /// The stream cannot be read on after the answer.
    pub close: bool,
}

/// How the sender of a refused frame expects to be answered.
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
    /// These bytes, to somebody who does not speak the protocol.
    Raw(&'static [u8]),
}

impl Answer {
    /// The form that answers a message with this header.
    pub fn to(header: &Header) -> Answer {
        let response_to = header.request_id;
        match header.op_code {
            op::QUERY | op::GET_MORE => Answer::OpReply { response_to },
            _ => Answer::OpMsg { response_to },
        }
    }
}
