//! Privileges that depend on a command's arguments.
//!
//! A function sees the caller where the manual makes the privileges depend on it.
//!
//! Source: MongoDB's manual, "Privilege Actions" and the page of each command, "Required Access".

use sheaf_bson::{RawArray, RawDoc, RawValue};

use super::find;
use crate::command_facts::{Action, Asked, On, Required};

/// `db.collection`, split at the first dot.
fn full_name(name: &str) -> On<'_> {
    match name.split_once('.') {
        Some((db, name)) => On::Collection(db, name),
        None => On::Database(name),
    }
}

/// The collection that the first field names, or the database if it is not a string.
fn first<'a>(db: &'a str, body: RawDoc<'a>) -> On<'a> {
    match body.first().map(|first| first.value()) {
        Some(RawValue::String(name)) => On::Collection(db, name),
        _ => On::Database(db),
    }
}

fn is_set(doc: RawDoc<'_>, field: &str) -> bool {
    doc.get(field).is_some_and(|value| value.is_truthy())
}

fn documents<'a>(body: RawDoc<'a>, field: &str) -> Vec<RawDoc<'a>> {
    let list = match body.get(field) {
        Some(RawValue::Array(list)) => list,
        _ => return Vec::new(),
    };
    list.iter()
        .filter_map(|value| value.as_document())
        .collect()
}

fn bypass<'a>(body: RawDoc<'_>, on: On<'a>, out: &mut Vec<Required<'a>>) {
    if is_set(body, "bypassDocumentValidation") {
        out.push((Action::BypassDocumentValidation, on));
    }
}

/// `insert`.
pub fn insert<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = vec![(Action::Insert, on)];
    bypass(body, on, &mut out);
    out
}

/// `update`: statements in a document sequence are assumed to contain upserts.
pub fn update<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = vec![(Action::Find, on), (Action::Update, on)];
    let statements = documents(body, "updates");
    if statements.is_empty() || statements.iter().any(|one| is_set(*one, "upsert")) {
        out.push((Action::Insert, on));
    }
    bypass(body, on, &mut out);
    out
}

/// `findAndModify`.
pub fn find_and_modify<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = vec![(Action::Find, on)];
    if is_set(body, "remove") {
        out.push((Action::Remove, on));
    } else {
        out.push((Action::Update, on));
    }
    if is_set(body, "upsert") {
        out.push((Action::Insert, on));
    }
    bypass(body, on, &mut out);
    out
}

/// `bulkWrite`: all actions on every collection of `nsInfo`, because the ops may be in a document
/// sequence, which is not part of `body`.
pub fn bulk_write<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let body = asked.body;
    let mut out = Vec::new();
    for info in documents(body, "nsInfo") {
        let Some(name) = info.get("ns").and_then(|name| name.as_str()) else {
            continue;
        };
        let on = full_name(name);
        for action in [Action::Find, Action::Insert, Action::Update, Action::Remove] {
            out.push((action, on));
        }
        bypass(body, on, &mut out);
    }
    out
}

/// `getMore`: the cursor's collection.
pub fn get_more<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let name = body.get("collection").and_then(|name| name.as_str());
    vec![(Action::Find, On::Collection(db, name.unwrap_or_default()))]
}

/// `aggregate`: the privileges for what each stage reads and writes.
pub fn aggregate<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = Vec::new();
    let Some(RawValue::Array(stages)) = body.get("pipeline") else {
        return vec![(Action::Find, on)];
    };
    let source = stages.iter().next().and_then(|stage| stage.as_document());
    out.push(match source.and_then(|stage| stage.first()) {
        Some(stage) if source_of(stage.key()).is_some() => {
            let (action, whole_server) = source_of(stage.key()).unwrap_or((Action::Find, false));
            (action, if whole_server { On::Cluster } else { on })
        }
        _ => (Action::Find, on),
    });
    let query_stats = source.and_then(|stage| stage.get("$queryStats")?.as_document());
    if query_stats.is_some_and(|spec| spec.get("transformIdentifiers").is_some()) {
        out.push((Action::QueryStatsReadTransformed, On::Cluster));
    }
    if source.is_some_and(|stage| stage.get("$changeStream").is_some()) {
        out.push((Action::Find, on));
    }
    pipeline(db, stages, &mut out);
    let targets: Vec<On> = out
        .iter()
        .filter(|(action, _)| *action == Action::Insert)
        .map(|(_, on)| *on)
        .collect();
    for target in &targets {
        bypass(body, *target, &mut out);
    }
    out
}

/// `mapReduce`: find, and what writing to the collection of `out` requires.
pub fn map_reduce<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let mut out = vec![(Action::Find, first(db, body))];
    let (mode, target) = match body.get("out") {
        Some(RawValue::String(name)) => ("replace", On::Collection(db, name)),
        Some(RawValue::Document(spec)) => {
            let db = spec.get("db").and_then(|v| v.as_str()).unwrap_or(db);
            let modes = ["replace", "merge", "reduce"];
            let found = modes.iter().find_map(|mode| {
                let name = spec.get(mode)?.as_str()?;
                Some((*mode, On::Collection(db, name)))
            });
            let Some(found) = found else { return out };
            found
        }
        _ => return out,
    };
    out.push((Action::Insert, target));
    let second = match mode {
        "replace" => Action::Remove,
        _ => Action::Update,
    };
    out.push((second, target));
    bypass(body, target, &mut out);
    out
}

/// The action required by a first stage that does not read the collection's documents, and whether
/// it is required on the cluster.
fn source_of(stage: &str) -> Option<(Action, bool)> {
    Some(match stage {
        "$collStats" => (Action::CollStats, false),
        "$indexStats" => (Action::IndexStats, false),
        "$planCacheStats" => (Action::PlanCacheRead, false),
        "$listSearchIndexes" => (Action::ListSearchIndexes, false),
        "$changeStream" => (Action::ChangeStream, false),
        "$currentOp" => (Action::Inprog, true),
        "$querySettings" => (Action::QuerySettings, true),
        "$queryStats" => (Action::QueryStatsRead, true),
        "$listSessions" | "$listLocalSessions" => (Action::ListSessions, true),
        // On admin it describes all databases.
        "$listClusterCatalog" => (Action::ListDatabases, true),
        _ => return None,
    })
}

/// Adds the privileges on collections that stages read in addition to the pipeline's own, and on
/// those that they write.
fn pipeline<'a>(db: &'a str, stages: RawArray<'a>, out: &mut Vec<Required<'a>>) {
    for stage in stages.iter().filter_map(|stage| stage.as_document()) {
        let Some(stage) = stage.first() else { continue };
        let value = stage.value();
        let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
        let named = |field: &str| spec.get(field).and_then(|name| name.as_str());
        match stage.key() {
            "$lookup" | "$graphLookup" => {
                out.extend(named("from").map(|from| (Action::Find, On::Collection(db, from))));
            }
            "$unionWith" => {
                let name = value.as_str().or(named("coll"));
                out.extend(name.map(|name| (Action::Find, On::Collection(db, name))));
            }
            "$out" => {
                let on = target(db, value, spec);
                out.extend([(Action::Insert, on), (Action::Remove, on)]);
            }
            "$merge" => {
                let into = spec.get("into").unwrap_or(value);
                let on = target(db, into, into.as_document().unwrap_or(RawDoc::EMPTY));
                out.extend([(Action::Insert, on), (Action::Update, on)]);
            }
            "$facet" => {
                for facet in spec.iter() {
                    if let RawValue::Array(stages) = facet.value() {
                        pipeline(db, stages, out);
                    }
                }
            }
            _ => {}
        }
        if let Some(RawValue::Array(stages)) = spec.get("pipeline") {
            pipeline(db, stages, out);
        }
    }
}

/// A collection's name, or `{db, coll}`.
fn target<'a>(db: &'a str, value: RawValue<'a>, spec: RawDoc<'a>) -> On<'a> {
    let named = |field: &str| spec.get(field).and_then(|name| name.as_str());
    match value {
        RawValue::String(name) => On::Collection(db, name),
        _ => On::Collection(named("db").unwrap_or(db), named("coll").unwrap_or_default()),
    }
}

/// `create`: the creator of a view must be allowed to read the view's collections.
pub fn create<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let mut out = vec![(Action::CreateCollection, first(db, body))];
    if let Some(source) = body.get("viewOn").and_then(|name| name.as_str()) {
        out.push((Action::Find, On::Collection(db, source)));
        if let Some(RawValue::Array(stages)) = body.get("pipeline") {
            pipeline(db, stages, &mut out);
        }
    }
    out
}

/// `cloneCollectionAsCapped`.
pub fn clone_as_capped<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let to = body.get("toCollection").and_then(|name| name.as_str());
    let to = On::Collection(db, to.unwrap_or_default());
    vec![
        (Action::Find, first(db, body)),
        (Action::CreateCollection, to.clone()),
        (Action::Insert, to),
    ]
}

/// `renameCollection`: a dedicated action within a database; the privileges of a copy and a drop
/// between two databases.
pub fn rename<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let body = asked.body;
    let from = body.first().map(|first| first.value());
    let from = full_name(from.and_then(|name| name.as_str()).unwrap_or_default());
    let to = full_name(
        body.get("to")
            .and_then(|name| name.as_str())
            .unwrap_or_default(),
    );
    let mut out = match (&from, &to) {
        (On::Collection(source, _), On::Collection(target, _)) if source == target => {
            vec![(Action::RenameCollectionSameDb, On::Database(source))]
        }
        _ => vec![
            (Action::Find, from.clone()),
            (Action::DropCollection, from),
            (Action::Insert, to.clone()),
            (Action::CreateIndex, to.clone()),
        ],
    };
    if is_set(body, "dropTarget") {
        out.push((Action::DropCollection, to));
    }
    out
}

/// `listCollections`: listing only the names of authorized collections needs no privilege.
pub fn list_collections<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    match is_set(body, "nameOnly") && is_set(body, "authorizedCollections") {
        true => Vec::new(),
        false => vec![(Action::ListCollections, On::Database(db))],
    }
}

/// `listDatabases`: listing only authorized databases needs no privilege.
pub fn list_databases<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let body = asked.body;
    match is_set(body, "authorizedDatabases") {
        true => Vec::new(),
        false => vec![(Action::ListDatabases, On::Cluster)],
    }
}

/// `currentOp`: a user's own operations need no privilege.
pub fn current_op<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let body = asked.body;
    match is_set(body, "$ownOps") {
        true => Vec::new(),
        false => vec![(Action::Inprog, On::Cluster)],
    }
}

/// `explain`: the privileges of the explained command.
pub fn explain<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let explained = body.first().and_then(|first| first.value().as_document());
    let Some(explained) = explained else {
        return Vec::new();
    };
    match explained.first().and_then(|first| find(first.key())) {
        // `explain` itself cannot be explained, so the recursion ends.
        Some(row) if row.command.explained.is_some() => {
            let asked = Asked {
                body: explained,
                ..*asked
            };
            row.command.privileges.required(&asked)
        }
        _ => Vec::new(),
    }
}
