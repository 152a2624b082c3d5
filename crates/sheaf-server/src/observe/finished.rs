//! A finished command, to be counted, logged and profiled.

use std::sync::Arc;
use std::time::Duration;

use sheaf_bson::{Error, RawDoc};
use sheaf_db::{Db, OpContext};

use crate::command_facts::Command;
use crate::op_report::OpReport;
use crate::session::operations::OperationSlot;

/// A finished command.
pub struct Finished<'a> {
    /// The database that it ran on.
    pub database: &'a Arc<Db>,
    /// The connection that it came from.
    pub slot: &'a OperationSlot,
    /// The command's row in the table.
    pub command: &'static Command,
    /// `$db`.
    pub db: &'a str,
    /// The command document.
    pub body: RawDoc<'a>,
    /// Its counters.
    pub op: &'a OpContext,
    /// What its handler reports.
    pub report: &'a OpReport,
    /// The error, if it failed.
    pub error: Option<&'a Error>,
    /// How long it took.
    pub elapsed: Duration,
    /// Bytes of the reply.
    pub reply_len: usize,
}
