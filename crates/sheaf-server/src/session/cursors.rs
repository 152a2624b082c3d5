//! Client cursors: results that did not fit the first batch.
//!
//! A getMore takes its cursor out of the table and puts it back afterwards, so no lock is held
//! while a plan runs. Killing a cursor in use marks it; it is then dropped instead of put back.
//!
//! ```text
//!   open ──> Idle ──check_out──> InUse ──check_in──> Idle ──suspend_idle──> Idle, suspended
//!             │ kill, timeout      │ kill: killed = true; check_in drops it
//!             └──> gone            └──> gone
//! ```
//!
//! An idle cursor is suspended: it keeps its position in its snapshot but pins no memory of the
//! engine. The next batch then costs a seek, so a cursor that is read batch after batch is not
//! suspended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sheaf_auth::{Action, Pattern, UserName};
use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, ErrorCode};
use sheaf_db::exec::Doc;
use sheaf_db::{Namespace, OpContext, ResultSource};

use crate::api_parameters::ApiParameters;
use crate::query_stats::Recording;

/// Number of shards of the cursor table, which reduce lock contention between connections.
const SHARDS: usize = 16;

/// A cursor and what getMore needs to know about the command that opened it.
pub struct ClientCursor {
    /// Produces the results.
    pub source: Box<dyn ResultSource>,
    /// The collection read (or `db.$cmd.listCollections` and the like).
    pub namespace: Namespace,
    /// The namespace getMore must name.
    pub reply_namespace: String,
    /// The command that opened it, for logs.
    pub originating_command: DocBuf,
    /// The session that opened it, if any; killed with it.
    pub lsid: Option<DocBuf>,
    /// The transaction that opened it, if any: its getMores must belong to the same one.
    pub txn_number: Option<i64>,
    /// The user who opened it; `None` without a login.
    pub owner: Option<UserName>,
    /// What the command that opened it required, for its getMores.
    pub requires: Vec<(Action, Pattern)>,
    /// The parameters of the Stable API of the command that opened it.
    pub api: ApiParameters,
    /// Never closed for being idle.
    pub no_timeout: bool,
    /// `maxTimeMS` of the command that opened it covers its getMores too.
    pub max_time_left: Option<Duration>,
    /// A document that did not fit the last batch.
    pub pending: Option<Doc>,
    /// When it was opened.
    pub created: DateTime,
    /// Records the query's work, if `$queryStats` counts it.
    pub query_stats: Option<Arc<Recording>>,
    /// Batches returned.
    pub batches: u64,
    /// Documents returned.
    pub n_returned: u64,
}

/// A cursor that waits for its next getMore.
pub struct IdleCursor {
    /// What it reads.
    pub namespace: String,
    /// The session that opened it.
    pub lsid: Option<DocBuf>,
    /// The user who opened it.
    pub owner: Option<UserName>,
    /// See [`ClientCursor::describe`].
    pub description: DocBuf,
}

impl ClientCursor {
    /// `cursor` of currentOp. `unused` is the time since the last use.
    pub fn describe(&self, id: i64, unused: Duration) -> DocBuf {
        let unused = i64::try_from(unused.as_millis()).unwrap_or(i64::MAX);
        let mut out = DocBuilder::new();
        out.append("cursorId", id);
        out.append("createdDate", self.created);
        out.append("lastAccessDate", DateTime(DateTime::now().0 - unused));
        out.append("nDocsReturned", self.n_returned as i64);
        out.append("nBatchesReturned", self.batches as i64);
        out.append("noCursorTimeout", self.no_timeout);
        out.append("tailable", self.source.is_tailable());
        out.append("awaitData", self.source.is_tailable());
        out.append_bson("originatingCommand", &self.originating_command);
        if let Some(summary) = self.source.plan().summary() {
            out.append("planSummary", summary.as_str());
        }
        out.finish()
    }
}

enum Slot {
    Idle {
        cursor: Box<ClientCursor>,
        since: Instant,
        suspended: bool,
    },
    InUse {
        namespace: Namespace,
        lsid: Option<DocBuf>,
        owner: Option<UserName>,
        op: Arc<OpContext>,
        killed: bool,
        reads_collection: bool,
    },
}

/// All client cursors of a server.
#[derive(Default)]
pub struct CursorTable {
    shards: [Mutex<HashMap<i64, Slot>>; SHARDS],
    counts: Mutex<CursorCounts>,
}

/// For `serverStatus.metrics.cursor`.
#[derive(Debug, Default, Clone, Copy)]
pub struct CursorCounts {
    /// Opened since the start.
    pub total_opened: u64,
    /// Closed for being idle.
    pub timed_out: u64,
}

/// A cursor that a getMore works on. It is closed if dropped without [`CheckedOut::check_in`].
pub struct CheckedOut<'t> {
    table: &'t CursorTable,
    id: i64,
    cursor: Option<Box<ClientCursor>>,
}

impl CursorTable {
    fn shard(&self, id: i64) -> &Mutex<HashMap<i64, Slot>> {
        &self.shards[(id as u64 as usize) % SHARDS]
    }

    /// Stores a cursor under a new id and returns the id.
    pub fn open(&self, cursor: ClientCursor) -> Result<i64, Error> {
        self.counts.lock().total_opened += 1;
        loop {
            let id = random_id()?;
            let mut shard = self.shard(id).lock();
            if let std::collections::hash_map::Entry::Vacant(slot) = shard.entry(id) {
                slot.insert(Slot::Idle {
                    cursor: Box::new(cursor),
                    since: Instant::now(),
                    suspended: false,
                });
                return Ok(id);
            }
        }
    }

    /// Takes a cursor out of the table for a getMore.
    /// Errors: `CursorNotFound`, `CursorInUse`, `Unauthorized` (another namespace).
    pub fn check_out(
        &self,
        id: i64,
        reply_namespace: &str,
        op: &Arc<OpContext>,
    ) -> Result<CheckedOut<'_>, Error> {
        let mut shard = self.shard(id).lock();
        let slot = match shard.get_mut(&id) {
            None | Some(Slot::InUse { killed: true, .. }) => return Err(not_found(id)),
            Some(Slot::InUse { .. }) => {
                return Err(Error::new(
                    ErrorCode::CURSOR_IN_USE,
                    format!("cursor id {id} is already in use"),
                ));
            }
            Some(slot) => slot,
        };
        if let Slot::Idle { cursor, .. } = slot
            && cursor.reply_namespace != reply_namespace
        {
            return Err(Error::new(
                ErrorCode::UNAUTHORIZED,
                format!(
                    "Requested getMore on namespace '{reply_namespace}', but cursor belongs to a \
                     different namespace {}",
                    cursor.reply_namespace
                ),
            ));
        }
        let (namespace, lsid, owner, reads_collection) = match slot {
            Slot::Idle { cursor, .. } => (
                cursor.namespace.clone(),
                cursor.lsid.clone(),
                cursor.owner.clone(),
                cursor.source.reads_collection(),
            ),
            Slot::InUse { .. } => return Err(not_found(id)),
        };
        let in_use = Slot::InUse {
            namespace,
            lsid,
            owner,
            op: op.clone(),
            killed: false,
            reads_collection,
        };
        match std::mem::replace(slot, in_use) {
            Slot::Idle { cursor, .. } => Ok(CheckedOut {
                table: self,
                id,
                cursor: Some(cursor),
            }),
            Slot::InUse { .. } => Err(not_found(id)),
        }
    }

    /// Closes a cursor; one in use is interrupted. False if no cursor has this id.
    pub fn kill(&self, id: i64) -> bool {
        // The cursor is dropped here, outside the lock: it may hold a snapshot and files.
        self.kill_and_take(id).is_some()
    }

    /// As [`CursorTable::kill`], but returns the closed cursor, to be dropped later. `None` if no
    /// cursor has this id; `Some(None)` if it is in use, in which case its user drops it.
    pub fn kill_and_take(&self, id: i64) -> Option<Option<Box<ClientCursor>>> {
        let mut shard = self.shard(id).lock();
        match shard.get_mut(&id)? {
            Slot::InUse { killed: true, .. } => None,
            Slot::InUse { killed, op, .. } => {
                *killed = true;
                op.kill(ErrorCode::CURSOR_KILLED);
                Some(None)
            }
            Slot::Idle { .. } => match shard.remove(&id) {
                Some(Slot::Idle { cursor, .. }) => Some(Some(cursor)),
                _ => None,
            },
        }
    }

    /// The user who opened a cursor; `None` if no cursor has this id.
    pub fn owner(&self, id: i64) -> Option<Option<UserName>> {
        match self.shard(id).lock().get(&id)? {
            Slot::Idle { cursor, .. } => Some(cursor.owner.clone()),
            Slot::InUse { owner, .. } => Some(owner.clone()),
        }
    }

    /// The namespace that getMore must name for this cursor.
    pub fn namespace(&self, id: i64) -> Option<Namespace> {
        match self.shard(id).lock().get(&id)? {
            Slot::Idle { cursor, .. } => Some(cursor.namespace.clone()),
            Slot::InUse { namespace, .. } => Some(namespace.clone()),
        }
    }

    /// Closes every cursor that satisfies `which(namespace, lsid)`; returns how many.
    pub fn kill_where(&self, which: impl Fn(&Namespace, Option<&DocBuf>) -> bool) -> usize {
        let mut count = 0;
        for id in self.ids(|slot| match slot {
            Slot::Idle { cursor, .. } => which(&cursor.namespace, cursor.lsid.as_ref()),
            Slot::InUse {
                namespace, lsid, ..
            } => which(namespace, lsid.as_ref()),
        }) {
            count += usize::from(self.kill(id));
        }
        count
    }

    /// Takes the plans of the cursors over the collections that satisfy `which`, since these no
    /// longer exist; a change stream stays open and reports that: the cursors stay until they are
    /// killed, and their next getMore fails with `QueryPlanKilled`.
    pub fn kill_plans(&self, why: &str, which: impl Fn(&Namespace) -> bool) {
        // Dropped outside the locks: plans may hold snapshots and files.
        let mut plans = Vec::new();
        for shard in &self.shards {
            for slot in shard.lock().values_mut() {
                match slot {
                    Slot::Idle { cursor, .. }
                        if cursor.source.reads_collection() && which(&cursor.namespace) =>
                    {
                        let killed = Box::new(KilledPlan(why.to_owned()));
                        plans.push(std::mem::replace(&mut cursor.source, killed));
                        cursor.pending = None;
                    }
                    Slot::InUse {
                        namespace,
                        op,
                        reads_collection: true,
                        ..
                    } if which(namespace) => {
                        op.kill(ErrorCode::QUERY_PLAN_KILLED);
                    }
                    Slot::Idle { .. } | Slot::InUse { .. } => {}
                }
            }
        }
    }

    /// Closes cursors idle for longer than `limit`; returns how many.
    pub fn expire(&self, limit: Duration) -> usize {
        let now = Instant::now();
        let expired = self.ids(|slot| match slot {
            Slot::Idle { cursor, since, .. } => {
                !cursor.no_timeout && now.saturating_duration_since(*since) > limit
            }
            Slot::InUse { .. } => false,
        });
        let count = expired.into_iter().filter(|id| self.kill(*id)).count();
        self.counts.lock().timed_out += count as u64;
        count
    }

    /// Suspends cursors that were idle for `limit`; returns how many were not suspended before.
    pub fn suspend_idle(&self, limit: Duration) -> usize {
        let now = Instant::now();
        let mut count = 0;
        for shard in &self.shards {
            // A concurrent getMore waits: per cursor, as long as copying a key takes.
            for slot in shard.lock().values_mut() {
                if let Slot::Idle {
                    cursor,
                    since,
                    suspended: suspended @ false,
                } = slot
                    && now.saturating_duration_since(*since) >= limit
                {
                    cursor.source.suspend();
                    *suspended = true;
                    count += 1;
                }
            }
        }
        count
    }

    fn ids(&self, which: impl Fn(&Slot) -> bool) -> Vec<i64> {
        self.shards
            .iter()
            .flat_map(|shard| {
                shard
                    .lock()
                    .iter()
                    .filter(|(_, slot)| which(slot))
                    .map(|(id, _)| *id)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Open cursors: (all, in use, without a timeout).
    pub fn open_counts(&self) -> (usize, usize, usize) {
        let (mut all, mut in_use, mut no_timeout) = (0, 0, 0);
        for shard in &self.shards {
            for slot in shard.lock().values() {
                all += 1;
                match slot {
                    Slot::InUse { .. } => in_use += 1,
                    Slot::Idle { cursor, .. } => no_timeout += usize::from(cursor.no_timeout),
                }
            }
        }
        (all, in_use, no_timeout)
    }

    /// The cursors not in use by a getMore, as `$currentOp` shows them.
    pub fn idle(&self) -> Vec<IdleCursor> {
        let mut idle = Vec::new();
        for shard in &self.shards {
            for (id, slot) in shard.lock().iter() {
                if let Slot::Idle { cursor, since, .. } = slot {
                    idle.push(IdleCursor {
                        namespace: cursor.reply_namespace.clone(),
                        lsid: cursor.lsid.clone(),
                        owner: cursor.owner.clone(),
                        description: cursor.describe(*id, since.elapsed()),
                    });
                }
            }
        }
        idle
    }

    /// Counts since the start.
    pub fn counts(&self) -> CursorCounts {
        *self.counts.lock()
    }
}

impl CheckedOut<'_> {
    /// The cursor.
    pub fn cursor(&mut self) -> Result<&mut ClientCursor, Error> {
        let id = self.id;
        self.cursor.as_deref_mut().ok_or_else(|| not_found(id))
    }

    /// Puts the cursor back for the next getMore. If it was killed meanwhile, closes and returns
    /// it.
    pub fn check_in(mut self) -> Option<Box<ClientCursor>> {
        let cursor = self.cursor.take()?;
        let mut shard = self.table.shard(self.id).lock();
        if let Some(slot @ Slot::InUse { killed: false, .. }) = shard.get_mut(&self.id) {
            *slot = Slot::Idle {
                cursor,
                since: Instant::now(),
                suspended: false,
            };
            None
        } else {
            shard.remove(&self.id);
            Some(cursor)
        }
    }

    /// Closes the cursor and returns it, to be dropped later.
    pub fn close(mut self) -> Option<Box<ClientCursor>> {
        let cursor = self.cursor.take()?;
        self.table.shard(self.id).lock().remove(&self.id);
        Some(cursor)
    }
}

impl Drop for CheckedOut<'_> {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.table.shard(self.id).lock().remove(&self.id);
            drop(cursor);
        }
    }
}

/// The plan of a cursor over a collection that is gone.
struct KilledPlan(String);

impl ResultSource for KilledPlan {
    fn next(&mut self, _: &OpContext) -> Result<Option<Doc>, Error> {
        Err(Error::new(ErrorCode::QUERY_PLAN_KILLED, self.0.as_str()))
    }

    fn is_exhausted(&self) -> bool {
        false
    }
}

/// The error for an id that no cursor has.
pub fn not_found(id: i64) -> Error {
    Error::new(
        ErrorCode::CURSOR_NOT_FOUND,
        format!("cursor id {id} not found"),
    )
}

/// A positive number that cannot be guessed.
fn random_id() -> Result<i64, Error> {
    loop {
        let bits = getrandom::u64().map_err(|e| {
            Error::new(
                ErrorCode::INTERNAL_ERROR,
                format!("the operating system provides no random bytes: {e}"),
            )
        })?;
        let id = (bits >> 1) as i64;
        if id != 0 {
            return Ok(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sheaf_db::exec::Doc;

    use super::*;

    /// Counts calls of `suspend`.
    struct Source(Arc<AtomicUsize>);

    impl ResultSource for Source {
        fn next(&mut self, _: &OpContext) -> Result<Option<Doc>, Error> {
            Ok(None)
        }

        fn is_exhausted(&self) -> bool {
            false
        }

        fn suspend(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn open(table: &CursorTable, suspensions: &Arc<AtomicUsize>) -> i64 {
        let opened = table.open(ClientCursor {
            source: Box::new(Source(suspensions.clone())),
            namespace: Namespace::new("test", "c").unwrap(),
            reply_namespace: "test.c".into(),
            originating_command: DocBuf::new(),
            lsid: None,
            owner: None,
            requires: Vec::new(),
            api: ApiParameters::default(),
            txn_number: None,
            no_timeout: false,
            max_time_left: None,
            pending: None,
            created: DateTime::now(),
            query_stats: None,
            batches: 1,
            n_returned: 0,
        });
        opened.unwrap()
    }

    #[test]
    fn a_cursor_is_suspended_once_until_it_is_used() {
        let (table, suspensions) = (CursorTable::default(), Arc::<AtomicUsize>::default());
        let ids = [(); 3].map(|()| open(&table, &suspensions));
        assert_eq!(table.suspend_idle(Duration::from_secs(3600)), 0);
        assert_eq!(table.suspend_idle(Duration::ZERO), 3);
        assert_eq!(table.suspend_idle(Duration::ZERO), 0);
        let op = Arc::new(OpContext::new());
        let used = table.check_out(ids[1], "test.c", &op).unwrap();
        assert_eq!(table.suspend_idle(Duration::ZERO), 0, "one is in use");
        used.check_in();
        assert_eq!(table.suspend_idle(Duration::ZERO), 1);
        assert_eq!(suspensions.load(Ordering::Relaxed), 4);
    }
}
