//! The commands of the server and how a request is dispatched to its handler.
//!
//! ```text
//!   Request ──> rows[name] ──> generic arguments ──> run ──> {.., ok: 1}
//!                    │                                    │
//!                    └─ no such command (59)              └─ Err ──> {ok: 0, errmsg, code, codeName}
//! ```
//!
//! One table holds every fact about a command ([`crate::command_facts`]): dispatch, counters,
//! privileges, `listCommands`, COMPAT.md and docs/manual/commands.md read it.
//! A handler is thin: it parses a typed request, calls `sheaf-db` and builds the reply.
//! A handler's file is named after its command.

pub mod access;
mod aggregate;
mod api_version;
mod apply_ops;
mod auto_compact;
mod batch;
pub mod build_info;
mod bulk_write;
mod clone_collection_as_capped;
mod cluster_parameter;
pub mod cluster_time;
mod coll_mod;
mod coll_stats;
mod compact;
mod compact_structured_encryption_data;
mod conn_pool_stats;

pub mod context;
mod convert_to_capped;
mod count;
mod create;
mod create_backup;
mod create_indexes;
mod current_op;
mod data_size;
mod db_hash;
mod db_stats;
mod delete;
mod dispatch;
mod distinct;
mod drop;
mod drop_connections;
mod drop_database;
mod drop_indexes;
mod explain;
mod failing;
pub mod fields;
mod filemd5;
mod find;
mod find_and_modify;
mod fsync;
mod generic_arguments;
mod get_cmd_line_opts;
mod get_diagnostic_data;
mod get_log;
mod get_more;
mod get_parameter;
pub mod hello;
mod host_info;
mod insert;
mod kill_cursors;
mod kill_op;
mod list_collections;
mod list_commands;
mod list_databases;
mod list_indexes;
mod lock_info;
mod log_rotate;
mod map_reduce;
mod ping;
mod plan_cache_clear;
mod plan_cache_filters;
mod privileges;
mod profile;
mod query_settings;
mod re_index;
pub mod read_concern;
mod rename_collection;
mod repl_set;
mod repl_set_member;
mod request;
mod retry;
mod rotate_certificates;
pub mod rw_concern;
mod search_indexes;
mod server_status;
mod server_status_sections;
mod sessions;
mod set_feature_compatibility_version;
mod set_parameter;
mod set_user_write_block_mode;
mod shutdown;
pub(crate) mod stage_facts;
mod table;
mod top;
mod transaction;
mod update;
mod validate;
mod validate_db_metadata;
mod whatsmyuri;
mod write_admission;
mod write_reply;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use crate::command_facts::{Command, Compat, Kind};
pub use dispatch::dispatch;
pub use request::Request;
pub use table::{GROUPS, Row, Run, rows};

static BY_NAME: LazyLock<HashMap<&'static str, &'static Row>> = LazyLock::new(|| {
    rows()
        .flat_map(|row| {
            std::iter::once(row.command.name)
                .chain(row.command.aliases.iter().copied())
                .map(move |name| (name, row))
        })
        .collect()
});

/// The row of the command with this name or alias.
pub fn find(name: &str) -> Option<&'static Row> {
    BY_NAME.get(name).copied()
}

/// Whether a command's request and reply may be compressed. False for an unknown name.
pub fn is_compressible(name: &str) -> bool {
    find(name).is_some_and(|row| row.command.compressible)
}
