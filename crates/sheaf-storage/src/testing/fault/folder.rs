//! A simulated folder: all its files are on one disk, with one order of events.
//!
//! ```text
//!   events   create log   w(log)  sync(log)  w(tree)  rename  w(tree)  sync(folder) ...
//!                                               │        │       │
//!   pending writes of a file   end with its sync ─┘        │       └── or are found, lost, torn
//!   pending names              end with the folder's sync ┘           or are found up to some event
//! ```
//!
//! Invariants: what one file's sync made durable stays; writes to different files that were not
//! synced survive a crash independently of each other, in any order; changes of names survive as a
//! prefix, as in a journaling file system. Even a new file's name is lost unless the folder was
//! synced.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Change, Fault, Random, Remains, SECTOR};
use crate::error::{Result, StorageError};
use crate::folder::{File, Folder, FolderLock, Map};

/// A file's content: as its writers see it, as of its last sync, and the changes in between.
#[derive(Default)]
struct Content {
    current: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link { name: String, file: usize },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl NameChange {
    fn carry_out(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Link { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Rename { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    events: u64,
    fault: Option<Fault>,
    /// Maximum total size of the files in bytes.
    capacity: Option<u64>,
    crashed: bool,
    locked: bool,
}

/// The outcome of an event.
enum Turn {
    Whole,
    /// The first half happens, then the error is returned.
    Half(io::Error),
}

impl State {
    fn event(&mut self) -> io::Result<Turn> {
        let event = self.events;
        self.events += 1;
        let injected = |kind| io::Error::new(kind, "an injected error");
        match self.fault {
            Some(Fault::Crash { at }) if event >= at => self.crashed = true,
            Some(Fault::Error { at, kind }) if event == at => return Err(injected(kind)),
            Some(Fault::ErrorsFrom { at, kind }) if event >= at => return Err(injected(kind)),
            Some(Fault::ShortWrite { at, kind }) if event == at => {
                return Ok(Turn::Half(injected(kind)));
            }
            _ => {}
        }
        self.alive()?;
        Ok(Turn::Whole)
    }

    fn alive(&self) -> io::Result<()> {
        if self.crashed {
            Err(io::Error::other("the simulated machine has crashed"))
        } else {
            Ok(())
        }
    }

    /// Checks whether `file` may have `len` bytes.
    fn room_for(&self, file: usize, len: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity else {
            return Ok(());
        };
        let linked = |other: &usize| self.names.values().any(|linked| linked == other);
        let others: u64 = (0..self.files.len())
            .filter(|other| *other != file && linked(other))
            .map(|other| self.files[other].current.len() as u64)
            .sum();
        if len > self.files[file].current.len() as u64 && others + len > capacity {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the simulated disk is full",
            ));
        }
        Ok(())
    }

    fn change(&mut self, file: usize, change: Change) {
        let content = &mut self.files[file];
        change.carry_out(&mut content.current);
        content.pending.push(change);
    }

    fn change_names(&mut self, change: NameChange) {
        change.carry_out(&mut self.names);
        self.pending_names.push(change);
    }
}

/// A folder on a simulated disk. Clones are the same folder.
#[derive(Clone, Default)]
pub struct FaultFolder {
    state: Arc<Mutex<State>>,
}

impl FaultFolder {
    /// A folder with these files, all of them synced.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> FaultFolder {
        let mut state = State::default();
        for (name, content) in files {
            state.names.insert(name, state.files.len());
            state.files.push(Content {
                current: content.clone(),
                synced: content,
                pending: Vec::new(),
            });
        }
        state.synced_names = state.names.clone();
        FaultFolder {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sets the fault, or none, replacing an earlier one.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state.lock().fault = fault;
    }

    /// Limits the total size of all files; a write beyond it fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Number of events so far: files created, writes, changes of length, syncs, renames, removals.
    pub fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// A file's content as its writers see it; `None` if it does not exist.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let file = *state.names.get(name)?;
        Some(state.files[file].current.clone())
    }

    /// The folder as found after a crash of the machine at this point, without faults.
    pub fn after_crash(&self, remains: Remains) -> FaultFolder {
        let state = self.state.lock();
        let mut random = match remains {
            Remains::Some { seed } => Random(seed),
            Remains::Nothing | Remains::All => Random(0),
        };
        let mut names = state.synced_names.clone();
        let kept = match remains {
            Remains::Nothing => 0,
            Remains::All => state.pending_names.len(),
            Remains::Some { .. } => random.below(state.pending_names.len() as u64 + 1) as usize,
        };
        for change in &state.pending_names[..kept] {
            change.carry_out(&mut names);
        }
        let found = names.iter().map(|(name, file)| {
            let content = &state.files[*file];
            let mut bytes = content.synced.clone();
            match remains {
                Remains::Nothing => {}
                Remains::All => content
                    .pending
                    .iter()
                    .for_each(|change| change.carry_out(&mut bytes)),
                Remains::Some { .. } => survive(&content.pending, &mut bytes, &mut random),
            }
            (name.clone(), bytes)
        });
        FaultFolder::new(found.collect::<Vec<_>>())
    }
}

/// Applies some of the changes, some of them in part.
pub(super) fn survive(pending: &[Change], file: &mut Vec<u8>, random: &mut Random) {
    for change in pending {
        match (change, random.below(4)) {
            (_, 0) => {}
            (Change::Write { offset, data }, 1) => {
                for (index, sector) in data.chunks(SECTOR).enumerate() {
                    if random.below(2) == 0 {
                        let part = Change::Write {
                            offset: offset + (index * SECTOR) as u64,
                            data: sector.to_vec(),
                        };
                        part.carry_out(file);
                    }
                }
            }
            (change, _) => change.carry_out(file),
        }
    }
}

impl Folder for FaultFolder {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.alive()?;
        let file = match state.names.get(name) {
            Some(file) => *file,
            None if create => {
                if let Turn::Half(error) = state.event()? {
                    return Err(error);
                }
                let file = state.files.len();
                state.files.push(Content::default());
                let name = name.to_owned();
                state.change_names(NameChange::Link { name, file });
                file
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(FaultFile {
            folder: self.clone(),
            file,
        }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.alive()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Turn::Half(error) = state.event()? {
            return Err(error);
        }
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        state.change_names(NameChange::Rename { from, to });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Turn::Half(error) = state.event()? {
            return Err(error);
        }
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = name.to_owned();
        state.change_names(NameChange::Remove { name });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Turn::Half(error) = state.event()? {
            return Err(error);
        }
        state.synced_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let state = self.state.lock();
        state.alive()?;
        let used: u64 = state
            .names
            .values()
            .map(|file| state.files[*file].current.len() as u64)
            .sum();
        Ok(state.capacity.map(|capacity| capacity.saturating_sub(used)))
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn lock(&self) -> Result<FolderLock> {
        let mut state = self.state.lock();
        if state.locked {
            return Err(StorageError::InUse {
                file: "the simulated folder".into(),
            });
        }
        state.locked = true;
        Ok(FolderLock::new(Unlock(self.clone())))
    }
}

struct Unlock(FaultFolder);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.state.lock().locked = false;
    }
}

struct FaultFile {
    folder: FaultFolder,
    file: usize,
}

impl File for FaultFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let state = self.folder.state.lock();
        state.alive()?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match state.files[self.file]
            .current
            .get(start..start.saturating_add(buf.len()))
        {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.folder.state.lock();
        let turn = state.event()?;
        state.room_for(self.file, offset + data.len() as u64)?;
        let (data, error) = match turn {
            Turn::Whole => (data, None),
            Turn::Half(error) => (&data[..data.len() / 2], Some(error)),
        };
        let data = data.to_vec();
        state.change(self.file, Change::Write { offset, data });
        error.map_or(Ok(()), Err)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.folder.state.lock();
        if let Turn::Half(error) = state.event()? {
            return Err(error);
        }
        let content = &mut state.files[self.file];
        for change in std::mem::take(&mut content.pending) {
            change.carry_out(&mut content.synced);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.folder.state.lock();
        state.alive()?;
        Ok(state.files[self.file].current.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.folder.state.lock();
        if let Turn::Half(error) = state.event()? {
            return Err(error);
        }
        state.room_for(self.file, len)?;
        state.change(self.file, Change::SetLen(len));
        Ok(())
    }

    fn map(&self, _: u64, _: u64) -> io::Result<Option<Map>> {
        Ok(None)
    }
}
