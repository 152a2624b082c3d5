//! Keeping the oplog bounded: the oldest entries go.

use std::sync::Arc;

use sheaf_bson::Result;
use sheaf_storage::Durability;

use crate::database::Db;
use crate::op_context::OpContext;
use crate::storage_error::Coded;

impl Db {
    /// Removes the oldest entries of the oplog beyond its size; how many bytes that were. To be called now and
    /// then. Entries go in pieces of an eighth, so that it is not done for each of them.
    pub fn trim_oplog(self: &Arc<Self>, op: &OpContext) -> Result<u64> {
        let oplog = self.oplog();
        if !oplog.is_on() {
            return Ok(0);
        }
        let table = oplog.table();
        let stats = self.engine().table_stats(table).coded()?;
        let (bytes, kept) = (stats.key_bytes + stats.value_bytes, oplog.bytes_max());
        if bytes <= kept + kept / 8 {
            return Ok(0);
        }
        let snapshot = self.storage().snapshot().coded()?;
        let mut cursor = snapshot.cursor(table).coded()?;
        let mut on = cursor.seek_first().coded()?;
        let mut gone = 0;
        while on && gone < bytes - kept {
            op.check_interrupt()?;
            gone += (cursor.key().len() + cursor.value().len()) as u64;
            on = cursor.next().coded()?;
        }
        // The newest entry stays, whatever its size: it says what time it is.
        if !on {
            cursor.seek_last().coded()?;
        }
        let mut unit = self.storage().begin().coded()?;
        unit.delete_range(table, &[], Some(cursor.key()));
        unit.commit(Durability::Buffered).coded()?;
        Ok(gone)
    }
}
