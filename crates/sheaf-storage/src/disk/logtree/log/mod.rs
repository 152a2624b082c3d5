//! The write-ahead log: batches in the order of their sequences, on disk before they are
//! acknowledged as durable.
//!
//! ```text
//!   append ──> head (a lock)          buffer ──> write ──> sync
//!              sequence, offset,        │          one at a time; concurrent callers share a sync
//!              bytes into the buffer    └ every flush interval, when it is long, or for a Synced commit
//!
//!   log.0000000006   log.0000000007   log.spare.2
//!   [r r r r r r r]  [r r r  0 0 0 ]  [to become 8]
//!    └ retired once the tree holds it
//! ```
//!
//! A record's offset is fixed when it is appended, and only offsets that already have blocks on
//! disk are assigned. On a full disk a batch is therefore rejected before it has a sequence, which
//! is not a failure of the log. A write or sync that fails nevertheless is final: nothing is
//! appended from then on.
//!
//! Invariants:
//!
//! - Sequences have no gaps. A segment's first sequence follows the last of the one before it.
//! - Nothing is written to a segment before the previous one is synced: only the last may have a
//!   torn end.
//! - Opening the log begins a new segment. No record overwrites a torn end that an earlier process
//!   may have left. A note after the last whole record marks that the log continues in the new
//!   segment.

mod delta;
mod record;
mod replay;
mod segment;

use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

pub(super) use self::delta::KeptDelta;
pub(super) use self::record::{BATCH_MAX, Encoded, KeyDelta};
use self::record::{HEADER, Header};
pub use self::replay::TornTail;
pub(super) use self::replay::{Record, Replay, baseless};
use self::segment::{RECORDS, Spare};
use super::budget::{Charge, MemoryBudget, MemoryKind};
use crate::error::{Result, StorageError};
use crate::folder::{File, Folder};

/// Records at least this long are written from their own memory instead of being copied into the
/// buffer.
pub(super) const LARGE: usize = 64 << 10;
/// Largest buffer, in bytes, whose memory is kept for reuse.
const KEPT_MAX: usize = 8 << 20;
/// Maximum number of files that wait to become segments.
const SPARES_MAX: usize = 4;

#[derive(Clone)]
pub(super) struct LogOptions {
    /// Length of a segment in bytes.
    pub(super) segment_bytes: u64,
    /// Number of pending bytes from which the buffer is written without a request.
    pub(super) buffer_bytes: usize,
    /// The budget that the buffers are charged to.
    pub(super) budget: Arc<MemoryBudget>,
}

/// The log. `S` is state of the engine that is guarded by the log's lock and changes with each
/// sequence.
pub(super) struct Log<S> {
    folder: Arc<dyn Folder>,
    options: LogOptions,
    log_id: u64,
    head: Mutex<Head<S>>,
    /// Held while files are extended or created.
    room: Mutex<Room>,
    /// Held while the log is written and synced.
    tail: Mutex<Tail>,
    /// Whether a caller is syncing for all waiting callers.
    led: Mutex<bool>,
    turned: Condvar,
    /// Sequence up to which records are on disk.
    durable: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<StorageError>>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    filled: AtomicU64,
    syncs: AtomicU64,
    groups: AtomicU64,
    group_max: AtomicU64,
}

/// Counters and sizes of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogStats {
    /// Bytes of records written.
    pub(super) bytes: u64,
    /// Bytes of zeros written in advance of records.
    pub(super) filled: u64,
    /// Syncs, including those that begin a segment.
    pub(super) syncs: u64,
    /// Syncs that made records durable, and the most records that one made durable.
    pub(super) groups: u64,
    pub(super) group_max: u64,
    /// Segments in use.
    pub(super) segments: u64,
    /// Bytes of segments in use and of spares.
    pub(super) file_bytes: u64,
}

/// The state guarded by the log's lock: where the next record goes.
pub(super) struct Head<S> {
    /// The engine's state.
    pub(super) state: S,
    next: u64,
    parts: Vec<Part>,
    /// Memory to reuse for the next buffer.
    memory: Buffer,
    buffered: usize,
    place: Place,
    ahead: Option<Spare>,
}

/// The position of the next record.
struct Place {
    number: u64,
    identity: u64,
    file: Arc<dyn File>,
    name: String,
    position: u64,
    filled: u64,
    size: u64,
}

/// Bytes of records, or memory for them; charged to the budget while held.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    charge: Option<Charge>,
    /// Whether it is a record's own memory, which is freed once written.
    is_record: bool,
}

impl Buffer {
    /// Ensures capacity for `wanted` bytes.
    fn reserve(&mut self, wanted: usize, budget: &Arc<MemoryBudget>) {
        if self.bytes.capacity() < wanted {
            self.bytes.reserve_exact(wanted);
            let bytes = self.bytes.capacity() as u64;
            self.charge = Some(Charge::new(budget, MemoryKind::Log, bytes));
        }
    }
}

/// A part of the bytes to write, in order.
enum Part {
    Records(Buffer),
    Turn {
        spare: Spare,
        number: u64,
        first_seq: u64,
    },
}

/// A segment in use that is no longer written to.
struct Segment {
    number: u64,
    first_seq: u64,
    bytes: u64,
}

struct Tail {
    older: Vec<Segment>,
    number: u64,
    first_seq: u64,
    name: String,
    file: Arc<dyn File>,
    position: u64,
    written: u64,
    /// Sequence up to which a mark was written.
    marked: u64,
    /// Reused by each write, so that appending does not allocate.
    parts: Vec<Part>,
}

#[derive(Default)]
struct Room {
    spares: Vec<Spare>,
    spares_made: u64,
}

impl<S> Head<S> {
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    fn has_room(&self, stride: u64) -> bool {
        let place = &self.place;
        let end = place.position + stride;
        match &self.ahead {
            Some(ahead) if end > place.size => RECORDS + stride <= ahead.filled,
            _ => end <= place.filled && end <= place.size,
        }
    }

    /// Switches to the prepared next file.
    fn turn(&mut self, log_id: u64) {
        let Some(spare) = self.ahead.take() else {
            return;
        };
        let number = self.place.number + 1;
        self.place = Place {
            number,
            identity: log_id.wrapping_add(number),
            file: spare.file.clone(),
            name: segment::segment_name(number),
            position: RECORDS,
            filled: spare.filled,
            size: spare.size,
        };
        self.parts.push(Part::Turn {
            spare,
            number,
            first_seq: self.next,
        });
    }
}

/// The log's lock, with space reserved for a record of a given length.
pub(super) struct Appender<'a, S> {
    log: &'a Log<S>,
    head: MutexGuard<'a, Head<S>>,
}

impl<S> Appender<'_, S> {
    /// The engine's state.
    pub(super) fn state(&mut self) -> &mut S {
        &mut self.head.state
    }

    /// The sequence that the record will have.
    pub(super) fn seq(&self) -> u64 {
        self.head.next
    }

    /// Appends the record that the space was reserved for, and releases the lock. Takes over the
    /// memory of a large record. Returns whether the number of pending bytes is so high that they
    /// should be written.
    pub(super) fn append(mut self, encoded: &mut Encoded) -> bool {
        let head = &mut *self.head;
        let stride = encoded.stride();
        if head.place.position + stride > head.place.size {
            head.turn(self.log.log_id);
        }
        debug_assert!(
            head.place.position.is_multiple_of(record::ALIGN as u64),
            "records are aligned"
        );
        debug_assert!(
            head.place.position + stride <= head.place.filled,
            "a record is written only where the file has blocks"
        );
        debug_assert!(
            self.log.durable() < head.next,
            "durable before it was appended"
        );
        let header = Header {
            batch_crc: encoded.batch_crc,
            identity: head.place.identity,
            seq: head.next,
            durable: self.log.durable(),
            length: encoded.length,
        };
        encoded.bytes[..HEADER].copy_from_slice(&header.to_bytes());
        head.place.position += stride;
        head.next += 1;
        head.buffered += encoded.bytes.len();
        let budget = &self.log.options.budget;
        if encoded.bytes.len() >= LARGE {
            let bytes = mem::take(&mut encoded.bytes);
            let charge = encoded.charge.take();
            let charge = charge.or_else(|| {
                let bytes = bytes.capacity() as u64;
                Some(Charge::new(budget, MemoryKind::Log, bytes))
            });
            head.parts.push(Part::Records(Buffer {
                bytes,
                charge,
                is_record: true,
            }));
        } else if let Some(Part::Records(Buffer { bytes, .. })) = head.parts.last_mut()
            && bytes.capacity() - bytes.len() >= encoded.bytes.len()
        {
            bytes.extend_from_slice(&encoded.bytes);
        } else {
            let mut buffer = mem::take(&mut head.memory);
            buffer.reserve(encoded.bytes.len().max(LARGE), budget);
            buffer.bytes.extend_from_slice(&encoded.bytes);
            head.parts.push(Part::Records(buffer));
        }
        head.buffered >= self.log.options.buffer_bytes
    }
}

impl<S> Log<S> {
    /// Takes the log's lock.
    pub(super) fn head(&self) -> MutexGuard<'_, Head<S>> {
        self.head.lock()
    }

    /// Takes the log's lock and reserves space for a record of `stride` bytes. While too much is
    /// pending, the caller writes it first.
    /// Errors: `NoSpace` (nothing has happened), `ReadOnly`, `Io`.
    pub(super) fn appender(&self, stride: u64) -> Result<Appender<'_, S>> {
        loop {
            self.check()?;
            let head = self.head.lock();
            if head.buffered > self.options.buffer_bytes.saturating_mul(8) {
                drop(head);
                self.write()?;
                continue;
            }
            if head.has_room(stride) {
                return Ok(Appender { log: self, head });
            }
            drop(head);
            self.make_room(stride)?;
        }
    }

    /// Extends the segment, or prepares the next one, for a record of `stride` bytes.
    fn make_room(&self, stride: u64) -> Result<()> {
        let mut room = self.room.lock();
        let head = self.head.lock();
        if head.has_room(stride) {
            return Ok(());
        }
        let place = &head.place;
        let end = place.position + stride;
        if end <= place.size {
            let (number, file, name) = (place.number, place.file.clone(), place.name.clone());
            let from = place.filled;
            let to = segment::filled_next(from, end, place.size);
            drop(head);
            segment::fill(&*file, &name, from, to)?;
            self.counters.filled.fetch_add(to - from, Ordering::Relaxed);
            let mut head = self.head.lock();
            if head.place.number == number {
                head.place.filled = to;
            }
            return Ok(());
        }
        drop(head);
        // Only the holder of this lock prepares files; other threads can only consume them.
        let ahead = self.head.lock().ahead.take();
        let mut spare = match ahead.or_else(|| room.spares.pop()) {
            Some(spare) => spare,
            None => self.make_spare(&mut room)?,
        };
        let before = spare.filled;
        let fitted = spare.fit(stride);
        self.counters
            .filled
            .fetch_add(spare.filled - before, Ordering::Relaxed);
        match fitted {
            Ok(()) => self.head.lock().ahead = Some(spare),
            Err(_) => room.spares.push(spare),
        }
        fitted
    }

    fn make_spare(&self, room: &mut Room) -> Result<Spare> {
        room.spares_made += 1;
        let name = segment::spare_name(room.spares_made);
        let file = self
            .folder
            .open(&name, true)
            .map_err(|error| StorageError::io(format!("create {name}"), &error))?;
        Ok(Spare {
            file,
            name,
            filled: 0,
            size: self.options.segment_bytes,
        })
    }

    /// Reserves space in advance, so that no writer waits for it. A failure is ignored: it recurs,
    /// and is reported, when the space is needed.
    pub(super) fn look_ahead(&self) {
        if self.check().is_ok() {
            let stride = {
                let head = self.head.lock();
                let left = head.place.filled - head.place.position;
                match left < self.options.buffer_bytes as u64 {
                    true => left + 1,
                    false => return,
                }
            };
            let _ = self.make_room(stride);
        }
    }

    /// The sequence up to which everything is on disk.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns `ReadOnly` once a write or a sync has failed.
    pub(super) fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.failure.lock();
        Err(match &*failure {
            Some(error) => error.as_read_only(),
            None => StorageError::Closed,
        })
    }

    /// The reason why nothing can be appended any more; `None` while the log works.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.failed.load(Ordering::Acquire);
        let failure = failed.then(|| self.failure.lock());
        failure?.as_ref().map(ToString::to_string)
    }

    /// Permanently rejects appends for this reason; an earlier reason is kept.
    pub(super) fn fail(&self, error: &StorageError) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.failed.store(true, Ordering::Release);
    }

    /// Writes what is pending, without a sync.
    pub(super) fn write(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        self.check()?;
        self.write_parts(&mut tail)
    }

    fn write_parts(&self, tail: &mut Tail) -> Result<()> {
        let (mut parts, last) = {
            let mut head = self.head.lock();
            let parts = mem::replace(&mut head.parts, mem::take(&mut tail.parts));
            head.buffered = 0;
            (parts, head.last())
        };
        let mut memory: Option<Buffer> = None;
        for part in parts.drain(..) {
            let done = match part {
                Part::Records(mut records) => {
                    let done = self.write_records(tail, &records.bytes);
                    let capacity = records.bytes.capacity();
                    if !records.is_record
                        && capacity <= KEPT_MAX
                        && memory
                            .as_ref()
                            .is_none_or(|m| m.bytes.capacity() < capacity)
                    {
                        records.bytes.clear();
                        memory = Some(records);
                    }
                    done
                }
                Part::Turn {
                    spare,
                    number,
                    first_seq,
                } => self.begin_segment(tail, spare, number, first_seq),
            };
            if let Err(error) = done {
                self.fail(&error);
                return Err(error);
            }
        }
        debug_assert!(tail.written <= last, "records are written in order");
        tail.parts = parts;
        tail.written = last;
        if let Some(memory) = memory {
            let mut head = self.head.lock();
            if head.memory.bytes.capacity() < memory.bytes.capacity() {
                head.memory = memory;
            }
        }
        Ok(())
    }

    fn write_records(&self, tail: &mut Tail, records: &[u8]) -> Result<()> {
        let at = tail.position;
        tail.file
            .write_at(at, records)
            .map_err(|error| fatal(format!("write {} at {at}", tail.name), &error))?;
        tail.position += records.len() as u64;
        self.counters
            .bytes
            .fetch_add(records.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync_file(&self, file: &dyn File, name: &str) -> Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        file.sync()
            .map_err(|error| fatal(format!("sync {name}"), &error))
    }

    /// Ends the segment and begins the next one in the file of `spare`.
    fn begin_segment(
        &self,
        tail: &mut Tail,
        spare: Spare,
        number: u64,
        first_seq: u64,
    ) -> Result<()> {
        debug_assert!(number == tail.number + 1 && first_seq >= tail.first_seq);
        self.sync_file(&*tail.file, &tail.name)?;
        self.durable.fetch_max(first_seq - 1, Ordering::AcqRel);
        let name = segment::segment_name(number);
        let head = segment::Head {
            log_id: self.log_id,
            number,
            first_seq,
            size: spare.size,
            version: segment::VERSION,
        };
        start_segment(&*self.folder, &spare, &name, head)?;
        self.counters.syncs.fetch_add(3, Ordering::Relaxed);
        let identity = self.log_id.wrapping_add(tail.number);
        mark_continued(&*tail.file, tail.position, identity, first_seq);
        tail.older.push(Segment {
            number: tail.number,
            first_seq: tail.first_seq,
            bytes: tail.position,
        });
        tail.number = number;
        tail.first_seq = first_seq;
        tail.name = name;
        tail.file = spare.file;
        tail.position = RECORDS;
        Ok(())
    }

    /// Makes everything up to `seq` durable. One caller syncs for all that wait.
    ///
    /// Errors: those of the write or sync, for all that waited for it; `ReadOnly` afterwards.
    pub(super) fn sync_to(&self, seq: u64) -> Result<()> {
        if self.durable() >= seq {
            return Ok(());
        }
        self.check()?;
        let mut led = self.led.lock();
        loop {
            if self.durable() >= seq {
                return Ok(());
            }
            if self.failed.load(Ordering::Acquire)
                && let Some(error) = &*self.failure.lock()
            {
                return Err(error.clone());
            }
            if !mem::replace(&mut *led, true) {
                break;
            }
            self.turned.wait(&mut led);
        }
        drop(led);
        let outcome = self.write_and_sync();
        *self.led.lock() = false;
        self.turned.notify_all();
        outcome
    }

    fn write_and_sync(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        self.check()?;
        let before = self.durable();
        self.write_parts(&mut tail)?;
        if let Err(error) = self.sync_file(&*tail.file, &tail.name) {
            self.fail(&error);
            return Err(error);
        }
        let group = tail.written.saturating_sub(before);
        if group > 0 {
            self.counters.groups.fetch_add(1, Ordering::Relaxed);
            self.counters.group_max.fetch_max(group, Ordering::Relaxed);
        }
        self.durable.fetch_max(tail.written, Ordering::AcqRel);
        self.mark(&mut tail);
        Ok(())
    }

    /// Writes a mark after the last record, which attests that everything up to it is on disk,
    /// unless a next record is about to attest that. The mark is not synced and the next record
    /// overwrites it. It distinguishes a last record that was damaged later from one that a crash
    /// tore. Nothing depends on it, so a failure is ignored.
    fn mark(&self, tail: &mut Tail) {
        let filled = {
            let head = self.head.lock();
            match head.parts.is_empty() && head.place.number == tail.number {
                true => head.place.filled,
                false => return,
            }
        };
        let is_new = tail.marked < tail.written && tail.written >= tail.first_seq;
        if is_new && tail.position + HEADER as u64 <= filled {
            let identity = self.log_id.wrapping_add(tail.number);
            let mark = Header::mark(identity, tail.written);
            let _ = tail.file.write_at(tail.position, &mark.to_bytes());
            tail.marked = tail.written;
        }
    }

    /// Retires the segments that hold nothing beyond `seq`. Some are kept as spares.
    pub(super) fn trim(&self, seq: u64) {
        debug_assert!(seq <= self.durable(), "only what is durable leaves the log");
        let done: Vec<Segment> = {
            let mut tail = self.tail.lock();
            let current = tail.first_seq;
            let older = &tail.older;
            let count = (0..older.len())
                .take_while(|index| {
                    let next = older.get(index + 1).map_or(current, |next| next.first_seq);
                    next <= seq + 1
                })
                .count();
            tail.older.drain(..count).collect()
        };
        for segment in done {
            self.retire(&segment::segment_name(segment.number));
        }
    }

    /// Turns a log file into a spare, or removes it. When that becomes durable does not matter: a
    /// segment is reused only after the folder has been synced under its new name.
    fn retire(&self, name: &str) {
        let mut room = self.room.lock();
        if room.spares.len() >= SPARES_MAX {
            return segment::discard(&*self.folder, name);
        }
        room.spares_made += 1;
        let spare = segment::spare_name(room.spares_made);
        if self.folder.rename(name, &spare).is_err() {
            return;
        }
        if let Ok(file) = self.folder.open(&spare, false)
            && let Ok(filled) = file.len()
            && filled <= self.options.segment_bytes
        {
            room.spares.push(Spare {
                name: spare,
                file,
                filled,
                size: self.options.segment_bytes,
            });
        } else {
            segment::discard(&*self.folder, &spare);
        }
    }

    pub(super) fn stats(&self) -> LogStats {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (segments, used) = {
            let tail = self.tail.lock();
            let older: u64 = tail.older.iter().map(|segment| segment.bytes).sum();
            (tail.older.len() as u64 + 1, older)
        };
        let current = self.head.lock().place.filled;
        let spares: u64 = self.room.lock().spares.iter().map(|s| s.filled).sum();
        LogStats {
            bytes: load(&counters.bytes),
            filled: load(&counters.filled),
            syncs: load(&counters.syncs),
            groups: load(&counters.groups),
            group_max: load(&counters.group_max),
            segments,
            file_bytes: used + current + spares,
        }
    }
}

/// The error for a failure after a batch has been appended. Never `NoSpace`, which means that
/// nothing has happened.
fn fatal(context: String, error: &io::Error) -> StorageError {
    StorageError::Io {
        context,
        kind: error.kind(),
        message: error.to_string(),
    }
}

pub(super) fn is_segment(name: &str) -> bool {
    segment::segment_number(name).is_some()
}

/// Writes a note after the last record of a segment that the log continues in the next one, whose
/// head is on disk: if that segment is missing, it was removed. Nothing depends on the note, so a
/// failure is ignored; everything else in the segment is on disk.
fn mark_continued(file: &dyn File, at: u64, identity: u64, first_seq: u64) {
    let mark = Header::mark(identity, first_seq).to_bytes();
    let _ = file.write_at(at, &mark).and_then(|()| file.sync());
}

/// Renames a spare to a segment and writes its head. Its contents are not changed before the new
/// name is durable.
fn start_segment(
    folder: &dyn Folder,
    spare: &Spare,
    name: &str,
    head: segment::Head,
) -> Result<()> {
    let context = |error| fatal(format!("begin {name}"), &error);
    folder.rename(&spare.name, name).map_err(context)?;
    folder.sync().map_err(context)?;
    spare.file.write_at(0, &head.to_bytes()).map_err(context)?;
    spare.file.sync().map_err(context)
}
