//! The engines that every test of the contract runs on.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use sheaf_storage::*;
use tempfile::TempDir;

/// An engine, with the folder that goes when it goes.
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
    let (folder, path) = folder();
    TestEngine {
        engine: Arc::new(RedbEngine::open(&path, RedbOptions::default()).unwrap()),
        _folder: Some(folder),
    }
}

/// A new folder, and the path of a file in it.
pub fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.redb");
    (folder, path)
}

pub fn engines() -> Vec<TestEngine> {
    vec![memory(), redb()]
}
