//! Errors below the document layer.
//!
//! There are three kinds, and the caller treats each differently:
//!
//! ```text
//!   transient WriteConflict, LockTimeout     retry the unit on a fresh snapshot, or give up
//!   caller's  NoSuchTable, TableExists, ..   a programming error or a race with a drop
//!   ours      Corrupt, Io, NoSpace, ReadOnly the operation fails; nothing is dropped silently
//! ```
//!
//! Errors are cloneable, because a group of commits that shared one write or one sync shares its
//! failure.

use std::fmt;
use std::io;

use crate::TableId;

/// The crate's result.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// Why a storage operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageError {
    /// Another unit of work holds the key, or has committed a version of it that this unit's
    /// snapshot does not see. Nothing was written; retry the unit on a fresh snapshot.
    WriteConflict,
    /// The key's holder did not finish within the caller's limit.
    LockTimeout {
        /// How long the caller waited, in milliseconds.
        waited_ms: u64,
    },
    /// The data on disk differs from what was written. Never retried.
    Corrupt {
        /// The file, or the part of it, that is damaged.
        file: String,
        /// What was found.
        detail: String,
    },
    /// A read, write or sync failed in the operating system.
    Io {
        /// The operation in progress.
        context: String,
        /// The system's classification.
        kind: io::ErrorKind,
        /// The system's message.
        message: String,
    },
    /// The disk or the quota is full, or the file has reached the maximum length for the process:
    /// the write failed. The engine may become `ReadOnly`.
    NoSpace {
        /// The operation in progress.
        context: String,
    },
    /// The engine no longer accepts writes; reads continue where possible. Reopening the engine,
    /// once the cause is removed, ends this state.
    ReadOnly {
        /// The first failure, which caused it.
        why: String,
        /// Whether the cause was a lack of space.
        is_full: bool,
    },
    /// The file was written by a newer version of this program.
    NewerFormat {
        /// The format version in the file.
        found: u64,
        /// The newest version that this program reads.
        supported: u64,
    },
    /// The file is not a file of this engine.
    WrongFormat {
        /// What was found instead.
        detail: String,
    },
    /// The folder contains an unfinished backup, that is, an unknown part of the data.
    Unfinished {
        /// The folder.
        folder: String,
    },
    /// The file is open in another process.
    InUse {
        /// The file.
        file: String,
    },
    /// The table does not exist, or no longer exists: it may have been dropped concurrently.
    NoSuchTable(TableId),
    /// The table to create already exists.
    TableExists(TableId),
    /// A bulk load needs an empty table.
    TableNotEmpty(TableId),
    /// A bulk load received a key that is not greater than the one before it.
    OutOfOrder {
        /// Number of entries before the disorder.
        position: u64,
    },
    /// A key or value is longer than the engine supports.
    TooLarge {
        /// Length of the rejected key or value, in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The engine does not support the operation.
    Unsupported {
        /// What was requested.
        what: String,
    },
    /// The engine has been closed.
    Closed,
}

impl StorageError {
    /// The `ReadOnly` error for operations after this failure, if it is final.
    pub fn as_read_only(&self) -> StorageError {
        StorageError::ReadOnly {
            why: self.to_string(),
            is_full: self.is_full(),
        }
    }

    /// Whether the cause is a full disk, including an engine that is read-only for this reason.
    pub fn is_full(&self) -> bool {
        match self {
            StorageError::NoSpace { .. } => true,
            StorageError::Io { kind, .. } => is_full(*kind),
            StorageError::ReadOnly { is_full, .. } => *is_full,
            _ => false,
        }
    }

    /// An I/O error with its context; a full disk or file becomes [`StorageError::NoSpace`].
    pub fn io(context: impl Into<String>, error: &io::Error) -> StorageError {
        let context = context.into();
        match error.kind() {
            kind if is_full(kind) => StorageError::NoSpace { context },
            kind => StorageError::Io {
                context,
                kind,
                message: error.to_string(),
            },
        }
    }
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::WriteConflict => f.write_str(
                "write conflict: another operation changed the same record; retry the operation",
            ),
            StorageError::LockTimeout { waited_ms } => write!(
                f,
                "the record stayed locked by another operation for {waited_ms} ms; retry later or \
                 end that operation"
            ),
            StorageError::Corrupt { file, detail } => {
                write!(f, "{file} is damaged: {detail}; restore it from a backup")
            }
            StorageError::Io {
                context, message, ..
            } => write!(f, "{context}: {message}"),
            StorageError::NoSpace { context } => {
                write!(
                    f,
                    "{context}: no space left; free disk space or raise the quota"
                )
            }
            StorageError::ReadOnly { why, .. } => write!(
                f,
                "the storage engine rejects writes since an earlier failure ({why}); remove the \
                 cause and restart"
            ),
            StorageError::NewerFormat { found, supported } => write!(
                f,
                "the data files have format version {found}, newer than {supported}, the newest \
                 that this program reads; start the program version that wrote them"
            ),
            StorageError::WrongFormat { detail } => {
                write!(f, "not a data file of this engine: {detail}")
            }
            StorageError::Unfinished { folder } => write!(
                f,
                "{folder} contains an incomplete backup; create a new one in an \
                 empty folder"
            ),
            StorageError::InUse { file } => {
                write!(
                    f,
                    "{file} is open in another process; stop that process first"
                )
            }
            StorageError::NoSuchTable(table) => write!(f, "no such table: {table}"),
            StorageError::TableExists(table) => write!(f, "the table exists: {table}"),
            StorageError::TableNotEmpty(table) => {
                write!(f, "bulk load needs an empty table: {table}")
            }
            StorageError::OutOfOrder { position } => write!(
                f,
                "bulk load needs strictly ascending keys; entry {position} is not greater than \
                 the one before it"
            ),
            StorageError::TooLarge { bytes, limit } => {
                write!(
                    f,
                    "a key or value of {bytes} bytes exceeds the limit of {limit} bytes"
                )
            }
            StorageError::Unsupported { what } => write!(f, "not supported: {what}"),
            StorageError::Closed => f.write_str("the storage engine has been closed"),
        }
    }
}

impl std::error::Error for StorageError {}
