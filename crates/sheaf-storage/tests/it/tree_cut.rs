//! Truncation of the tree file concurrently with its writers.
//!
//! ```text
//!   committer   the end is here ───────────────────────> cut
//!   builder              pages after that end ─ written ─> must exist
//! ```

use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sheaf_storage::folder::{self, File, Folder, FolderLock};
use sheaf_storage::testing::fault::FaultFolder;
use sheaf_storage::tree::{PageReading, TableOptions, TreeFile};
use sheaf_storage::{Result, TableId};

use crate::tree::{List, Map, Tables, What, check, options, verified};

const TABLE: TableId = TableId(1);
const OTHER: TableId = TableId(2);

/// A folder whose files are truncated slowly, like a large file on a disk.
struct SlowCuts {
    folder: FaultFolder,
    /// Notified when a truncation has begun.
    begun: mpsc::Sender<()>,
}

struct SlowlyCut {
    file: Arc<dyn File>,
    begun: mpsc::Sender<()>,
}

impl Folder for SlowCuts {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let file = self.folder.open(name, create)?;
        let begun = self.begun.clone();
        Ok(Arc::new(SlowlyCut { file, begun }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.folder.list()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.folder.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name)
    }
    fn sync(&self) -> io::Result<()> {
        self.folder.sync()
    }
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.folder.free_bytes()
    }
    fn path(&self) -> Option<&Path> {
        self.folder.path()
    }
    fn lock(&self) -> Result<FolderLock> {
        self.folder.lock()
    }
}

impl File for SlowlyCut {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        if len < self.file.len()? {
            let _ = self.begun.send(());
            thread::sleep(Duration::from_millis(100));
        }
        self.file.set_len(len)
    }
    fn map(&self, offset: u64, len: u64) -> io::Result<Option<folder::Map>> {
        self.file.map(offset, len)
    }
}

#[test]
fn a_truncation_loses_no_concurrent_writes() {
    let (begun, cutting) = mpsc::channel();
    let folder = FaultFolder::default();
    let folder: Arc<dyn Folder> = Arc::new(SlowCuts { folder, begun });
    let value = vec![7; 1000];
    let number = |n: u64| n.to_be_bytes().to_vec();
    let file = TreeFile::create(&folder, "tree", options(PageReading::Cached, 1 << 20)).unwrap();
    let mut writer = file.writer().unwrap();
    for table in [TABLE, OTHER] {
        writer.create_table(table, TableOptions::default()).unwrap();
    }
    let all = (0..8000).map(|n| (number(n), What::Put(value.clone())));
    writer.apply(TABLE, &mut List::new(all)).unwrap();
    writer.commit(1).unwrap();
    let built = thread::scope(|scope| {
        let (file, value) = (&file, &value);
        let builder = scope.spawn(move || {
            // The new end of the file is decided by now: later writes go after it.
            let patience = Duration::from_secs(30);
            cutting.recv_timeout(patience).expect("the file is cut");
            let mut bulk = file.bulk(OTHER, TableOptions::default()).unwrap();
            for n in 0..4000 {
                bulk.push(&number(n), value).unwrap();
            }
            bulk.finish().unwrap()
        });
        // The emptied table frees space, which later pages use; the file's end is after them.
        for sequence in 2..6 {
            let mut writer = file.writer().unwrap();
            let none = [(Vec::new(), What::DeleteRange(None))];
            writer.apply(TABLE, &mut List::new(none)).unwrap();
            writer
                .create_table(TableId(sequence + 10), TableOptions::default())
                .unwrap();
            writer.commit(sequence).unwrap();
        }
        builder.join().unwrap()
    });
    let mut writer = file.writer().unwrap();
    writer.install(OTHER, built).unwrap();
    writer.commit(6).unwrap();
    let loaded: Map = (0..4000).map(|n| (number(n), value.clone())).collect();
    let mut tables = Tables::from([(TABLE, Map::new()), (OTHER, loaded)]);
    tables.extend((2..6).map(|sequence| (TableId(sequence + 10), Map::new())));
    check(&file.roots(), &tables);
    verified(&file);
    drop(file);
    let file = TreeFile::open(&folder, "tree", options(PageReading::Cached, 1 << 20)).unwrap();
    check(&file.roots(), &tables);
}
