//! `getDefaultRWConcern` and `setDefaultRWConcern`: what reads and writes without a concern of their own have.
//!
//! Kept in `config.settings`, as MongoDB keeps them, and in memory for those who need them.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, RawDoc, RawValue};
use sheaf_db::{Db, Namespace};

use super::context::{CommandContext, WriteConcern};
use super::fields;
use crate::repl::store_document;

const NAMESPACE: &str = "config.settings";
const ID: &str = "ReadWriteConcernDefaults";

/// The defaults as they were set; `None` where nobody has set one.
#[derive(Debug, Default, Clone)]
pub struct RwConcernDefaults {
    read: Option<DocBuf>,
    write: Option<(DocBuf, WriteConcern)>,
}

impl RwConcernDefaults {
    /// What `config.settings` has.
    pub fn read(db: &Db) -> Result<RwConcernDefaults, Error> {
        let ns = Namespace::parse(NAMESPACE)?;
        let view = db.read_view(&ns)?;
        let Some(collection) = &view.collection else {
            return Ok(RwConcernDefaults::default());
        };
        let mut cursor = sheaf_db::records::RecordCursor::new(&view.snapshot, collection)?;
        let mut on = cursor.first()?;
        while on {
            let doc = cursor.document()?;
            if doc.get("_id") == Some(RawValue::String(ID)) {
                return RwConcernDefaults::from_doc(doc);
            }
            on = cursor.next()?;
        }
        Ok(RwConcernDefaults::default())
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
        Ok(RwConcernDefaults {
            read: sub("defaultReadConcern"),
            write,
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

    fn append(&self, out: &mut DocBuilder) {
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
        out.append("localUpdateWallClockTime", DateTime::now());
    }
}

/// Runs `getDefaultRWConcern`.
pub fn get(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    for element in cx.arguments() {
        match element.key() {
            "inMemory" => drop(fields::boolean("getDefaultRWConcern", &element)?),
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    cx.server.rw_concern.read().append(out);
    Ok(())
}

/// Runs `setDefaultRWConcern`.
pub fn set(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "setDefaultRWConcern";
    let mut defaults = cx.server.rw_concern.read().clone();
    let mut given = false;
    for element in cx.arguments() {
        match element.key() {
            "defaultReadConcern" => {
                let doc = fields::document(NAME, &element)?;
                match doc.get("level") {
                    None if doc.is_empty() => defaults.read = None,
                    Some(RawValue::String("local" | "available" | "majority")) => {
                        defaults.read = Some(doc.to_buf());
                    }
                    _ => {
                        return Err(Error::bad_value(
                            "The default read concern's level must be local, available or majority",
                        ));
                    }
                }
                given = true;
            }
            "defaultWriteConcern" => {
                let doc = fields::document(NAME, &element)?;
                let concern = WriteConcern::parse(doc)?;
                if concern.unacknowledged {
                    return Err(Error::bad_value("The default write concern cannot be w: 0"));
                }
                defaults.write = Some((doc.to_buf(), concern));
                given = true;
            }
            _ => return Err(cx.unknown_field(&element)),
        }
    }
    if !given {
        return Err(Error::bad_value(
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present",
        ));
    }
    let mut doc = DocBuilder::new();
    doc.append("_id", ID);
    if let Some(read) = &defaults.read {
        doc.append_bson("defaultReadConcern", read);
    }
    if let Some((write, _)) = &defaults.write {
        doc.append_bson("defaultWriteConcern", write);
    }
    doc.append("updateWallClockTime", DateTime::now());
    let ns = Namespace::parse(NAMESPACE)?;
    store_document(&cx.server.db, &cx.op, &ns, &doc.finish())?;
    cx.server.db.sync()?;
    defaults.append(out);
    *cx.server.rw_concern.write() = defaults;
    Ok(())
}
