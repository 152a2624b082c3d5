//! The database without a network: catalog, indexes, plan execution, writes.
//!
//! ```text
//!   find ─> planner (sheaf-query) ─> exec/ ─┐                  ┌─ catalog/   the collections
//!                                           ├─ snapshots of ───┤
//!   insert, update, delete ─> write/ ───────┘   sheaf-storage  └─ index/     their index entries
//! ```
//!
//! Readers take a [`catalog::ReadView`]; writers take a [`write::unit::WriteUnitOfWork`]. Every
//! long operation carries an [`OpContext`] and checks it for interruption.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod catalog;
pub(crate) mod change;
pub mod change_stream;
mod clock;
mod cluster_time;
pub mod collection;
pub mod count;
pub mod counters;
mod damage;
pub mod database;
pub mod ddl;
pub mod distinct;
pub mod events;
pub mod exec;
pub mod explain;
pub mod find;
pub mod index;
pub mod modify;
pub mod op_context;
pub mod oplog;
pub mod planning;
mod reads;
pub mod record_key;
pub mod records;
pub mod result_source;
mod retryable;
pub mod session_row;
pub mod snapshot_history;
pub mod statement;
pub mod storage_error;
pub mod system_names;
pub mod tailable;
pub mod timeseries;
pub mod transaction_memory;
pub mod ttl;
pub mod txn;
pub mod usage;
pub mod validate;
pub mod write;

pub use catalog::namespace::check_database_name;
pub use catalog::options::CollectionOptions;
pub use catalog::uuid::Uuid;
pub use catalog::{Namespace, ReadView};
pub use collection::Collection;
pub use database::{Db, DbOptions};
pub use ddl::coll_mod::CollMod;
pub use ddl::indexes::IndexSelector;
pub use events::{DbEvent, Events};

pub use op_context::{OpContext, OperationProgress};
pub use planning::{PlanDigest, QueryOptions};
pub use result_source::ResultSource;
pub use statement::StatementContext;
pub use storage_error::is_write_conflict;
