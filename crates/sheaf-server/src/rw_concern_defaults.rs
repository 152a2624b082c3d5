//! The read and write concern of commands that specify none.
//!
//! Stored in `config.settings`, as in MongoDB, and cached in memory.

use std::sync::Arc;

use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, RawDoc, RawValue, Timestamp};
use sheaf_db::{Db, Namespace, StatementContext};

use crate::repl::store_document;
use crate::stored::read_document;
use crate::write_concern::WriteConcern;

const NAMESPACE: &str = "config.settings";
const ID: &str = "ReadWriteConcernDefaults";

/// The defaults that were set; `None` for one that was not.
#[derive(Debug, Default, Clone)]
pub struct RwConcernDefaults {
    /// `defaultReadConcern`.
    pub read: Option<DocBuf>,
    /// `defaultWriteConcern`, as given and as parsed.
    pub write: Option<(DocBuf, WriteConcern)>,
    /// When they were last set: cluster time and wall clock.
    pub updated: Option<(Timestamp, DateTime)>,
}

impl RwConcernDefaults {
    /// Reads the defaults from `config.settings`.
    pub fn read(db: &Db) -> Result<RwConcernDefaults, Error> {
        match read_document(db, NAMESPACE, ID)? {
            Some(doc) => RwConcernDefaults::from_doc(doc.as_raw()),
            None => Ok(RwConcernDefaults::default()),
        }
    }

    fn from_doc(doc: RawDoc<'_>) -> Result<RwConcernDefaults, Error> {
        let sub = |name: &str| match doc.get(name) {
            Some(RawValue::Document(doc)) => Some(doc.to_buf()),
            _ => None,
        };
        let write = match sub("defaultWriteConcern") {
            Some(doc) => {
                let concern = WriteConcern::parse(doc.as_raw())?;
                Some((doc, concern))
            }
            None => None,
        };
        let updated = match (doc.get("updateOpTime"), doc.get("updateWallClockTime")) {
            (Some(RawValue::Timestamp(time)), Some(RawValue::DateTime(wall))) => Some((time, wall)),
            _ => None,
        };
        Ok(RwConcernDefaults {
            read: sub("defaultReadConcern"),
            write,
            updated,
        })
    }

    /// The write concern of commands without one. A member of a set waits for the majority.
    pub fn write_concern(&self, in_set: bool) -> WriteConcern {
        match &self.write {
            Some((_, concern)) => *concern,
            None => WriteConcern {
                journaled: in_set,
                ..WriteConcern::default()
            },
        }
    }

    /// Appends the reply of the two commands.
    pub fn append(&self, out: &mut DocBuilder) {
        match &self.read {
            Some(doc) => out.append_bson("defaultReadConcern", doc),
            None => out
                .begin_document("defaultReadConcern")
                .append("level", "local")
                .end(),
        };
        match &self.write {
            Some((doc, _)) => out.append_bson("defaultWriteConcern", doc),
            None => out
                .begin_document("defaultWriteConcern")
                .append("w", "majority")
                .append("wtimeout", 0)
                .end(),
        };
        let source = |set: bool| if set { "global" } else { "implicit" };
        out.append("defaultWriteConcernSource", source(self.write.is_some()));
        out.append("defaultReadConcernSource", source(self.read.is_some()));
        if let Some((time, wall)) = self.updated {
            out.append("updateOpTime", time);
            out.append("updateWallClockTime", wall);
        }
        out.append("localUpdateWallClockTime", DateTime::now());
    }

    /// Writes the defaults to `config.settings`, with the time, and waits until they are durable.
    pub fn store(&mut self, db: &Arc<Db>, op: &StatementContext) -> Result<(), Error> {
        let mut doc = DocBuilder::new();
        doc.append("_id", ID);
        if let Some(read) = &self.read {
            doc.append_bson("defaultReadConcern", read);
        }
        if let Some((write, _)) = &self.write {
            doc.append_bson("defaultWriteConcern", write);
        }
        let (time, wall) = (db.next_timestamp(), DateTime::now());
        self.updated = Some((time, wall));
        doc.append("updateOpTime", time);
        doc.append("updateWallClockTime", wall);
        let ns = Namespace::parse(NAMESPACE)?;
        store_document(db, op, &ns, &doc.finish())?;
        db.sync()
    }
}
