//! First stages whose documents the caller generates from its own state: their targets, and the
//! validation of their operands. The caller receives only validated operands.

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{RawDoc, RawElement, RawValue};

use crate::expression::location;

use super::operand::{Operand, duplicate_field, unknown_field, wrong_type};

/// `$listClusterCatalog`.
pub const LIST_CLUSTER_CATALOG: &str = "$listClusterCatalog";

/// The target over which a pipeline that begins with the stage must run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A collection, or a view where the stage accepts one.
    Collection,
    /// The collection of sessions.
    Sessions,
    /// A database.
    Database,
    /// The database `admin`.
    Admin,
    /// Any target.
    Nothing,
}

/// One of these stages.
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    /// The code for an operand that is not a document.
    not_a_document: i32,
    check: fn(RawDoc<'_>) -> Result<()>,
}

static SOURCES: &[Source] = &[
    Source {
        name: "$collStats",
        needs: Needs::Collection,
        not_a_document: 5447000,
        check: |_| Ok(()),
    },
    Source {
        name: "$currentOp",
        needs: Needs::Admin,
        not_a_document: ErrorCode::FAILED_TO_PARSE.0,
        check: |_| Ok(()),
    },
    Source {
        name: "$indexStats",
        needs: Needs::Collection,
        not_a_document: 28803,
        check: index_stats,
    },
    Source {
        name: LIST_CLUSTER_CATALOG,
        needs: Needs::Database,
        not_a_document: 9621302,
        check: list_cluster_catalog,
    },
    Source {
        name: "$listLocalSessions",
        needs: Needs::Database,
        not_a_document: ErrorCode::TYPE_MISMATCH.0,
        check: |spec| sessions("$listLocalSessions", spec),
    },
    Source {
        name: "$listMqlEntities",
        needs: Needs::Admin,
        not_a_document: ErrorCode::TYPE_MISMATCH.0,
        check: list_mql_entities,
    },
    Source {
        name: "$listSearchIndexes",
        needs: Needs::Collection,
        not_a_document: ErrorCode::FAILED_TO_PARSE.0,
        check: |_| Ok(()),
    },
    Source {
        name: "$listSessions",
        needs: Needs::Sessions,
        not_a_document: ErrorCode::TYPE_MISMATCH.0,
        check: |spec| sessions("$listSessions", spec),
    },
    Source {
        name: "$planCacheStats",
        needs: Needs::Collection,
        not_a_document: ErrorCode::FAILED_TO_PARSE.0,
        check: plan_cache_stats,
    },
    Source {
        name: "$querySettings",
        needs: Needs::Nothing,
        not_a_document: 7746800,
        check: query_settings,
    },
    Source {
        name: "$queryStats",
        needs: Needs::Admin,
        not_a_document: ErrorCode::FAILED_TO_PARSE.0,
        check: query_stats,
    },
];

/// The stage with this name; `None` if there is none.
pub(crate) fn find(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.name == name)
}

/// The names of all these stages.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|source| source.name)
}

impl Source {
    /// Checks the operand. Errors: it is not a document; those of its fields.
    pub(crate) fn check<'v>(&self, value: RawValue<'v>) -> Result<RawDoc<'v>> {
        let RawValue::Document(spec) = value else {
            return Err(location(
                self.not_a_document,
                format!(
                    "{} must take an object but found: {}",
                    self.name,
                    value.type_name()
                ),
            ));
        };
        (self.check)(spec)?;
        Ok(spec)
    }
}

fn index_stats(spec: RawDoc<'_>) -> Result<()> {
    match spec.is_empty() {
        true => Ok(()),
        false => Err(location(
            28803,
            "The $indexStats stage specification must be an empty object",
        )),
    }
}

/// A field that must be a boolean; unlike in other operands, null is an error.
fn strict_boolean(path: &str, element: &RawElement<'_>) -> Result<bool> {
    match element.value() {
        RawValue::Boolean(is) => Ok(is),
        other => Err(wrong_type(path, element.key(), other, "bool")),
    }
}

fn booleans(path: &str, spec: RawDoc<'_>, known: &[&str]) -> Result<()> {
    let mut seen = Vec::new();
    for element in spec {
        let name = element.key();
        if !known.contains(&name) {
            return Err(unknown_field(path, name));
        }
        if seen.contains(&name) {
            return Err(duplicate_field(path, name));
        }
        seen.push(name);
        strict_boolean(path, &element)?;
    }
    Ok(())
}

fn list_cluster_catalog(spec: RawDoc<'_>) -> Result<()> {
    booleans(
        LIST_CLUSTER_CATALOG,
        spec,
        &["shards", "balancingConfiguration"],
    )
}

fn query_settings(spec: RawDoc<'_>) -> Result<()> {
    booleans("$querySettings", spec, &["showDebugQueryShape"])
}

/// `{entityType: "aggregationStages"}`, the only type.
fn list_mql_entities(spec: RawDoc<'_>) -> Result<()> {
    let operand = Operand::new("$listMqlEntities", spec, &["entityType"])?;
    match operand.string("entityType")? {
        Some("aggregationStages") => Ok(()),
        Some(other) => Err(Error::bad_value(format!(
            "$listMqlEntities.entityType cannot be '{other}': use 'aggregationStages'"
        ))),
        None => Err(operand.missing("entityType")),
    }
}

/// `{transformIdentifiers: {algorithm: "hmac-sha-256", hmacKey: <binary of subtype 8>}}`, or `{}`.
fn query_stats(spec: RawDoc<'_>) -> Result<()> {
    let operand = Operand::new("$queryStats", spec, &["transformIdentifiers"])?;
    let Some(transform) = operand.document("transformIdentifiers")? else {
        return Ok(());
    };
    const PATH: &str = "$queryStats.transformIdentifiers";
    let transform = Operand::new(PATH, transform, &["algorithm", "hmacKey"])?;
    match transform.string("algorithm")? {
        Some("hmac-sha-256") => {}
        Some(other) => {
            return Err(Error::bad_value(format!(
                "{PATH}.algorithm cannot be '{other}': use 'hmac-sha-256'"
            )));
        }
        None => return Err(transform.missing("algorithm")),
    }
    match transform.get("hmacKey").map(|key| key.value()) {
        Some(RawValue::Binary { subtype: 8, .. }) => Ok(()),
        Some(RawValue::Binary { subtype, .. }) => Err(Error::new(
            ErrorCode::TYPE_MISMATCH,
            format!("{PATH}.hmacKey must be binary of subtype 8 (sensitive), not {subtype}"),
        )),
        Some(other) => Err(wrong_type(PATH, "hmacKey", other, "binData")),
        None => Err(transform.missing("hmacKey")),
    }
}

/// `{allUsers: true}` or `{users: [{user, db}, ...]}`; null elements of `users` are ignored.
fn sessions(name: &str, spec: RawDoc<'_>) -> Result<()> {
    let operand = Operand::new(name, spec, &["allUsers", "users"])?;
    let all = operand.boolean("allUsers")?.unwrap_or(false);
    let path = format!("{name}.users");
    let mut any = false;
    for user in operand.array("users")?.into_iter().flatten() {
        let user = match user {
            RawValue::Null | RawValue::Undefined => continue,
            RawValue::Document(user) => Operand::new(&path, user, &["user", "db"])?,
            other => return Err(wrong_type(name, "users", other, "object")),
        };
        any = true;
        for field in ["user", "db"] {
            user.string(field)?.ok_or_else(|| user.missing(field))?;
        }
    }
    if all && any {
        return Err(Error::new(
            ErrorCode::UNSUPPORTED_FORMAT,
            format!("{name} takes 'allUsers: true' or 'users', not both"),
        ));
    }
    Ok(())
}

fn plan_cache_stats(spec: RawDoc<'_>) -> Result<()> {
    let failed = |message: String| Err(Error::new(ErrorCode::FAILED_TO_PARSE, message));
    let mut all_hosts = None;
    for option in spec {
        if option.key() != "allHosts" {
            return failed(format!(
                "$planCacheStats has no option '{}', only 'allHosts'",
                option.key()
            ));
        }
        if all_hosts.is_some() {
            return failed("$planCacheStats: 'allHosts' is specified twice".to_owned());
        }
        let RawValue::Boolean(all) = option.value() else {
            return Err(location(
                13111,
                format!(
                    "$planCacheStats: 'allHosts' must be a bool, not {}",
                    option.value().type_name()
                ),
            ));
        };
        all_hosts = Some(all);
    }
    match all_hosts {
        Some(true) => Err(location(
            4503200,
            "$planCacheStats with allHosts is only for sharded clusters",
        )),
        _ => Ok(()),
    }
}
