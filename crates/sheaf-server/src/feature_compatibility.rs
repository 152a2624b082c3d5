//! The feature compatibility version, stored in `admin.system.version`.
//!
//! It has no effect on the data files, whose format has a version of its own. Tools read it, and
//! set it after an upgrade.

use std::sync::Arc;

use parking_lot::RwLock;
use sheaf_bson::{DocBuilder, Error, RawValue};
use sheaf_db::{Db, Namespace, StatementContext};

use crate::repl::store_document;
use crate::stored::read_document;

const NAMESPACE: &str = "admin.system.version";
const ID: &str = "featureCompatibilityVersion";

/// The versions that can be set; the first is the default.
pub const VERSIONS: [&str; 2] = ["8.2", "8.0"];

/// The feature compatibility version in force.
#[derive(Debug)]
pub struct FeatureCompatibility(RwLock<&'static str>);

impl FeatureCompatibility {
    /// Reads the stored version.
    pub fn read(db: &Db) -> Result<FeatureCompatibility, Error> {
        let stored = read_document(db, NAMESPACE, ID)?;
        let stored = stored.as_ref().and_then(|doc| doc.get("version"));
        let mut known = VERSIONS.into_iter();
        let version = known.find(|version| stored == Some(RawValue::String(version)));
        Ok(FeatureCompatibility(RwLock::new(
            version.unwrap_or(VERSIONS[0]),
        )))
    }

    /// The version.
    pub fn version(&self) -> &'static str {
        *self.0.read()
    }

    /// Sets the version, stores it and waits until it is durable.
    pub fn set(
        &self,
        db: &Arc<Db>,
        op: &StatementContext,
        version: &'static str,
    ) -> Result<(), Error> {
        let mut doc = DocBuilder::new();
        doc.append("_id", ID);
        doc.append("version", version);
        store_document(db, op, &Namespace::parse(NAMESPACE)?, &doc.finish())?;
        db.sync()?;
        *self.0.write() = version;
        Ok(())
    }
}
