//! LMDB through heed: a memory map, one writer, no log.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};

use super::{Contender, Put, Reader, Result, TABLES};

/// LMDB. Durability is a property of the environment, and a second environment would be a second
/// file, so an environment without syncs runs the unsynced commits.
pub struct HeedContender {
    env: Env,
    tables: Vec<Database<Bytes, Bytes>>,
    synced: bool,
}

impl HeedContender {
    /// A new environment in the directory. With `synced`, commits are durable on return.
    pub fn create(folder: &Path, map_bytes: usize, synced: bool) -> Result<HeedContender> {
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes).max_dbs(TABLES as u32);
        // SAFETY: the directory belongs to this process alone, on a local disk, and its files are
        // opened once. Without syncs, a crash of the machine may damage them, which is acceptable
        // in a benchmark.
        let env = unsafe {
            if !synced {
                options.flags(EnvFlags::NO_SYNC);
            }
            options.open(folder)?
        };
        let mut txn = env.write_txn()?;
        let mut tables = Vec::new();
        for n in 0..TABLES {
            tables.push(env.create_database(&mut txn, Some(&format!("t{n}")))?);
        }
        txn.commit()?;
        Ok(HeedContender {
            env,
            tables,
            synced,
        })
    }
}

impl Contender for HeedContender {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for put in &puts {
            self.tables[put.table].put(&mut txn, &put.key, &put.value)?;
        }
        txn.commit()?;
        if synced && !self.synced {
            self.env.force_sync()?;
        }
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(HeedReader {
            txn: self.env.read_txn()?,
            tables: &self.tables,
        }))
    }

    fn settle(&self) -> Result<()> {
        self.env.force_sync()?;
        Ok(())
    }

    fn bytes_written(&self) -> Option<u64> {
        None
    }
}

struct HeedReader<'a> {
    txn: RoTxn<'a, WithTls>,
    tables: &'a [Database<Bytes, Bytes>],
}

impl Reader for HeedReader<'_> {
    fn get(&mut self, table: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.tables[table].get(&self.txn, key)? {
            Some(value) => {
                found(value);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn range(
        &mut self,
        table: usize,
        from: &[u8],
        count: usize,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut n = 0;
        if reverse {
            let range = (Bound::Unbounded, Bound::Included(from));
            for entry in self.tables[table].rev_range(&self.txn, &range)?.take(count) {
                let (key, value) = entry?;
                each(key, value);
                n += 1;
            }
        } else {
            // LMDB does not allow empty keys.
            let lower = match from {
                [] => Bound::Unbounded,
                from => Bound::Included(from),
            };
            let range = (lower, Bound::Unbounded);
            for entry in self.tables[table].range(&self.txn, &range)?.take(count) {
                let (key, value) = entry?;
                each(key, value);
                n += 1;
            }
        }
        Ok(n)
    }
}
