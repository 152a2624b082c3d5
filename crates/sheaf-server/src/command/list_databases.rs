//! `listDatabases`: the databases and their sizes on disk.

use std::collections::BTreeSet;

use sheaf_bson::{DocBuilder, Error, RawDoc};
use sheaf_query::matcher;

use super::context::CommandContext;
use super::fields;
use crate::command_facts::{Action, On};

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "listDatabases";
    let (mut filter, mut name_only, mut authorized) = (RawDoc::EMPTY, false, false);
    for element in cx.arguments() {
        match element.key() {
            "filter" => {
                filter = fields::document(NAME, &element)?;
            }
            "nameOnly" => name_only = fields::strict_boolean(NAME, &element)?,
            "authorizedDatabases" => authorized = fields::boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let filter = matcher::parse(filter, &matcher::ParseContext::default())?;
    let catalog = cx.server.db.catalog();
    let mut total = 0;
    out.begin_array("databases");
    // Those of the server are listed although they may hold nothing yet, as in MongoDB.
    let mut names: BTreeSet<&str> = catalog.databases().map(|(name, _)| name).collect();
    names.extend(["admin", "config", "local"]);
    // Users without the privilege see what they may use.
    let all = !authorized && cx.may(Action::ListDatabases, On::Cluster);
    for name in names {
        if !all && !cx.may_use_something_of(name) {
            continue;
        }
        let stats = cx.server.db.database_stats(name)?;
        let bytes = stats.total_bytes();
        let mut info = DocBuilder::new();
        info.append("name", name);
        info.append("sizeOnDisk", bytes as i64);
        info.append("empty", stats.collections == 0);
        let info = info.finish();
        if !filter.matches(info.as_raw())? {
            continue;
        }
        total += bytes;
        if name_only {
            out.push_begin_document();
            out.append("name", name);
            out.end();
        } else {
            out.push_document_bytes(info.as_bytes());
        }
    }
    out.end();
    if !name_only {
        out.append("totalSize", total as i64);
        out.append("totalSizeMb", (total >> 20) as i64);
    }
    Ok(())
}
