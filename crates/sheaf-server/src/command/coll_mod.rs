//! `collMod`: changes options of a collection or of an index.

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::catalog::kind::NamespaceKind;
use sheaf_db::ddl::coll_mod::CollModResult;
use sheaf_db::ddl::timeseries::BucketsChange;
use sheaf_db::timeseries::Timeseries;
use sheaf_db::timeseries::indexes::key_on_buckets;
use sheaf_db::{CollMod, Namespace};
use sheaf_query::timeseries::TimeseriesOptions;

use super::context::CommandContext;
use super::fields;

/// Runs the command.
pub fn run(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let namespace = cx.collection()?;
    match cx.server.db.catalog().kind(&namespace) {
        NamespaceKind::TimeSeries(series, _) => {
            return modify_timeseries(cx, &namespace, &series, out);
        }
        NamespaceKind::View(_) => return modify_view(cx, &namespace),
        NamespaceKind::Missing | NamespaceKind::Collection(_) => {}
    }
    let mut request = DocBuilder::new();
    for element in cx.arguments() {
        request.append_raw_element(element);
    }
    let request = request.finish();
    let request = CollMod::parse(request.as_raw())?;
    let result = cx.server.db.coll_mod(&cx.op, &namespace, &request)?;
    append_result(&result, out);
    Ok(())
}

fn append_result(result: &CollModResult, out: &mut DocBuilder) {
    if let Some((old, new)) = result.expire_after_seconds {
        if let Some(old) = old {
            out.append("expireAfterSeconds_old", old);
        }
        out.append("expireAfterSeconds_new", new);
    }
    if let Some((old, new)) = result.hidden {
        out.append("hidden_old", old);
        out.append("hidden_new", new);
    }
    if let Some((old, new)) = result.prepare_unique {
        out.append("prepareUnique_old", old);
        out.append("prepareUnique_new", new);
    }
    if result.became_unique {
        out.append("unique_new", true);
    }
}

/// Changes the bucketing or expiry of a time-series collection, or an index on its buckets.
fn modify_timeseries(
    cx: &CommandContext<'_>,
    namespace: &Namespace,
    series: &Timeseries,
    out: &mut DocBuilder,
) -> Result<(), Error> {
    let db = &cx.server.db;
    let (mut of_index, mut others) = (DocBuilder::new(), DocBuilder::new());
    for element in cx.arguments() {
        match (element.key(), element.value()) {
            ("index", RawValue::Document(index)) => {
                of_index.append_bson("index", &index_on_buckets(index, &series.options)?);
            }
            _ => {
                others.append_raw_element(element);
            }
        }
    }
    let change = BucketsChange::parse(others.finish().as_raw())?;
    let of_index = of_index.finish();
    if !of_index.is_empty() {
        let request = CollMod::parse(of_index.as_raw())?;
        let result = db.coll_mod(&cx.op, series.buckets.ns(), &request)?;
        append_result(&result, out);
    }
    db.modify_timeseries(&cx.op, namespace, &change)
}

/// The `index` argument with its key pattern translated to buckets.
fn index_on_buckets(index: RawDoc<'_>, options: &TimeseriesOptions) -> Result<DocBuf, Error> {
    let mut out = DocBuilder::new();
    for element in index {
        match (element.key(), element.value()) {
            ("keyPattern", RawValue::Document(key)) => {
                out.append_bson("keyPattern", &key_on_buckets(key, options)?);
            }
            ("expireAfterSeconds", _) => {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    "TTL indexes are not supported on time-series collections; set \
                     expireAfterSeconds of the collection",
                ));
            }
            _ => {
                out.append_raw_element(element);
            }
        }
    }
    Ok(out.finish())
}

fn modify_view(cx: &CommandContext<'_>, namespace: &Namespace) -> Result<(), Error> {
    const NAME: &str = "collMod";
    let (mut on, mut pipeline) = (None, None);
    for element in cx.arguments() {
        match element.key() {
            "viewOn" => on = Some(fields::string(NAME, &element)?),
            "pipeline" => pipeline = Some(fields::array(NAME, &element)?),
            other => {
                return Err(Error::new(
                    ErrorCode::INVALID_OPTIONS,
                    format!("option not supported on a view: {other}"),
                ));
            }
        }
    }
    cx.server.db.modify_view(&cx.op, namespace, on, pipeline)
}
