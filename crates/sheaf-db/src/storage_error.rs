//! Maps storage engine errors to the errors that clients see. The only place that does so.

use std::io;

use sheaf_bson::{Error, ErrorCode};
use sheaf_storage::StorageError;

/// Converts a storage error to one with MongoDB's code.
///
/// A `WriteConflict` remains recognisable to [`is_write_conflict`], so that the write path can
/// retry.
pub fn client_error(error: StorageError) -> Error {
    let code = match &error {
        StorageError::WriteConflict => ErrorCode::WRITE_CONFLICT,
        StorageError::LockTimeout { .. } => ErrorCode::LOCK_TIMEOUT,
        StorageError::Corrupt { .. } => ErrorCode::DATA_CORRUPTION_DETECTED,
        // Includes an engine that became read-only because the disk is full: the remedy is the
        // same.
        full if full.is_full() => ErrorCode::OUT_OF_DISK_SPACE,
        StorageError::Io { .. } => ErrorCode::OPERATION_FAILED,
        StorageError::ReadOnly { .. } => ErrorCode::OPERATION_FAILED,
        StorageError::NewerFormat { .. } => ErrorCode::MUST_UPGRADE,
        StorageError::WrongFormat { .. } => ErrorCode::UNSUPPORTED_FORMAT,
        StorageError::Unfinished { .. } => ErrorCode::OPERATION_INCOMPLETE,
        StorageError::InUse { .. } => ErrorCode::DB_PATH_IN_USE,
        // The table was dropped during an operation that had seen it in the catalog.
        StorageError::NoSuchTable(_) => ErrorCode::QUERY_PLAN_KILLED,
        StorageError::TooLarge { .. } => ErrorCode::BSON_OBJECT_TOO_LARGE,
        StorageError::Closed => ErrorCode::SHUTDOWN_IN_PROGRESS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    let message = match &error {
        StorageError::NoSuchTable(_) => {
            "collection or index dropped while the operation was running".to_owned()
        }
        other => other.to_string(),
    };
    Error::new(code, message)
}

/// The error for a temporary file that cannot be written or read; `of` names its owner.
pub fn temporary_file_failed(of: &str, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorCode::OUT_OF_DISK_SPACE
        }
        _ => ErrorCode::FILE_STREAM_FAILED,
    };
    Error::new(
        code,
        format!("a temporary file of {of} could not be used: {error}"),
    )
}

/// Whether the unit of work may succeed if retried.
pub fn is_write_conflict(error: &Error) -> bool {
    error.code() == ErrorCode::WRITE_CONFLICT
}

/// `?` for storage results in functions that return coded errors.
pub trait IntoClientError<T> {
    /// Maps the error by [`client_error`].
    fn into_client_error(self) -> sheaf_bson::Result<T>;
}

impl<T> IntoClientError<T> for sheaf_storage::Result<T> {
    #[inline]
    fn into_client_error(self) -> sheaf_bson::Result<T> {
        self.map_err(client_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_storage::TableId;

    fn io_failure(kind: io::ErrorKind) -> StorageError {
        StorageError::Io {
            context: "write a file".into(),
            kind,
            message: "it failed".into(),
        }
    }

    #[test]
    fn codes() {
        for (error, code) in [
            (StorageError::WriteConflict, 112),
            (StorageError::LockTimeout { waited_ms: 5 }, 24),
            (StorageError::NoSuchTable(TableId(7)), 175),
            (StorageError::Closed, 91),
            (StorageError::TableExists(TableId(7)), 1),
            (io_failure(io::ErrorKind::Other), 96),
            (io_failure(io::ErrorKind::Other).as_read_only(), 96),
            (io_failure(io::ErrorKind::StorageFull), 14031),
            (
                io_failure(io::ErrorKind::QuotaExceeded).as_read_only(),
                14031,
            ),
        ] {
            let error_sent = client_error(error);
            assert_eq!(error_sent.code().0, code, "{error_sent}");
        }
        for (kind, code) in [
            (io::ErrorKind::StorageFull, 14031),
            (io::ErrorKind::FileTooLarge, 14031),
            (io::ErrorKind::NotFound, 39),
        ] {
            let error_sent = temporary_file_failed("a sort", &kind.into());
            assert_eq!(error_sent.code().0, code, "{error_sent}");
        }
        assert!(is_write_conflict(&client_error(
            StorageError::WriteConflict
        )));
        assert!(!is_write_conflict(&client_error(StorageError::Closed)));
    }
}
