//! `$listClusterCatalog`: the collections and views of a database, or of all databases.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};
use sheaf_db::Db;

use super::super::list_collections::described;

/// The documents of the stage, run against `database`; on `admin`, of all databases.
///
/// No collection is sharded: none has a balancing configuration, and the list of its shards is
/// empty.
pub(super) fn stage(db: &Db, database: &str, spec: RawDoc<'_>) -> Vec<DocBuf> {
    let shards = spec.get("shards").is_some_and(|shards| shards.is_truthy());
    let catalog = db.catalog();
    let names = catalog.databases().map(|(name, _)| name);
    let names = names.filter(|name| database == "admin" || *name == database);
    names
        .flat_map(|name| described(&catalog, name).map(move |info| entry(name, &info, shards)))
        .collect()
}

/// The entry of a collection from its description in `listCollections`.
fn entry(database: &str, info: &DocBuf, shards: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("db", database);
    if let Some(RawValue::String(name)) = info.get("name") {
        out.append("ns", format!("{database}.{name}").as_str());
    }
    for element in info.iter().filter(|element| element.key() != "name") {
        out.append_raw_element(element);
    }
    out.append("sharded", false);
    if shards {
        out.begin_array("shards");
        out.end();
    }
    out.finish()
}
