//! Exit codes, MongoDB's where it defines one.

use std::process::ExitCode;

/// The result of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Clean shutdown.
    Clean,
    /// The requested action failed (`--shutdown` without a server).
    Failure,
    /// The options are invalid.
    BadOptions,
    /// Shutdown as requested, but the last flush failed: unsynced writes may be lost.
    Unclean,
    /// The server cannot listen on an address.
    NetError,
    /// The server cannot start: the folder is in use, or the data cannot be opened.
    Uncaught,
}

impl Exit {
    /// The process's exit status.
    pub fn code(self) -> u8 {
        match self {
            Exit::Clean => 0,
            Exit::Failure => 1,
            Exit::BadOptions => 2,
            Exit::Unclean => 14,
            Exit::NetError => 48,
            Exit::Uncaught => 100,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
