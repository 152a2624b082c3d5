//! Evaluates a schema on raw bytes in place. The fields of a document are walked once.

use sheaf_bson::{Error, RawArray, RawDoc, RawValue};

use super::{
    Additional, ArrayRules, Dependency, Items, JsonSchema, ObjectRules, Schema, StringRules,
    equality,
};

/// Number of required names that are tracked in one word while walking the fields.
const TICKED_MAX: usize = 64;

impl JsonSchema {
    /// Whether the document satisfies the schema. Errors: a regular expression exceeds its limits.
    pub fn matches(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        self.root.passes(RawValue::Document(doc))
    }
}

impl Schema {
    pub(super) fn passes(&self, value: RawValue<'_>) -> Result<bool, Error> {
        if self.types.is_some_and(|types| !types.test(value)) {
            return Ok(false);
        }
        if self
            .encrypted
            .is_some_and(|encrypted| !encrypted.test(value))
        {
            return Ok(false);
        }
        if !self.enum_holds(value) {
            return Ok(false);
        }
        let own = match value {
            RawValue::Document(doc) => match &self.object {
                Some(rules) => rules.pass(doc)?,
                None => true,
            },
            RawValue::Array(array) => match &self.array {
                Some(rules) => rules.pass(array)?,
                None => true,
            },
            RawValue::String(text) => match &self.string {
                Some(rules) => rules.length_holds(text) && rules.pattern_holds(text)?,
                None => true,
            },
            _ => self.number.as_ref().is_none_or(|rules| {
                !value.is_number()
                    || rules.minimum_holds(value)
                        && rules.maximum_holds(value)
                        && rules.multiple_of_holds(value)
            }),
        };
        Ok(own && self.combinations_hold(value)?)
    }

    pub(super) fn enum_holds(&self, value: RawValue<'_>) -> bool {
        self.one_of_values.as_ref().is_none_or(|values| {
            let same = |own: &sheaf_bson::Value| equality::compare(own.as_raw(), value).is_eq();
            values.iter().any(same)
        })
    }

    fn combinations_hold(&self, value: RawValue<'_>) -> Result<bool, Error> {
        for schema in &self.all_of {
            if !schema.passes(value)? {
                return Ok(false);
            }
        }
        if let Some(schemas) = &self.any_of
            && passing(schemas, value, 1)?.is_empty()
        {
            return Ok(false);
        }
        if let Some(schemas) = &self.one_of
            && passing(schemas, value, 2)?.len() != 1
        {
            return Ok(false);
        }
        match &self.not {
            Some(schema) => Ok(!schema.passes(value)?),
            None => Ok(true),
        }
    }
}

/// The positions of the first `enough` schemas that the value satisfies.
pub(super) fn passing(
    schemas: &[Schema],
    value: RawValue<'_>,
    enough: usize,
) -> Result<Vec<usize>, Error> {
    let mut places = Vec::new();
    for (place, schema) in schemas.iter().enumerate() {
        if schema.passes(value)? {
            places.push(place);
            if places.len() >= enough {
                break;
            }
        }
    }
    Ok(places)
}

/// Whether a count is within optional limits.
pub(super) fn within(count: u64, min: Option<u64>, max: Option<u64>) -> bool {
    min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max)
}

impl StringRules {
    pub(super) fn length_holds(&self, text: &str) -> bool {
        if self.length_min.is_none() && self.length_max.is_none() {
            return true;
        }
        within(
            text.chars().count() as u64,
            self.length_min,
            self.length_max,
        )
    }

    pub(super) fn pattern_holds(&self, text: &str) -> Result<bool, Error> {
        match &self.pattern {
            Some(pattern) => pattern.is_match(text),
            None => Ok(true),
        }
    }
}

impl Additional {
    fn passes(&self, value: RawValue<'_>) -> Result<bool, Error> {
        match self {
            Additional::Allowed => Ok(true),
            Additional::Refused => Ok(false),
            Additional::Schema(schema) => schema.passes(value),
        }
    }
}

impl ArrayRules {
    fn pass(&self, array: RawArray<'_>) -> Result<bool, Error> {
        if self.length_min.is_some() || self.length_max.is_some() {
            let count = array.iter().count() as u64;
            if !within(count, self.length_min, self.length_max) {
                return Ok(false);
            }
        }
        match &self.items {
            Items::Any => {}
            Items::Each(schema) => {
                for item in array.iter() {
                    if !schema.passes(item)? {
                        return Ok(false);
                    }
                }
            }
            Items::Tuple(schemas) => {
                for (place, item) in array.iter().enumerate() {
                    let passes = match schemas.get(place) {
                        Some(schema) => schema.passes(item)?,
                        None => self.additional.passes(item)?,
                    };
                    if !passes {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(!self.unique || equality::duplicate(array.iter()).is_none())
    }
}

impl ObjectRules {
    /// The schema of the property with this name.
    pub(super) fn property(&self, name: &str) -> Option<&Schema> {
        let found = self
            .properties
            .binary_search_by(|(own, _)| (**own).cmp(name));
        found.ok().map(|at| &self.properties[at].1)
    }

    fn pass(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        let (mut count, mut ticked) = (0, 0u64);
        for element in doc {
            count += 1;
            let name = element.key();
            if let Ok(at) = self.required.binary_search_by(|own| (**own).cmp(name))
                && at < TICKED_MAX
            {
                ticked |= 1 << at;
            }
            if !self.passes_property(name, element.value())? {
                return Ok(false);
            }
        }
        Ok(within(count, self.count_min, self.count_max)
            && ticked.count_ones() as usize == self.required.len().min(TICKED_MAX)
            && self
                .required
                .iter()
                .skip(TICKED_MAX)
                .all(|name| doc.get(name).is_some())
            && self.dependencies_hold(doc)?)
    }

    fn passes_property(&self, name: &str, value: RawValue<'_>) -> Result<bool, Error> {
        let mut named = false;
        if let Some(schema) = self.property(name) {
            named = true;
            if !schema.passes(value)? {
                return Ok(false);
            }
        }
        for (pattern, schema) in &self.patterns {
            if pattern.is_match(name)? {
                named = true;
                if !schema.passes(value)? {
                    return Ok(false);
                }
            }
        }
        match named {
            true => Ok(true),
            false => self.additional.passes(value),
        }
    }

    /// Whether neither `properties` nor `patternProperties` covers this name.
    pub(super) fn is_additional(&self, name: &str) -> Result<bool, Error> {
        if self.property(name).is_some() {
            return Ok(false);
        }
        for (pattern, _) in &self.patterns {
            if pattern.is_match(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn dependencies_hold(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        for (name, dependency) in &self.dependencies {
            if doc.get(name).is_some() && !dependency.holds(doc)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Dependency {
    pub(super) fn holds(&self, doc: RawDoc<'_>) -> Result<bool, Error> {
        match self {
            Dependency::Properties(names) => Ok(names.iter().all(|name| doc.get(name).is_some())),
            Dependency::Schema(schema) => schema.passes(RawValue::Document(doc)),
        }
    }
}
