//! Opens the engine (the tree's newest roots, then the log after them), and closes it.
//!
//! ```text
//!   lock the folder ─> tree: sequence 41 ─> log: 42, 43 ... into generations ─> a new segment ─> open
//!                                                 │ more than writers may leave to checkpoints
//!                                                 └ into the tree, and continue
//! ```
//!
//! A value that the log holds as a delta is computed from the previous one, which is in a
//! generation that was just read or in the tree: the tree holds exactly the batches up to its
//! sequence, so there is no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::budget::MemoryBudget;
use super::checkpoint::Checkpointer;
use super::commit::{PipelineState, Sequencer};
use super::loading::Loading;
use super::log::{LogOptions, Replay, TornTail, is_segment};
use super::memtable::Retired;
use super::spill::Bases;
use super::throttle::Throttle;
use super::tree::{Roots, TableOptions, TreeFile, TreeOptions};
use super::view::OpenSnapshots;
use super::{LogTreeOptions, Shared, Sizes};
use crate::engine::TableId;
use crate::error::{Result, StorageError};
use crate::folder::Folder;

/// The tree's file.
pub(super) const TREE: &str = "tree";
/// Marker file in a folder to which a backup is being written: the other files are not complete.
pub(super) const UNFINISHED: &str = "backup.unfinished";
/// The maximum size of a generation by default, and the minimum size of any.
const GENERATION_MAX: u64 = 64 << 20;
const GENERATION_MIN: u64 = 64 << 10;
/// Maximum growth of a full generation while others wait for a checkpoint: three doublings.
const DOUBLINGS_MAX: usize = 3;
/// Maximum number of commits to a new tree before its log begins: its first two superblocks, and
/// the catalog's table.
const COMMITS_WITHOUT_LOG: u32 = 3;

/// What opening the files found, and how long it took.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Batches read from the log.
    pub batches: u64,
    /// Bytes of the log that were read.
    pub log_bytes: u64,
    /// The torn tail of the log that was cut: writes that were never acknowledged as durable.
    pub torn: Option<TornTail>,
    /// Duration from locking the folder to the start of the engine's threads.
    pub took: Duration,
}

impl Sizes {
    fn new(options: &LogTreeOptions) -> Sizes {
        let cache = options.cache_bytes;
        let generation_bytes = options
            .generation_bytes
            .unwrap_or((cache / 8).min(GENERATION_MAX))
            .max(GENERATION_MIN);
        let debt_soft = generation_bytes.saturating_mul(2);
        let debt_hard = (cache / 8 * 3).max(debt_soft + generation_bytes);
        Sizes {
            generation_bytes,
            debt_soft,
            debt_hard,
            debt_max: (cache / 2).max(debt_hard + generation_bytes),
            batches_max: cache / 8,
            retired_max: cache / 8,
            written_max: cache / 4 * 3,
            excess_max: cache / 16,
            reserve_bytes: options.reserve_bytes,
        }
    }

    /// The size in bytes at which a generation is full while `waiting` others wait: a few large
    /// generations are cheaper to read, and to merge into the tree, than many small ones.
    pub(super) fn full_at(&self, waiting: usize) -> u64 {
        let grown = self.generation_bytes << waiting.min(DOUBLINGS_MAX);
        grown.min(self.debt_hard / 2)
    }
}

/// Opens the tree's file, or creates it if the folder holds no file of the engine yet.
fn open_tree(
    folder: &Arc<dyn Folder>,
    options: &LogTreeOptions,
    budget: &Arc<MemoryBudget>,
) -> Result<TreeFile> {
    let tree_options = TreeOptions {
        reading: options.reading,
        budget: budget.clone(),
    };
    let names = folder
        .list()
        .map_err(|error| StorageError::io("list the data folder", &error))?;
    if names.iter().any(|name| name == UNFINISHED) {
        return Err(unfinished(folder));
    }
    let tree = if names.iter().any(|name| name == TREE) {
        TreeFile::open(folder, TREE, tree_options)?
    } else if names.iter().any(|name| is_segment(name)) {
        return Err(StorageError::Corrupt {
            file: folder.display(TREE),
            detail: "it is missing, although its log exists".into(),
        });
    } else {
        TreeFile::create(folder, TREE, tree_options)?
    };
    let roots = tree.roots();
    if roots.table(TableId::CATALOG).is_none() {
        if roots.sequence() > 0 {
            return Err(StorageError::Corrupt {
                file: folder.display(TREE),
                detail: "the catalog's table is missing".into(),
            });
        }
        let mut writer = tree.writer()?;
        writer.create_table(TableId::CATALOG, new_table(options))?;
        writer.commit(0)?;
    }
    Ok(tree)
}

/// The error for a folder with [`UNFINISHED`] in it.
pub(super) fn unfinished(folder: &Arc<dyn Folder>) -> StorageError {
    let path = folder.path().map(|path| path.display().to_string());
    StorageError::Unfinished {
        folder: path.unwrap_or_else(|| "the folder".into()),
    }
}

/// Errors: `Corrupt` if the tree has had a log before that no longer exists.
pub(super) fn check_never_begun(folder: &Arc<dyn Folder>, roots: &Roots) -> Result<()> {
    match roots.version() <= COMMITS_WITHOUT_LOG {
        true => Ok(()),
        false => Err(StorageError::Corrupt {
            file: folder.display("log.*"),
            detail: "the log is missing or has no head, although its tree exists".into(),
        }),
    }
}

pub(super) fn new_table(options: &LogTreeOptions) -> TableOptions {
    TableOptions {
        lz4: options.compression,
    }
}

pub(super) fn open(
    folder: Arc<dyn Folder>,
    options: &LogTreeOptions,
) -> Result<(Arc<Shared>, Recovery)> {
    let start = Instant::now();
    let lock = folder.lock()?;
    let budget = MemoryBudget::new(options.cache_bytes);
    let sizes = Sizes::new(options);
    let tree = open_tree(&folder, options, &budget)?;
    let tree_seq = tree.roots().sequence();
    let mut loading = Loading::new(&tree, new_table(options), &sizes, &budget);
    let replay = Replay::read(&folder, tree_seq, &mut |record| loading.apply(record))?;
    let (view, last, frozen_to) = loading.finish()?;
    let new_log = replay.found_nothing();
    if new_log {
        check_never_begun(&folder, &tree.roots())?;
    }
    let recovery = Recovery {
        batches: replay.replayed.batches,
        log_bytes: replay.replayed.bytes,
        torn: replay.replayed.torn.clone(),
        took: start.elapsed(),
    };
    let tables = view.tables(u64::MAX).into_iter().collect();
    let state = PipelineState {
        view: view.clone(),
        frozen_to,
        tables,
        closed: false,
    };
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes,
        buffer_bytes: options.log_buffer_bytes,
        budget: budget.clone(),
    };
    let log = replay.begin(log_options, state)?;
    if new_log {
        // From now on, files without a log are files that have lost it.
        tree.writer()?.commit(tree_seq)?;
    }
    log.trim(view.roots().sequence());
    let checkpointer = Checkpointer::default();
    let debt = view.frozen().iter().map(|generation| generation.bytes());
    checkpointer.debt.store(debt.sum(), Ordering::Relaxed);
    let shared = Shared {
        folder,
        budget,
        sizes,
        tree,
        new_table: new_table(options),
        log,
        sequencer: Sequencer::new(last),
        views: ArcSwap::new(view),
        snapshots: OpenSnapshots::default(),
        spilled: AtomicU64::new(0),
        bases: Bases::default(),
        retired: Retired::default(),
        flusher: Default::default(),
        checkpointer,
        throttle: Throttle::new(),
        counters: Default::default(),
        scarce: AtomicBool::new(false),
        space_checked_at: AtomicU64::new(0),
        closed: AtomicBool::new(false),
        lock: Mutex::new(Some(lock)),
    };
    shared.refresh_free_space();
    Ok((Arc::new(shared), recovery))
}

impl Shared {
    /// Stops the threads, syncs, writes everything into the tree, and releases the folder's lock
    /// once no reader is left.
    pub(super) fn close(self: &Arc<Self>, threads: &Mutex<Vec<JoinHandle<()>>>) -> Result<()> {
        let mut threads = threads.lock();
        self.closed.store(true, Ordering::Release);
        let last = {
            let mut head = self.log.head();
            if std::mem::replace(&mut head.state.closed, true) {
                return Ok(());
            }
            head.last()
        };
        self.flusher.stop();
        self.checkpointer.stop();
        for thread in threads.drain(..) {
            // A thread that panicked needs no further handling.
            let _ = thread.join();
        }
        self.sequencer.wait_visible(last);
        let synced = self.log.sync_to(last);
        // What is in the log is safe; a checkpoint only shortens the next start.
        if synced.is_ok() {
            let _ = self.checkpoint_now();
        }
        self.retired.sweep();
        if let Some(lock) = self.lock.lock().take() {
            self.snapshots.keep(lock);
        }
        synced
    }
}
