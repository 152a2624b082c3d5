//! Settings of the server that are stored as documents of its databases, as in MongoDB.

use sheaf_bson::{DocBuf, Error, RawValue};
use sheaf_db::records::RecordCursor;
use sheaf_db::{Db, Namespace};

/// The document with this `_id`. Reads the collection, which holds few documents.
pub fn read_document(db: &Db, namespace: &str, id: &str) -> Result<Option<DocBuf>, Error> {
    let view = db.read_view(&Namespace::parse(namespace)?)?;
    let Some(collection) = &view.collection else {
        return Ok(None);
    };
    let mut cursor = RecordCursor::new(&view.snapshot, collection)?;
    let mut on = cursor.first()?;
    while on {
        let doc = cursor.document()?;
        if doc.get("_id") == Some(RawValue::String(id)) {
            return Ok(Some(doc.to_buf()));
        }
        on = cursor.next()?;
    }
    Ok(None)
}
