//! `$jsonSchema`: MongoDB's subset of JSON Schema draft 4, evaluated on raw BSON.
//!
//! ```text
//!   {required: ["a"], properties: {a: {minimum: 3}}}
//!        │ parse: every keyword checked, patterns compiled, names sorted
//!        v
//!   Schema { object: { required: [a], properties: [a -> Schema { number: { minimum: 3 } }] } }
//!        │ evaluate: one pass over the fields of a document     explain: what a document fails
//! ```
//!
//! A keyword applies only to values of its kind: `minimum` to numbers, `pattern` to strings. Values
//! of other kinds satisfy it, so a schema that requires a number must have `type` or `bsonType`.
//! Unlike the rest of the match language, a schema never descends into array elements except by
//! `items`.
//!
//! Invariant: unknown keywords are rejected at parse time. Evaluation fails only if a regular
//! expression exceeds its limits.

mod encryption;
mod equality;
mod evaluate;
mod explain;
mod number;
mod parse;

use std::sync::Arc;

use sheaf_bson::{DocBuf, Error, RawDoc, Value};

use crate::matcher::TypeSet;
use crate::matcher::regex::CompiledRegex;

/// A parsed schema. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    spec: Arc<DocBuf>,
    root: Arc<Schema>,
}

impl JsonSchema {
    /// Parses a schema. `count_pattern` is called for every regular expression to compile, and may
    /// reject it.
    ///
    /// Errors: `FailedToParse` (unknown keyword, value out of range), `TypeMismatch`, `BadValue`
    /// (unknown type), and the errors of regular expressions.
    pub fn parse(
        spec: RawDoc<'_>,
        count_pattern: &dyn Fn() -> Result<(), Error>,
    ) -> Result<JsonSchema, Error> {
        Ok(JsonSchema {
            spec: Arc::new(spec.to_buf()),
            root: Arc::new(parse::Parser { count_pattern }.schema(spec, 0)?),
        })
    }

    /// The schema as the user wrote it.
    pub fn spec(&self) -> RawDoc<'_> {
        self.spec.as_raw()
    }
}

/// The rules for one value, grouped by the kind of value to which they apply.
#[derive(Debug, Default)]
struct Schema {
    /// `type` or `bsonType`.
    types: Option<TypeSet>,
    /// `encrypt`.
    encrypted: Option<encryption::Encrypted>,
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
    /// Whether a value equal to the limit fails.
    exclusive: bool,
}

#[derive(Debug, Default)]
struct StringRules {
    /// Lengths count code points.
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
    /// Applies to items without their own schema in `items`.
    additional: Additional,
}

#[derive(Debug, Default)]
enum Items {
    #[default]
    Any,
    /// One schema for all items.
    Each(Box<Schema>),
    /// One schema for each of the first items; further items are additional.
    Tuple(Vec<Schema>),
}

/// Applies to items or properties that are not named.
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
    /// Sorted and unique.
    required: Vec<Box<str>>,
    /// Sorted by name.
    properties: Vec<(Box<str>, Schema)>,
    patterns: Vec<(CompiledRegex, Schema)>,
    additional: Additional,
    dependencies: Vec<(Box<str>, Dependency)>,
}

/// A requirement that applies if a property is present.
#[derive(Debug)]
enum Dependency {
    /// These properties must be present, too.
    Properties(Vec<Box<str>>),
    /// The object must satisfy this schema.
    Schema(Box<Schema>),
}
