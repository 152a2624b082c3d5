//! `dbHash`: the MD5 of the documents of each collection in `_id` order, and one of all these sums.
//!
//! Equal documents have equal sums, independent of storage engine, indexes and insertion order.
//! Comparing the sums of two servers shows whether they hold the same data.

use std::time::Instant;

use md5::{Digest, Md5};
use sheaf_bson::{DocBuilder, Error, RawArray, RawDoc, doc};
use sheaf_db::find::{canonicalize, find};
use sheaf_db::{Namespace, ResultSource};
use sheaf_query::canonical::FindSpec;

use super::context::CommandContext;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    sheaf_db::check_database_name(cx.db)?;
    let begun = Instant::now();
    let mut wanted: Option<Vec<&str>> = None;
    for element in cx.arguments() {
        match element.key() {
            "collections" => {
                // As in MongoDB, a value that is not an array means all collections.
                let names = element.value().as_array().unwrap_or(RawArray::EMPTY);
                let names = names.iter().map(|name| {
                    name.as_str().ok_or_else(|| {
                        Error::bad_value(
                            "BSON field 'dbHash.collections' must contain names of collections",
                        )
                    })
                });
                let names = names.collect::<Result<Vec<_>, _>>()?;
                // An empty list means all collections, as does a missing one.
                wanted = (!names.is_empty()).then_some(names);
            }
            _ => cx.unknown_field(&element)?,
        }
    }
    let mut collections = collections(cx);
    if let Some(wanted) = &wanted {
        collections.retain(|namespace| wanted.contains(&namespace.collection()));
    }
    let mut of_all = Md5::new();
    let mut sums = Vec::new();
    for namespace in &collections {
        let sum = hash(cx, namespace)?;
        of_all.update(sum.as_bytes());
        sums.push(sum);
    }
    out.append(
        "host",
        format!("{}:{}", crate::host::host_name(), cx.port()).as_str(),
    );
    out.begin_document("collections");
    for (namespace, sum) in collections.iter().zip(&sums) {
        out.append(namespace.collection(), sum.as_str());
    }
    out.end();
    let catalog = cx.server.db.catalog();
    out.begin_array("capped");
    for namespace in &collections {
        let collection = catalog.collection(namespace);
        if collection.is_some_and(|c| c.options().capped().is_some()) {
            out.push(namespace.collection());
        }
    }
    out.end();
    out.begin_document("uuids");
    for namespace in &collections {
        if let Some(collection) = catalog.collection(namespace) {
            out.append(namespace.collection(), collection.uuid().as_raw());
        }
    }
    out.end();
    out.append("md5", hex(of_all).as_str());
    out.append("timeMillis", begun.elapsed().as_millis() as i32);
    Ok(())
}

/// The user collections of the database and `system.js`, sorted by name.
fn collections(cx: &CommandContext<'_>) -> Vec<Namespace> {
    let catalog = cx.server.db.catalog();
    let Some(database) = catalog.database(cx.db) else {
        return Vec::new();
    };
    let mut found: Vec<_> = database
        .collections()
        .map(|collection| collection.ns().clone())
        .filter(|namespace| {
            let name = namespace.collection();
            !namespace.is_system()
                || namespace.is_views()
                || namespace.is_buckets()
                || name == "system.js"
        })
        .collect();
    found.sort();
    found
}

fn hash(cx: &CommandContext<'_>, namespace: &Namespace) -> Result<String, Error> {
    let view = cx.server.db.view(&cx.op, namespace)?;
    let order = doc! {"_id": 1};
    let spec = FindSpec {
        sort: Some(order.as_raw()),
        ..Default::default()
    };
    let query = std::sync::Arc::new(canonicalize(&view, spec)?);
    let options = cx.server.query_options(None);
    let mut found = find(&view, &cx.op, query, &options)?;
    let mut sum = Md5::new();
    while let Some(doc) = found.next(&cx.op)? {
        cx.op.check_interrupt()?;
        let doc: RawDoc<'_> = doc.as_raw();
        sum.update(doc.as_bytes());
    }
    Ok(hex(sum))
}

fn hex(sum: Md5) -> String {
    let digest = sum.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
