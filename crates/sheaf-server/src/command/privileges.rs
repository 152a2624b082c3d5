//! Privileges that depend on a command's arguments.
//!
//! A function sees the caller where the manual makes the privileges depend on it.
//!
//! Source: MongoDB's manual, "Privilege Actions" and the page of each command, "Required Access".

use sheaf_bson::{RawArray, RawDoc, RawValue};

use super::find;
use super::stage_facts::{self, Input};
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

/// Whether the field is true; one of several such fields is enough.
fn is_set(doc: RawDoc<'_>, field: &str) -> bool {
    doc.iter()
        .any(|element| element.key() == field && element.value().is_truthy())
}

/// Whether a field occurs twice. Which of them counts would depend on the reader.
pub fn has_duplicates(doc: RawDoc<'_>) -> bool {
    let mut elements = doc.iter();
    while let Some(element) = elements.next() {
        if elements.clone().any(|other| other.key() == element.key()) {
            return true;
        }
    }
    false
}

/// What no user but the server itself has: for requests whose meaning is ambiguous.
const IMPOSSIBLE: Required<'static> = (Action::Internal, On::Anything);

/// The documents of a list, in the body or as a document sequence.
fn documents<'a>(asked: &Asked<'a>, field: &str) -> Vec<RawDoc<'a>> {
    let mut found = Vec::new();
    if let Some(RawValue::Array(list)) = asked.body.get(field) {
        found.extend(list.iter().filter_map(|value| value.as_document()));
    }
    for sequence in asked.sequences {
        if sequence.identifier() == field {
            found.extend(sequence.iter());
        }
    }
    found
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

/// `update`.
pub fn update<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = vec![(Action::Find, on), (Action::Update, on)];
    let mut statements = documents(asked, "updates").into_iter();
    if statements.any(|one| is_set(one, "upsert")) {
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

/// `bulkWrite`: what each operation does to its collection of `nsInfo`.
pub fn bulk_write<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let mut collections = Vec::new();
    for info in documents(asked, "nsInfo") {
        if has_duplicates(info) {
            return vec![IMPOSSIBLE];
        }
        let name = info.get("ns").and_then(|name| name.as_str());
        collections.push(full_name(name.unwrap_or_default()));
    }
    let mut out = Vec::new();
    for on in &collections {
        bypass(asked.body, *on, &mut out);
    }
    for op in documents(asked, "ops") {
        if has_duplicates(op) {
            return vec![IMPOSSIBLE];
        }
        let Some(kind) = op.first() else { continue };
        let actions: &[Action] = match kind.key() {
            "insert" => &[Action::Insert],
            "update" if is_set(op, "upsert") => &[Action::Find, Action::Update, Action::Insert],
            "update" => &[Action::Find, Action::Update],
            "delete" => &[Action::Find, Action::Remove],
            _ => continue,
        };
        let at = kind.value().as_i64_saturating().unwrap_or(-1);
        let Some(on) = usize::try_from(at).ok().and_then(|at| collections.get(at)) else {
            continue;
        };
        for action in actions {
            if !out.contains(&(*action, *on)) {
                out.push((*action, *on));
            }
        }
    }
    out
}

/// `aggregate`: the privileges for what each stage reads and writes.
pub fn aggregate<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let on = first(db, body);
    let mut out = Vec::new();
    let Some(RawValue::Array(stages)) = body.get("pipeline") else {
        return vec![(Action::Find, on)];
    };
    input(db, on, stages, &mut out);
    pipeline(db, stages, &mut out);
    let targets: Vec<On<'a>> = out
        .iter()
        .filter(|(action, _)| *action == Action::Insert)
        .map(|(_, on)| *on)
        .collect();
    for target in targets {
        bypass(body, target, &mut out);
    }
    out
}

/// `mapReduce`: find, and what writing to the collection of `out` requires.
pub fn map_reduce<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let mut out = vec![(Action::Find, first(db, body))];
    let (mode, target) = match body.get("out") {
        Some(RawValue::String(name)) => ("replace", On::Collection(db, name)),
        Some(RawValue::Document(spec)) if has_duplicates(spec) => return vec![IMPOSSIBLE],
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

/// Adds the privilege that the first stage's input requires: `find` on `on`, unless it reads
/// something else.
fn input<'a>(db: &'a str, on: On<'a>, stages: RawArray<'a>, out: &mut Vec<Required<'a>>) {
    let first = stages.iter().next().and_then(|stage| stage.as_document());
    let Some(stage) = first.and_then(|stage| stage.first()) else {
        out.push((Action::Find, on));
        return;
    };
    let spec = stage.value().as_document().unwrap_or(RawDoc::EMPTY);
    match stage_facts::of(stage.key()).input {
        Input::Documents => out.push((Action::Find, on)),
        Input::OfCollection(Action::ChangeStream) => {
            // Of the whole server: all databases.
            let on = match is_set(spec, "allChangesForCluster") {
                true => On::Database(""),
                false => on,
            };
            out.extend([(Action::ChangeStream, on), (Action::Find, on)]);
        }
        Input::OfCollection(action) => out.push((action, on)),
        // On another database it describes that one.
        Input::OfCluster(Action::ListClusterCatalog) if db != "admin" => {
            out.push((Action::ListCollections, On::Database(db)));
        }
        Input::OfCluster(Action::QueryStatsRead) if spec.get("transformIdentifiers").is_some() => {
            out.push((Action::QueryStatsReadTransformed, On::Cluster));
        }
        Input::OfCluster(action) => out.push((action, On::Cluster)),
        // The stage limits itself to the caller's own.
        Input::OfUsers(action) => {
            if is_set(spec, "allUsers") || is_set(spec, "users") {
                out.push((action, On::Cluster));
            }
        }
        Input::Own => {}
    }
}

/// Adds the privileges on collections that stages read in addition to the pipeline's own, and on
/// those that they write.
fn pipeline<'a>(db: &'a str, stages: RawArray<'a>, out: &mut Vec<Required<'a>>) {
    for stage in stages.iter().filter_map(|stage| stage.as_document()) {
        for element in stage.iter() {
            one_stage(db, element.key(), element.value(), out);
        }
    }
}

fn one_stage<'a>(db: &'a str, name: &str, value: RawValue<'a>, out: &mut Vec<Required<'a>>) {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let mut inner = None;
    match name {
        "$lookup" | "$graphLookup" => inner = spec.get("from").map(|from| target(db, from)),
        "$unionWith" => {
            let from = value.as_str().map(RawValue::String).or(spec.get("coll"));
            inner = from.map(|from| target(db, from));
        }
        "$out" => {
            let on = target(db, value);
            out.extend([(Action::Insert, on), (Action::Remove, on)]);
        }
        "$merge" => {
            let into = spec.get("into").unwrap_or(value);
            let on = target(db, into);
            out.extend([(Action::Insert, on), (Action::Update, on)]);
            out.extend(
                into.as_document()
                    .filter(|into| has_duplicates(*into))
                    .map(|_| IMPOSSIBLE),
            );
            // An update of documents, not a pipeline over collections.
            return;
        }
        _ => {}
    }
    let reads = matches!(name, "$lookup" | "$graphLookup" | "$unionWith" | "$out");
    if reads && has_duplicates(spec) {
        out.push(IMPOSSIBLE);
    }
    if let Some(on) = inner {
        match spec.get("pipeline") {
            Some(RawValue::Array(stages)) => input(db, on, stages, out),
            _ => out.push((Action::Find, on)),
        }
    }
    within(db, RawValue::Document(spec), out);
}

/// Adds what the pipelines anywhere within a stage's operand require: whatever has the form of a
/// stage counts as one.
fn within<'a>(db: &'a str, value: RawValue<'a>, out: &mut Vec<Required<'a>>) {
    match value {
        RawValue::Document(doc) => {
            for element in doc.iter() {
                within(db, element.value(), out);
            }
        }
        RawValue::Array(list) => {
            for value in list.iter() {
                let stage = value.as_document().and_then(|stage| stage.first());
                match stage {
                    Some(stage) if READERS.contains(&stage.key()) => {
                        one_stage(db, stage.key(), stage.value(), out);
                    }
                    _ => within(db, value, out),
                }
            }
        }
        _ => {}
    }
}

/// The stages that read or write another collection.
const READERS: &[&str] = &["$lookup", "$graphLookup", "$unionWith", "$out", "$merge"];

/// A collection's name, or `{db, coll}`.
fn target<'a>(db: &'a str, value: RawValue<'a>) -> On<'a> {
    let spec = value.as_document().unwrap_or(RawDoc::EMPTY);
    let named = |field: &str| spec.get(field).and_then(|name| name.as_str());
    match value {
        RawValue::String(name) => On::Collection(db, name),
        _ => On::Collection(named("db").unwrap_or(db), named("coll").unwrap_or_default()),
    }
}

/// `create`: `createCollection` or `insert`; with `capped` also `convertToCapped`.
pub fn create<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let on = first(asked.db, asked.body);
    let inserts = asked
        .caller
        .is_some_and(|caller| caller.allowed.allows(Action::Insert, on));
    let is_view = asked.body.get("viewOn").is_some();
    let mut out = vec![match inserts && !is_view {
        true => (Action::Insert, on),
        false => (Action::CreateCollection, on),
    }];
    if is_set(asked.body, "capped") {
        out.push((Action::ConvertToCapped, on));
    }
    view(asked, on, &mut out);
    out
}

/// `collMod`.
pub fn coll_mod<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let on = first(asked.db, asked.body);
    let mut out = vec![(Action::CollMod, on)];
    view(asked, on, &mut out);
    out
}

/// Adds what the definition of a view requires: whoever may read the view must be allowed to read
/// what it reads.
fn view<'a>(asked: &Asked<'a>, on: On<'a>, out: &mut Vec<Required<'a>>) {
    let (db, body) = (asked.db, asked.body);
    let reads = |caller: crate::command_facts::Caller<'_>| caller.allowed.allows(Action::Find, on);
    if !asked.caller.is_none_or(reads) {
        return;
    }
    let stages = match body.get("pipeline") {
        Some(RawValue::Array(stages)) => Some(stages),
        _ => None,
    };
    if let Some(source) = body.get("viewOn").and_then(|name| name.as_str()) {
        let source = On::Collection(db, source);
        match stages {
            Some(stages) => input(db, source, stages, out),
            None => out.push((Action::Find, source)),
        }
    }
    if let Some(stages) = stages {
        pipeline(db, stages, out);
    }
}

/// `cloneCollectionAsCapped`.
pub fn clone_as_capped<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let (db, body) = (asked.db, asked.body);
    let to = body.get("toCollection").and_then(|name| name.as_str());
    let to = On::Collection(db, to.unwrap_or_default());
    vec![
        (Action::Find, first(db, body)),
        (Action::CreateCollection, to),
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
            let mut out = vec![(Action::RenameCollectionSameDb, On::Database(source))];
            // The new name must not make readable what was not.
            let reads_target = asked
                .caller
                .is_some_and(|caller| caller.allowed.allows(Action::Find, to));
            if reads_target {
                out.push((Action::Find, from));
            }
            out
        }
        _ => vec![
            (Action::Find, from),
            (Action::DropCollection, from),
            (Action::Insert, to),
            (Action::CreateIndex, to),
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

/// `listDatabases`: without the privilege, it lists what the user may read; all that exists is
/// listed only with it.
pub fn list_databases<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    match asked.body.get("authorizedDatabases") {
        Some(given) if !given.is_truthy() && !super::fields::is_absent(given) => {
            vec![(Action::ListDatabases, On::Cluster)]
        }
        _ => Vec::new(),
    }
}

/// `currentOp`: a user's own operations need no privilege.
pub fn current_op<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    match is_set(asked.body, "$ownOps") {
        true => Vec::new(),
        false => vec![(Action::Inprog, On::Cluster)],
    }
}

/// `killAllSessions`: users may kill their own sessions.
pub fn kill_all_sessions<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let list = asked
        .body
        .first()
        .and_then(|first| first.value().as_array());
    let is_own = |value: RawValue<'a>| {
        let (Some(user), Some(caller)) = (value.as_document(), asked.caller) else {
            return false;
        };
        let text = |field: &str| user.get(field).and_then(|name| name.as_str());
        !has_duplicates(user)
            && text("user") == Some(caller.name.user.as_str())
            && text("db") == Some(caller.name.db.as_str())
    };
    match list {
        Some(list) if !list.is_empty() && list.iter().all(is_own) => Vec::new(),
        _ => vec![(Action::KillAnySession, On::Cluster)],
    }
}

/// `validateDBMetadata`: of the database or collection that it names, or of all.
pub fn validate_db_metadata<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let named = |field: &str| asked.body.get(field).and_then(|name| name.as_str());
    vec![match (named("db"), named("collection")) {
        (Some(db), Some(name)) => (Action::Validate, On::Collection(db, name)),
        (db, _) => (Action::Validate, On::Database(db.unwrap_or_default())),
    }]
}

/// `explain`: the privileges of the explained command.
pub fn explain<'a>(asked: &Asked<'a>) -> Vec<Required<'a>> {
    let explained = asked
        .body
        .first()
        .and_then(|first| first.value().as_document());
    let Some(explained) = explained else {
        return Vec::new();
    };
    if has_duplicates(explained) {
        return vec![IMPOSSIBLE];
    }
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
