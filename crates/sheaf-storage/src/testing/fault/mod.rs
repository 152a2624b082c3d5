//! A simulated disk: simulates the state of files after a crash, and the errors of a failing disk.
//!
//! The disk keeps the synced state, and the ordered list of later changes. Every write, change of
//! length and sync is an event; a test runs its script once to count the events, then again with a
//! fault at each of them.
//!
//! ```text
//!   events    w  w  sync  w  l  w  sync  w  w
//!                                 ▲ crash here: this sync and everything after it does not happen
//!   synced   [w  w]
//!   pending           w  l  w     each of these is found, lost, or found in part
//! ```
//!
//! Invariant: after a crash the synced part is intact; the rest may be in any state, except that a
//! single sector is written completely or not at all.
//!
//! [`FaultDisk`] is one file, for redb; [`FaultFolder`] is a folder of files on one disk.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

mod folder;

pub use folder::FaultFolder;

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;

/// Which fault occurs, and at which event. Events count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// From this event on no call reaches the disk, and every call fails.
    Crash {
        /// Number of the event.
        at: u64,
    },
    /// This event fails and has no effect; those after it work again.
    Error {
        /// Number of the event.
        at: u64,
        /// The error returned.
        kind: io::ErrorKind,
    },
    /// This event and all that follow fail and have no effect: a disk that has died, or is full.
    ErrorsFrom {
        /// Number of the event.
        at: u64,
        /// The error returned.
        kind: io::ErrorKind,
    },
    /// This event fails; if it is a write, half of it has happened.
    ShortWrite {
        /// Number of the event.
        at: u64,
        /// The error returned.
        kind: io::ErrorKind,
    },
}

/// The unsynced writes that survive a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// Nothing.
    Nothing,
    /// All of them: the process died, and the system survived.
    All,
    /// Some of them, some in part, depending on the seed.
    Some {
        /// Selects the writes.
        seed: u64,
    },
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
}

impl Change {
    fn carry_out(&self, file: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => {
                let start = *offset as usize;
                lengthen(file, start);
                let over = data.len().min(file.len() - start);
                file[start..start + over].copy_from_slice(&data[..over]);
                file.extend_from_slice(&data[over..]);
            }
            Change::SetLen(len) => {
                file.truncate(*len as usize);
                lengthen(file, *len as usize);
            }
        }
    }
}

/// Extends a file with zeros, in one copy: an interpreter would execute `Vec::resize` byte by byte.
fn lengthen(file: &mut Vec<u8>, len: usize) {
    if let Some(zeros) = len.checked_sub(file.len()) {
        file.extend_from_slice(&vec![0; zeros]);
    }
}

#[derive(Default)]
struct State {
    /// The file as its writer sees it.
    current: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Change>,
    events: u64,
    fault: Option<Fault>,
    crashed: bool,
}

impl State {
    /// Counts an event, and fails it if a fault is due.
    fn event(&mut self) -> io::Result<()> {
        let event = self.events;
        self.events += 1;
        match self.fault {
            Some(Fault::Crash { at }) if event >= at => self.crashed = true,
            Some(Fault::Error { at, kind }) if event == at => {
                return Err(io::Error::new(kind, "an injected error"));
            }
            Some(Fault::ErrorsFrom { at, kind }) if event >= at => {
                return Err(io::Error::new(kind, "an injected error"));
            }
            _ => {}
        }
        self.alive()
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed {
            Err(io::Error::other("the simulated machine has crashed"))
        } else {
            Ok(())
        }
    }
}

/// One file on a simulated disk. Clones are the same file.
#[derive(Clone, Default)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

impl FaultDisk {
    /// A file with this content, all of it synced.
    pub fn new(content: Vec<u8>) -> FaultDisk {
        let state = State {
            current: content.clone(),
            synced: content,
            ..State::default()
        };
        FaultDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sets the fault, or none, replacing an earlier one.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state.lock().fault = fault;
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// The file's content as found after a crash of the machine at this point.
    pub fn after_crash(&self, remains: Remains) -> Vec<u8> {
        let state = self.state.lock();
        let mut file = state.synced.clone();
        let Remains::Some { seed } = remains else {
            if remains == Remains::All {
                for change in &state.pending {
                    change.carry_out(&mut file);
                }
            }
            return file;
        };
        folder::survive(&state.pending, &mut file, &mut Random(seed));
        file
    }

    /// The disk as a file for an engine.
    pub fn backend(&self) -> impl StorageBackend + use<> {
        FaultBackend(self.clone())
    }
}

struct FaultBackend(FaultDisk);

impl fmt::Debug for FaultBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultBackend")
    }
}

impl StorageBackend for FaultBackend {
    fn len(&self) -> io::Result<u64> {
        let state = self.0.state.lock();
        state.alive()?;
        Ok(state.current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.lock();
        state.alive()?;
        let start = offset as usize;
        match state.current.get(start..start + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.event()?;
        for change in std::mem::take(&mut state.pending) {
            change.carry_out(&mut state.synced);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let data = data.to_vec();
        self.change(Change::Write { offset, data })
    }
}

impl FaultBackend {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if let Some(Fault::ShortWrite { at, kind }) = state.fault
            && at == state.events
            && let Change::Write { offset, data } = &change
        {
            let (offset, data) = (*offset, data[..data.len() / 2].to_vec());
            let half = Change::Write { offset, data };
            state.events += 1;
            half.carry_out(&mut state.current);
            state.pending.push(half);
            return Err(io::Error::new(kind, "an injected error"));
        }
        state.event()?;
        change.carry_out(&mut state.current);
        state.pending.push(change);
        Ok(())
    }
}

/// A small pseudo-random generator (splitmix64), so that a seed reproduces a test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}
