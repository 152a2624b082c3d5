//! Opens the database and makes the service that answers requests.
//!
//! The one place where the process side and the commands meet.

use std::sync::Arc;

use sheaf_wire::{Error, ErrorCode, Message, ReplyWriter};

use crate::net::{ConnectionHandler, Link, Next, Service};
use crate::startup::Startup;

/// Makes the service of a server that is starting.
///
/// Errors: the data folder cannot be opened.
pub fn open(_startup: &Startup) -> Result<Arc<dyn Service>, Error> {
    Ok(Arc::new(NoCommands))
}

/// A service without commands: every request is answered that there is none.
struct NoCommands;

impl Service for NoCommands {
    fn connection(&self, _link: &Arc<Link>) -> Box<dyn ConnectionHandler> {
        Box::new(NoCommands)
    }
}

impl ConnectionHandler for NoCommands {
    fn handle(&mut self, request: &Message<'_>, reply: &mut ReplyWriter) -> Next {
        reply.error(&Error::new(
            ErrorCode::COMMAND_NOT_FOUND,
            format!("no such command: '{}'", request.command_name()),
        ));
        Next::Reply
    }
}
