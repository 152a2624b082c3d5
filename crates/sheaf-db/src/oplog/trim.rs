//! Bounds the size of the oplog by removing the oldest entries.

use std::sync::Arc;

use sheaf_bson::Result;
use sheaf_storage::Durability;

use crate::database::Db;
use crate::op_context::OpContext;
use crate::storage_error::IntoClientError;

impl Db {
    /// Removes the oldest entries of an oplog larger than its maximum size. Returns the number of
    /// bytes removed. Call it periodically: it removes entries in batches of an eighth of the
    /// maximum size, to amortise the cost.
    pub fn trim_oplog(self: &Arc<Self>, op: &OpContext) -> Result<u64> {
        let oplog = self.oplog();
        if !oplog.is_on() {
            return Ok(0);
        }
        let table = oplog.table();
        let stats = self.engine().table_stats(table).into_client_error()?;
        let (bytes, kept) = (stats.key_bytes + stats.value_bytes, oplog.bytes_max());
        if bytes <= kept + kept / 8 {
            return Ok(0);
        }
        let snapshot = self.storage().snapshot().into_client_error()?;
        let mut cursor = snapshot.cursor(table).into_client_error()?;
        let mut on = cursor.seek_first().into_client_error()?;
        let mut gone = 0;
        while on && gone < bytes - kept {
            op.check_interrupt()?;
            gone += (cursor.key().len() + cursor.value().len()) as u64;
            on = cursor.next().into_client_error()?;
        }
        // The newest entry stays, whatever its size: it records the current time.
        if !on {
            cursor.seek_last().into_client_error()?;
        }
        let mut unit = self.storage().begin().into_client_error()?;
        unit.delete_range(table, &[], Some(cursor.key()));
        unit.commit(Durability::Buffered).into_client_error()?;
        Ok(gone)
    }
}
