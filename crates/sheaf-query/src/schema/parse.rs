//! Parses a schema into its rules. Every keyword is checked, even if it has no effect.
//!
//! ```text
//!   keyword        value                      error code
//!   type           alias, [alias]             TypeMismatch, BadValue (unknown alias)
//!   minLength ..   whole number from 0        FailedToParse
//!   minimum ..     number                     TypeMismatch
//!   allOf ..       [schema]                   TypeMismatch, BadValue (empty)
//!   required ..    [name], each once          TypeMismatch, FailedToParse (empty, twice)
//!   any other name                            FailedToParse
//! ```

use sheaf_bson::error_code::ErrorCode;
use sheaf_bson::json::shell;
use sheaf_bson::{ElementType, Error, RawArray, RawDoc, RawElement, RawValue, Value};

use super::encryption::{self, Encrypted};
use super::{
    Additional, ArrayRules, Dependency, Items, Limit, NumberRules, ObjectRules, Schema,
    StringRules, equality,
};
use crate::arithmetic::Number;
use crate::matcher::TypeSet;
use crate::matcher::regex::CompiledRegex;

/// Maximum nesting of a schema, which is that of documents.
const DEPTH_MAX: usize = 100;

/// JSON Schema keywords that MongoDB does not support.
const OMITTED: [&str; 6] = ["$ref", "$schema", "default", "definitions", "format", "id"];
pub(super) struct Parser<'p> {
    pub(super) count_pattern: &'p dyn Fn() -> Result<(), Error>,
}

pub(super) fn failed(message: String) -> Error {
    Error::new(ErrorCode::FAILED_TO_PARSE, message)
}

fn wrong_type(keyword: &str, expected: &str) -> Error {
    Error::new(
        ErrorCode::TYPE_MISMATCH,
        format!("$jsonSchema keyword '{keyword}' must be {expected}"),
    )
}

impl Parser<'_> {
    pub(super) fn schema(&self, spec: RawDoc<'_>, depth: usize) -> Result<Schema, Error> {
        if depth >= DEPTH_MAX {
            return Err(failed(format!(
                "a $jsonSchema may be nested {DEPTH_MAX} levels deep at most"
            )));
        }
        let mut schema = Schema::default();
        for element in spec {
            if spec.iter().filter(|e| e.key() == element.key()).count() > 1 {
                return Err(failed(format!(
                    "$jsonSchema keyword '{}' is given twice",
                    element.key()
                )));
            }
            self.keyword(&mut schema, spec, element, depth + 1)?;
        }
        Ok(schema)
    }

    fn keyword(
        &self,
        schema: &mut Schema,
        spec: RawDoc<'_>,
        element: RawElement<'_>,
        depth: usize,
    ) -> Result<(), Error> {
        let (name, value) = (element.key(), element.value());
        match name {
            "title" | "description" => {
                if !matches!(value, RawValue::String(_)) {
                    return Err(wrong_type(name, "of type string"));
                }
            }
            "type" | "bsonType" => {
                if name == "bsonType" && spec.get("type").is_some() {
                    return Err(failed(
                        "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'".into(),
                    ));
                }
                schema.types = Some(types(name, value)?);
            }
            "enum" => schema.one_of_values = Some(enumeration(value)?),
            "allOf" => schema.all_of = self.schemas(name, value, depth)?,
            "anyOf" => schema.any_of = Some(self.schemas(name, value, depth)?),
            "oneOf" => schema.one_of = Some(self.schemas(name, value, depth)?),
            "not" => schema.not = Some(Box::new(self.one(name, value, depth)?)),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                let rules = schema.number.get_or_insert_default();
                number(rules, spec, name, value)?;
            }
            "minLength" | "maxLength" | "pattern" => {
                let rules = schema.string.get_or_insert_default();
                self.string(rules, name, value)?;
            }
            "minItems" | "maxItems" | "uniqueItems" | "items" | "additionalItems" => {
                let rules = schema.array.get_or_insert_default();
                self.array(rules, name, value, depth)?;
            }
            "minProperties"
            | "maxProperties"
            | "required"
            | "properties"
            | "patternProperties"
            | "additionalProperties"
            | "dependencies" => {
                let rules = schema.object.get_or_insert_default();
                self.object(rules, name, value, depth)?;
            }
            _ if OMITTED.contains(&name) => {
                return Err(failed(format!(
                    "$jsonSchema keyword '{name}' is not currently supported"
                )));
            }
            "encrypt" => {
                if spec.get("type").is_some() || spec.get("bsonType").is_some() {
                    return Err(failed(
                        "$jsonSchema keyword 'encrypt' cannot be used with 'type' or 'bsonType'; \
                         give the type within 'encrypt'"
                            .into(),
                    ));
                }
                let RawValue::Document(operand) = value else {
                    return Err(wrong_type(name, "an object"));
                };
                schema.encrypted = Some(Encrypted::parse(operand)?);
            }
            "encryptMetadata" => {
                let RawValue::Document(operand) = value else {
                    return Err(wrong_type(name, "an object"));
                };
                if spec.get("encrypt").is_some() {
                    return Err(failed(
                        "$jsonSchema keyword 'encrypt' cannot be used with 'encryptMetadata'"
                            .into(),
                    ));
                }
                encryption::check_defaults(operand)?;
            }
            _ => return Err(failed(format!("Unknown $jsonSchema keyword: {name}"))),
        }
        Ok(())
    }

    /// Parses the schema of a keyword.
    fn one(&self, name: &str, value: RawValue<'_>, depth: usize) -> Result<Schema, Error> {
        match value {
            RawValue::Document(spec) => self.schema(spec, depth),
            _ => Err(wrong_type(name, "an object")),
        }
    }

    /// Parses `allOf`, `anyOf` or `oneOf`.
    fn schemas(&self, name: &str, value: RawValue<'_>, depth: usize) -> Result<Vec<Schema>, Error> {
        let RawValue::Array(array) = value else {
            return Err(wrong_type(name, "an array of objects"));
        };
        let schemas = self.list(name, array, depth)?;
        if schemas.is_empty() {
            return Err(Error::bad_value(format!(
                "$jsonSchema keyword '{name}' must be a non-empty array"
            )));
        }
        Ok(schemas)
    }

    fn list(&self, name: &str, array: RawArray<'_>, depth: usize) -> Result<Vec<Schema>, Error> {
        let one = |value| match value {
            RawValue::Document(spec) => self.schema(spec, depth),
            _ => Err(wrong_type(name, "an array of objects")),
        };
        array.iter().map(one).collect()
    }

    fn additional(
        &self,
        name: &str,
        value: RawValue<'_>,
        depth: usize,
    ) -> Result<Additional, Error> {
        Ok(match value {
            RawValue::Boolean(true) => Additional::Allowed,
            RawValue::Boolean(false) => Additional::Refused,
            RawValue::Document(spec) => Additional::Schema(Box::new(self.schema(spec, depth)?)),
            _ => return Err(wrong_type(name, "either an object or a boolean")),
        })
    }

    fn pattern(&self, pattern: &str) -> Result<CompiledRegex, Error> {
        (self.count_pattern)()?;
        CompiledRegex::new(pattern, "")
    }

    fn string(
        &self,
        rules: &mut StringRules,
        name: &str,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        match (name, value) {
            ("minLength", _) => rules.length_min = Some(count(name, value)?),
            ("maxLength", _) => rules.length_max = Some(count(name, value)?),
            (_, RawValue::String(pattern)) => rules.pattern = Some(self.pattern(pattern)?),
            _ => return Err(wrong_type(name, "a string")),
        }
        Ok(())
    }

    fn array(
        &self,
        rules: &mut ArrayRules,
        name: &str,
        value: RawValue<'_>,
        depth: usize,
    ) -> Result<(), Error> {
        match (name, value) {
            ("minItems", _) => rules.length_min = Some(count(name, value)?),
            ("maxItems", _) => rules.length_max = Some(count(name, value)?),
            ("uniqueItems", RawValue::Boolean(unique)) => rules.unique = unique,
            ("uniqueItems", _) => return Err(wrong_type(name, "a boolean")),
            ("additionalItems", _) => rules.additional = self.additional(name, value, depth)?,
            (_, RawValue::Document(spec)) => {
                rules.items = Items::Each(Box::new(self.schema(spec, depth)?));
            }
            (_, RawValue::Array(array)) => {
                rules.items = Items::Tuple(self.list(name, array, depth)?);
            }
            _ => return Err(wrong_type(name, "an object or an array of objects")),
        }
        Ok(())
    }

    fn object(
        &self,
        rules: &mut ObjectRules,
        name: &str,
        value: RawValue<'_>,
        depth: usize,
    ) -> Result<(), Error> {
        match (name, value) {
            ("minProperties", _) => rules.count_min = Some(count(name, value)?),
            ("maxProperties", _) => rules.count_max = Some(count(name, value)?),
            ("required", RawValue::Array(names)) => rules.required = self.names(name, names)?,
            ("required", _) => return Err(wrong_type(name, "an array of strings")),
            ("additionalProperties", _) => {
                rules.additional = self.additional(name, value, depth)?;
            }
            ("properties", RawValue::Document(spec)) => {
                for property in spec {
                    let schema = self.one(property.key(), property.value(), depth)?;
                    rules.properties.push((property.key().into(), schema));
                }
                rules.properties.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            ("patternProperties", RawValue::Document(spec)) => {
                for property in spec {
                    let schema = self.one(property.key(), property.value(), depth)?;
                    rules.patterns.push((self.pattern(property.key())?, schema));
                }
            }
            ("dependencies", RawValue::Document(spec)) => {
                for property in spec {
                    let dependency = match property.value() {
                        RawValue::Document(spec) => {
                            Dependency::Schema(Box::new(self.schema(spec, depth)?))
                        }
                        RawValue::Array(names) => Dependency::Properties(self.names(name, names)?),
                        _ => {
                            return Err(wrong_type(
                                name,
                                "an object whose values are objects or arrays of strings",
                            ));
                        }
                    };
                    rules.dependencies.push((property.key().into(), dependency));
                }
            }
            _ => return Err(wrong_type(name, "an object")),
        }
        Ok(())
    }

    /// Parses property names and sorts them. Errors: empty, or a duplicate name.
    fn names(&self, keyword: &str, array: RawArray<'_>) -> Result<Vec<Box<str>>, Error> {
        let mut names: Vec<Box<str>> = Vec::new();
        for value in array {
            match value {
                RawValue::String(name) => names.push(name.into()),
                _ => return Err(wrong_type(keyword, "an array of strings")),
            }
        }
        if names.is_empty() {
            return Err(failed(format!(
                "$jsonSchema keyword '{keyword}' cannot be an empty array"
            )));
        }
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(failed(format!(
                "$jsonSchema keyword '{keyword}' array cannot contain duplicate values: {}",
                twice[0]
            )));
        }
        Ok(names)
    }
}

/// A non-negative integer.
fn count(keyword: &str, value: RawValue<'_>) -> Result<u64, Error> {
    let whole = value.is_number().then(|| value.as_i64_exact()).flatten();
    whole.and_then(|n| u64::try_from(n).ok()).ok_or_else(|| {
        failed(format!(
            "$jsonSchema keyword '{keyword}' must be a non-negative integer, not {}",
            shell(value)
        ))
    })
}

fn number(
    rules: &mut NumberRules,
    spec: RawDoc<'_>,
    name: &str,
    value: RawValue<'_>,
) -> Result<(), Error> {
    let limit = |exclusive: &str| {
        if !value.is_number() {
            return Err(wrong_type(name, "a number"));
        }
        Ok(Some(Limit {
            value: Value::from(value),
            exclusive: matches!(spec.get(exclusive), Some(RawValue::Boolean(true))),
        }))
    };
    match name {
        "minimum" => rules.minimum = limit("exclusiveMinimum")?,
        "maximum" => rules.maximum = limit("exclusiveMaximum")?,
        "multipleOf" => {
            let Some(number) = Number::from_raw(value) else {
                return Err(wrong_type(name, "a number"));
            };
            if number.is_nan() || !(number.to_f64() > 0.0 || is_positive(value)) {
                return Err(failed(format!(
                    "$jsonSchema keyword '{name}' must have a positive value, not {}",
                    shell(value)
                )));
            }
            rules.multiple_of = Some(Value::from(value));
        }
        _ => {
            if !matches!(value, RawValue::Boolean(_)) {
                return Err(wrong_type(name, "a boolean"));
            }
            let of = match name {
                "exclusiveMinimum" => "minimum",
                _ => "maximum",
            };
            if spec.get(of).is_none() {
                return Err(failed(format!(
                    "$jsonSchema keyword '{of}' must be present if {name} is"
                )));
            }
        }
    }
    Ok(())
}

/// Also true for decimals that underflow a double.
fn is_positive(value: RawValue<'_>) -> bool {
    sheaf_bson::compare_values(value, RawValue::Int32(0)).is_gt()
}

fn enumeration(value: RawValue<'_>) -> Result<Vec<Value>, Error> {
    let RawValue::Array(values) = value else {
        return Err(wrong_type("enum", "an array"));
    };
    if values.iter().next().is_none() {
        return Err(failed(
            "$jsonSchema keyword 'enum' cannot be an empty array".into(),
        ));
    }
    if let Some(twice) = equality::duplicate(values.iter()) {
        return Err(failed(format!(
            "$jsonSchema keyword 'enum' array cannot contain duplicate values: {}",
            shell(twice)
        )));
    }
    Ok(values.iter().map(Value::from).collect())
}

pub(super) fn types(keyword: &str, value: RawValue<'_>) -> Result<TypeSet, Error> {
    let mut types = TypeSet::new();
    match value {
        RawValue::String(alias) => add_type(&mut types, keyword, alias)?,
        RawValue::Array(aliases) => {
            let mut seen: Vec<&str> = Vec::new();
            for value in aliases {
                let RawValue::String(alias) = value else {
                    return Err(wrong_type(
                        keyword,
                        "either a string or an array of strings",
                    ));
                };
                if seen.contains(&alias) {
                    return Err(failed(format!(
                        "$jsonSchema keyword '{keyword}' has duplicate value: {alias}"
                    )));
                }
                seen.push(alias);
                add_type(&mut types, keyword, alias)?;
            }
            if types.is_empty() {
                return Err(failed(format!(
                    "$jsonSchema keyword '{keyword}' must name at least one type"
                )));
            }
        }
        _ => {
            return Err(wrong_type(
                keyword,
                "either a string or an array of strings",
            ));
        }
    }
    Ok(types)
}

/// Adds a type: `type` uses JSON's names, `bsonType` those of `$type`.
fn add_type(types: &mut TypeSet, keyword: &str, alias: &str) -> Result<(), Error> {
    let unknown = || Error::bad_value(format!("Unknown type name alias: {alias}"));
    if alias == "number" {
        types.insert_numbers();
        return Ok(());
    }
    if keyword == "bsonType" {
        types.insert(ElementType::from_name(alias).ok_or_else(unknown)?);
        return Ok(());
    }
    types.insert(match alias {
        "array" => ElementType::Array,
        "boolean" => ElementType::Boolean,
        "null" => ElementType::Null,
        "object" => ElementType::Document,
        "string" => ElementType::String,
        "integer" => {
            return Err(failed(
                "$jsonSchema type 'integer' is not currently supported; use bsonType with 'int' or \
                 'long', or multipleOf: 1"
                    .into(),
            ));
        }
        _ => return Err(unknown()),
    });
    Ok(())
}
