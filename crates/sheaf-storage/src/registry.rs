//! The registry of engines: finds an engine by name or by the contents of a data folder, and opens
//! it by location.
//!
//! ```text
//!   --storageEngine   in the data folder   engine
//!   sheaf             sheaf/               LogTreeEngine   the default for a new folder
//!   redb              sheaf.redb           RedbEngine
//!   memory            nothing              MemoryEngine
//! ```
//!
//! The contents of the folder decide. A name that contradicts them is rejected, so that an existing
//! database never appears to be empty.
//!
//! To add an engine, add a variant of [`EngineKind`] or, if it keeps its data elsewhere, of
//! [`Location`]: the compiler then lists what must be defined for it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::disk::logtree::{LogTreeEngine, LogTreeOptions, Recovery};
use crate::disk::redb::{RedbEngine, RedbOptions};
use crate::engine::StorageEngine;
use crate::error::Result;
use crate::memory::MemoryEngine;

/// The names of the memory engine: sheaf's and MongoDB's.
const MEMORY_NAMES: [&str; 3] = ["memory", "ephemeralForTest", "inMemory"];

/// An engine that keeps its data in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// [`LogTreeEngine`].
    LogTree,
    /// [`RedbEngine`].
    Redb,
}

impl EngineKind {
    /// All kinds.
    pub const ALL: [EngineKind; 2] = [EngineKind::LogTree, EngineKind::Redb];
    /// The kind for a new data folder unless another one is requested.
    pub const DEFAULT: EngineKind = EngineKind::LogTree;

    /// The name in options, logs and `serverStatus`; equals [`StorageEngine::name`].
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::LogTree => "sheaf",
            EngineKind::Redb => "redb",
        }
    }

    /// The file or folder in the data folder that holds the engine's data.
    pub fn entry(self) -> &'static str {
        match self {
            EngineKind::LogTree => "sheaf",
            EngineKind::Redb => "sheaf.redb",
        }
    }
}

/// Where an engine keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory: the data is lost when the engine is dropped.
    Memory,
    /// In a data folder, which may hold other files too.
    Folder {
        /// The data folder.
        path: PathBuf,
        /// The engine that reads and writes it.
        engine: EngineKind,
    },
}

impl Location {
    /// The location for a data folder and the requested engine. Without a request it is the engine
    /// whose data the folder holds, or the default.
    ///
    /// Errors: no engine has that name, or the folder holds another engine's data, or that of two.
    pub fn choose(folder: &Path, wanted: Option<&str>) -> Result<Location, ChooseError> {
        if wanted.is_some_and(|name| MEMORY_NAMES.contains(&name)) {
            return Ok(Location::Memory);
        }
        let kinds = EngineKind::ALL.into_iter();
        let wanted = match wanted {
            None => None,
            Some(name) => match kinds.clone().find(|kind| kind.name() == name) {
                None => return Err(ChooseError::Unknown { name: name.into() }),
                kind => kind,
            },
        };
        let mut found = kinds.filter(|kind| folder.join(kind.entry()).exists());
        let engine = match (wanted, found.next(), found.next()) {
            (_, Some(first), Some(second)) => {
                return Err(ChooseError::Two {
                    folder: folder.into(),
                    entries: [first.entry(), second.entry()],
                });
            }
            (Some(wanted), Some(found), None) if wanted != found => {
                return Err(ChooseError::Other {
                    folder: folder.into(),
                    found: found.name(),
                    wanted: wanted.name(),
                });
            }
            (wanted, found, _) => wanted.or(found).unwrap_or(EngineKind::DEFAULT),
        };
        let path = folder.into();
        Ok(Location::Folder { path, engine })
    }

    /// The path of the engine's own file or folder; `None` for an engine without files.
    pub fn data(&self) -> Option<PathBuf> {
        match self {
            Location::Memory => None,
            Location::Folder { path, engine } => Some(path.join(engine.entry())),
        }
    }

    /// The engine's name.
    pub fn engine_name(&self) -> &'static str {
        match self {
            Location::Memory => MEMORY_NAMES[0],
            Location::Folder { engine, .. } => engine.name(),
        }
    }
}

/// The error of [`Location::choose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooseError {
    /// No engine has this name.
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The folder holds the data of two engines.
    Two {
        /// The data folder.
        folder: PathBuf,
        /// What was found in it.
        entries: [&'static str; 2],
    },
    /// The folder holds the data of another engine than the requested one.
    Other {
        /// The data folder.
        folder: PathBuf,
        /// The engine whose data it holds.
        found: &'static str,
        /// The requested engine.
        wanted: &'static str,
    },
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChooseError::Unknown { name } => write!(
                f,
                "storage engine '{name}' does not exist; the engines are sheaf, redb and memory"
            ),
            ChooseError::Two { folder, entries } => write!(
                f,
                "the data folder {} holds data of two storage engines, {} and {}: move the unused \
                 one to another folder",
                folder.display(),
                entries[0],
                entries[1]
            ),
            ChooseError::Other {
                folder,
                found,
                wanted,
            } => write!(
                f,
                "the data folder {} was created by the storage engine '{found}', not by \
                 '{wanted}': \
                 leave out --storageEngine, or choose another --dbpath",
                folder.display()
            ),
        }
    }
}

impl std::error::Error for ChooseError {}

/// How to open an engine. An engine ignores options that do not apply to it.
pub struct Options {
    /// Memory for the engine, in bytes.
    pub cache_bytes: u64,
    /// The part of that memory, in bytes, from which on new writes are moved to the main file; also
    /// the maximum length of a log file. `None`: the engine's default.
    pub write_buffer_bytes: Option<u64>,
    /// How long a `Buffered` commit may stay in memory only.
    pub flush_interval: Duration,
    /// Maximum time between a commit and a checkpoint that merges it into the main file, if nothing
    /// else requests a checkpoint.
    pub checkpoint_interval: Duration,
    /// Free disk space, in bytes, below which batches with puts are rejected.
    pub reserve_bytes: u64,
    /// Called with events during opening.
    pub on_event: Option<Box<dyn Fn(OpenEvent<'_>) + Send>>,
}

impl Default for Options {
    fn default() -> Self {
        let options = LogTreeOptions::default();
        Options {
            cache_bytes: options.cache_bytes,
            write_buffer_bytes: None,
            flush_interval: options.flush_interval,
            checkpoint_interval: options.checkpoint_interval,
            reserve_bytes: options.reserve_bytes,
            on_event: None,
        }
    }
}

impl Options {
    /// The options of a [`LogTreeEngine`].
    pub fn for_log_tree(&self) -> LogTreeOptions {
        let default = LogTreeOptions::default();
        LogTreeOptions {
            cache_bytes: self.cache_bytes,
            generation_bytes: self.write_buffer_bytes,
            flush_interval: self.flush_interval,
            checkpoint_interval: self.checkpoint_interval,
            segment_bytes: self
                .write_buffer_bytes
                .unwrap_or(u64::MAX)
                .min(default.segment_bytes),
            reserve_bytes: self.reserve_bytes,
            ..default
        }
    }

    /// The options of a [`RedbEngine`].
    pub fn for_redb(self) -> RedbOptions {
        RedbOptions {
            cache_bytes: usize::try_from(self.cache_bytes).unwrap_or(usize::MAX),
            flush_interval: self.flush_interval,
            reserve_bytes: self.reserve_bytes,
            on_repair: self.on_event.map(|on_event| {
                Box::new(move |done| on_event(OpenEvent::Checking(done))) as Box<dyn Fn(f64) + Send>
            }),
        }
    }
}

/// An event while an engine is opened.
#[derive(Clone, Copy, Debug)]
pub enum OpenEvent<'a> {
    /// The engine's log was replayed.
    Recovered(&'a Recovery),
    /// A file that was not closed cleanly is being checked: the part that is done, from 0 to 1.
    Checking(f64),
}

/// Opens the engine at a location, or creates it.
///
/// Errors: `InUse`, `WrongFormat`, `NewerFormat`, `Corrupt`, `Unfinished`, `Io`, `NoSpace`.
pub fn open(location: &Location, options: Options) -> Result<Arc<dyn StorageEngine>> {
    let (Location::Folder { engine, .. }, Some(data)) = (location, location.data()) else {
        return Ok(Arc::new(MemoryEngine::new()));
    };
    match engine {
        EngineKind::LogTree => {
            let engine = LogTreeEngine::open(&data, options.for_log_tree())?;
            if let Some(on_event) = &options.on_event {
                on_event(OpenEvent::Recovered(engine.recovery()));
            }
            Ok(Arc::new(engine))
        }
        EngineKind::Redb => Ok(Arc::new(RedbEngine::open(&data, options.for_redb())?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(folder: &Path, wanted: Option<&str>) -> Result<EngineKind, ChooseError> {
        match Location::choose(folder, wanted)? {
            Location::Folder { engine, .. } => Ok(engine),
            Location::Memory => panic!("the memory engine"),
        }
    }

    #[test]
    fn the_folder_decides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(kind(path, None), Ok(EngineKind::DEFAULT));
        assert_eq!(kind(path, Some("redb")), Ok(EngineKind::Redb));
        for name in MEMORY_NAMES {
            assert_eq!(Location::choose(path, Some(name)), Ok(Location::Memory));
        }
        std::fs::write(path.join("sheaf.redb"), "").unwrap();
        assert_eq!(kind(path, None), Ok(EngineKind::Redb));
        let refused = kind(path, Some("sheaf")).unwrap_err();
        assert!(matches!(
            refused,
            ChooseError::Other {
                found: "redb",
                wanted: "sheaf",
                ..
            }
        ));
        assert_eq!(
            kind(path, Some("other")),
            Err(ChooseError::Unknown {
                name: "other".into()
            })
        );
        std::fs::create_dir(path.join("sheaf")).unwrap();
        for wanted in [None, Some("redb")] {
            assert!(matches!(kind(path, wanted), Err(ChooseError::Two { .. })));
        }
    }

    #[test]
    fn an_engine_reopens_and_keeps_its_name() {
        for wanted in EngineKind::ALL {
            let folder = tempfile::tempdir().unwrap();
            let location = Location::choose(folder.path(), Some(wanted.name())).unwrap();
            let engine = open(&location, Options::default()).unwrap();
            assert_eq!(engine.name(), location.engine_name());
            engine.close().unwrap();
            let again = Location::choose(folder.path(), None).unwrap();
            assert_eq!(again, location);
            assert!(open(&again, Options::default()).is_ok());
        }
    }
}
