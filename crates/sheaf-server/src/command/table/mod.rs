//! The command table.

mod access;
mod administration;
mod collections;
mod connections;
mod diagnostics;
mod documents;
mod replication;
mod server;

use sheaf_bson::{DocBuilder, Error};

use super::context::CommandContext;
use crate::command_facts::Command;

/// Runs a command and appends to the reply; the dispatcher appends `ok: 1` afterwards.
pub type Run = fn(&mut CommandContext<'_>, &mut DocBuilder) -> Result<(), Error>;

/// One row of the table.
pub struct Row {
    /// The facts about the command.
    pub command: Command,
    /// Its handler.
    pub run: Run,
}

/// Every command, with the titles under which the manual shows them.
pub static GROUPS: &[(&str, &[Row])] = &[
    ("Documents", documents::DOCUMENTS),
    ("Collections and indexes", collections::COLLECTIONS),
    ("The server", server::SERVER),
    ("Administration", administration::ADMINISTRATION),
    ("Diagnostics", diagnostics::DIAGNOSTICS),
    ("Users and roles", access::ACCESS),
    ("Connections and sessions", connections::CONNECTIONS),
    ("Members of a replica set", replication::REPLICATION),
];

/// Every row, in the order of [`GROUPS`].
pub fn rows() -> impl Iterator<Item = &'static Row> {
    GROUPS.iter().flat_map(|(_, rows)| rows.iter())
}
