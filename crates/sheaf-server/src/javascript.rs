//! JavaScript environments for the operations of this server.

use std::sync::Arc;

use sheaf_bson::{Error, RawValue, Value};
use sheaf_db::records::RecordCursor;
use sheaf_db::{Db, Namespace};
use sheaf_query::javascript::{Host, JavaScript, Limits, StoredFunctions};

use crate::parameters::Parameter;
use crate::server::Server;

impl Host for Server {
    fn operation(&self, db: &str) -> Option<Arc<dyn JavaScript>> {
        let engine = self.settings.javascript.as_ref()?;
        if !self.parameters.bool(Parameter::JavascriptEnabled) {
            return None;
        }
        let megabytes = usize::try_from(self.parameters.int(Parameter::JsHeapLimitMb));
        let limits = Limits {
            heap_bytes: megabytes.unwrap_or(usize::MAX).saturating_mul(1 << 20),
        };
        let stored = SystemJs {
            db: Arc::clone(&self.db),
            name: db.to_owned(),
        };
        Some(engine.operation(limits, Box::new(stored)))
    }
}

impl Server {
    /// The engine's name for buildInfo; "none" if scripts are refused.
    pub fn javascript_engine(&self) -> &'static str {
        match &self.settings.javascript {
            Some(engine) if self.parameters.bool(Parameter::JavascriptEnabled) => engine.name(),
            _ => "none",
        }
    }
}

/// The collection `system.js` of a database. Read once for each operation that runs scripts, in its
/// newest state, even in a transaction.
struct SystemJs {
    db: Arc<Db>,
    name: String,
}

impl StoredFunctions for SystemJs {
    fn load(&self) -> Result<Vec<(String, Value)>, Error> {
        let mut found = Vec::new();
        let Ok(ns) = Namespace::new(&self.name, "system.js") else {
            return Ok(found);
        };
        let view = self.db.read_view(&ns)?;
        let Some(collection) = &view.collection else {
            return Ok(found);
        };
        let mut cursor = RecordCursor::new(&view.snapshot, collection)?;
        let mut on = cursor.first()?;
        while on {
            sheaf_query::interrupt::check()?;
            let doc = cursor.document()?;
            if let (Some(RawValue::String(name)), Some(value)) = (doc.get("_id"), doc.get("value"))
            {
                found.push((name.to_owned(), value.to_value()));
            }
            on = cursor.next()?;
        }
        Ok(found)
    }
}
