//! The tree file of our engine by itself, without log and memtable: the minimum cost of its reads,
//! by either way of reading pages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use sheaf_storage::TableId;
use sheaf_storage::budget::MemoryBudget;
use sheaf_storage::folder::{DiskFolder, Folder};
use sheaf_storage::tree::{
    Change, Changes, PageReading, Roots, TableOptions, TreeCursor, TreeFile, TreeOptions,
};

use super::{Contender, Put, Reader, Result, TABLES};

/// Bytes gathered before they are applied to the tree, like a generation of the engine.
const GATHER: usize = 64 << 20;

type Gathered = [BTreeMap<Vec<u8>, Vec<u8>>; TABLES];

/// The tree file as a contender.
pub struct TreeContender {
    name: &'static str,
    file: TreeFile,
    gathered: Mutex<(Gathered, usize)>,
}

impl TreeContender {
    /// Creates the file with empty tables.
    pub fn create(folder: &Path, reading: PageReading, cache: u64) -> Result<TreeContender> {
        let folder: Arc<dyn Folder> = Arc::new(DiskFolder::open(folder)?);
        let budget = MemoryBudget::new(cache);
        let file = TreeFile::create(&folder, "tree", TreeOptions { reading, budget })?;
        let mut writer = file.writer()?;
        for n in 0..TABLES {
            writer.create_table(TableId(n as u64), TableOptions::default())?;
        }
        writer.commit(0)?;
        let name = match reading {
            PageReading::Mapped => "tree",
            PageReading::Cached => "tree-cached",
            PageReading::Auto => "tree",
        };
        Ok(TreeContender {
            name,
            file,
            gathered: Mutex::default(),
        })
    }

    fn flush(&self, gathered: &mut (Gathered, usize)) -> Result<()> {
        let tables = std::mem::take(gathered).0;
        let mut writer = self.file.writer()?;
        for (n, map) in tables.into_iter().enumerate() {
            let list = map.into_iter().collect();
            writer.apply(TableId(n as u64), &mut Puts { list, at: 0 })?;
        }
        writer.commit(0)?;
        Ok(())
    }
}

struct Puts {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    at: usize,
}

impl Changes for Puts {
    fn current(&self) -> Option<Change<'_>> {
        let put = self.list.get(self.at);
        put.map(|(key, value)| Change::Put(key, value))
    }

    fn advance(&mut self) -> sheaf_storage::Result<()> {
        self.at += 1;
        Ok(())
    }
}

impl Contender for TreeContender {
    fn name(&self) -> &'static str {
        self.name
    }

    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()> {
        let mut gathered = self.gathered.lock();
        for put in puts {
            gathered.1 += put.key.len() + put.value.len();
            gathered.0[put.table].insert(put.key, put.value);
        }
        if synced || gathered.1 >= GATHER {
            self.flush(&mut gathered)?;
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let roots = self.file.roots();
        let cursors = (0..TABLES).map(|n| roots.cursor(TableId(n as u64)));
        let cursors = cursors.collect::<std::result::Result<_, _>>()?;
        Ok(Box::new(TreeReader { roots, cursors }))
    }

    fn settle(&self) -> Result<()> {
        self.flush(&mut self.gathered.lock())
    }

    fn bytes_written(&self) -> Option<u64> {
        Some(self.file.stats().bytes_written)
    }
}

struct TreeReader {
    roots: Arc<Roots>,
    cursors: Vec<TreeCursor>,
}

impl Reader for TreeReader {
    fn get(&mut self, n: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.roots.get(TableId(n as u64), key)? {
            Some(value) => {
                found(&value);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn range(
        &mut self,
        n: usize,
        from: &[u8],
        count: usize,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let cursor = &mut self.cursors[n];
        let mut valid = if reverse {
            cursor.seek_for_prev(from)?
        } else {
            cursor.seek(from)?
        };
        let mut seen = 0;
        while valid && seen < count {
            each(cursor.key(), cursor.value());
            seen += 1;
            if seen < count {
                valid = if reverse {
                    cursor.prev()?
                } else {
                    cursor.next()?
                };
            }
        }
        Ok(seen)
    }
}
