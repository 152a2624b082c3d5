//! What a command may ask of the program that holds the server.

use sheaf_bson::{Error, ErrorCode};

/// The program that holds the server.
pub trait Control: Send + Sync {
    /// Begins an orderly shutdown and returns at once (`shutdown`).
    ///
    /// Errors: the program does not stop at a client's request.
    fn request_shutdown(&self) -> Result<(), Error>;
}

/// Refuses every request: the program that embeds the server decides by itself.
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
