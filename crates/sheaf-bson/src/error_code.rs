//! MongoDB's error codes, and the error type that carries them to a client.
//!
//! Every higher crate returns [`Error`] for a failure that a *client* sees: a code, its name, a
//! message that says what to change, and optionally labels and additional fields. The server turns
//! it into a reply:
//!
//! ```text
//! {ok: 0, errmsg: message, code: 11000, codeName: "DuplicateKey",
//!  errorLabels: [...], ...extra}
//! ```
//!
//! A code without a name (MongoDB numbers single places in its source) is named after its number:
//! `Location40353`.

use std::borrow::Cow;
use std::fmt;

use crate::value::DocBuf;

/// The number a client sees as `code`.
///
/// Any `i32` is valid: use `ErrorCode(40353)` for a code without a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($number:literal $constant:ident $name:literal,)*) => {
        impl ErrorCode {
            $(
                #[doc = concat!("`", $name, "`, ", $number, ".")]
                pub const $constant: ErrorCode = ErrorCode($number);
            )*

            /// Every named code, in ascending order.
            pub const NAMED: &'static [ErrorCode] = &[$(ErrorCode($number)),*];

            fn known_name(self) -> Option<&'static str> {
                Some(match self.0 {
                    $($number => $name,)*
                    _ => return None,
                })
            }
        }
    };
}

codes! {
    1 INTERNAL_ERROR "InternalError",
    2 BAD_VALUE "BadValue",
    4 NO_SUCH_KEY "NoSuchKey",
    5 GRAPH_CONTAINS_CYCLE "GraphContainsCycle",
    6 HOST_UNREACHABLE "HostUnreachable",
    7 HOST_NOT_FOUND "HostNotFound",
    8 UNKNOWN_ERROR "UnknownError",
    9 FAILED_TO_PARSE "FailedToParse",
    10 CANNOT_MUTATE_OBJECT "CannotMutateObject",
    11 USER_NOT_FOUND "UserNotFound",
    12 UNSUPPORTED_FORMAT "UnsupportedFormat",
    13 UNAUTHORIZED "Unauthorized",
    14 TYPE_MISMATCH "TypeMismatch",
    15 OVERFLOW "Overflow",
    16 INVALID_LENGTH "InvalidLength",
    17 PROTOCOL_ERROR "ProtocolError",
    18 AUTHENTICATION_FAILED "AuthenticationFailed",
    20 ILLEGAL_OPERATION "IllegalOperation",
    21 EMPTY_ARRAY_OPERATION "EmptyArrayOperation",
    22 INVALID_BSON "InvalidBSON",
    23 ALREADY_INITIALIZED "AlreadyInitialized",
    24 LOCK_TIMEOUT "LockTimeout",
    26 NAMESPACE_NOT_FOUND "NamespaceNotFound",
    27 INDEX_NOT_FOUND "IndexNotFound",
    28 PATH_NOT_VIABLE "PathNotViable",
    29 NON_EXISTENT_PATH "NonExistentPath",
    30 INVALID_PATH "InvalidPath",
    31 ROLE_NOT_FOUND "RoleNotFound",
    32 ROLES_NOT_RELATED "RolesNotRelated",
    33 PRIVILEGE_NOT_FOUND "PrivilegeNotFound",
    34 CANNOT_BACKFILL_ARRAY "CannotBackfillArray",
    35 USER_MODIFICATION_FAILED "UserModificationFailed",
    37 FILE_RENAME_FAILED "FileRenameFailed",
    38 FILE_NOT_OPEN "FileNotOpen",
    39 FILE_STREAM_FAILED "FileStreamFailed",
    40 CONFLICTING_UPDATE_OPERATORS "ConflictingUpdateOperators",
    41 FILE_ALREADY_OPEN "FileAlreadyOpen",
    42 LOG_WRITE_FAILED "LogWriteFailed",
    43 CURSOR_NOT_FOUND "CursorNotFound",
    46 LOCK_BUSY "LockBusy",
    47 NO_MATCHING_DOCUMENT "NoMatchingDocument",
    48 NAMESPACE_EXISTS "NamespaceExists",
    49 INVALID_ROLE_MODIFICATION "InvalidRoleModification",
    50 MAX_TIME_MS_EXPIRED "MaxTimeMSExpired",
    51 MANUAL_INTERVENTION_REQUIRED "ManualInterventionRequired",
    52 DOLLAR_PREFIXED_FIELD_NAME "DollarPrefixedFieldName",
    53 INVALID_ID_FIELD "InvalidIdField",
    54 NOT_SINGLE_VALUE_FIELD "NotSingleValueField",
    55 INVALID_DB_REF "InvalidDBRef",
    56 EMPTY_FIELD_NAME "EmptyFieldName",
    57 DOTTED_FIELD_NAME "DottedFieldName",
    58 ROLE_MODIFICATION_FAILED "RoleModificationFailed",
    59 COMMAND_NOT_FOUND "CommandNotFound",
    61 SHARD_KEY_NOT_FOUND "ShardKeyNotFound",
    62 OPLOG_OPERATION_UNSUPPORTED "OplogOperationUnsupported",
    64 WRITE_CONCERN_TIMEOUT "WriteConcernTimeout",
    65 MULTIPLE_ERRORS_OCCURRED "MultipleErrorsOccurred",
    66 IMMUTABLE_FIELD "ImmutableField",
    67 CANNOT_CREATE_INDEX "CannotCreateIndex",
    68 INDEX_ALREADY_EXISTS "IndexAlreadyExists",
    71 REPLICA_SET_NOT_FOUND "ReplicaSetNotFound",
    72 INVALID_OPTIONS "InvalidOptions",
    73 INVALID_NAMESPACE "InvalidNamespace",
    74 NODE_NOT_FOUND "NodeNotFound",
    76 NO_REPLICATION_ENABLED "NoReplicationEnabled",
    77 OPERATION_INCOMPLETE "OperationIncomplete",
    79 UNKNOWN_REPL_WRITE_CONCERN "UnknownReplWriteConcern",
    82 NO_PROGRESS_MADE "NoProgressMade",
    85 INDEX_OPTIONS_CONFLICT "IndexOptionsConflict",
    86 INDEX_KEY_SPECS_CONFLICT "IndexKeySpecsConflict",
    89 NETWORK_TIMEOUT "NetworkTimeout",
    90 CALLBACK_CANCELED "CallbackCanceled",
    91 SHUTDOWN_IN_PROGRESS "ShutdownInProgress",
    93 INVALID_REPLICA_SET_CONFIG "InvalidReplicaSetConfig",
    94 NOT_YET_INITIALIZED "NotYetInitialized",
    95 NOT_SECONDARY "NotSecondary",
    96 OPERATION_FAILED "OperationFailed",
    97 NO_PROJECTION_FOUND "NoProjectionFound",
    98 DB_PATH_IN_USE "DBPathInUse",
    100 UNSATISFIABLE_WRITE_CONCERN "UnsatisfiableWriteConcern",
    101 OUTDATED_CLIENT "OutdatedClient",
    103 NEW_REPLICA_SET_CONFIGURATION_INCOMPATIBLE "NewReplicaSetConfigurationIncompatible",
    104 NODE_NOT_ELECTABLE "NodeNotElectable",
    107 LOCK_FAILED "LockFailed",
    109 CONFIGURATION_IN_PROGRESS "ConfigurationInProgress",
    110 CANNOT_INITIALIZE_NODE_WITH_DATA "CannotInitializeNodeWithData",
    111 NOT_EXACT_VALUE_FIELD "NotExactValueField",
    112 WRITE_CONFLICT "WriteConflict",
    113 INITIAL_SYNC_FAILURE "InitialSyncFailure",
    115 COMMAND_NOT_SUPPORTED "CommandNotSupported",
    116 DOC_TOO_LARGE_FOR_CAPPED "DocTooLargeForCapped",
    117 CONFLICTING_OPERATION_IN_PROGRESS "ConflictingOperationInProgress",
    118 NAMESPACE_NOT_SHARDED "NamespaceNotSharded",
    119 INVALID_SYNC_SOURCE "InvalidSyncSource",
    120 OPLOG_START_MISSING "OplogStartMissing",
    121 DOCUMENT_VALIDATION_FAILURE "DocumentValidationFailure",
    123 NOT_A_REPLICA_SET "NotAReplicaSet",
    125 COMMAND_FAILED "CommandFailed",
    127 UNRECOVERABLE_ROLLBACK_ERROR "UnrecoverableRollbackError",
    133 FAILED_TO_SATISFY_READ_PREFERENCE "FailedToSatisfyReadPreference",
    134 READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET "ReadConcernMajorityNotAvailableYet",
    135 STALE_TERM "StaleTerm",
    136 CAPPED_POSITION_LOST "CappedPositionLost",
    139 JS_INTERPRETER_FAILURE "JSInterpreterFailure",
    140 INVALID_SSL_CONFIGURATION "InvalidSSLConfiguration",
    141 SSL_HANDSHAKE_FAILED "SSLHandshakeFailed",
    143 CURSOR_IN_USE "CursorInUse",
    146 EXCEEDED_MEMORY_LIMIT "ExceededMemoryLimit",
    147 ZLIB_ERROR "ZLibError",
    148 READ_CONCERN_MAJORITY_NOT_ENABLED "ReadConcernMajorityNotEnabled",
    150 STALE_EPOCH "StaleEpoch",
    152 OPLOG_OUT_OF_ORDER "OplogOutOfOrder",
    158 MUST_UPGRADE "MustUpgrade",
    159 DURATION_OVERFLOW "DurationOverflow",
    160 MAX_STALENESS_OUT_OF_RANGE "MaxStalenessOutOfRange",
    161 INCOMPATIBLE_COLLATION_VERSION "IncompatibleCollationVersion",
    162 COLLECTION_IS_EMPTY "CollectionIsEmpty",
    165 VIEW_DEPTH_LIMIT_EXCEEDED "ViewDepthLimitExceeded",
    166 COMMAND_NOT_SUPPORTED_ON_VIEW "CommandNotSupportedOnView",
    167 OPTION_NOT_SUPPORTED_ON_VIEW "OptionNotSupportedOnView",
    168 INVALID_PIPELINE_OPERATOR "InvalidPipelineOperator",
    170 TOO_MANY_MATCHING_DOCUMENTS "TooManyMatchingDocuments",
    171 CANNOT_INDEX_PARALLEL_ARRAYS "CannotIndexParallelArrays",
    172 TRANSPORT_SESSION_CLOSED "TransportSessionClosed",
    175 QUERY_PLAN_KILLED "QueryPlanKilled",
    176 FILE_OPEN_FAILED "FileOpenFailed",
    181 AMBIGUOUS_INDEX_KEY_PATTERN "AmbiguousIndexKeyPattern",
    182 INVALID_VIEW_DEFINITION "InvalidViewDefinition",
    183 CLIENT_METADATA_MISSING_FIELD "ClientMetadataMissingField",
    184 CLIENT_METADATA_APP_NAME_TOO_LARGE "ClientMetadataAppNameTooLarge",
    185 CLIENT_METADATA_DOCUMENT_TOO_LARGE "ClientMetadataDocumentTooLarge",
    186 CLIENT_METADATA_CANNOT_BE_MUTATED "ClientMetadataCannotBeMutated",
    187 LINEARIZABLE_READ_CONCERN_ERROR "LinearizableReadConcernError",
    188 INCOMPATIBLE_SERVER_VERSION "IncompatibleServerVersion",
    189 PRIMARY_STEPPED_DOWN "PrimarySteppedDown",
    192 FAIL_POINT_ENABLED "FailPointEnabled",
    195 VIEW_PIPELINE_MAX_SIZE_EXCEEDED "ViewPipelineMaxSizeExceeded",
    197 INVALID_INDEX_SPECIFICATION_OPTION "InvalidIndexSpecificationOption",
    201 CANNOT_BUILD_INDEX_KEYS "CannotBuildIndexKeys",
    202 NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT "NetworkInterfaceExceededTimeLimit",
    204 TIME_PROOF_MISMATCH "TimeProofMismatch",
    205 CLUSTER_TIME_FAILS_RATE_LIMITER "ClusterTimeFailsRateLimiter",
    206 NO_SUCH_SESSION "NoSuchSession",
    207 INVALID_UUID "InvalidUUID",
    208 TOO_MANY_LOCKS "TooManyLocks",
    209 STALE_CLUSTER_TIME "StaleClusterTime",
    211 KEY_NOT_FOUND "KeyNotFound",
    213 DUPLICATE_SESSION "DuplicateSession",
    214 AUTHENTICATION_RESTRICTION_UNMET "AuthenticationRestrictionUnmet",
    215 DATABASE_DROP_PENDING "DatabaseDropPending",
    216 ELECTION_IN_PROGRESS "ElectionInProgress",
    217 INCOMPLETE_TRANSACTION_HISTORY "IncompleteTransactionHistory",
    218 UPDATE_OPERATION_FAILED "UpdateOperationFailed",
    221 INDEX_MODIFIED "IndexModified",
    222 CLOSE_CHANGE_STREAM "CloseChangeStream",
    223 ILLEGAL_OP_MSG_FLAG "IllegalOpMsgFlag",
    224 QUERY_FEATURE_NOT_ALLOWED "QueryFeatureNotAllowed",
    225 TRANSACTION_TOO_OLD "TransactionTooOld",
    226 ATOMICITY_FAILURE "AtomicityFailure",
    227 CANNOT_IMPLICITLY_CREATE_COLLECTION "CannotImplicitlyCreateCollection",
    229 MUST_DOWNGRADE "MustDowngrade",
    232 MAX_SUB_PIPELINE_DEPTH_EXCEEDED "MaxSubPipelineDepthExceeded",
    233 TOO_MANY_DOCUMENT_SEQUENCES "TooManyDocumentSequences",
    234 RETRY_CHANGE_STREAM "RetryChangeStream",
    235 INTERNAL_ERROR_NOT_SUPPORTED "InternalErrorNotSupported",
    237 CURSOR_KILLED "CursorKilled",
    238 NOT_IMPLEMENTED "NotImplemented",
    239 SNAPSHOT_TOO_OLD "SnapshotTooOld",
    241 CONVERSION_FAILURE "ConversionFailure",
    242 CANNOT_CREATE_COLLECTION "CannotCreateCollection",
    246 SNAPSHOT_UNAVAILABLE "SnapshotUnavailable",
    251 NO_SUCH_TRANSACTION "NoSuchTransaction",
    256 TRANSACTION_COMMITTED "TransactionCommitted",
    257 TRANSACTION_TOO_LARGE "TransactionTooLarge",
    258 UNKNOWN_FEATURE_COMPATIBILITY_VERSION "UnknownFeatureCompatibilityVersion",
    260 INVALID_RESUME_TOKEN "InvalidResumeToken",
    261 TOO_MANY_LOGICAL_SESSIONS "TooManyLogicalSessions",
    262 EXCEEDED_TIME_LIMIT "ExceededTimeLimit",
    263 OPERATION_NOT_SUPPORTED_IN_TRANSACTION "OperationNotSupportedInTransaction",
    264 TOO_MANY_FILES_OPEN "TooManyFilesOpen",
    266 FAIL_POINT_SET_FAILED "FailPointSetFailed",
    267 PREPARED_TRANSACTION_IN_PROGRESS "PreparedTransactionInProgress",
    268 CANNOT_BACKUP "CannotBackup",
    276 INDEX_BUILD_ABORTED "IndexBuildAborted",
    278 UNSATISFIABLE_COMMIT_QUORUM "UnsatisfiableCommitQuorum",
    279 CLIENT_DISCONNECT "ClientDisconnect",
    280 CHANGE_STREAM_FATAL_ERROR "ChangeStreamFatalError",
    285 INDEX_BUILD_ALREADY_IN_PROGRESS "IndexBuildAlreadyInProgress",
    286 CHANGE_STREAM_HISTORY_LOST "ChangeStreamHistoryLost",
    288 CHECKSUM_MISMATCH "ChecksumMismatch",
    290 TRANSACTION_EXCEEDED_LIFETIME_LIMIT_SECONDS "TransactionExceededLifetimeLimitSeconds",
    291 NO_QUERY_EXECUTION_PLANS "NoQueryExecutionPlans",
    292 QUERY_EXCEEDED_MEMORY_LIMIT_NO_DISK_USE_ALLOWED "QueryExceededMemoryLimitNoDiskUseAllowed",
    301 DATA_CORRUPTION_DETECTED "DataCorruptionDetected",
    308 CURRENT_CONFIG_NOT_COMMITTED_YET "CurrentConfigNotCommittedYet",
    309 EXHAUST_COMMAND_FINISHED "ExhaustCommandFinished",
    312 OPERATION_IS_KILLED_AND_DELISTED "OperationIsKilledAndDelisted",
    314 OBJECT_IS_BUSY "ObjectIsBusy",
    315 TOO_STALE_TO_SYNC_FROM_SOURCE "TooStaleToSyncFromSource",
    322 API_VERSION_ERROR "APIVersionError",
    323 API_STRICT_ERROR "APIStrictError",
    324 API_DEPRECATION_ERROR "APIDeprecationError",
    334 MECHANISM_UNAVAILABLE "MechanismUnavailable",
    336 TIMESERIES_BUCKET_CLEARED "TimeseriesBucketCleared",
    337 AUTHENTICATION_ABANDONED "AuthenticationAbandoned",
    346 CHANGE_STREAM_INVALIDATED "ChangeStreamInvalidated",
    347 API_MISMATCH_ERROR "APIMismatchError",
    349 KEY_PATTERN_SHORTER_THAN_BOUND "KeyPatternShorterThanBound",
    351 CHANGE_STREAM_START_AFTER_INVALIDATE "ChangeStreamStartAfterInvalidate",
    352 UNSUPPORTED_OP_QUERY_COMMAND "UnsupportedOpQueryCommand",
    354 LOAD_BALANCER_SUPPORT_MISMATCH "LoadBalancerSupportMismatch",
    355 INTERRUPTED_DUE_TO_STORAGE_CHANGE "InterruptedDueToStorageChange",
    356 TXN_RETRY_COUNTER_TOO_OLD "TxnRetryCounterTooOld",
    357 INVALID_BSON_TYPE "InvalidBSONType",
    359 CANNOT_CONVERT_INDEX_TO_UNIQUE "CannotConvertIndexToUnique",
    361 COLLECTION_UUID_MISMATCH "CollectionUUIDMismatch",
    363 RETRYABLE_TRANSACTION_IN_PROGRESS "RetryableTransactionInProgress",
    365 TEMPORARILY_UNAVAILABLE "TemporarilyUnavailable",
    371 USER_WRITES_BLOCKED "UserWritesBlocked",
    372 CLOSE_CONNECTION_FOR_SHUTDOWN_COMMAND "CloseConnectionForShutdownCommand",
    376 CHANGE_STREAM_NOT_ENABLED "ChangeStreamNotEnabled",
    378 NON_CONFORMANT_BSON "NonConformantBSON",
    384 CONNECTION_ERROR "ConnectionError",
    388 TRANSACTION_TOO_LARGE_FOR_CACHE "TransactionTooLargeForCache",
    391 REAUTHENTICATION_REQUIRED "ReauthenticationRequired",
    396 INDEX_INFORMATION_TOO_LARGE "IndexInformationTooLarge",
    402 RESOURCE_EXHAUSTED "ResourceExhausted",
    411 QUERY_REJECTED_BY_SETTINGS "QueryRejectedBySettings",
    430 INDEX_KEY_ORDER_VIOLATION "IndexKeyOrderViolation",
    433 ADMISSION_QUEUE_OVERFLOW "AdmissionQueueOverflow",
    447 OBJECT_ALREADY_EXISTS "ObjectAlreadyExists",
    449 RATE_LIMIT_EXCEEDED "RateLimitExceeded",
    462 INGRESS_REQUEST_RATE_LIMIT_EXCEEDED "IngressRequestRateLimitExceeded",
    9001 SOCKET_EXCEPTION "SocketException",
    10003 CANNOT_GROW_DOCUMENT_IN_CAPPED_NAMESPACE "CannotGrowDocumentInCappedNamespace",
    10058 LEGACY_NOT_PRIMARY "LegacyNotPrimary",
    10107 NOT_WRITABLE_PRIMARY "NotWritablePrimary",
    10334 BSON_OBJECT_TOO_LARGE "BSONObjectTooLarge",
    11000 DUPLICATE_KEY "DuplicateKey",
    11600 INTERRUPTED_AT_SHUTDOWN "InterruptedAtShutdown",
    11601 INTERRUPTED "Interrupted",
    11602 INTERRUPTED_DUE_TO_REPL_STATE_CHANGE "InterruptedDueToReplStateChange",
    12586 BACKGROUND_OPERATION_IN_PROGRESS_FOR_DATABASE "BackgroundOperationInProgressForDatabase",
    12587 BACKGROUND_OPERATION_IN_PROGRESS_FOR_NAMESPACE "BackgroundOperationInProgressForNamespace",
    13113 MERGE_STAGE_NO_MATCHING_DOCUMENT "MergeStageNoMatchingDocument",
    13297 DATABASE_DIFFER_CASE "DatabaseDifferCase",
    13435 NOT_PRIMARY_NO_SECONDARY_OK "NotPrimaryNoSecondaryOk",
    13436 NOT_PRIMARY_OR_SECONDARY "NotPrimaryOrSecondary",
    14031 OUT_OF_DISK_SPACE "OutOfDiskSpace",
    31082 SEARCH_NOT_ENABLED "SearchNotEnabled",
    40413 IDL_DUPLICATE_FIELD "IDLDuplicateField",
    40414 IDL_FAILED_TO_PARSE "IDLFailedToParse",
    40415 IDL_UNKNOWN_FIELD "IDLUnknownField",
    46841 CLIENT_MARKED_KILLED "ClientMarkedKilled",
    50768 NOT_A_RETRYABLE_WRITE_COMMAND "NotARetryableWriteCommand",
}

impl ErrorCode {
    /// What a client sees as `codeName`; `Location<number>` for an unnamed code.
    pub fn name(self) -> Cow<'static, str> {
        match self.known_name() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Location{}", self.0)),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Error labels that drivers act on.
pub mod label {
    /// The whole transaction may be retried.
    pub const TRANSIENT_TRANSACTION: &str = "TransientTransactionError";
    /// The commit may have happened; the client may retry it.
    pub const UNKNOWN_TRANSACTION_COMMIT_RESULT: &str = "UnknownTransactionCommitResult";
    /// The write may be retried with the same transaction number.
    pub const RETRYABLE_WRITE: &str = "RetryableWriteError";
    /// The change stream may be resumed with its last token.
    pub const RESUMABLE_CHANGE_STREAM: &str = "ResumableChangeStreamError";
    /// The change stream cannot be resumed with its token.
    pub const NON_RESUMABLE_CHANGE_STREAM: &str = "NonResumableChangeStreamError";
}

/// An error as a client sees it. One pointer wide, to keep `Result`s small.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Parts>);

#[derive(Clone, PartialEq)]
struct Parts {
    code: ErrorCode,
    message: String,
    labels: Vec<Cow<'static, str>>,
    extra: Option<DocBuf>,
}

/// A result whose error is reported to a client.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with this code. The message should say what to change.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error(Box::new(Parts {
            code,
            message: message.into(),
            labels: Vec::new(),
            extra: None,
        }))
    }

    /// Shorthand for the most common code, `BadValue`.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::BAD_VALUE, message)
    }

    /// Adds a label (see [`label`]) unless it is already present.
    pub fn with_label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        let label = label.into();
        if !self.0.labels.contains(&label) {
            self.0.labels.push(label);
        }
        self
    }

    /// Sets additional reply fields, such as `keyPattern` and `keyValue` of a `DuplicateKey`.
    /// Replaces those set earlier.
    pub fn with_extra(mut self, extra: DocBuf) -> Self {
        self.0.extra = Some(extra);
        self
    }

    /// Prefixes the message: `"context :: caused by :: message"`.
    pub fn with_context(mut self, context: impl fmt::Display) -> Self {
        self.0.message = format!("{context} :: caused by :: {}", self.0.message);
        self
    }

    /// The numeric code (`code`).
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The name of the code (`codeName`).
    pub fn code_name(&self) -> Cow<'static, str> {
        self.0.code.name()
    }

    /// The message (`errmsg`).
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The labels, in the order they were added; usually empty.
    pub fn labels(&self) -> &[Cow<'static, str>] {
        &self.0.labels
    }

    /// The additional reply fields.
    pub fn extra(&self) -> Option<&DocBuf> {
        self.0.extra.as_ref()
    }

    /// Whether the label was added.
    pub fn has_label(&self, label: &str) -> bool {
        self.0.labels.iter().any(|l| l == label)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.code, self.0.message)?;
        if !self.0.labels.is_empty() {
            write!(f, " {:?}", self.0.labels)?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(ErrorCode::DUPLICATE_KEY.0, 11000);
        assert_eq!(ErrorCode::DUPLICATE_KEY.name(), "DuplicateKey");
        assert_eq!(ErrorCode(40353).name(), "Location40353");
        assert_eq!(
            format!("{:?}", ErrorCode::WRITE_CONFLICT),
            "WriteConflict(112)"
        );
    }

    #[test]
    fn codes_ascend_and_names_are_unique() {
        let mut names = std::collections::HashSet::new();
        for pair in ErrorCode::NAMED.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for code in ErrorCode::NAMED {
            assert!(names.insert(code.name()), "{code:?}");
        }
    }

    #[test]
    fn building() {
        let e = Error::bad_value("limit must not be negative")
            .with_label(label::RETRYABLE_WRITE)
            .with_label(label::RETRYABLE_WRITE)
            .with_context("find");
        assert_eq!(e.code(), ErrorCode::BAD_VALUE);
        assert_eq!(e.code_name(), "BadValue");
        assert_eq!(
            e.message(),
            "find :: caused by :: limit must not be negative"
        );
        assert_eq!(e.labels(), ["RetryableWriteError"]);
        assert!(e.has_label(label::RETRYABLE_WRITE));
        assert!(!e.has_label(label::TRANSIENT_TRANSACTION));
        assert_eq!(
            e.to_string(),
            "BadValue: find :: caused by :: limit must not be negative"
        );
        assert_eq!(std::mem::size_of::<Error>(), std::mem::size_of::<usize>());
    }
}
