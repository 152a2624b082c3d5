//! `$jsonSchema`: draft 4 of JSON Schema, as far as MongoDB has it, over raw BSON.
//!
//! ```text
//!   {required: ["a"], properties: {a: {minimum: 3}}}
//!        │ parse: every keyword checked, patterns compiled, names sorted
//!        v
//!   Schema { object: { required: [a], properties: [a -> Schema { number: { minimum: 3 } }] } }
//!        │ evaluate: one pass over the fields of a document     explain: what a document fails
//! ```
//!
//! A keyword speaks of values of its own kind only: `minimum` of numbers, `pattern` of strings. All
//! others pass it, so a schema that wants a number says so with `type` or `bsonType`. Unlike the rest of the match
//! language a schema never looks into the elements of an array but by `items`.
//!
//! Invariant: what is not known is refused by its name when the schema is parsed; a schema that was parsed
//! fails only where a regular expression goes beyond its limits.

mod equality;
mod evaluate;
mod explain;
mod number;
mod parse;

use std::sync::Arc;

use sheaf_bson::{DocBuf, Error, RawDoc, Value};

use crate::matcher::TypeSet;
use crate::matcher::regex::CompiledRegex;

/// A schema, parsed. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    spec: Arc<DocBuf>,
    root: Arc<Schema>,
}

impl JsonSchema {
    /// Parses a schema. `count_pattern` is asked for every regular expression that is compiled.
    ///
    /// Errors: `FailedToParse` (unknown keyword, a value out of range), `TypeMismatch`, `BadValue` (unknown
    /// type), and those of regular expressions.
    pub fn parse(
        spec: RawDoc<'_>,
        count_pattern: &dyn Fn() -> Result<(), Error>,
    ) -> Result<JsonSchema, Error> {
        Ok(JsonSchema {
            spec: Arc::new(spec.to_buf()),
            root: Arc::new(parse::Parser { count_pattern }.schema(spec, 0)?),
        })
    }

    /// The schema as it was written.
    pub fn spec(&self) -> RawDoc<'_> {
        self.spec.as_raw()
    }
}

/// The rules for one value, by the kind of value that they speak of.
#[derive(Debug, Default)]
struct Schema {
    /// `type` or `bsonType`.
    types: Option<TypeSet>,
    /// `enum`.
    one_of_values: Option<Vec<Value>>,
    number: Option<Box<NumberRules>>,
    string: Option<Box<StringRules>>,
    array: Option<Box<ArrayRules>>,
    object: Option<Box<ObjectRules>>,
    all_of: Vec<Schema>,
    any_of: Option<Vec<Schema>>,
    one_of: Option<Vec<Schema>>,
    not: Option<Box<Schema>>,
}

#[derive(Debug, Default)]
struct NumberRules {
    minimum: Option<Limit>,
    maximum: Option<Limit>,
    multiple_of: Option<Value>,
}

/// `minimum` or `maximum`.
#[derive(Debug)]
struct Limit {
    value: Value,
    /// The limit itself does not pass.
    exclusive: bool,
}

#[derive(Debug, Default)]
struct StringRules {
    /// Code points.
    length_min: Option<u64>,
    length_max: Option<u64>,
    pattern: Option<CompiledRegex>,
}

#[derive(Debug, Default)]
struct ArrayRules {
    length_min: Option<u64>,
    length_max: Option<u64>,
    unique: bool,
    items: Items,
    /// What items are that `items` has no schema of their own for.
    additional: Additional,
}

#[derive(Debug, Default)]
enum Items {
    #[default]
    Any,
    /// One schema for all.
    Each(Box<Schema>),
    /// The first of each of these; the rest is additional.
    Tuple(Vec<Schema>),
}

/// What is not named.
#[derive(Debug, Default)]
enum Additional {
    #[default]
    Allowed,
    Refused,
    Schema(Box<Schema>),
}

#[derive(Debug, Default)]
struct ObjectRules {
    count_min: Option<u64>,
    count_max: Option<u64>,
    /// Sorted, each once.
    required: Vec<Box<str>>,
    /// Sorted by name.
    properties: Vec<(Box<str>, Schema)>,
    patterns: Vec<(CompiledRegex, Schema)>,
    additional: Additional,
    dependencies: Vec<(Box<str>, Dependency)>,
}

/// What the presence of a property asks for.
#[derive(Debug)]
enum Dependency {
    /// Other properties.
    Properties(Vec<Box<str>>),
    /// That the object passes.
    Schema(Box<Schema>),
}
