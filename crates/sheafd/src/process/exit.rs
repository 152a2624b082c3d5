//! Exit codes, MongoDB's where it has one.

use std::process::ExitCode;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// As asked.
    Clean,
    /// The command did not do what it should (`--shutdown` without a server).
    Failure,
    /// The options are wrong.
    BadOptions,
    /// As asked, but the data could not be brought to rest: what was not yet on disk may be lost.
    Unclean,
    /// We cannot listen where we should.
    NetError,
    /// The server cannot run: the folder is in use, the data cannot be opened.
    Uncaught,
}

impl Exit {
    /// The number the caller sees.
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
