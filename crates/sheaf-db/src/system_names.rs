//! Names of the databases and collections that belong to the server itself.
//!
//! A name here has one definition, so that the catalog can recognize a collection without importing
//! the module that fills it.

/// Databases that hold the server's own collections; users cannot drop them, and some commands do
/// not write there.
pub fn is_internal_database(db: &str) -> bool {
    matches!(db, "admin" | "config" | "local")
}

/// Prefix of the server's own collections in a user's database.
pub const SYSTEM_PREFIX: &str = "system.";

/// The collection of a database that the profiler writes.
pub const PROFILE: &str = "system.profile";

/// The collection of a database with the definitions of its views, under which the oplog records
/// them.
pub const VIEWS: &str = "system.views";

/// The namespace of the oplog.
pub const OPLOG_NAMESPACE: &str = "local.oplog.rs";

/// The namespace of the rows that make writes retryable, one per session. Users can read them.
pub const TRANSACTIONS_NAMESPACE: &str = "config.transactions";

/// The namespace of the logical sessions.
pub const SESSIONS_NAMESPACE: &str = "config.system.sessions";

/// Whether a collection holds users or roles: a server checks its clients against it.
pub fn is_access_control(db: &str, collection: &str) -> bool {
    db == "admin" && matches!(collection, "system.users" | "system.roles")
}

/// Prefix of the collections that hold the buckets of time-series collections.
pub const BUCKETS_PREFIX: &str = "system.buckets.";

/// Prefix of the collections that `$out`, or a copy into a capped collection, fills before renaming
/// them. Opening the database drops collections with this prefix.
pub const TEMPORARY_PREFIX: &str = "tmp.agg_out.";
