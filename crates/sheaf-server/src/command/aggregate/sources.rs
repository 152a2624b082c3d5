//! First stages that generate documents from the server's own state.

use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue};
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::timeseries::indexes::on_measurements;
use sheaf_db::{Namespace, ReadView};

use super::super::coll_stats::{append_storage_stats, positive_scale};
use super::super::context::CommandContext;
use super::super::fields::unknown_field;
use super::super::sessions::check_user;
use super::super::{current_op, fields, optional, search_indexes};
use crate::host::host_name;

/// The documents that the first stage of a pipeline over a collection generates.
/// Errors: an invalid operand; `CommandNotSupportedOnView` for a view; `InvalidNamespace` for a
/// stage that cannot run on this collection.
pub(super) fn of_collection(
    cx: &CommandContext<'_>,
    name: &str,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    if cx.server.db.catalog().kind(namespace).is_view() {
        return Err(not_on_view(namespace));
    }
    match name {
        "$collStats" => Ok(vec![collection_stats(cx, view, namespace, spec)?]),
        "$indexStats" => index_stats(cx, view, namespace, spec),
        "$listSearchIndexes" => search_indexes::stage(view, spec),
        "$planCacheStats" => plan_cache_stats(cx, view, spec),
        "$listSessions" if namespace.as_str() == "config.system.sessions" => {
            sessions(cx, name, spec)
        }
        other => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("{other} cannot be run against the collection {namespace}"),
        )),
    }
}

/// The documents that the first stage of a pipeline over no collection (`aggregate: 1`) generates.
/// Errors: an invalid operand; `InvalidNamespace` for a stage that requires a collection or another
/// database.
pub(super) fn of_nothing(
    cx: &CommandContext<'_>,
    name: &str,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    match name {
        "$currentOp" if cx.db != "admin" => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            "$currentOp must be run against the 'admin' database with {aggregate: 1}",
        )),
        "$currentOp" => current_op::stage(cx, spec),
        "$listLocalSessions" => sessions(cx, name, spec),
        other => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("{other} needs a collection: {{aggregate: 1}} is not valid for it"),
        )),
    }
}

/// The documents of `$indexStats`, one per index. Vector indexes are left out.
fn index_stats(
    cx: &CommandContext<'_>,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    if !spec.is_empty() {
        return Err(Error::new(
            ErrorCode(28803),
            "The $indexStats stage specification must be an empty object",
        ));
    }
    let Some(collection) = &view.collection else {
        return Ok(Vec::new());
    };
    let host = host_and_port(cx);
    // A time-series collection shows its indexes as they are on measurements.
    let series = collection.options().timeseries();
    let series = series.filter(|_| collection.ns() != namespace);
    let describe = |index: &sheaf_db::index::Index| {
        let spec = match series {
            Some(options) => on_measurements(index.spec(), options)?,
            None => index.spec().to_doc(),
        };
        let mut out = DocBuilder::new();
        out.append("name", index.name());
        if let Some(key) = spec.get("key") {
            out.append("key", key);
        }
        out.append("host", host.as_str());
        out.begin_document("accesses");
        out.append("ops", index.usage().operations() as i64);
        out.append("since", index.usage().since());
        out.end();
        out.append("spec", &spec);
        Some(out.finish())
    };
    let ready = collection.index_list().iter();
    let ready = ready
        .filter(|index| !index.is_vector())
        .filter_map(describe);
    Ok(ready.collect())
}

/// The documents of `$listSessions` and `$listLocalSessions`: every session in memory.
fn sessions(cx: &CommandContext<'_>, name: &str, spec: RawDoc<'_>) -> Result<Vec<DocBuf>, Error> {
    let (mut all_users, mut names_users) = (false, false);
    for option in spec.iter() {
        match option.key() {
            "allUsers" => all_users = optional::boolean(name, &option)?.unwrap_or(false),
            "users" if optional::is_absent(option.value()) => {}
            "users" => {
                for user in fields::array(name, &option)?.iter() {
                    match user {
                        RawValue::Document(user) => {
                            check_user(user)?;
                            names_users = true;
                        }
                        user if optional::is_absent(user) => {}
                        _ => return Err(fields::wrong_type(name, &option, "object")),
                    }
                }
            }
            other => return Err(unknown_field(name, other)),
        }
    }
    if all_users && names_users {
        return Err(Error::new(
            ErrorCode::UNSUPPORTED_FORMAT,
            format!(
                "{name} may not specify {{allUsers: true}} and {{users: [...]}} at the same time"
            ),
        ));
    }
    // No session belongs to a user yet.
    match names_users {
        true => Ok(Vec::new()),
        false => Ok(cx.server.sessions.list()),
    }
}

fn host_and_port(cx: &CommandContext<'_>) -> String {
    format!("{}:{}", host_name(), cx.port())
}

/// The documents of `$planCacheStats`, one per cache entry.
/// Errors: `allHosts: true`, because there are no other hosts.
fn plan_cache_stats(
    cx: &CommandContext<'_>,
    view: &ReadView,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    for option in spec.iter() {
        if option.key() != "allHosts" {
            return Err(Error::new(
                ErrorCode::FAILED_TO_PARSE,
                format!(
                    "$planCacheStats has no option '{}', only 'allHosts'",
                    option.key()
                ),
            ));
        }
        let Some(all_hosts) = option.value().as_bool() else {
            return Err(Error::new(
                ErrorCode(13111),
                "wrong type for field (allHosts): $planCacheStats takes a boolean",
            ));
        };
        if all_hosts {
            return Err(Error::new(
                ErrorCode(4503200),
                "$planCacheStats with allHosts is only for sharded clusters",
            ));
        }
    }
    let Some(collection) = &view.collection else {
        return Ok(Vec::new());
    };
    let host = host_and_port(cx);
    let finish = |out: &mut DocBuilder| {
        out.append("host", host.as_str());
    };
    Ok(collection
        .plan_cache()
        .stats(|shape| collection.index_filters().has_shape(shape), finish))
}

/// The document of `$collStats`.
fn collection_stats(
    cx: &CommandContext<'_>,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<DocBuf, Error> {
    const NAME: &str = "$collStats";
    let Some(collection) = &view.collection else {
        return Err(Error::new(
            ErrorCode::NAMESPACE_NOT_FOUND,
            format!("Collection [{namespace}] not found."),
        ));
    };
    let mut out = DocBuilder::new();
    out.append("ns", namespace.as_str());
    out.append("host", host_and_port(cx).as_str());
    out.append("localTime", DateTime::now());
    for element in spec.iter() {
        match element.key() {
            "storageStats" => {
                let options = fields::document(NAME, &element)?;
                let mut scale = 1;
                for option in options.iter() {
                    match option.key() {
                        "scale" => scale = positive_scale(NAME, &option)?,
                        other => return Err(unknown_field("$collStats.storageStats", other)),
                    }
                }
                out.begin_document("storageStats");
                append_storage_stats(&cx.server.db, collection, scale, &mut out)?;
                out.end();
            }
            "count" => {
                fields::document(NAME, &element)?;
                out.append("count", view.record_count()? as i64);
            }
            "latencyStats" => {
                let options = fields::document(NAME, &element)?;
                let mut histograms = false;
                for option in options.iter() {
                    match option.key() {
                        "histograms" => histograms = fields::boolean(NAME, &option)?,
                        other => return Err(unknown_field("$collStats.latencyStats", other)),
                    }
                }
                out.begin_document("latencyStats");
                collection.usage().append_latencies(histograms, &mut out);
                out.end();
            }
            "queryExecStats" => {
                fields::document(NAME, &element)?;
                out.begin_document("queryExecStats");
                collection.usage().append_query_execution(&mut out);
                out.end();
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(out.finish())
}
