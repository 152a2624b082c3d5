//! Converts oplog entries to events of a change stream.
//!
//! ```text
//!   {op: "u", ns: "db.c", o: {$v: 2, diff: {u: {a: 2}, d: {b: false}}}, o2: {_id: 1}, ts, wall}
//!     ──> {_id: token, operationType: "update", clusterTime, wallTime, ns, documentKey: {_id: 1},
//!          updateDescription: {updatedFields: {a: 2}, removedFields: ["b"], truncatedArrays: []}}
//! ```
//!
//! See the manual, "Change Events". A transaction's entry yields one event per operation.

use sheaf_bson::path::array_index;
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::token::{ResumeToken, TokenKind};
use crate::oplog::entry::{COLLECTION_OPTIONS_BEFORE, INDEX_OPTIONS_BEFORE};
use crate::system_names::{BUCKETS_PREFIX, SYSTEM_PREFIX, VIEWS, is_internal_database};

/// One operation of an oplog entry.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// The operation itself: `{op, ns, ui, o, o2, preImage}`.
    pub doc: RawDoc<'a>,
    /// The entry that contains it, with the times.
    pub entry: RawDoc<'a>,
    /// Its position.
    pub token: ResumeToken,
}

/// Calls `each` for the operations of an entry, in order.
pub fn operations<'a>(
    entry: RawDoc<'a>,
    time: sheaf_bson::Timestamp,
    mut each: impl FnMut(Operation<'a>),
) {
    let token = |operation| ResumeToken {
        time,
        kind: TokenKind::Event,
        operation,
        fragment: 0,
    };
    if let Some(RawValue::Document(o)) = entry.get("o")
        && let Some(RawValue::Array(ops)) = o.get("applyOps")
    {
        for (n, op) in ops.iter().enumerate() {
            if let RawValue::Document(doc) = op {
                each(Operation {
                    doc,
                    entry,
                    token: token(n as u32),
                });
            }
        }
        return;
    }
    each(Operation {
        doc: entry,
        entry,
        token: token(0),
    });
}

/// The scope of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// One collection.
    Collection {
        /// Database name.
        db: String,
        /// Collection name.
        name: String,
    },
    /// All collections of a database.
    Database(String),
    /// The whole deployment.
    Deployment,
}

/// The kind of event that an operation produces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A document was inserted.
    Insert,
    /// Fields of a document were changed.
    Update,
    /// A document was replaced.
    Replace,
    /// A document was deleted.
    Delete,
    /// A collection was dropped.
    Drop,
    /// A collection was renamed.
    Rename,
    /// A database was dropped.
    DropDatabase,
    /// A collection was created.
    Create,
    /// Indexes were created.
    CreateIndexes,
    /// Indexes were dropped.
    DropIndexes,
    /// A collection's options were changed.
    Modify,
    /// A view or a time-series collection was created.
    CreateView,
    /// The definition of a view or of a time-series collection was changed.
    ModifyView,
    /// A view or a time-series collection was dropped.
    DropView,
}

impl EventKind {
    /// `operationType`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Insert => "insert",
            EventKind::Update => "update",
            EventKind::Replace => "replace",
            EventKind::Delete => "delete",
            EventKind::Drop | EventKind::DropView => "drop",
            EventKind::Rename => "rename",
            EventKind::DropDatabase => "dropDatabase",
            EventKind::Create | EventKind::CreateView => "create",
            EventKind::CreateIndexes => "createIndexes",
            EventKind::DropIndexes => "dropIndexes",
            EventKind::Modify | EventKind::ModifyView => "modify",
        }
    }

    /// Whether it concerns a view or a time-series collection.
    fn is_of_view(self) -> bool {
        matches!(
            self,
            EventKind::CreateView | EventKind::ModifyView | EventKind::DropView
        )
    }

    /// Whether the event is reported only with `showExpandedEvents`.
    pub fn is_expanded(self) -> bool {
        matches!(
            self,
            EventKind::Create
                | EventKind::CreateIndexes
                | EventKind::DropIndexes
                | EventKind::Modify
                | EventKind::CreateView
                | EventKind::ModifyView
                | EventKind::DropView
        )
    }
}

/// The kind of an operation, and the database and collection it concerns. `None` if it produces no
/// event.
pub fn classify<'a>(doc: RawDoc<'a>) -> Option<(EventKind, &'a str, &'a str)> {
    let (Some(RawValue::String(op)), Some(RawValue::String(ns))) = (doc.get("op"), doc.get("ns"))
    else {
        return None;
    };
    let (db, name) = ns.split_once('.')?;
    let Some(RawValue::Document(o)) = doc.get("o") else {
        return None;
    };
    if name == VIEWS {
        return classify_view(op, o);
    }
    let kind = match op {
        "i" => EventKind::Insert,
        "d" => EventKind::Delete,
        "u" if o.get("$v").is_some() && o.get("diff").is_some() => EventKind::Update,
        "u" => EventKind::Replace,
        "c" => return classify_command(db, o),
        _ => return None,
    };
    Some((kind, db, name))
}

/// A write to `system.views`, whose documents have the views' namespaces as `_id`.
fn classify_view<'a>(op: &str, o: RawDoc<'a>) -> Option<(EventKind, &'a str, &'a str)> {
    let kind = match op {
        "i" => EventKind::CreateView,
        "u" => EventKind::ModifyView,
        "d" => EventKind::DropView,
        _ => return None,
    };
    match o.get("_id") {
        Some(RawValue::String(ns)) => {
            let (db, name) = ns.split_once('.')?;
            Some((kind, db, name))
        }
        _ => None,
    }
}

fn classify_command<'a>(db: &'a str, o: RawDoc<'a>) -> Option<(EventKind, &'a str, &'a str)> {
    let first = o.first()?;
    let kind = match first.key() {
        "drop" => EventKind::Drop,
        "create" => EventKind::Create,
        "createIndexes" => EventKind::CreateIndexes,
        "dropIndexes" => EventKind::DropIndexes,
        "collMod" => EventKind::Modify,
        "dropDatabase" => return Some((EventKind::DropDatabase, db, "")),
        "renameCollection" => {
            let RawValue::String(from) = first.value() else {
                return None;
            };
            let (db, name) = from.split_once('.')?;
            return Some((EventKind::Rename, db, name));
        }
        _ => return None,
    };
    match first.value() {
        RawValue::String(name) => Some((kind, db, name)),
        _ => None,
    }
}

impl Watched {
    /// Whether the stream reports operations of this kind on this collection.
    pub fn sees(&self, kind: EventKind, db: &str, name: &str) -> bool {
        match self {
            // A stream on a collection sees no view that later has its name.
            Watched::Collection { .. } if kind.is_of_view() => false,
            Watched::Collection { db: own, name: one } => {
                own == db && (one == name || kind == EventKind::DropDatabase)
            }
            Watched::Database(own) => own == db && !name.starts_with(SYSTEM_PREFIX),
            Watched::Deployment => !is_internal_database(db) && !name.starts_with(SYSTEM_PREFIX),
        }
    }

    /// Whether the stream reports a rename to this namespace.
    pub fn sees_target(&self, to: &str) -> bool {
        match self {
            Watched::Collection { db, name } => to.split_once('.') == Some((db, name)),
            _ => false,
        }
    }

    /// Whether an event of this kind ends the stream.
    pub fn ends_with(&self, kind: EventKind) -> bool {
        match self {
            Watched::Collection { .. } => matches!(
                kind,
                EventKind::Drop | EventKind::Rename | EventKind::DropDatabase
            ),
            Watched::Database(_) => kind == EventKind::DropDatabase,
            Watched::Deployment => false,
        }
    }
}

/// The document images that accompany an event.
#[derive(Debug, Default)]
pub struct Images {
    /// `fullDocument`; `Some(None)` is null.
    pub full: Option<Option<DocBuf>>,
    /// `fullDocumentBeforeChange`; `Some(None)` is null.
    pub before: Option<Option<DocBuf>>,
}

/// Builds the event document.
pub fn event(
    operation: &Operation<'_>,
    kind: EventKind,
    (db, name): (&str, &str),
    images: &Images,
    expanded: bool,
) -> DocBuf {
    let (doc, entry) = (operation.doc, operation.entry);
    let mut out = DocBuilder::new();
    out.append_bson("_id", &operation.token.to_doc());
    out.append("operationType", kind.name());
    if let Some(ts) = entry.get("ts") {
        out.append("clusterTime", ts);
    }
    if expanded && let Some(uuid) = doc.get("ui") {
        out.append("collectionUUID", uuid);
    }
    if let Some(wall) = entry.get("wall") {
        out.append("wallTime", wall);
    }
    if entry.get("ns") == Some(RawValue::String("admin.$cmd")) {
        for field in ["txnNumber", "lsid"] {
            if let Some(value) = entry.get(field) {
                out.append(field, value);
            }
        }
    }
    append_image(&mut out, "fullDocument", &images.full);
    out.begin_document("ns");
    out.append("db", db);
    if kind != EventKind::DropDatabase {
        out.append("coll", name);
    }
    out.end();
    let o = match doc.get("o") {
        Some(RawValue::Document(o)) => o,
        _ => RawDoc::EMPTY,
    };
    match kind {
        EventKind::Rename => append_rename(&mut out, o, expanded),
        EventKind::Insert | EventKind::Update | EventKind::Replace => {
            if let Some(key) = doc.get("o2") {
                out.append("documentKey", key);
            }
        }
        EventKind::Delete => {
            out.append("documentKey", RawValue::Document(o));
        }
        EventKind::DropView => {}
        _ if kind.is_expanded() => {
            append_namespace_type(&mut out, kind, o);
            out.begin_document("operationDescription");
            for element in o.iter().skip(1) {
                out.append(element.key(), element.value());
            }
            out.end();
            append_state_before(&mut out, kind, doc);
        }
        _ => {}
    }
    if kind == EventKind::Update
        && let Some(RawValue::Document(diff)) = o.get("diff")
    {
        append_update_description(&mut out, diff, expanded);
    }
    append_image(&mut out, "fullDocumentBeforeChange", &images.before);
    out.finish()
}

/// What a `create` created.
fn append_namespace_type(out: &mut DocBuilder, kind: EventKind, o: RawDoc<'_>) {
    let reads_buckets =
        matches!(o.get("viewOn"), Some(RawValue::String(on)) if on.starts_with(BUCKETS_PREFIX));
    match kind {
        EventKind::Create => out.append("nsType", "collection"),
        EventKind::CreateView if reads_buckets => out.append("nsType", "timeseries"),
        EventKind::CreateView => out.append("nsType", "view"),
        _ => out,
    };
}

/// `stateBeforeChange` of a `modify`, from the entry's `o2`.
fn append_state_before(out: &mut DocBuilder, kind: EventKind, doc: RawDoc<'_>) {
    let Some(RawValue::Document(before)) = doc.get("o2").filter(|_| kind == EventKind::Modify)
    else {
        return;
    };
    out.begin_document("stateBeforeChange");
    for (field, shown) in [
        (COLLECTION_OPTIONS_BEFORE, "collectionOptions"),
        (INDEX_OPTIONS_BEFORE, "indexOptions"),
    ] {
        if let Some(options) = before.get(field) {
            out.append(shown, options);
        }
    }
    out.end();
}

fn append_image(out: &mut DocBuilder, name: &str, image: &Option<Option<DocBuf>>) {
    match image {
        None => {}
        Some(None) => {
            out.append(name, RawValue::Null);
        }
        Some(Some(doc)) => {
            out.append_bson(name, doc);
        }
    }
}

fn append_rename(out: &mut DocBuilder, o: RawDoc<'_>, expanded: bool) {
    if let Some(RawValue::String(to)) = o.get("to")
        && let Some((db, name)) = to.split_once('.')
    {
        out.begin_document("to");
        out.append("db", db);
        out.append("coll", name);
        out.end();
        if expanded {
            out.begin_document("operationDescription");
            out.begin_document("to");
            out.append("db", db);
            out.append("coll", name);
            out.end();
            if let Some(target) = o.get("dropTarget") {
                out.append("dropTarget", target);
            }
            out.end();
        }
    }
}

/// The last event of a stream that an operation ended.
pub fn invalidate(operation: &Operation<'_>) -> DocBuf {
    let token = ResumeToken {
        kind: TokenKind::Invalidate,
        ..operation.token
    };
    let mut out = DocBuilder::new();
    out.append_bson("_id", &token.to_doc());
    out.append("operationType", "invalidate");
    for (field, name) in [("ts", "clusterTime"), ("wall", "wallTime")] {
        if let Some(value) = operation.entry.get(field) {
            out.append(name, value);
        }
    }
    out.finish()
}

/// Appends `updateDescription` of a `$v: 2` diff; with `expanded`, also `disambiguatedPaths`.
fn append_update_description(out: &mut DocBuilder, diff: RawDoc<'_>, expanded: bool) {
    let mut changes = Changes::default();
    changes.document(&Path::default(), diff);
    out.begin_document("updateDescription");
    out.begin_document("updatedFields");
    for (path, value) in &changes.updated {
        out.append(&path.dotted, *value);
    }
    out.end();
    out.begin_array("removedFields");
    for path in &changes.removed {
        out.push(path.dotted.as_str());
    }
    out.end();
    out.begin_array("truncatedArrays");
    for (path, len) in &changes.truncated {
        out.push_begin_document();
        out.append("field", path.dotted.as_str());
        out.append("newSize", *len);
        out.end();
    }
    out.end();
    if expanded {
        out.begin_document("disambiguatedPaths");
        let updated = changes.updated.iter().map(|(path, _)| path);
        let truncated = changes.truncated.iter().map(|(path, _)| path);
        let all = updated.chain(&changes.removed).chain(truncated);
        for path in all.filter(|path| path.is_ambiguous) {
            path.append_parts(out);
        }
        out.end();
    }
    out.end();
}

/// The path of a changed field.
#[derive(Clone, Default)]
struct Path<'a> {
    dotted: String,
    parts: Vec<Part<'a>>,
    /// The dotted form does not distinguish field names from nested paths and array positions.
    is_ambiguous: bool,
}

#[derive(Clone, Copy)]
enum Part<'a> {
    Field(&'a str),
    Position(&'a str),
}

impl<'a> Path<'a> {
    fn then(&self, part: Part<'a>) -> Path<'a> {
        let (Part::Field(name) | Part::Position(name)) = part;
        let mut path = self.clone();
        if !path.parts.is_empty() {
            path.dotted.push('.');
        }
        path.dotted.push_str(name);
        // A number at the top level, or with leading zeros, is not a position.
        let like_position = !path.parts.is_empty() && array_index(name).is_some();
        path.is_ambiguous |=
            matches!(part, Part::Field(_)) && (name.contains('.') || like_position);
        path.parts.push(part);
        path
    }

    fn append_parts(&self, out: &mut DocBuilder) {
        out.begin_array(&self.dotted);
        for part in &self.parts {
            match part {
                Part::Field(name) => out.push(*name),
                Part::Position(digits) => out.push(digits.parse::<i32>().unwrap_or(i32::MAX)),
            };
        }
        out.end();
    }
}

#[derive(Default)]
struct Changes<'a> {
    updated: Vec<(Path<'a>, RawValue<'a>)>,
    removed: Vec<Path<'a>>,
    truncated: Vec<(Path<'a>, RawValue<'a>)>,
}

impl<'a> Changes<'a> {
    fn document(&mut self, at: &Path<'a>, diff: RawDoc<'a>) {
        let field = |name: &'a str| at.then(Part::Field(name));
        for element in diff.iter() {
            match (element.key(), element.value()) {
                ("d", RawValue::Document(gone)) => {
                    self.removed.extend(gone.iter().map(|e| field(e.key())));
                }
                ("u" | "i", RawValue::Document(set)) => {
                    let set = set.iter().map(|e| (field(e.key()), e.value()));
                    self.updated.extend(set);
                }
                (key, RawValue::Document(sub)) if key.starts_with('s') => {
                    self.nested(&field(&key[1..]), sub);
                }
                _ => {}
            }
        }
    }

    fn nested(&mut self, at: &Path<'a>, diff: RawDoc<'a>) {
        if !matches!(diff.first(), Some(first) if first.key() == "a") {
            return self.document(at, diff);
        }
        for element in diff.iter().skip(1) {
            match (element.key(), element.value()) {
                ("l", len) => self.truncated.push((at.clone(), len)),
                (key, value) if key.starts_with('u') => {
                    self.updated
                        .push((at.then(Part::Position(&key[1..])), value));
                }
                (key, RawValue::Document(sub)) if key.starts_with('s') => {
                    self.nested(&at.then(Part::Position(&key[1..])), sub);
                }
                _ => {}
            }
        }
    }
}
