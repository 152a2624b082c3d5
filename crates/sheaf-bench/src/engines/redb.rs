//! redb as a library: one write transaction per commit, cursors by `range`.

use std::path::Path;

use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition,
};

use super::{Contender, Put, Reader, Result, TABLES};

type Table<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

const NAMES: [&str; TABLES] = ["records", "ids", "index0", "index1", "index2"];

fn table(n: usize) -> Table<'static> {
    TableDefinition::new(NAMES[n])
}

/// redb used directly.
pub struct RedbContender(Database);

impl RedbContender {
    /// A new database in the directory.
    pub fn create(folder: &Path, cache_bytes: usize) -> Result<RedbContender> {
        let db = Database::builder()
            .set_cache_size(cache_bytes)
            .create(folder.join("data.redb"))?;
        let txn = db.begin_write()?;
        for n in 0..TABLES {
            txn.open_table(table(n))?;
        }
        txn.commit()?;
        Ok(RedbContender(db))
    }
}

impl Contender for RedbContender {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()> {
        let mut txn = self.0.begin_write()?;
        txn.set_durability(if synced {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        for puts in puts.chunk_by(|a, b| a.table == b.table) {
            let mut table = txn.open_table(table(puts[0].table))?;
            for put in puts {
                table.insert(&put.key[..], &put.value[..])?;
            }
        }
        txn.commit()?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let txn = self.0.begin_read()?;
        let mut tables = Vec::new();
        for n in 0..TABLES {
            tables.push(txn.open_table(table(n))?);
        }
        Ok(Box::new(RedbReader { tables, _txn: txn }))
    }

    fn settle(&self) -> Result<()> {
        self.commit(Vec::new(), true)
    }

    fn bytes_written(&self) -> Option<u64> {
        None
    }
}

struct RedbReader {
    tables: Vec<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    _txn: ReadTransaction,
}

impl Reader for RedbReader {
    fn get(&mut self, table: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.tables[table].get(key)? {
            Some(value) => {
                found(value.value());
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
            for entry in self.tables[table]
                .range::<&[u8]>(..=from)?
                .rev()
                .take(count)
            {
                let (key, value) = entry?;
                each(key.value(), value.value());
                n += 1;
            }
        } else {
            for entry in self.tables[table].range::<&[u8]>(from..)?.take(count) {
                let (key, value) = entry?;
                each(key.value(), value.value());
                n += 1;
            }
        }
        Ok(n)
    }
}
