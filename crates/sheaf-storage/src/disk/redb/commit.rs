//! Group commit: batches that wait at the same time are written in one redb transaction.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redb::{Table, WriteTransaction};

use super::backend::SpaceProbe;
use super::errors::{
    begin_error, commit_error, internal_failure, open_error, other_error, storage_error,
};
use super::file::{save_sizes, table_name, table_of};
use super::group::{Leader, Ticket};
use super::{LENGTH_MAX, Shared};
use crate::batch::{KeyWrite, TableFate, TableWrites, WriteBatch};
use crate::engine::{CommitSeq, Durability, TableId, TableStats};
use crate::error::{Result, StorageError};

/// Maximum delay of a sync so that other requests join it, and maximum wait for the next request.
const PUT_OFF_MAX: Duration = Duration::from_millis(2);
const RETURN_MAX: Duration = Duration::from_micros(60);

pub(super) struct Request {
    batch: WriteBatch,
    durability: Durability,
}

pub(super) type Answer = Result<CommitSeq>;

impl Shared {
    pub(super) fn submit(&self, batch: WriteBatch, durability: Durability) -> Result<CommitSeq> {
        let request = Request { batch, durability };
        let answer = self.group.submit(request, |leader| self.lead(leader));
        answer.unwrap_or_else(|| Err(internal_failure("commit")))
    }

    /// Serves the waiting requests, until a commit has answered all of them.
    ///
    /// ```text
    ///   only buffered            commit            all are answered
    ///   only synced              commit and sync   all are answered
    ///   both                     commit            the buffered are answered, and shortly after ...
    ///                            commit and sync   together with those that have arrived meanwhile
    /// ```
    ///
    /// A unit of work that others wait for applies buffered, releases its locks, and syncs. If it
    /// had to wait for a sync that others have requested, each holder of a hot record would hold it
    /// for a whole sync. Buffered batches therefore go first, and the sync is delayed, for no
    /// longer than one takes, while more requests arrive: those of the units that were just
    /// answered, and of those that waited for their locks.
    fn lead(&self, leader: &Leader<'_, Request, Answer>) {
        let mut due = Vec::new();
        let mut put_off = None;
        // Requests were waiting when the last sync ended: more are likely to come.
        let mut company = self.company.load(Ordering::Relaxed);
        loop {
            let tickets = leader.take();
            let is_buffered = |ticket: &Ticket<Request, Answer>| {
                ticket.request.durability == Durability::Buffered
            };
            let buffered = tickets.iter().filter(|ticket| is_buffered(ticket)).count();
            if due.is_empty() && buffered == tickets.len() {
                self.write_group(tickets, Vec::new(), false);
                return;
            }
            let until = *put_off.get_or_insert_with(|| {
                let last = Duration::from_nanos(self.sync_nanos.load(Ordering::Relaxed));
                Instant::now() + last.min(PUT_OFF_MAX)
            });
            let left = until.saturating_duration_since(Instant::now());
            let writes = tickets
                .iter()
                .any(|ticket| !ticket.request.batch.is_empty());
            if left.is_zero() || (buffered == 0 && (writes || !company)) {
                self.write_group(tickets, due, true);
                let waiting = leader.waiting() > 0;
                self.company.store(waiting, Ordering::Relaxed);
                return;
            }
            due.extend(self.write_group(tickets, Vec::new(), false));
            leader.wait_for(1 + buffered, left.min(RETURN_MAX));
            company = false;
        }
    }

    /// Commits the tickets' batches in one transaction, durably if `sync`, and answers them and
    /// those that were `due` a sync. Without `sync`, returns the tickets that still need one.
    fn write_group(
        &self,
        tickets: Vec<Ticket<Request, Answer>>,
        due: Vec<(Ticket<Request, Answer>, CommitSeq)>,
        sync: bool,
    ) -> Vec<(Ticket<Request, Answer>, CommitSeq)> {
        let mut answers = vec![None; tickets.len()];
        let outcome = {
            let requests: Vec<&Request> = tickets.iter().map(|ticket| &ticket.request).collect();
            self.write_requests(&requests, &mut answers, sync)
        };
        for (ticket, seq) in due {
            ticket.answer(outcome.clone().map(|()| seq));
        }
        let mut still_due = Vec::new();
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            let answer = match (answer, &outcome) {
                (Some(answer), _) => answer,
                (None, Err(error)) => Err(error.clone()),
                (None, Ok(())) => Err(internal_failure("commit")),
            };
            match answer {
                Ok(seq) if !sync && ticket.request.durability == Durability::Synced => {
                    still_due.push((ticket, seq));
                }
                answer => ticket.answer(answer),
            }
        }
        still_due
    }

    /// Answers every request, or returns an error for those that it has not answered. A rejected
    /// request is answered individually, the others together by the commit.
    fn write_requests(
        &self,
        requests: &[&Request],
        answers: &mut [Option<Answer>],
        sync: bool,
    ) -> Result<()> {
        self.as_writer(|db| {
            let space_left = self.space_left(requests);
            let plan = {
                let sizes = self.sizes.read();
                Plan::make(&sizes.tables, requests, answers, space_left)
            };
            let applied = self.applied.load(Ordering::Acquire);
            let seq = applied + plan.accepted.len() as u64;
            debug_assert!(self.durable.load(Ordering::Acquire) <= applied);
            debug_assert!(
                self.begun.load(Ordering::Acquire) == applied,
                "one writer at a time"
            );
            let unsynced = self.durable.load(Ordering::Acquire) < applied;
            if !plan.accepted.is_empty() || (sync && unsynced) {
                // Set before the batch is visible: a caller that has seen the batch and requests a
                // sync must get one.
                self.begun.store(seq, Ordering::Release);
                let mut txn = db.begin_write().map_err(begin_error)?;
                if !sync {
                    txn.set_durability(redb::Durability::None)
                        .map_err(|error| other_error("begin a transaction", &error))?;
                }
                let start = Instant::now();
                self.write_and_commit(txn, &plan, sync)?;
                if sync {
                    let nanos = start.elapsed().as_nanos() as u64;
                    self.sync_nanos.store(nanos, Ordering::Relaxed);
                }
            }
            for (index, seq) in plan.accepted.iter().zip(applied + 1..) {
                answers[*index] = Some(Ok(CommitSeq(seq)));
            }
            for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
                *answer = Some(Ok(CommitSeq(seq)));
            }
            self.applied.store(seq, Ordering::Release);
            if sync {
                self.durable.store(seq, Ordering::Release);
            }
            self.count(requests, &plan);
            Ok(())
        })?;
        self.wake_flusher(sync);
        Ok(())
    }

    fn count(&self, requests: &[&Request], plan: &Plan<'_>) {
        if plan.accepted.is_empty() {
            return;
        }
        let mut counters = self.counters.lock();
        counters.groups += 1;
        counters.commits += plan.accepted.len() as u64;
        counters.group_max = counters.group_max.max(plan.accepted.len() as u64);
        for index in &plan.accepted {
            counters.operations += requests[*index].batch.operations();
            counters.bytes_logged += requests[*index].batch.bytes();
        }
    }

    /// Whether the disk has enough space for the puts of the requests.
    fn space_left(&self, requests: &[&Request]) -> bool {
        let bytes = requests.iter().map(|request| request.batch.bytes()).sum();
        // Copied pages and the tree above them: a few times the size of the batches.
        self.has_room(bytes, 4)
    }

    /// Whether the disk has space for `bytes * times` in addition to the reserve.
    pub(super) fn has_room(&self, bytes: u64, times: u64) -> bool {
        let wanted = bytes
            .saturating_mul(times)
            .saturating_add(self.reserve_bytes);
        match self.space.as_ref().and_then(SpaceProbe::available) {
            Some(available) => available >= wanted,
            None => true,
        }
    }

    /// Executes the plan in the transaction, commits it, and makes it visible.
    pub(super) fn write_and_commit(
        &self,
        txn: WriteTransaction,
        plan: &Plan<'_>,
        sync: bool,
    ) -> Result<()> {
        let mut written = Vec::new();
        for (table, writes) in &plan.tables {
            let before = self.sizes.read().tables.get(table).copied();
            written.push((*table, write_table(&txn, *table, writes, before)?));
        }
        if sync {
            let mut unsaved = BTreeMap::new();
            {
                let sizes = self.sizes.read();
                for table in &sizes.unsaved {
                    unsaved.insert(*table, sizes.tables.get(table).copied());
                }
            }
            unsaved.extend(written.iter().copied());
            save_sizes(&txn, &unsaved)?;
        }
        txn.commit().map_err(commit_error)?;
        let mut sizes = self.sizes.write();
        for (table, stats) in written {
            match stats {
                Some(stats) => sizes.tables.insert(table, stats),
                None => sizes.tables.remove(&table),
            };
            sizes.unsaved.insert(table);
        }
        if sync {
            sizes.unsaved.clear();
        }
        drop(sizes);
        *self.newest.lock() = None;
        Ok(())
    }
}

/// The accepted batches of a group, sorted by table.
#[derive(Default)]
pub(super) struct Plan<'a> {
    accepted: Vec<usize>,
    tables: BTreeMap<TableId, Vec<&'a TableWrites>>,
}

impl<'a> Plan<'a> {
    /// Checks the batches one after the other, each against the state after the preceding ones, and
    /// answers the rejected ones.
    fn make(
        tables: &HashMap<TableId, TableStats>,
        requests: &[&'a Request],
        answers: &mut [Option<Answer>],
        space_left: bool,
    ) -> Plan<'a> {
        let mut plan = Plan::default();
        let mut exists: BTreeMap<TableId, bool> = BTreeMap::new();
        for (index, Request { batch, .. }) in requests.iter().copied().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let checked = batch.check(&mut |table| match exists.get(&table) {
                Some(exists) => *exists,
                None => tables.contains_key(&table),
            });
            let refused = match checked {
                Err(error) => Some(error),
                Ok(()) if longest(batch) > LENGTH_MAX => Some(StorageError::TooLarge {
                    bytes: longest(batch),
                    limit: LENGTH_MAX,
                }),
                Ok(()) if !space_left && batch.puts() > 0 => Some(StorageError::NoSpace {
                    context: "the free disk space has reached the reserve".into(),
                }),
                Ok(()) => None,
            };
            if let Some(error) = refused {
                answers[index] = Some(Err(error));
                continue;
            }
            for (table, writes) in batch.tables() {
                exists.insert(table, writes.fate().exists_after());
                plan.tables.entry(table).or_default().push(writes);
            }
            plan.accepted.push(index);
        }
        plan
    }
}

/// The length of the longest key or value of a batch, in bytes.
fn longest(batch: &WriteBatch) -> u64 {
    if batch.bytes() <= LENGTH_MAX {
        return batch.bytes();
    }
    let lengths = batch.tables().flat_map(|(_, writes)| writes.keys());
    let lengths = lengths.map(|(key, change)| match &change.write {
        KeyWrite::Put(value) => key.len().max(value.len()),
        KeyWrite::Delete => key.len(),
    });
    lengths.max().unwrap_or(0) as u64
}

/// Applies the writes of several batches to one table, in order. Returns the table's size
/// afterwards, `None` if it is dropped.
fn write_table(
    txn: &WriteTransaction,
    table: TableId,
    writes: &[&TableWrites],
    mut stats: Option<TableStats>,
) -> Result<Option<TableStats>> {
    let name = table_name(table);
    let mut rows: Option<Table<'_, &[u8], &[u8]>> = None;
    for writes in writes {
        if matches!(writes.fate(), TableFate::Dropped | TableFate::Replaced) {
            rows = None;
            stats = None;
            txn.delete_table(table_of(&name))
                .map_err(|error| open_error("drop a table", error))?;
        }
        if !writes.fate().exists_after() {
            continue;
        }
        let rows = match &mut rows {
            Some(rows) => rows,
            none => none.insert(
                txn.open_table(table_of(&name))
                    .map_err(|error| open_error("open a table", error))?,
            ),
        };
        let stats = stats.get_or_insert_default();
        for (lo, hi) in writes.ranges().iter() {
            let upper = hi.map_or(Bound::Unbounded, |hi| Bound::Excluded(&hi[..]));
            rows.retain_in::<&[u8], _>((Bound::Included(&lo[..]), upper), |key, value| {
                stats.entries -= 1;
                stats.key_bytes -= key.len() as u64;
                stats.value_bytes -= value.len() as u64;
                false
            })
            .map_err(|error| storage_error("delete a range", error))?;
        }
        for (key, change) in writes.keys() {
            let (before, after) = match &change.write {
                KeyWrite::Put(value) => (rows.insert(&key[..], &value[..]), Some(value.len())),
                KeyWrite::Delete => (rows.remove(&key[..]), None),
            };
            let before = before.map_err(|error| storage_error("write", error))?;
            if let Some(before) = before {
                stats.entries -= 1;
                stats.key_bytes -= key.len() as u64;
                stats.value_bytes -= before.value().len() as u64;
            }
            if let Some(after) = after {
                stats.entries += 1;
                stats.key_bytes += key.len() as u64;
                stats.value_bytes += after as u64;
            }
        }
    }
    Ok(stats)
}
