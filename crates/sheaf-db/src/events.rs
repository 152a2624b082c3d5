//! What happens in the database that belongs into a server's log.

use std::fmt;
use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_storage::TableId;

use crate::catalog::namespace::Namespace;
use crate::catalog::uuid::Uuid;

/// Something worth a log line.
#[derive(Debug, Clone, PartialEq)]
pub enum DbEvent {
    /// On start: index builds that a crash had cut short were taken back.
    UnfinishedIndexesDropped {
        /// The collection they were for.
        ns: Namespace,
    },
    /// On start: a table that the catalog does not name was dropped.
    UnknownTableDropped {
        /// Its number.
        table: TableId,
    },
    /// A collection came into being.
    CollectionCreated {
        /// Its name.
        ns: Namespace,
        /// Its UUID.
        uuid: Uuid,
    },
    /// A collection is gone.
    CollectionDropped {
        /// Its name.
        ns: Namespace,
        /// Its UUID.
        uuid: Uuid,
    },
    /// An index build begins.
    IndexBuildStarted {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// Documents in the collection.
        documents: u64,
    },
    /// An index build goes on; sent about once in three seconds.
    IndexBuildProgress {
        /// The collection.
        ns: Namespace,
        /// What it is doing.
        phase: &'static str,
        /// Units done in this phase.
        done: u64,
        /// Units in this phase, an estimate while others write.
        total: u64,
    },
    /// An index build has ended well.
    IndexBuildDone {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// Index entries made of the documents that were there when it began.
        keys: u64,
        /// How long it took, in milliseconds.
        duration_ms: u64,
    },
    /// An index build has been given up, leaving nothing.
    IndexBuildFailed {
        /// The collection.
        ns: Namespace,
        /// Names of the indexes.
        indexes: Vec<String>,
        /// Why.
        error: String,
    },
    /// Stored data is damaged; sent once for each collection. The operation that met it failed.
    DamageFound {
        /// The collection.
        ns: Namespace,
        /// What was found and where.
        error: String,
    },
    /// A document fails its collection's validator, and the log is to tell.
    ValidationFailed {
        /// The collection.
        ns: Namespace,
        /// `{failingDocumentId, details}`.
        info: DocBuf,
        /// Whether it was refused nevertheless.
        refused: bool,
    },
}

type Listener = dyn Fn(&DbEvent) + Send + Sync;

/// Where events go.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<Listener>>);

impl Events {
    /// Events go to `listener`, on the thread on which they happen: it should be quick.
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
