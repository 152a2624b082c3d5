//! Log replay: reads every record after the tree's sequence, in order, up to the end or a torn
//! tail.
//!
//! ```text
//!   tree holds ..41
//!   log.3 [30 .. 39]   log.4 [40 41 42 43]   log.5 [44 45 4▒  46]
//!     not needed          from 42 on            45, then a tail that is cut
//! ```
//!
//! Records missing in the last segment may be the torn end of a crash: those writes were never
//! acknowledged as durable. They are damage if something attests that they were on disk: the head
//! of a later segment, or a later record. Damage is refused with file and offset; a cut tail is
//! reported.
//!
//! Reading changes nothing. [`Replay::begin`] continues the log after what was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Condvar, Mutex};

use super::record::{ALIGN, Decoded, HEADER, Header, KeyDelta, decode};
use super::segment::{self, Found, RECORDS, Spare};
use super::{Counters, File, Folder, Head, Log, LogOptions, Place, Room, Segment, Tail};
use crate::batch::{Prior, WriteBatch};
use crate::disk::logtree::random::random_u64;
use crate::error::{Result, StorageError};

/// Number of bytes of a segment that are read at a time.
const WINDOW: usize = 1 << 20;

/// The end of the log that a crash tore, and that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Name of the segment, without the folder.
    pub file: String,
    /// Offset of the end of the last whole record.
    pub offset: u64,
}

/// The result of reading the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::disk::logtree) struct Replayed {
    /// The sequence of the newest batch; the tree's if the log holds none after it.
    pub(in crate::disk::logtree) last: u64,
    /// Number of batches after the tree's sequence.
    pub(in crate::disk::logtree) batches: u64,
    /// Bytes of the records read.
    pub(in crate::disk::logtree) bytes: u64,
    pub(in crate::disk::logtree) torn: Option<TornTail>,
}

/// A batch that was read, and its position.
pub(in crate::disk::logtree) struct Record<'a> {
    pub(in crate::disk::logtree) seq: u64,
    /// The segment's path for messages, and the record's offset in it.
    pub(in crate::disk::logtree) file: &'a str,
    pub(in crate::disk::logtree) offset: u64,
    pub(in crate::disk::logtree) decoded: Decoded<'a>,
}

impl<'a> Record<'a> {
    /// The whole batch. `new_value` computes the value for each delta, before any part of the batch
    /// is applied; if it returns none, the key is left unchanged.
    pub(in crate::disk::logtree) fn into_batch(
        self,
        new_value: &mut dyn FnMut(&KeyDelta<'a>) -> Result<Option<Vec<u8>>>,
    ) -> Result<WriteBatch> {
        let Decoded { mut batch, deltas } = self.decoded;
        for found in &deltas {
            let Some(value) = new_value(found)? else {
                continue;
            };
            let value_len = found.delta.base_len;
            let prior = Prior::Present { value_len };
            batch.put_with(found.table, found.key, value, prior);
        }
        Ok(batch)
    }
}

/// The error for a delta whose base value does not exist.
pub(in crate::disk::logtree) fn baseless(
    file: &str,
    offset: u64,
    found: &KeyDelta<'_>,
) -> StorageError {
    let key: String = found
        .key
        .iter()
        .take(32)
        .map(|b| format!("{b:02x}"))
        .collect();
    let what = format!(
        "a delta for key {key} of table {} does not match the previous value",
        found.table
    );
    damaged(file, offset, &what)
}

/// A log that has been read, before writing continues.
pub(in crate::disk::logtree) struct Replay {
    folder: Arc<dyn Folder>,
    pub(in crate::disk::logtree) replayed: Replayed,
    log_id: u64,
    last_number: u64,
    /// The segments with batches that are not in the tree.
    needed: Vec<Segment>,
    /// Files that are not needed.
    useless: Vec<String>,
    spares: Vec<String>,
}

struct Candidate {
    number: u64,
    name: String,
    file: Arc<dyn File>,
    head: Option<segment::Head>,
}

fn damaged(name: &str, offset: u64, what: &str) -> StorageError {
    StorageError::Corrupt {
        file: name.into(),
        detail: format!("{what} at offset {offset}"),
    }
}

impl Replay {
    /// Reads the log in the folder, and passes each batch after `tree_seq` to `apply`, in order.
    ///
    /// Errors: `Corrupt`, `NewerFormat`, `Io`, and those of `apply`.
    pub(in crate::disk::logtree) fn read(
        folder: &Arc<dyn Folder>,
        tree_seq: u64,
        apply: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<Replay> {
        let (mut found, spares) = find(&**folder)?;
        let mut useless = Vec::new();
        let mut last_number = found.last().map_or(0, |last| last.number);
        // A segment without a complete head has no records.
        if let Some(last) = found.last()
            && last.head.is_none()
        {
            // A segment's head is on disk before its first record is written.
            let log_id = found
                .iter()
                .rev()
                .find_map(|s| s.head.map(|head| head.log_id));
            let mut window = Window::new(&*last.file, &last.name)?;
            let written = match log_id {
                Some(log_id) => {
                    let identity = log_id.wrapping_add(last.number);
                    window.header(RECORDS, identity)?.is_some()
                }
                None => {
                    let first = window.get(RECORDS, HEADER)?;
                    tree_seq > 0 || first.is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0))
                }
            };
            if written {
                return Err(damaged(
                    &folder.display(&last.name),
                    0,
                    "a damaged head of a segment",
                ));
            }
            useless.extend(found.pop().map(|last| last.name));
            last_number -= 1;
        }
        let first = found
            .iter()
            .rposition(|s| s.head.is_some_and(|head| head.first_seq <= tree_seq + 1));
        let first = match first {
            Some(first) => first,
            None if found.is_empty() && tree_seq == 0 => 0,
            None => {
                if let Some(headless) = found.iter().find(|s| s.head.is_none()) {
                    let name = folder.display(&headless.name);
                    return Err(damaged(&name, 0, "a damaged head of a segment"));
                }
                return Err(StorageError::Corrupt {
                    file: folder.display("log.*"),
                    detail: format!("no segment of the log has the batch {}", tree_seq + 1),
                });
            }
        };
        useless.extend(found.drain(..first).map(|segment| segment.name));
        let mut replay = Replay {
            last_number,
            useless,
            spares,
            ..Replay::at(folder, tree_seq)
        };
        let mut heads = Vec::new();
        for segment in &found {
            let name = folder.display(&segment.name);
            let Some(head) = segment.head else {
                return Err(damaged(&name, 0, "a damaged head of a segment"));
            };
            if heads
                .last()
                .is_some_and(|(before, _): &(segment::Head, _)| {
                    before.log_id != head.log_id || before.number + 1 != head.number
                })
            {
                return Err(damaged(
                    &name,
                    0,
                    "a head that does not follow the previous segment",
                ));
            }
            replay.log_id = head.log_id;
            heads.push((head, name));
        }
        for (index, segment) in found.iter().enumerate() {
            let (head, name) = &heads[index];
            let next = heads.get(index + 1).map(|(next, _)| next.first_seq);
            let bytes = replay.read_segment(&*segment.file, name, head, next, tree_seq, apply)?;
            replay.needed.push(Segment {
                number: head.number,
                first_seq: head.first_seq,
                bytes,
            });
        }
        Ok(replay)
    }

    /// Whether no segment was ever begun: a crash came before the first head was on disk, or the
    /// log is lost.
    pub(in crate::disk::logtree) fn found_nothing(&self) -> bool {
        self.needed.is_empty()
    }

    /// An empty log that begins after a tree of this sequence.
    pub(in crate::disk::logtree) fn at(folder: &Arc<dyn Folder>, tree_seq: u64) -> Replay {
        Replay {
            folder: folder.clone(),
            replayed: Replayed {
                last: tree_seq,
                ..Replayed::default()
            },
            log_id: random_u64(),
            last_number: 0,
            needed: Vec::new(),
            useless: Vec::new(),
            spares: Vec::new(),
        }
    }

    /// Reads the records of one segment, up to the first sequence of the next one. Returns their
    /// end offset.
    fn read_segment(
        &mut self,
        file: &dyn File,
        name: &str,
        head: &segment::Head,
        next: Option<u64>,
        tree_seq: u64,
        apply: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<u64> {
        let identity = head.identity();
        let mut window = Window::new(file, name)?;
        let mut at = RECORDS;
        let mut expected = head.first_seq;
        while next.is_none_or(|next| expected < next) {
            let Some(header) = window.header(at, identity)? else {
                break;
            };
            let length = header.length as usize;
            if header.seq != expected {
                break;
            }
            let Some(batch) = window.get(at + HEADER as u64, length)? else {
                break;
            };
            if crc32c::crc32c(batch) != header.batch_crc {
                break;
            }
            if expected > tree_seq {
                let decoded = decode(batch, head.version);
                apply(Record {
                    seq: expected,
                    file: name,
                    offset: at,
                    decoded: decoded.map_err(|what| damaged(name, at, what))?,
                })?;
                self.replayed.batches += 1;
                self.replayed.last = expected;
            }
            self.replayed.bytes += header.stride();
            expected += 1;
            at += header.stride();
        }
        match next {
            // Damage only if the tree does not contain all missing records before the next segment.
            Some(next) if expected < next && next > tree_seq + 1 => {
                return Err(damaged(name, at, "a damaged record"));
            }
            Some(_) => {}
            None => {
                let mark = window.header(at, identity)?.filter(Header::is_mark);
                if mark.is_some_and(|mark| mark.durable >= expected) {
                    let next = segment::segment_name(head.number + 1);
                    return Err(StorageError::Corrupt {
                        file: self.folder.display(&next),
                        detail: format!(
                            "it is missing or has no head, although {name} states that the log continues in it"
                        ),
                    });
                }
                if let Some(witness) = window.witness(at, identity, expected)? {
                    return Err(StorageError::Corrupt {
                        file: name.into(),
                        detail: format!(
                            "a damaged record at offset {at}, which was on disk when the record at \
                             offset {witness} was written"
                        ),
                    });
                }
                if mark.is_none() && window.begun(at, identity)? {
                    self.replayed.torn = Some(TornTail {
                        file: name.into(),
                        offset: at,
                    });
                }
            }
        }
        Ok(at)
    }

    /// Continues the log after what was read: in a new segment, whose head is on disk when this
    /// returns.
    ///
    /// Errors: `Io`, `NoSpace`.
    pub(in crate::disk::logtree) fn begin<S>(
        self,
        options: LogOptions,
        state: S,
    ) -> Result<Log<S>> {
        let folder = self.folder;
        let mut spares_made = 0;
        for spare in &self.spares {
            segment::discard(&*folder, spare);
        }
        for name in self.useless {
            segment::discard(&*folder, &name);
        }
        spares_made += 1;
        let mut spare = {
            let name = segment::spare_name(spares_made);
            let file = folder
                .open(&name, true)
                .map_err(|error| StorageError::io(format!("create {name}"), &error))?;
            let (filled, size) = (0, options.segment_bytes);
            Spare {
                name,
                file,
                filled,
                size,
            }
        };
        spare.fit(ALIGN as u64)?;
        let number = self.last_number + 1;
        let first_seq = self.replayed.last + 1;
        let name = segment::segment_name(number);
        let head = segment::Head {
            log_id: self.log_id,
            number,
            first_seq,
            size: spare.size,
            version: segment::VERSION,
        };
        super::start_segment(&*folder, &spare, &name, head)?;
        // As when one segment follows another during normal writing. The note overwrites a torn
        // end, which is unreadable anyway and would hide the loss of a later segment.
        if let Some(last) = self.needed.last()
            && let Ok(file) = folder.open(&segment::segment_name(last.number), false)
        {
            let identity = self.log_id.wrapping_add(last.number);
            super::mark_continued(&*file, last.bytes, identity, first_seq);
        }
        Ok(Log {
            folder,
            options,
            log_id: self.log_id,
            head: Mutex::new(Head {
                state,
                next: first_seq,
                parts: Vec::new(),
                memory: Default::default(),
                buffered: 0,
                place: Place {
                    number,
                    identity: head.identity(),
                    file: spare.file.clone(),
                    name: name.clone(),
                    position: RECORDS,
                    filled: spare.filled,
                    size: spare.size,
                },
                ahead: None,
            }),
            room: Mutex::new(Room {
                spares: Vec::new(),
                spares_made,
            }),
            tail: Mutex::new(Tail {
                older: self.needed,
                number,
                first_seq,
                name,
                file: spare.file,
                position: RECORDS,
                written: self.replayed.last,
                marked: self.replayed.last,
                parts: Vec::new(),
            }),
            led: Mutex::new(false),
            turned: Condvar::new(),
            durable: AtomicU64::new(self.replayed.last),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            counters: Counters::default(),
        })
    }
}

/// The segments in the folder, ascending, and the names of the spares.
fn find(folder: &dyn Folder) -> Result<(Vec<Candidate>, Vec<String>)> {
    let names = folder
        .list()
        .map_err(|error| StorageError::io("list the data folder", &error))?;
    let mut segments = Vec::new();
    let mut spares = Vec::new();
    for name in names {
        if segment::spare_number(&name).is_some() {
            spares.push(name);
        } else if let Some(number) = segment::segment_number(&name) {
            let file = folder
                .open(&name, false)
                .map_err(|error| StorageError::io(format!("open {name}"), &error))?;
            let head = match segment::Head::read(&*file, &name)? {
                Found::Head(head) if head.number == number => Some(head),
                Found::Head(_) | Found::Nothing => None,
                Found::Newer(found) => {
                    return Err(StorageError::NewerFormat {
                        found: found.into(),
                        supported: segment::VERSION.into(),
                    });
                }
            };
            segments.push(Candidate {
                number,
                name,
                file,
                head,
            });
        }
    }
    segments.sort_by_key(|segment| segment.number);
    Ok((segments, spares))
}

/// A sliding window over a file.
struct Window<'a> {
    file: &'a dyn File,
    name: &'a str,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn File, name: &'a str) -> Result<Window<'a>> {
        let len = file
            .len()
            .map_err(|error| StorageError::io(format!("read {name}"), &error))?;
        Ok(Window {
            file,
            name,
            len,
            start: 0,
            bytes: Vec::new(),
        })
    }

    /// The bytes at an offset; `None` if the file ends before.
    fn get(&mut self, at: u64, length: usize) -> Result<Option<&[u8]>> {
        let end = at.saturating_add(length as u64);
        if end > self.len {
            return Ok(None);
        }
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let wanted = (length.max(WINDOW) as u64).min(self.len - at) as usize;
            match self.bytes.len() >= wanted {
                true => self.bytes.truncate(wanted),
                false => self.bytes = vec![0; wanted],
            }
            self.start = at;
            let (file, name) = (self.file, self.name);
            file.read_at(at, &mut self.bytes)
                .map_err(|error| StorageError::io(format!("read {name} at {at}"), &error))?;
        }
        let from = (at - self.start) as usize;
        Ok(Some(&self.bytes[from..from + length]))
    }

    fn header(&mut self, at: u64, identity: u64) -> Result<Option<Header>> {
        let Some(bytes) = self.get(at, HEADER)? else {
            return Ok(None);
        };
        let mut header = [0; HEADER];
        header.copy_from_slice(bytes);
        Ok(Header::from_bytes(&header, identity))
    }

    /// The offset of a record after `at` that attests that the record `seq` was on disk.
    fn witness(&mut self, mut at: u64, identity: u64, seq: u64) -> Result<Option<u64>> {
        let mark = identity.to_le_bytes();
        while at + HEADER as u64 <= self.len {
            if self
                .get(at, HEADER)?
                .is_some_and(|bytes| bytes[8..16] == mark)
                && let Some(header) = self.header(at, identity)?
                && header.durable >= seq
            {
                return Ok(Some(at));
            }
            at += ALIGN as u64;
        }
        Ok(None)
    }

    /// Whether a record, or what may be part of one, begins here.
    fn begun(&mut self, at: u64, identity: u64) -> Result<bool> {
        let identity = identity.to_le_bytes();
        let Some(bytes) = self.get(at, HEADER)? else {
            return Ok(false);
        };
        Ok(bytes[8..16] == identity)
    }
}

#[cfg(test)]
mod tests;
