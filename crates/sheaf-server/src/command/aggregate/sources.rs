//! First stages that generate documents from the server's own state.

use std::sync::Weak;

use sheaf_auth::UserName;
use sheaf_bson::{DateTime, DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawValue, doc};
use sheaf_db::aggregate::FirstStages;
use sheaf_db::catalog::views::not_on_view;
use sheaf_db::timeseries::indexes::on_measurements;
use sheaf_db::usage::CollectionUsage;
use sheaf_db::{Namespace, ReadView};
use sheaf_query::pipeline::stage_names;

use super::super::coll_stats::{append_storage_stats, positive_scale};
use super::super::context::CommandContext;
use super::super::fields::unknown_field;
use super::super::{current_op, fields, query_settings, search_indexes};
use super::{change_stream, cluster_catalog};
use crate::access::digest;
use crate::host::host_name;
use crate::query_stats::Transform;
use crate::server::Server;
use crate::session::logical::session_id;

/// Generates the documents of first stages that describe the server or a collection. Pipelines
/// within stages use it as well.
pub(super) struct ServerSources {
    /// Weak, because the server keeps cursors, and they keep this.
    pub(super) server: Weak<Server>,
    /// The port that clients connect to.
    pub(super) port: i32,
    /// The user of the command.
    pub(super) user: Option<[u8; 32]>,
}

impl FirstStages for ServerSources {
    fn documents(
        &self,
        name: &str,
        namespace: &Namespace,
        view: &ReadView,
        spec: RawDoc<'_>,
    ) -> Result<Vec<DocBuf>, Error> {
        let server = self.server.upgrade().ok_or_else(|| {
            Error::new(
                ErrorCode::INTERRUPTED_AT_SHUTDOWN,
                "the server is shutting down",
            )
        })?;
        let host = format!("{}:{}", host_name(), self.port);
        match name {
            "$collStats" => Ok(vec![coll_stats(&server, &host, view, namespace, spec)?]),
            "$indexStats" => Ok(index_stats(&host, view, namespace)),
            "$listSearchIndexes" => search_indexes::stage(view, spec),
            "$planCacheStats" => plan_cache_stats(&host, view, namespace),
            "$listSessions" => Ok(sessions(&server, self.user, spec)),
            other => Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                format!("{other} cannot be run against the collection {namespace}"),
            )),
        }
    }
}

/// The documents that the first stage of a pipeline over no collection (`aggregate: 1`) generates.
/// Errors: an invalid operand; `InvalidNamespace` for a stage that requires a collection.
pub(super) fn of_nothing(
    cx: &CommandContext<'_>,
    name: &str,
    spec: RawDoc<'_>,
) -> Result<Vec<DocBuf>, Error> {
    match name {
        "$currentOp" => current_op::stage(cx, spec),
        "$listClusterCatalog" => Ok(cluster_catalog::stage(&cx.server.db, cx.db, spec)),
        "$listLocalSessions" => {
            let user = cx.connection.authentication.user.as_ref();
            Ok(sessions(cx.server, user.map(|user| user.digest), spec))
        }
        "$queryStats" => Ok(query_stats(cx.server, spec)),
        "$listMqlEntities" => Ok(mql_entities()),
        "$querySettings" => Ok(query_settings::stage(cx.server, spec)),
        other => Err(Error::new(
            ErrorCode::INVALID_NAMESPACE,
            format!("{{aggregate: 1}} is not valid for '{other}'; a collection is required."),
        )),
    }
}

/// The documents of `$queryStats`, one for each key. The operand has passed the checks of parsing.
fn query_stats(server: &Server, spec: RawDoc<'_>) -> Vec<DocBuf> {
    let options = spec.get("transformIdentifiers");
    let key = options.and_then(|options| options.as_document()?.get("hmacKey"));
    let transform = match key {
        Some(RawValue::Binary { bytes, .. }) => Some(Transform {
            hmac_key: bytes.to_vec(),
        }),
        _ => None,
    };
    server.query_stats.documents(transform.as_ref())
}

/// The documents of `$listMqlEntities`, one for each stage.
fn mql_entities() -> Vec<DocBuf> {
    let mut names: Vec<&str> = stage_names().chain([change_stream::STAGE]).collect();
    names.sort_unstable();
    names.into_iter().map(|name| doc! {"name": name}).collect()
}

/// The documents of `$indexStats`, one per index. Vector indexes are left out.
fn index_stats(host: &str, view: &ReadView, namespace: &Namespace) -> Vec<DocBuf> {
    let Some(collection) = &view.collection else {
        return Vec::new();
    };
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
        out.append("host", host);
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
    ready.collect()
}

/// The documents of `$listSessions` and `$listLocalSessions`: sessions in memory, those of the
/// given users, or all with `allUsers` and without access control, or the user's own.
fn sessions(server: &Server, user: Option<[u8; 32]>, spec: RawDoc<'_>) -> Vec<DocBuf> {
    let users = spec.get("users").and_then(|users| users.as_array());
    let users: Vec<_> = users.into_iter().flat_map(|users| users.iter()).collect();
    let named: Vec<_> = users
        .iter()
        .filter(|user| !fields::is_absent(**user))
        .map(|user| {
            let text = |field| user.as_document()?.get(field)?.as_str();
            let name = UserName::new(text("user")?, text("db")?);
            Some(digest(&name))
        })
        .collect();
    let all_users = spec.get("allUsers").is_some_and(|all| all.is_truthy());
    let own_only = server.settings.authorization && !all_users;
    let is_shown = |uid: Option<[u8; 32]>| match named.is_empty() {
        false => uid.is_some() && named.contains(&uid),
        true => !own_only || uid == user,
    };
    let mut sessions = server.sessions.list();
    sessions.retain(|session| {
        let lsid = session.get("_id").and_then(|lsid| lsid.as_document());
        is_shown(lsid.and_then(session_id).and_then(|id| id.uid))
    });
    sessions
}

/// The documents of `$planCacheStats`, one per cache entry.
/// Errors: 50933 if the collection does not exist.
fn plan_cache_stats(
    host: &str,
    view: &ReadView,
    namespace: &Namespace,
) -> Result<Vec<DocBuf>, Error> {
    let Some(collection) = &view.collection else {
        return Err(Error::new(
            ErrorCode(50933),
            format!("collection '{namespace}' does not exist"),
        ));
    };
    let finish = |out: &mut DocBuilder| {
        out.append("host", host);
    };
    Ok(collection
        .plan_cache()
        .stats(|shape| collection.index_filters().has_shape(shape), finish))
}

/// The document of `$collStats`. A view, and a collection that does not exist, have latencies but
/// no storage.
fn coll_stats(
    server: &Server,
    host: &str,
    view: &ReadView,
    namespace: &Namespace,
    spec: RawDoc<'_>,
) -> Result<DocBuf, Error> {
    const NAME: &str = "$collStats";
    const OPTIONS: &[&str] = &["storageStats", "count", "latencyStats", "queryExecStats"];
    let stored = || {
        if server.db.catalog().kind(namespace).is_view() {
            return Err(not_on_view(namespace));
        }
        view.collection.as_ref().ok_or_else(|| {
            Error::new(
                ErrorCode::NAMESPACE_NOT_FOUND,
                format!("Collection [{namespace}] not found."),
            )
        })
    };
    let mut out = DocBuilder::new();
    out.append("ns", namespace.as_str());
    out.append("host", host);
    out.append("localTime", DateTime::now());
    for element in spec.iter() {
        if !OPTIONS.contains(&element.key()) {
            return Err(unknown_field(NAME, element.key()));
        }
        if fields::is_null(&element) {
            continue;
        }
        let options = fields::document(NAME, &element)?;
        match element.key() {
            "storageStats" => {
                let mut scale = 1;
                for option in options.iter() {
                    match option.key() {
                        "scale" => scale = positive_scale(NAME, &option)?,
                        other => return Err(unknown_field("$collStats.storageStats", other)),
                    }
                }
                let collection = stored()?;
                out.begin_document("storageStats");
                append_storage_stats(&server.db, collection, scale, &mut out)?;
                out.end();
            }
            "count" => {
                stored()?;
                out.append("count", RawValue::int_or_long(view.record_count()? as i64));
            }
            "latencyStats" => {
                let histograms = histograms(options)?;
                let unused = CollectionUsage::default();
                let catalog = server.db.catalog();
                let of_view = || catalog.usage(namespace);
                let usage = view.collection.as_ref();
                let usage = usage.map(|collection| collection.usage()).or_else(of_view);
                out.begin_document("latencyStats");
                usage
                    .unwrap_or(&unused)
                    .append_latencies(histograms, &mut out);
                out.end();
            }
            "queryExecStats" => {
                let collection = stored()?;
                out.begin_document("queryExecStats");
                collection.usage().append_query_execution(&mut out);
                out.end();
            }
            other => return Err(unknown_field(NAME, other)),
        }
    }
    Ok(out.finish())
}

/// `histograms` of `latencyStats`, which must be true or false.
fn histograms(options: RawDoc<'_>) -> Result<bool, Error> {
    const NAME: &str = "$collStats.latencyStats";
    let mut histograms = false;
    for option in options.iter() {
        histograms = match (option.key(), option.value()) {
            ("histograms", RawValue::Boolean(is)) => is,
            ("histograms", _) => return Err(fields::wrong_type(NAME, &option, "bool")),
            (other, _) => return Err(unknown_field(NAME, other)),
        };
    }
    Ok(histograms)
}
