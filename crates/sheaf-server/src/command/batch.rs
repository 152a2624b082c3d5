//! Fills one batch of a cursor's reply and keeps the cursor if results remain.

use std::time::Duration;

use sheaf_auth::{Pattern, UserName};
use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error};
use sheaf_db::exec::Doc;
use sheaf_db::{Namespace, OpContext, ResultSource};

use super::context::CommandContext;
use crate::access::caller;
use crate::command_facts::{Action, Asked};
use crate::observe;
use crate::session::cursors::ClientCursor;

/// The collection that cursors name which read none.
pub const LISTING: &str = "system.listing";

/// Documents in a first batch if the client gives no `batchSize`.
pub const FIRST_BATCH_DEFAULT: u64 = 101;

/// A batch ends before the document that would make it larger than this.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How a batch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Documents in the batch.
    pub count: u64,
    /// No results remain.
    pub exhausted: bool,
}

/// Appends documents to the array begun in `out` until the batch is full or the source has no
/// further document. The first document is added whatever its size.
pub fn fill(
    source: &mut dyn ResultSource,
    pending: &mut Option<Doc>,
    op: &OpContext,
    batch_size: Option<u64>,
    out: &mut DocBuilder,
) -> Result<Batch, Error> {
    let start = out.current_len();
    let mut count = 0;
    while batch_size.is_none_or(|max| count < max) {
        let doc = match pending.take() {
            Some(doc) => doc,
            None => match source.next(op)? {
                Some(doc) => doc,
                None => {
                    return Ok(Batch {
                        count,
                        exhausted: !source.is_tailable() || source.is_exhausted(),
                    });
                }
            },
        };
        if count > 0 && out.current_len() - start + doc.len() > BATCH_BYTES_MAX {
            *pending = Some(doc);
            break;
        }
        out.push_document_bytes(doc.as_bytes());
        count += 1;
    }
    Ok(Batch {
        count,
        exhausted: pending.is_none() && source.is_exhausted(),
    })
}

/// How a command opens its cursor.
pub struct CursorSettings {
    /// The namespace that the cursor reads.
    pub namespace: Namespace,
    /// The name of the namespace in the reply.
    pub reply_namespace: String,
    /// `batchSize`.
    pub batch_size: Option<u64>,
    /// Close the cursor after the first batch.
    pub single_batch: bool,
    /// Never close the cursor because it is idle.
    pub no_timeout: bool,
}

/// Appends `cursor: {firstBatch, id, ns}` and keeps the source open if results remain.
pub fn reply_with_cursor(
    cx: &mut CommandContext<'_>,
    mut source: Box<dyn ResultSource>,
    settings: CursorSettings,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let mut pending = None;
    out.begin_document("cursor");
    out.begin_array("firstBatch");
    let batch_size = settings.batch_size.unwrap_or(FIRST_BATCH_DEFAULT);
    let op = cx.op.clone();
    let filled = fill(&mut *source, &mut pending, &op, Some(batch_size), out);
    source.batch_ended();
    account(cx, &*source, sheaf_db::exec::WorkCounts::default());
    let batch = match filled {
        Ok(batch) => batch,
        Err(error) => {
            cx.connection.deferred_drops.keep(source);
            return Err(error);
        }
    };
    out.end();
    cx.report.n_returned = Some(batch.count);
    let exhausted = batch.exhausted || settings.single_batch;
    let resume_token = source.post_batch_resume_token();
    let id = if exhausted {
        cx.connection.deferred_drops.keep(source);
        0
    } else {
        cx.server.cursors.open(ClientCursor {
            source,
            namespace: settings.namespace,
            reply_namespace: settings.reply_namespace.clone(),
            originating_command: originating_command(cx),
            lsid: cx.generic.lsid.map(|lsid| lsid.to_buf()),
            owner: owner(cx),
            requires: requires(cx),
            api: cx.generic.api,
            txn_number: cx.transaction.map(|transaction| transaction.number),
            no_timeout: settings.no_timeout,
            max_time_left: time_left(cx),
            pending,
            created: DateTime::now(),
            query_stats: cx.report.query_stats.clone(),
            batches: 1,
            n_returned: batch.count,
        })?
    };
    cx.report.cursor_id = (id != 0).then_some(id);
    cx.report.cursor_exhausted = exhausted;
    append_resume_token(resume_token.as_ref(), out);
    out.append("id", id);
    out.append("ns", settings.reply_namespace.as_str());
    if let Some(time) = cx.snapshot_time.get() {
        out.append("atClusterTime", time);
    }
    out.end();
    Ok(())
}

fn owner(cx: &CommandContext<'_>) -> Option<UserName> {
    let user = cx.connection.authentication.user.as_ref();
    user.map(|user| user.name.clone())
}

/// What the command required, with access control.
fn requires(cx: &CommandContext<'_>) -> Vec<(Action, Pattern)> {
    let user = cx.connection.authentication.user.as_ref();
    let Some(user) = user.filter(|_| cx.server.settings.authorization) else {
        return Vec::new();
    };
    let asked = Asked {
        db: cx.db,
        body: cx.body,
        sequences: &cx.sequences,
        caller: Some(caller(user)),
    };
    let required = cx.command.privileges.required(&asked).into_iter();
    required
        .map(|(action, on)| (action, Pattern::of(on)))
        .collect()
}

/// Appends `postBatchResumeToken`, from which a change stream can be resumed.
pub fn append_resume_token(token: Option<&DocBuf>, out: &mut DocBuilder) {
    if let Some(token) = token {
        out.append_bson("postBatchResumeToken", token);
    }
}

/// Adds the work of the source since `before` to the operation's counters and records its plan
/// for the log.
pub fn account(
    cx: &mut CommandContext<'_>,
    source: &dyn ResultSource,
    before: sheaf_db::exec::WorkCounts,
) {
    let counts = source.counts();
    let counters = cx.op.counters();
    counters
        .keys_examined
        .add(counts.keys_examined - before.keys_examined);
    counters
        .docs_examined
        .add(counts.docs_examined - before.docs_examined);
    cx.report.plan = source.plan();
    if cx.server.profiler.is_on(cx.db) {
        cx.report.exec_stats = source.exec_stats();
    }
}

fn originating_command(cx: &CommandContext<'_>) -> DocBuf {
    const SHOWN_BYTES_MAX: usize = 16 * 1024;
    observe::shown(
        cx.body,
        cx.command.sensitive,
        cx.op.comment(),
        SHOWN_BYTES_MAX,
    )
}

fn time_left(cx: &CommandContext<'_>) -> Option<Duration> {
    cx.generic.max_time?;
    cx.op.remaining()
}

/// A source of documents that are all in memory, for listings.
pub struct Listing(std::vec::IntoIter<DocBuf>);

impl Listing {
    /// Returns `docs` in order.
    pub fn of(docs: Vec<DocBuf>) -> Box<dyn ResultSource> {
        Box::new(Listing(docs.into_iter()))
    }
}

impl ResultSource for Listing {
    fn next(&mut self, _: &OpContext) -> Result<Option<Doc>, Error> {
        Ok(self.0.next().map(|doc| Doc::Owned(doc.into_vec())))
    }

    fn is_exhausted(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

/// The namespace of a collectionless cursor: `db.$cmd.<command>`.
pub fn command_namespace(db: &str, command: &str) -> String {
    format!("{db}.$cmd.{command}")
}
