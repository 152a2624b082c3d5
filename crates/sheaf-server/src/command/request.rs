//! A request, independent of its transport.

use sheaf_bson::RawDoc;
use sheaf_wire::{DocumentSequence, Message};

/// One command to run.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The command's name as the client spells it: the first key of `body`.
    pub name: &'a str,
    /// The database; `None` if `$db` in the body names it.
    pub db: Option<&'a str>,
    /// The command document, already validated.
    pub body: RawDoc<'a>,
    /// The document sequences of the message.
    pub sequences: &'a [DocumentSequence<'a>],
    /// The client accepts further replies to the same request (exhaust).
    pub exhaust_allowed: bool,
}

impl<'a> Request<'a> {
    /// A request from a program in this process.
    pub fn in_process(db: &'a str, body: RawDoc<'a>) -> Request<'a> {
        Request {
            name: body.first().map_or("", |first| first.key()),
            db: Some(db),
            body,
            sequences: &[],
            exhaust_allowed: false,
        }
    }

    /// A request received over the network.
    pub fn of_message(message: &'a Message<'_>) -> Request<'a> {
        Request {
            name: message.command_name(),
            db: message.database(),
            body: message.body(),
            sequences: message.sequences(),
            exhaust_allowed: message.exhaust_allowed(),
        }
    }
}
