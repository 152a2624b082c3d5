//! Why a document fails a schema, as reported in `errInfo.details`.
//!
//! ```text
//!   {operatorName: "$jsonSchema", schemaRulesNotSatisfied: [
//!      {operatorName: "properties", propertiesNotSatisfied: [
//!         {propertyName: "a", description: "..", details: [
//!            {operatorName: "minimum", specifiedAs: {minimum: 3}, reason: "comparison failed",
//!             consideredValue: 1}]}]},
//!      {operatorName: "required", specifiedAs: {required: ["b"]}, missingProperties: ["b"]}]}
//! ```
//!
//! The compiled rules determine what fails. The schema as written, walked in parallel, provides
//! what was specified. This runs only after a document failed, so it is not optimized.

use sheaf_bson::{DocBuilder, Error, RawArray, RawDoc, RawValue};

use super::evaluate::{passing, within};
use super::{
    Additional, ArrayRules, Dependency, Items, JsonSchema, NumberRules, ObjectRules, Schema,
    StringRules, equality,
};

impl JsonSchema {
    /// Appends the rules that the document fails to the open document. With `values`, includes the
    /// failing values, which may be large.
    pub fn explain(
        &self,
        doc: RawDoc<'_>,
        values: bool,
        out: &mut DocBuilder,
    ) -> Result<(), Error> {
        let spec = self.spec();
        out.append("operatorName", "$jsonSchema");
        titles(spec, out);
        out.begin_array("schemaRulesNotSatisfied");
        let depth = 0;
        let mut explainer = Explainer { values, depth, out };
        explainer.schema(&self.root, spec, RawValue::Document(doc))?;
        out.end();
        Ok(())
    }
}

/// Appends the title and description of a schema.
fn titles(spec: RawDoc<'_>, out: &mut DocBuilder) {
    for name in ["title", "description"] {
        if let Some(text) = spec.get(name) {
            out.append(name, text);
        }
    }
}

fn sub<'a>(spec: RawDoc<'a>, name: &str) -> RawDoc<'a> {
    let found = spec.get(name).and_then(|value| value.as_document());
    found.unwrap_or(RawDoc::EMPTY)
}

/// The schema at an index of the array under `name`.
fn nth<'a>(spec: RawDoc<'a>, name: &str, place: usize) -> RawDoc<'a> {
    let array = spec.get(name).and_then(|value| value.as_array());
    let found = array.and_then(|array| array.iter().nth(place)?.as_document());
    found.unwrap_or(RawDoc::EMPTY)
}

/// Maximum depth of details. Deeper ones are omitted, so that clients can parse the reply.
const DEPTH_MAX: usize = 40;

/// A rule reported by its failing parts, if it has any.
struct Parts {
    operator: &'static str,
    list: &'static str,
    begun: bool,
}

impl Parts {
    fn of(operator: &'static str, list: &'static str) -> Parts {
        Parts {
            operator,
            list,
            begun: false,
        }
    }
}

struct Explainer<'o> {
    values: bool,
    depth: usize,
    out: &'o mut DocBuilder,
}

impl Explainer<'_> {
    /// Appends a document for every rule that the value fails.
    fn schema(
        &mut self,
        schema: &Schema,
        spec: RawDoc<'_>,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        if schema.types.is_some_and(|types| !types.test(value)) {
            let name = match spec.get("bsonType") {
                Some(_) => "bsonType",
                None => "type",
            };
            self.begin_failed(spec, name, "type did not match", Some(value));
            self.out.append("consideredType", value.type_name());
            self.out.end();
        }
        if schema
            .encrypted
            .is_some_and(|encrypted| !encrypted.test(value))
        {
            self.failed(spec, "encrypt", "value was not encrypted", value);
        }
        if !schema.enum_holds(value) {
            self.failed(spec, "enum", "value was not found in enum", value);
        }
        match value {
            RawValue::Document(doc) => {
                if let Some(rules) = &schema.object {
                    self.object(rules, spec, doc)?;
                }
            }
            RawValue::Array(array) => {
                if let Some(rules) = &schema.array {
                    self.array(rules, spec, array)?;
                }
            }
            RawValue::String(text) => {
                if let Some(rules) = &schema.string {
                    self.string(rules, spec, text)?;
                }
            }
            value if value.is_number() => {
                if let Some(rules) = &schema.number {
                    self.number(rules, spec, value);
                }
            }
            _ => {}
        }
        self.combinations(schema, spec, value)
    }

    /// Appends `{operatorName, specifiedAs, reason, consideredValue` and leaves the document open.
    fn begin_failed(
        &mut self,
        spec: RawDoc<'_>,
        name: &str,
        reason: &str,
        value: Option<RawValue<'_>>,
    ) {
        self.begin_rule(name);
        self.specified(spec, &[name]);
        self.out.append("reason", reason);
        if let Some(value) = value.filter(|_| self.values) {
            self.out.append("consideredValue", value);
        }
    }

    /// Appends `{operatorName` and leaves the document open.
    fn begin_rule(&mut self, name: &str) {
        self.out.push_begin_document();
        self.out.append("operatorName", name);
    }

    /// Opens a part of a rule. Before the first part, opens the rule and the list of its parts.
    fn begin_part(&mut self, parts: &mut Parts) {
        if !parts.begun {
            parts.begun = true;
            self.begin_rule(parts.operator);
            self.out.begin_array(parts.list);
        }
        self.out.push_begin_document();
    }

    /// Appends what a value fails of a schema, then closes the open document.
    fn end_with_details(
        &mut self,
        schema: &Schema,
        spec: RawDoc<'_>,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        self.details(schema, spec, value)?;
        self.out.end();
        Ok(())
    }

    /// Closes the rule, if it was opened.
    fn end_parts(&mut self, parts: &Parts) {
        if parts.begun {
            self.out.end().end();
        }
    }

    fn failed(&mut self, spec: RawDoc<'_>, name: &str, reason: &str, value: RawValue<'_>) {
        self.begin_failed(spec, name, reason, Some(value));
        self.out.end();
    }

    fn specified(&mut self, spec: RawDoc<'_>, names: &[&str]) {
        self.out.begin_document("specifiedAs");
        for name in names {
            if let Some(value) = spec.get(name) {
                self.out.append(name, value);
            }
        }
        self.out.end();
    }

    /// Appends what a value fails of a schema as `details` of the open document.
    fn details(
        &mut self,
        schema: &Schema,
        spec: RawDoc<'_>,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        self.out.begin_array("details");
        if self.depth < DEPTH_MAX {
            self.depth += 1;
            self.schema(schema, spec, value)?;
            self.depth -= 1;
        }
        self.out.end();
        Ok(())
    }

    fn number(&mut self, rules: &NumberRules, spec: RawDoc<'_>, value: RawValue<'_>) {
        let limits = [
            (rules.minimum_holds(value), "minimum", "exclusiveMinimum"),
            (rules.maximum_holds(value), "maximum", "exclusiveMaximum"),
        ];
        for (holds, name, exclusive) in limits {
            if holds {
                continue;
            }
            self.begin_rule(name);
            self.specified(spec, &[name, exclusive]);
            self.out.append("reason", "comparison failed");
            self.out.append("consideredValue", value);
            self.out.end();
        }
        if !rules.multiple_of_holds(value) {
            let reason = "considered value is not a multiple of the specified value";
            self.failed(spec, "multipleOf", reason, value);
        }
    }

    fn string(&mut self, rules: &StringRules, spec: RawDoc<'_>, text: &str) -> Result<(), Error> {
        let length = text.chars().count() as u64;
        let value = RawValue::String(text);
        let reason = "specified string length was not satisfied";
        if !within(length, rules.length_min, None) {
            self.failed(spec, "minLength", reason, value);
        }
        if !within(length, None, rules.length_max) {
            self.failed(spec, "maxLength", reason, value);
        }
        if !rules.pattern_holds(text)? {
            self.failed(spec, "pattern", "regular expression did not match", value);
        }
        Ok(())
    }

    fn array(
        &mut self,
        rules: &ArrayRules,
        spec: RawDoc<'_>,
        array: RawArray<'_>,
    ) -> Result<(), Error> {
        let value = RawValue::Array(array);
        let count = array.iter().count() as u64;
        let reason = "array did not match specified length";
        if !within(count, rules.length_min, None) {
            self.failed(spec, "minItems", reason, value);
        }
        if !within(count, None, rules.length_max) {
            self.failed(spec, "maxItems", reason, value);
        }
        if rules.unique
            && let Some(twice) = equality::duplicate(array.iter())
        {
            self.begin_failed(spec, "uniqueItems", "found a duplicate item", Some(value));
            if self.values {
                self.out.append("duplicatedValue", twice);
            }
            self.out.end();
        }
        match &rules.items {
            Items::Any => Ok(()),
            Items::Each(schema) => self.first_item(
                ("items", "At least one item did not match the sub-schema"),
                (schema, sub(spec, "items")),
                array.iter().enumerate(),
            ),
            Items::Tuple(schemas) => {
                self.tuple(schemas, spec, array)?;
                self.additional_items(&rules.additional, schemas.len(), spec, array)
            }
        }
    }

    /// Reports the first item that fails a schema which applies to all of them.
    fn first_item<'v>(
        &mut self,
        (name, reason): (&str, &str),
        (schema, spec): (&Schema, RawDoc<'_>),
        items: impl Iterator<Item = (usize, RawValue<'v>)>,
    ) -> Result<(), Error> {
        for (place, item) in items {
            if schema.passes(item)? {
                continue;
            }
            self.begin_rule(name);
            titles(spec, self.out);
            self.out.append("reason", reason);
            self.out.append("itemIndex", place as i32);
            self.end_with_details(schema, spec, item)?;
            break;
        }
        Ok(())
    }

    fn tuple(
        &mut self,
        schemas: &[Schema],
        spec: RawDoc<'_>,
        array: RawArray<'_>,
    ) -> Result<(), Error> {
        let mut parts = Parts::of("items", "details");
        for ((place, schema), item) in schemas.iter().enumerate().zip(array.iter()) {
            if schema.passes(item)? {
                continue;
            }
            let own = nth(spec, "items", place);
            self.begin_part(&mut parts);
            self.out.append("itemIndex", place as i32);
            titles(own, self.out);
            self.end_with_details(schema, own, item)?;
        }
        self.end_parts(&parts);
        Ok(())
    }

    fn additional_items(
        &mut self,
        additional: &Additional,
        named: usize,
        spec: RawDoc<'_>,
        array: RawArray<'_>,
    ) -> Result<(), Error> {
        const NAME: &str = "additionalItems";
        match additional {
            Additional::Allowed => Ok(()),
            Additional::Refused => {
                if array.iter().count() > named {
                    self.begin_failed(spec, NAME, "found additional items", None);
                    if self.values {
                        self.out.begin_array(NAME);
                        for item in array.iter().skip(named) {
                            self.out.push(item);
                        }
                        self.out.end();
                    }
                    self.out.end();
                }
                Ok(())
            }
            Additional::Schema(schema) => self.first_item(
                (
                    NAME,
                    "At least one additional item did not match the sub-schema",
                ),
                (schema, sub(spec, NAME)),
                array.iter().enumerate().skip(named),
            ),
        }
    }

    fn object(
        &mut self,
        rules: &ObjectRules,
        spec: RawDoc<'_>,
        doc: RawDoc<'_>,
    ) -> Result<(), Error> {
        self.properties(rules, spec, doc)?;
        self.patterns(rules, spec, doc)?;
        self.additional_properties(rules, spec, doc)?;
        let missing = |names: &[Box<str>]| -> Vec<Box<str>> {
            let names = names.iter().filter(|name| doc.get(name).is_none());
            names.cloned().collect()
        };
        let absent = missing(&rules.required);
        if !absent.is_empty() {
            self.begin_rule("required");
            self.specified(spec, &["required"]);
            self.names("missingProperties", &absent);
            self.out.end();
        }
        let count = doc.iter().count() as u64;
        let limits = [
            ("minProperties", within(count, rules.count_min, None)),
            ("maxProperties", within(count, None, rules.count_max)),
        ];
        for (name, holds) in limits {
            if !holds {
                let reason = "specified number of properties was not satisfied";
                self.begin_failed(spec, name, reason, None);
                self.out.append("numberOfProperties", count as i64);
                self.out.end();
            }
        }
        let mut parts = Parts::of("dependencies", "failingDependencies");
        for (name, dependency) in &rules.dependencies {
            if doc.get(name).is_none() || dependency.holds(doc)? {
                continue;
            }
            self.begin_part(&mut parts);
            self.out.append("conditionalProperty", &**name);
            match dependency {
                Dependency::Properties(names) => self.names("missingProperties", &missing(names)),
                Dependency::Schema(schema) => {
                    let own = sub(sub(spec, "dependencies"), name);
                    titles(own, self.out);
                    self.details(schema, own, RawValue::Document(doc))?;
                }
            }
            self.out.end();
        }
        self.end_parts(&parts);
        Ok(())
    }

    fn names(&mut self, field: &str, names: &[Box<str>]) {
        self.out.begin_array(field);
        for name in names {
            self.out.push(&**name);
        }
        self.out.end();
    }

    fn properties(
        &mut self,
        rules: &ObjectRules,
        spec: RawDoc<'_>,
        doc: RawDoc<'_>,
    ) -> Result<(), Error> {
        let mut parts = Parts::of("properties", "propertiesNotSatisfied");
        // In the order of the schema.
        for property in sub(spec, "properties") {
            let name = property.key();
            let (Some(schema), Some(value)) = (rules.property(name), doc.get(name)) else {
                continue;
            };
            if schema.passes(value)? {
                continue;
            }
            let own = property.value().as_document().unwrap_or(RawDoc::EMPTY);
            self.begin_part(&mut parts);
            self.out.append("propertyName", name);
            titles(own, self.out);
            self.end_with_details(schema, own, value)?;
        }
        self.end_parts(&parts);
        Ok(())
    }

    fn patterns(
        &mut self,
        rules: &ObjectRules,
        spec: RawDoc<'_>,
        doc: RawDoc<'_>,
    ) -> Result<(), Error> {
        let mut parts = Parts::of("patternProperties", "details");
        for (pattern, schema) in &rules.patterns {
            let own = sub(sub(spec, "patternProperties"), pattern.pattern());
            for element in doc {
                if !pattern.is_match(element.key())? || schema.passes(element.value())? {
                    continue;
                }
                self.begin_part(&mut parts);
                self.out.append("propertyName", element.key());
                titles(own, self.out);
                self.out.append("regexMatched", pattern.pattern());
                self.end_with_details(schema, own, element.value())?;
            }
        }
        self.end_parts(&parts);
        Ok(())
    }

    fn additional_properties(
        &mut self,
        rules: &ObjectRules,
        spec: RawDoc<'_>,
        doc: RawDoc<'_>,
    ) -> Result<(), Error> {
        const NAME: &str = "additionalProperties";
        match &rules.additional {
            Additional::Allowed => Ok(()),
            Additional::Refused => {
                let mut names: Vec<Box<str>> = Vec::new();
                for element in doc {
                    if rules.is_additional(element.key())? {
                        names.push(element.key().into());
                    }
                }
                if !names.is_empty() {
                    self.begin_rule(NAME);
                    self.specified(spec, &[NAME]);
                    self.names(NAME, &names);
                    self.out.end();
                }
                Ok(())
            }
            Additional::Schema(schema) => {
                let own = sub(spec, NAME);
                for element in doc {
                    if !rules.is_additional(element.key())? || schema.passes(element.value())? {
                        continue;
                    }
                    self.begin_rule(NAME);
                    titles(own, self.out);
                    let reason = "at least one additional property did not match the subschema";
                    self.out.append("reason", reason);
                    self.out.append("failingProperty", element.key());
                    self.end_with_details(schema, own, element.value())?;
                    break;
                }
                Ok(())
            }
        }
    }

    fn combinations(
        &mut self,
        schema: &Schema,
        spec: RawDoc<'_>,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        let passes_all = |schemas: &[Schema]| -> Result<bool, Error> {
            Ok(passing(schemas, value, usize::MAX)?.len() == schemas.len())
        };
        if !passes_all(&schema.all_of)? {
            self.schemas_failed("allOf", &schema.all_of, spec, value)?;
        }
        if let Some(schemas) = &schema.any_of
            && passing(schemas, value, 1)?.is_empty()
        {
            self.schemas_failed("anyOf", schemas, spec, value)?;
        }
        if let Some(schemas) = &schema.one_of {
            let places = passing(schemas, value, usize::MAX)?;
            if places.is_empty() {
                self.schemas_failed("oneOf", schemas, spec, value)?;
            } else if places.len() > 1 {
                self.begin_rule("oneOf");
                self.out.append("reason", "more than one subschema matched");
                self.out.begin_array("matchingSchemaIndexes");
                for place in places {
                    self.out.push(place as i32);
                }
                self.out.end();
                self.out.end();
            }
        }
        if let Some(not) = &schema.not
            && not.passes(value)?
        {
            self.begin_rule("not");
            self.out.append("reason", "child expression matched");
            self.out.end();
        }
        Ok(())
    }

    fn schemas_failed(
        &mut self,
        name: &str,
        schemas: &[Schema],
        spec: RawDoc<'_>,
        value: RawValue<'_>,
    ) -> Result<(), Error> {
        self.begin_rule(name);
        self.out.begin_array("schemasNotSatisfied");
        for (place, schema) in schemas.iter().enumerate() {
            if schema.passes(value)? {
                continue;
            }
            let own = nth(spec, name, place);
            self.out.push_begin_document();
            self.out.append("index", place as i32);
            titles(own, self.out);
            self.end_with_details(schema, own, value)?;
        }
        self.out.end();
        self.out.end();
        Ok(())
    }
}
