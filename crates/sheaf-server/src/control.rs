//! Requests that a command may make to the program that holds the server.

use sheaf_bson::{Error, ErrorCode};

/// The program that holds the server.
pub trait Control: Send + Sync {
    /// Begins an orderly shutdown and returns at once (`shutdown`).
    ///
    /// Errors: the program does not stop at a client's request.
    fn request_shutdown(&self) -> Result<(), Error>;

    /// Reads the files of certificates and keys again, for new connections (`rotateCertificates`).
    ///
    /// Errors: a file cannot be used, and those in use stay; or the program has no TLS.
    fn rotate_certificates(&self) -> Result<(), Error> {
        Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            "there are no certificates to rotate: the server runs without TLS; start it with --tlsMode",
        ))
    }
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
