//! Shapes of find, aggregate and distinct commands: commands that differ only in constants have the
//! same shape.
//!
//! ```text
//!   find: "c", filter: {a: 5, b: {$in: [1, 2]}}, limit: 3
//!     {cmdNs: {db, coll}, command: "find",
//!      filter: {$and: [{a: {$eq: "?number"}}, {b: {$in: "?array<?number>"}}]}, limit: "?number"}
//! ```
//!
//! The shape is derived from the command as sent: unlike [`shape`](crate::shape), which only
//! contains what affects planning, it contains every stage of a pipeline and the namespace. Its
//! SHA-256 is `queryShapeHash` in explain, the log, the profiler and query settings.
//!
//! Invariant: time and memory are linear in the size of the command, whose nesting is bounded.

mod expression;
mod filter;
pub mod identifiers;
mod literal;
mod stages;

#[cfg(test)]
mod tests;

use std::fmt::Write;

use sha2::{Digest, Sha256};
use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawValue};

/// The collection name in the namespace of a pipeline without a collection.
const COLLECTIONLESS: &str = "$cmd.aggregate";

/// The content of a command's field.
#[derive(Clone, Copy)]
enum Field {
    Filter,
    Sort,
    Projection,
    Pipeline,
    /// Named expressions: `let`.
    Expressions,
    /// A constant.
    Literal,
    /// Constants by field name: the bounds `min` and `max`.
    Literals,
    /// Part of the shape, unchanged.
    Kept,
    /// Part of the shape if true.
    Flag,
}

/// The fields that all shapes may have, in order.
fn common_fields() -> &'static [(&'static str, Field)] {
    &[("collation", Field::Kept), ("let", Field::Expressions)]
}

/// The fields of a command's shape, in order.
fn fields(command: &str) -> Option<&'static [(&'static str, Field)]> {
    Some(match command {
        "find" => &[
            ("filter", Field::Filter),
            ("sort", Field::Sort),
            ("projection", Field::Projection),
            ("skip", Field::Literal),
            ("limit", Field::Literal),
            ("singleBatch", Field::Flag),
            ("max", Field::Literals),
            ("min", Field::Literals),
            ("returnKey", Field::Flag),
            ("showRecordId", Field::Flag),
            ("tailable", Field::Flag),
            ("awaitData", Field::Flag),
            ("mirrored", Field::Flag),
            ("oplogReplay", Field::Flag),
            ("allowDiskUse", Field::Flag),
        ],
        "aggregate" => &[("pipeline", Field::Pipeline), ("allowDiskUse", Field::Flag)],
        "distinct" => &[("key", Field::Kept), ("query", Field::Filter)],
        _ => return None,
    })
}

/// The shape of a command on database `db`; `None` if the command is not find, aggregate or
/// distinct.
pub fn of_command(command: RawDoc<'_>, db: &str) -> Option<DocBuf> {
    let first = command.first()?;
    let parts = fields(first.key())?;
    let collection = match first.value() {
        RawValue::String(name) => name,
        _ => COLLECTIONLESS,
    };
    let mut out = DocBuilder::new();
    out.begin_document("cmdNs");
    out.append("db", db).append("coll", collection);
    out.end();
    append_fields(command, common_fields(), &mut out);
    out.append("command", first.key());
    append_fields(command, parts, &mut out);
    Some(out.finish())
}

/// The hash of a command's shape, as [`hash`] prints it; `None` for a command without one.
pub fn hash_of_command(command: RawDoc<'_>, db: &str) -> Option<String> {
    of_command(command, db).map(|shape| hash(shape.as_raw()))
}

/// 64 hex digits: the SHA-256 of a shape.
pub fn hash(shape: RawDoc<'_>) -> String {
    let digest = Sha256::digest(shape.as_bytes());
    digest
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02X}");
            hex
        })
}

fn append_fields(command: RawDoc<'_>, parts: &[(&'static str, Field)], out: &mut DocBuilder) {
    for (name, field) in parts {
        let Some(value) = command.get(name) else {
            continue;
        };
        // In commands, null counts as absent.
        if !matches!(value, RawValue::Null | RawValue::Undefined) {
            append_field(name, *field, value, out);
        }
    }
}

fn append_field(name: &str, field: Field, value: RawValue<'_>, out: &mut DocBuilder) {
    match (field, value) {
        (Field::Filter, RawValue::Document(filter)) => {
            out.begin_document(name);
            filter::append(filter, out);
            out.end();
        }
        (Field::Sort, RawValue::Document(sort)) => stages::append_sort(name, sort, out),
        (Field::Projection, RawValue::Document(projection)) => {
            expression::append_projection(name, projection, out);
        }
        (Field::Pipeline, RawValue::Array(stages)) => stages::append_pipeline(name, stages, out),
        (Field::Expressions, RawValue::Document(doc)) => {
            out.begin_document(name);
            for element in doc.iter() {
                expression::append(element.key(), element.value(), out);
            }
            out.end();
        }
        (Field::Literals, RawValue::Document(doc)) => {
            out.begin_document(name);
            for element in doc.iter() {
                literal::append(element.key(), element.value(), out);
            }
            out.end();
        }
        (Field::Kept, value) => {
            out.append(name, value);
        }
        (Field::Flag, value) => {
            if value.is_truthy() {
                out.append(name, true);
            }
        }
        (_, value) => literal::append(name, value, out),
    }
}
