//! The engines that every test of the contract runs on.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sheaf_storage::registry::{self, EngineKind, Location, Options};
use sheaf_storage::testing::fault::FaultFolder;
use sheaf_storage::*;
use tempfile::TempDir;

/// An engine, with a folder that is removed with it.
pub struct TestEngine {
    engine: Arc<dyn StorageEngine>,
    _folder: Option<TempDir>,
}

impl Deref for TestEngine {
    type Target = Arc<dyn StorageEngine>;

    fn deref(&self) -> &Arc<dyn StorageEngine> {
        &self.engine
    }
}

pub fn memory() -> TestEngine {
    TestEngine {
        engine: Arc::new(MemoryEngine::new()),
        _folder: None,
    }
}

pub fn redb() -> TestEngine {
    in_folder(EngineKind::Redb)
}

pub fn logtree() -> TestEngine {
    in_folder(EngineKind::LogTree)
}

fn in_folder(engine: EngineKind) -> TestEngine {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::Folder {
        path: folder.path().into(),
        engine,
    };
    TestEngine {
        engine: registry::open(&location, Options::default()).unwrap(),
        _folder: Some(folder),
    }
}

/// The engine in a folder of a simulated disk, with sizes so small that all limits are reached
/// early.
pub fn small_sheaf(folder: &FaultFolder, flush_interval: Duration) -> Result<LogTreeEngine> {
    sheaf_with_cache(folder, flush_interval, 1 << 20)
}

/// Like [`small_sheaf`], with a budget of `cache_bytes`. With 0 no page stays in the cache, and
/// every checkpoint spills the existing snapshots.
pub fn sheaf_with_cache(
    folder: &FaultFolder,
    flush_interval: Duration,
    cache_bytes: u64,
) -> Result<LogTreeEngine> {
    let options = LogTreeOptions {
        cache_bytes,
        generation_bytes: Some(128 << 10),
        flush_interval,
        segment_bytes: 32 << 10,
        log_buffer_bytes: 4 << 10,
        reserve_bytes: 0,
        ..LogTreeOptions::default()
    };
    LogTreeEngine::open_in(Arc::new(folder.clone()), options)
}

/// A new folder, and the path of a file in it.
pub fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.redb");
    (folder, path)
}

pub fn engines() -> Vec<TestEngine> {
    vec![memory(), redb(), logtree()]
}
