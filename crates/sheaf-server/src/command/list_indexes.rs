//! `listIndexes`: the indexes of a collection.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, doc};
use sheaf_db::Namespace;
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::timeseries::indexes::on_measurements;

use super::batch::{self, CursorSettings, Listing};
use super::context::CommandContext;
use super::fields;
use super::list_collections::cursor_batch_size;

/// Runs it.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    const NAME: &str = "listIndexes";
    let namespace = cx.collection()?;
    let (mut batch_size, mut build_ids, mut build_info) = (None, false, false);
    for element in cx.arguments() {
        match element.key() {
            "cursor" => batch_size = cursor_batch_size(NAME, fields::document(NAME, &element)?)?,
            "includeBuildUUIDs" => build_ids = fields::boolean(NAME, &element)?,
            "includeIndexBuildInfo" => build_info = fields::boolean(NAME, &element)?,
            _ => cx.unknown_field(&element)?,
        }
    }
    if build_ids && build_info {
        return Err(Error::new(
            ErrorCode::INVALID_OPTIONS,
            "The includeBuildUUIDs flag and includeBuildIndexInfo flag cannot both be set to true",
        ));
    }
    let catalog = cx.server.db.catalog();
    let mut listed = match catalog.kind(&namespace) {
        NamespaceKind::Collection(collection) => collection.list_index_docs(),
        NamespaceKind::TimeSeries(series, _) => {
            let indexes = series.buckets.index_list().iter();
            let listed = indexes.filter_map(|index| on_measurements(index.spec(), &series.options));
            listed.collect()
        }
        NamespaceKind::Missing | NamespaceKind::View(_) => {
            return Err(Error::new(
                ErrorCode::NAMESPACE_NOT_FOUND,
                format!("ns does not exist: {namespace}"),
            ));
        }
    };
    if build_info {
        for index in &mut listed {
            *index = doc! {"spec": index.as_raw()};
        }
    }
    reply(cx, namespace, listed, batch_size, out)
}

fn reply(
    cx: &mut CommandContext<'_>,
    namespace: Namespace,
    listed: Vec<DocBuf>,
    batch_size: Option<u64>,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let reply_namespace = namespace.as_str().to_owned();
    batch::reply_with_cursor(
        cx,
        Listing::of(listed),
        CursorSettings {
            // What follows needs the list alone, not the collection.
            namespace: Namespace::new(cx.db, batch::LISTING)?,
            reply_namespace,
            batch_size: batch_size.or(Some(u64::MAX)),
            single_batch: false,
            no_timeout: false,
        },
        out,
    )
}
