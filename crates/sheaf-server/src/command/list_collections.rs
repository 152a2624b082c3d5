//! `listCollections`: the collections of a database.

use sheaf_bson::{DocBuf, DocBuilder, Error, RawDoc};
use sheaf_db::Namespace;
use sheaf_db::catalog::snapshot::CatalogSnapshot;
use sheaf_query::matcher;

use super::batch::{self, CursorSettings, Listing};
use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "listCollections";
    sheaf_db::check_database_name(cx.db)?;
    let (mut filter, mut name_only, mut batch_size) = (RawDoc::EMPTY, false, None);
    let mut authorized = false;
    for element in cx.arguments() {
        match element.key() {
            "filter" => {
                filter = fields::document(NAME, &element)?;
            }
            "nameOnly" => name_only = fields::strict_boolean(NAME, &element)?,
            "authorizedCollections" => authorized = fields::boolean(NAME, &element)?,
            "cursor" => batch_size = cursor_batch_size(NAME, fields::document(NAME, &element)?)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    let only_authorized = authorized && name_only;
    let filter = matcher::parse(filter, &matcher::ParseContext::default())?;
    let catalog = cx.server.db.catalog();
    let mut listed = Vec::new();
    for info in described(&catalog, cx.db) {
        if only_authorized && !cx.may_use(info.get("name").and_then(|name| name.as_str())) {
            continue;
        }
        // The filter sees what is shown.
        let info = match name_only {
            true => name_and_type(&info),
            false => info,
        };
        if filter.matches(info.as_raw())? {
            listed.push(info);
        }
    }
    reply(cx, NAME, listed, batch_size, out)
}

/// The description of each collection and view of a database.
pub fn described(catalog: &CatalogSnapshot, database: &str) -> impl Iterator<Item = DocBuf> {
    let database = catalog.database(database);
    let collections = database.into_iter().flat_map(|db| db.collections());
    let views = database.into_iter().flat_map(|db| db.views());
    collections
        .map(|collection| collection.to_list_doc())
        .chain(views.map(|view| match catalog.timeseries(view.ns()) {
            Some(series) => sheaf_db::ddl::timeseries::to_list_doc(view.ns(), &series.buckets),
            None => view.to_list_doc(),
        }))
}

fn name_and_type(info: &DocBuf) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in info.iter().filter(|e| matches!(e.key(), "name" | "type")) {
        out.append_raw_element(element);
    }
    out.finish()
}

/// Parses `cursor: {batchSize}` of commands that return a cursor.
pub fn cursor_batch_size(command: &str, cursor: RawDoc<'_>) -> Result<Option<u64>, Error> {
    let mut batch_size = None;
    for element in fields::given(cursor) {
        match element.key() {
            "batchSize" => batch_size = Some(fields::non_negative(command, &element)?),
            other => {
                return Err(super::fields::unknown_field(
                    &format!("{command}.cursor"),
                    other,
                ));
            }
        }
    }
    Ok(batch_size)
}

/// Replies with a cursor over a listing; everything fits the first batch
/// unless the client wants less.
fn reply(
    cx: &mut CommandContext<'_>,
    command: &str,
    listed: Vec<DocBuf>,
    batch_size: Option<u64>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let reply_namespace = batch::command_namespace(cx.db, command);
    let namespace = Namespace::new(cx.db, "system.listing")?;
    batch::reply_with_cursor(
        cx,
        Listing::of(listed),
        CursorSettings {
            namespace,
            reply_namespace,
            batch_size: batch_size.or(Some(u64::MAX)),
            single_batch: false,
            no_timeout: false,
        },
        out,
    )
}
