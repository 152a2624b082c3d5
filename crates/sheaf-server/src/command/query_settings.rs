//! `setQuerySettings`, `removeQuerySettings`, and the stage `$querySettings`.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, Error, ErrorCode, RawDoc, RawElement, RawValue};
use sheaf_db::Namespace;
use sheaf_query::{planner, query_shape};

use super::context::CommandContext;
use super::find::FindRequest;
use super::generic_arguments::arguments;
use super::{aggregate, distinct, fields};
use crate::command_facts::ExplainedAs;
use crate::query_settings::{Entry, check, merged};
use crate::server::Server;

/// The shape that a command names.
struct Shape<'a> {
    hash: String,
    /// A command of the shape; `None` if its hash is given.
    query: Option<RawDoc<'a>>,
}

/// Runs `setQuerySettings`.
pub fn set(cx: &mut CommandContext<'_>, out: &mut DocBuilder) -> Result<(), Error> {
    let name = cx.name();
    let mut settings = None;
    for element in cx.arguments() {
        match element.key() {
            "settings" => settings = Some(fields::document(name, &element)?),
            _ => cx.unknown_field(&element)?,
        }
    }
    let settings = fields::required(name, "settings", settings)?;
    let shape = shape(cx)?;
    check(settings)?;
    if let Some(query) = shape.query {
        check_settable(cx, query)?;
    }
    let server = cx.server;
    let entry = server
        .query_settings
        .change(&server.db, &cx.op, &shape.hash, |old| {
            let representative = match (old, shape.query) {
                (Some(old), _) => old.representative.clone(),
                (None, Some(query)) => query.to_buf(),
                (None, None) => return Err(unknown_hash(&shape.hash)),
            };
            let before = old.map(|old| old.settings.shown.as_raw());
            Ok(Some(Entry {
                hash: shape.hash.clone(),
                settings: Arc::new(merged(before, settings)?),
                representative,
            }))
        })?;
    if let Some(entry) = entry {
        entry.append(out);
    }
    Ok(())
}

/// Runs `removeQuerySettings`. It is not an error if the shape has none.
pub fn remove(cx: &mut CommandContext<'_>, _: &mut DocBuilder) -> Result<(), Error> {
    cx.no_arguments()?;
    let shape = shape(cx)?;
    let server = cx.server;
    server
        .query_settings
        .change(&server.db, &cx.op, &shape.hash, |_| Ok(None))?;
    Ok(())
}

/// The documents of `$querySettings`, one for each shape.
pub fn stage(server: &Server, spec: RawDoc<'_>) -> Vec<DocBuf> {
    let shows_shape = spec.get("showDebugQueryShape") == Some(RawValue::Boolean(true));
    let describe = |entry: Entry| {
        let mut out = DocBuilder::new();
        entry.append(&mut out);
        if shows_shape && let Some(shape) = entry.shape() {
            out.append_bson("debugQueryShape", &shape);
        }
        out.finish()
    };
    let entries = server.query_settings.all();
    entries.into_iter().map(describe).collect()
}

/// The shape in the command's first field: a hash, or a command with its `$db`.
/// Errors: `IllegalOperation` without a replica set; `TypeMismatch`; those of the hash or command.
fn shape<'a>(cx: &CommandContext<'a>) -> Result<Shape<'a>, Error> {
    if cx.server.repl.is_none() {
        return Err(Error::new(
            ErrorCode::ILLEGAL_OPERATION,
            format!(
                "{} can only run on a replica set: start the server with --replSet",
                cx.name()
            ),
        ));
    }
    let first = cx.first()?;
    match first.value() {
        RawValue::String(hash) => Ok(Shape {
            hash: checked_hash(hash)?,
            query: None,
        }),
        RawValue::Document(query) => shape_of(cx, &first, query),
        _ => Err(fields::wrong_type(cx.name(), &first, "[object, string]")),
    }
}

/// Errors: `InvalidLength` for other than 64 digits; `BadValue` for a character that is not a
/// hexadecimal digit.
fn checked_hash(hash: &str) -> Result<String, Error> {
    if hash.len() != 64 {
        return Err(Error::new(
            ErrorCode::INVALID_LENGTH,
            format!(
                "a query shape hash has 64 hexadecimal digits, not {} bytes",
                hash.len()
            ),
        ));
    }
    match hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(hash.to_ascii_uppercase()),
        false => Err(Error::bad_value(format!(
            "a query shape hash has hexadecimal digits only, unlike '{hash}'"
        ))),
    }
}

/// The shape of a command that a client gives as a document.
/// Errors: 7746402 for another command; those of its fields.
fn shape_of<'a>(
    cx: &CommandContext<'_>,
    field: &RawElement<'_>,
    query: RawDoc<'a>,
) -> Result<Shape<'a>, Error> {
    let Some(kind) = kind(query) else {
        return Err(Error::new(
            ErrorCode(7746402),
            format!(
                "{} takes a find, an aggregate or a distinct with its '$db', or the hash of its \
                 shape",
                cx.name()
            ),
        ));
    };
    let db = match fields::get_given(query, "$db") {
        Some(db) => fields::string(field.key(), &db)?,
        None => return Err(fields::missing(field.key(), "$db")),
    };
    check_query(cx, kind, query, db)?;
    let shape = query_shape::of_command(query, db).unwrap_or_default();
    Ok(Shape {
        hash: query_shape::hash(shape.as_raw()),
        query: Some(query),
    })
}

/// What kind of query a command is; `None` if it has no shape.
fn kind(query: RawDoc<'_>) -> Option<ExplainedAs> {
    let row = super::find(query.first()?.key())?;
    use ExplainedAs::{Distinct, Find, Pipeline};
    let explained = row.command.explained;
    explained.filter(|kind| matches!(kind, Find | Distinct | Pipeline))
}

/// Parses the query as its command does.
fn check_query(
    cx: &CommandContext<'_>,
    kind: ExplainedAs,
    query: RawDoc<'_>,
    db: &str,
) -> Result<(), Error> {
    sheaf_db::catalog::namespace::check_database_name(db)?;
    let target = query.first().map(|element| element.value());
    let namespace = match target {
        Some(RawValue::String(collection)) => Namespace::new(db, collection)?,
        Some(number) if kind == ExplainedAs::Pipeline && number.as_f64() == Some(1.0) => {
            return aggregate::check_collectionless(cx, query, db);
        }
        _ => {
            return Err(Error::new(
                ErrorCode::INVALID_NAMESPACE,
                "the first field of the query must be the name of a collection",
            ));
        }
    };
    match kind {
        ExplainedAs::Find => {
            let request = FindRequest::parse(arguments(query))?;
            let view = cx.view(&namespace)?;
            sheaf_db::find::canonicalize(&view, request.spec).map(drop)
        }
        ExplainedAs::Distinct => {
            let (_, spec) = distinct::parse(arguments(query))?;
            let view = cx.view(&namespace)?;
            sheaf_db::find::canonicalize(&view, spec).map(drop)
        }
        _ => aggregate::check(cx, &namespace, query),
    }
}

/// Refuses queries that have no settings.
/// Errors: 8584900 for an internal database, 8584901 for a system collection, 7746606 for a lookup
/// by `_id`.
fn check_settable(cx: &CommandContext<'_>, query: RawDoc<'_>) -> Result<(), Error> {
    let refuse = |code, what: &str| {
        let why = format!("setQuerySettings cannot be used on {what}");
        Err(Error::new(ErrorCode(code), why))
    };
    let db = query.get("$db").and_then(|db| db.as_str()).unwrap_or("");
    if matches!(db, "admin" | "config" | "local") {
        return refuse(8584900, &format!("the internal database {db}"));
    }
    let first = query.first();
    let Some(collection) = first.and_then(|element| element.value().as_str()) else {
        return Ok(());
    };
    let namespace = Namespace::new(db, collection)?;
    if namespace.is_system() {
        return refuse(8584901, &format!("the system collection {namespace}"));
    }
    if kind(query) == Some(ExplainedAs::Find) {
        let request = FindRequest::parse(arguments(query))?;
        let view = cx.view(&namespace)?;
        let find = sheaf_db::find::canonicalize(&view, request.spec)?;
        if planner::is_id_lookup(&find) {
            return refuse(7746606, "a query by _id alone, which has one plan");
        }
    }
    Ok(())
}

fn unknown_hash(hash: &str) -> Error {
    Error::new(
        ErrorCode(7746401),
        format!(
            "there are no query settings for the shape {hash}: give the query itself to create them"
        ),
    )
}
