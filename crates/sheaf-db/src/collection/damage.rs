//! Damage reports of a collection: the error names the collection, and the log records it once.

use std::sync::atomic::Ordering;

use sheaf_bson::{Error, ErrorCode};

use crate::collection::Collection;
use crate::events::DbEvent;

impl Collection {
    /// Returns `error`. If its code is `DataCorruptionDetected`, prefixes the namespace, and logs
    /// it if it is the first of this collection since the database was opened.
    #[cold]
    pub(crate) fn report_damage(&self, error: Error) -> Error {
        if error.code() != ErrorCode::DATA_CORRUPTION_DETECTED {
            return error;
        }
        let is_named = |rest: &str| rest.starts_with(" :: ");
        let error = match error.message().strip_prefix(self.ns.as_str()) {
            Some(rest) if is_named(rest) => error,
            _ => error.with_context(&self.ns),
        };
        let damage = &self.state.damage;
        if !damage.logged.swap(true, Ordering::Relaxed) {
            damage.events.send(DbEvent::DamageFound {
                ns: self.ns.clone(),
                error: error.message().to_owned(),
            });
        }
        error
    }
}
