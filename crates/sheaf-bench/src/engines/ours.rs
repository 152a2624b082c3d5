//! Our own engines through the storage trait, as the database uses them.

use std::sync::Arc;

use sheaf_storage::{Cursor, Durability, Snapshot, StorageEngine, TableId, WriteBatch};

use super::{Contender, Put, Reader, Result, TABLES};

fn table(n: usize) -> TableId {
    TableId(n as u64 + 1)
}

/// An engine that implements the storage trait.
pub struct EngineContender(Arc<dyn StorageEngine>);

impl EngineContender {
    /// Creates the tables in a new engine.
    pub fn create(engine: Arc<dyn StorageEngine>) -> Result<EngineContender> {
        let mut batch = WriteBatch::new();
        for n in 0..TABLES {
            batch.create_table(table(n));
        }
        engine.apply(batch, Durability::Synced)?;
        Ok(EngineContender(engine))
    }

    /// The engine itself.
    pub fn engine(&self) -> &Arc<dyn StorageEngine> {
        &self.0
    }
}

impl Contender for EngineContender {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn commit(&self, puts: Vec<Put>, synced: bool) -> Result<()> {
        let mut batch = WriteBatch::new();
        for put in puts {
            match put.fresh {
                true => batch.insert_new(table(put.table), &put.key, put.value),
                false => batch.put(table(put.table), &put.key, put.value),
            }
        }
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        self.0.apply(batch, durability)?;
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let snapshot = self.0.snapshot()?;
        let mut cursors = Vec::new();
        for n in 0..TABLES {
            cursors.push(snapshot.cursor(table(n))?);
        }
        Ok(Box::new(EngineReader { snapshot, cursors }))
    }

    fn settle(&self) -> Result<()> {
        self.0.checkpoint()?;
        Ok(())
    }

    fn bytes_written(&self) -> Option<u64> {
        Some(self.0.stats().bytes_written)
    }
}

struct EngineReader {
    snapshot: Arc<dyn Snapshot>,
    cursors: Vec<Box<dyn Cursor>>,
}

impl Reader for EngineReader {
    fn get(&mut self, n: usize, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match self.snapshot.get(table(n), key)? {
            Some(value) => {
                found(&value);
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
        let cursor = &mut self.cursors[table];
        let mut n = 0;
        let mut valid = if reverse {
            cursor.seek_for_prev(from)?
        } else {
            cursor.seek(from)?
        };
        while valid {
            each(cursor.key(), cursor.value());
            n += 1;
            if n == count {
                break;
            }
            valid = if reverse {
                cursor.prev()?
            } else {
                cursor.next()?
            };
        }
        Ok(n)
    }
}
