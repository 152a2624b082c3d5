//! Database events that belong in a server's log.

use std::fmt;
use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_storage::TableId;

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;

/// Something worth a log line.
#[derive(Debug, Clone, PartialEq)]
pub enum DbEvent {
    /// At startup: index builds interrupted by a crash were rolled back.
    UnfinishedIndexesDropped {
        /// The collection they were for.
        ns: Namespace,
    },
    /// At startup: a table that the catalog does not name was dropped.
    UnknownTableDropped {
        /// Number of the table.
        table: TableId,
    },
    /// A collection was created.
    CollectionCreated {
        /// Its name.
        ns: Namespace,
        /// Its UUID.
        uuid: Uuid,
    },
    /// A collection was dropped.
    CollectionDropped {
        /// Its name.
        ns: Namespace,
        /// Its UUID.
        uuid: Uuid,
    },
    /// An index build started.
    IndexBuildStarted {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// Documents in the collection.
        documents: u64,
    },
    /// Progress of an index build, sent about every three seconds.
    IndexBuildProgress {
        /// The collection.
        ns: Namespace,
        /// The current phase.
        phase: &'static str,
        /// Units done in this phase.
        done: u64,
        /// Units in this phase; an estimate while there are concurrent writes.
        total: u64,
    },
    /// An index build succeeded.
    IndexBuildDone {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// Index entries created from the documents present when the build began.
        keys: u64,
        /// Duration of the build, in milliseconds.
        duration_ms: u64,
    },
    /// An index build failed; what it wrote has been removed.
    IndexBuildFailed {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// The error.
        error: String,
    },
    /// Stored data is damaged; sent once per collection. The operation that found it failed.
    DamageFound {
        /// The collection.
        ns: Namespace,
        /// What was found and where.
        error: String,
    },
    /// A document fails its collection's validator, and the failure must be logged.
    ValidationFailed {
        /// The collection.
        ns: Namespace,
        /// `{failingDocumentId, details}`.
        info: DocBuf,
        /// Whether the document was rejected.
        refused: bool,
    },
}

type Listener = dyn Fn(&DbEvent) + Send + Sync;

/// The receiver of events; by default they are discarded.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Listener>>);

impl Events {
    /// Sends events to `listener`, on the thread that causes them: it must be fast.
    pub fn to(listener: impl Fn(&DbEvent) + Send + Sync + 'static) -> Events {
        Events(Some(Arc::new(listener)))
    }

    pub(crate) fn send(&self, event: DbEvent) {
        if let Some(listener) = &self.0 {
            listener(&event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Events(listener)"
        } else {
            "Events(none)"
        })
    }
}
