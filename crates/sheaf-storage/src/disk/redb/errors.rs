//! Converts redb's errors to [`StorageError`].

use redb::{CommitError, DatabaseError, TableError, TransactionError};

use super::LENGTH_MAX;
use crate::error::StorageError;

/// Converts an error of redb's storage.
pub(super) fn storage_error(context: &str, error: redb::StorageError) -> StorageError {
    match error {
        redb::StorageError::Io(error) => StorageError::io(context, &error),
        redb::StorageError::Corrupted(detail) => StorageError::Corrupt {
            file: "the redb file".into(),
            detail,
        },
        redb::StorageError::ValueTooLarge(bytes) => StorageError::TooLarge {
            bytes: bytes as u64,
            limit: LENGTH_MAX,
        },
        redb::StorageError::DatabaseClosed => StorageError::Closed,
        error => other_error(context, &error),
    }
}

pub(super) fn other_error(context: &str, error: &dyn std::fmt::Display) -> StorageError {
    StorageError::Io {
        context: context.into(),
        kind: std::io::ErrorKind::Other,
        message: error.to_string(),
    }
}

/// redb panicked: it has met a state that it considers impossible.
pub(super) fn internal_failure(context: &str) -> StorageError {
    other_error(context, &"the storage engine failed an internal check")
}

pub(super) fn open_error(context: &str, error: TableError) -> StorageError {
    match error {
        TableError::Storage(error) => storage_error(context, error),
        error => StorageError::Corrupt {
            file: "the redb file".into(),
            detail: error.to_string(),
        },
    }
}

pub(super) fn begin_error(error: TransactionError) -> StorageError {
    match error {
        TransactionError::Storage(error) => storage_error("begin a transaction", error),
        error => other_error("begin a transaction", &error),
    }
}

pub(super) fn commit_error(error: CommitError) -> StorageError {
    match error {
        CommitError::Storage(error) => storage_error("commit", error),
        error => other_error("commit", &error),
    }
}

/// An error from opening or closing the file.
pub(super) fn database_error(what: &str, file: &str, error: DatabaseError) -> StorageError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            StorageError::InUse { file: file.into() }
        }
        DatabaseError::UpgradeRequired(_) => StorageError::WrongFormat {
            detail: format!("{file}: {error}"),
        },
        DatabaseError::Storage(redb::StorageError::Corrupted(detail)) => StorageError::Corrupt {
            file: file.into(),
            detail,
        },
        DatabaseError::Storage(error) => storage_error(&format!("{what} {file}"), error),
        error => other_error(&format!("{what} {file}"), &error),
    }
}
