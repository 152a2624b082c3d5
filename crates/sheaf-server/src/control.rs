//! Requests that a command may make to the program that holds the server.

use sheaf_bson::{Error, ErrorCode};

/// The program that holds the server.
pub trait Control: Send + Sync {
    /// Begins an orderly shutdown and returns at once (`shutdown`).
    ///
    /// Errors: the program does not stop at a client's request.
    fn request_shutdown(&self) -> Result<(), Error>;
}

/// Refuses every request: the embedding program decides when the server stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoControl;

impl Control for NoControl {
    fn request_shutdown(&self) -> Result<(), Error> {
        Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "this server runs inside another program, which decides when it stops",
        ))
    }
}
