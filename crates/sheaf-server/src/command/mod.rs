//! Every command the server speaks, and how one is carried out.
//!
//! ```text
//!   Request ──> COMMANDS[name] ──> generic arguments ──> run ──> {.., ok: 1}
//!                    │                                    │
//!                    └─ no such command (59)              └─ Err ──> {ok: 0, errmsg, code, codeName}
//! ```
//!
//! One table is all there is: dispatch, `listCommands` and COMPAT.md read it.
//! A handler is thin: it parses a typed request, calls `sheaf-db`, shapes the
//! reply. A handler's file is the command's name.

mod aggregate;
mod apply_ops;
mod batch;
pub mod build_info;
mod bulk_write;
mod clone_collection_as_capped;
pub mod cluster_time;
mod coll_mod;
mod coll_stats;
mod compact;
mod conn_pool_stats;
mod connection_status;
pub mod context;
mod convert_to_capped;
mod count;
mod create;
mod create_backup;
mod create_indexes;
mod current_op;
mod db_hash;
mod db_stats;
mod delete;
mod dispatch;
mod distinct;
mod drop;
mod drop_database;
mod drop_indexes;
mod explain;
pub mod fields;
mod find;
mod find_and_modify;
mod fsync;
mod get_cmd_line_opts;
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
mod log_rotate;
mod logout;
mod ping;
mod plan_cache_clear;
mod plan_cache_filters;
mod profile;
mod rename_collection;
mod repl_set;
mod request;
mod retry;
pub mod rw_concern;
mod search_indexes;
mod server_status;
mod sessions;
mod set_parameter;
mod shutdown;
mod table;
mod top;
mod transaction;
mod update;
mod validate;
mod views;
mod whatsmyuri;
mod write_reply;

use std::collections::HashMap;
use std::sync::LazyLock;

use sheaf_bson::{DocBuf, DocBuilder, Error};

use self::context::CommandContext;

/// What a command is for; groups `listCommands`, COMPAT.md and the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads documents.
    Read,
    /// Changes documents.
    Write,
    /// Changes collections, indexes, databases or the server.
    Admin,
    /// Tells about the server.
    Diagnostic,
    /// Part of connecting.
    Handshake,
    /// Logical sessions.
    Session,
}

/// How close to MongoDB a command is, for COMPAT.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// As the manual says.
    Same,
    /// What differs, in one sentence.
    Differs(&'static str),
}

/// One row of the table.
pub struct Command {
    /// As MongoDB spells it.
    pub name: &'static str,
    /// Other spellings that are accepted.
    pub aliases: &'static [&'static str],
    /// What it is for.
    pub kind: Kind,
    /// Only against the `admin` database.
    pub admin_only: bool,
    /// One line for `listCommands`.
    pub help: &'static str,
    /// For COMPAT.md.
    pub compat: Compat,
    /// Carries it out, appending to the reply; `ok: 1` comes after it.
    pub run: fn(&mut CommandContext<'_>, &mut DocBuilder) -> Result<(), Error>,
}

impl Command {
    /// Whether what it changes is in the catalog, and waits for a write concern as documents do.
    fn changes_catalog(&self) -> bool {
        matches!(
            self.name,
            "create"
                | "convertToCapped"
                | "cloneCollectionAsCapped"
                | "drop"
                | "dropDatabase"
                | "renameCollection"
                | "collMod"
                | "applyOps"
                | "createIndexes"
                | "dropIndexes"
                | "createSearchIndexes"
                | "updateSearchIndex"
                | "dropSearchIndex"
        )
    }
}

pub use dispatch::dispatch;
pub use request::Request;
pub use table::COMMANDS;

static BY_NAME: LazyLock<HashMap<&'static str, &'static Command>> = LazyLock::new(|| {
    COMMANDS
        .iter()
        .flat_map(|command| {
            std::iter::once(command.name)
                .chain(command.aliases.iter().copied())
                .map(move |name| (name, command))
        })
        .collect()
});

/// The row of a name or alias.
pub fn find(name: &str) -> Option<&'static Command> {
    BY_NAME.get(name).copied()
}

/// The document of `listCommands` for one row.
pub fn describe(command: &Command) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("help", command.help);
    out.append("requiresAuth", false);
    out.append("secondaryOk", command.kind != Kind::Write);
    out.append("adminOnly", command.admin_only);
    out.append("apiVersions", sheaf_bson::ArrayBuf::new().as_raw());
    out.append(
        "deprecatedApiVersions",
        sheaf_bson::ArrayBuf::new().as_raw(),
    );
    out.finish()
}
