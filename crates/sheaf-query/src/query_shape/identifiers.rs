//! A shape with its identifiers replaced: names of databases, collections and fields, for clients
//! that must not see them.
//!
//! ```text
//!   {cmdNs: {db: "d", coll: "c"}, command: "find", filter: {"a.b": {$eq: "?number"}}}
//!   {cmdNs: {db: "D", coll: "C"}, command: "find", filter: {"A.B": {$eq: "?number"}}}
//! ```
//!
//! Operators, parameters of operators and stages, and types of constants stay. Each part of a path
//! is replaced separately.

use sheaf_bson::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue};

use super::stages::{self, Operand};
use super::{Field, common_fields, fields};

/// Replaces one identifier.
pub type Replace<'a> = &'a dyn Fn(&str) -> String;

/// A shape, as [`of_command`](super::of_command) returns it, with other identifiers.
pub fn replaced(shape: RawDoc<'_>, replace: Replace<'_>) -> DocBuf {
    let command = shape.get("command").and_then(|name| name.as_str());
    let rows = command.and_then(fields).unwrap_or(&[]);
    let walk = Walk(replace);
    let mut out = DocBuilder::new();
    for element in shape.iter() {
        let name = element.key();
        let mut rows = common_fields().iter().chain(rows);
        let field = rows.find(|row| row.0 == name).map(|row| row.1);
        match (name, field, element.value()) {
            ("cmdNs", _, RawValue::Document(ns)) => walk.names(name, ns, &mut out),
            (_, Some(Field::Filter), value) => walk.filter(name, value, &mut out),
            (_, Some(Field::Projection | Field::Expressions), value) => {
                walk.expression(name, value, true, &mut out);
            }
            (_, Some(Field::Sort | Field::Literals), RawValue::Document(doc)) => {
                walk.keys(name, doc, &mut out);
            }
            (_, Some(Field::Pipeline), value) => walk.pipeline(name, value, &mut out),
            ("key", _, RawValue::String(path)) => drop(out.append(name, walk.path(path).as_str())),
            (_, _, value) => drop(out.append(name, value)),
        }
    }
    out.finish()
}

/// The keys of a document, such as an index key pattern, with other identifiers.
pub fn replaced_keys(doc: RawDoc<'_>, replace: Replace<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    let walk = Walk(replace);
    for element in doc.iter() {
        out.append(walk.path(element.key()), element.value());
    }
    out.finish()
}

struct Walk<'a>(Replace<'a>);

impl Walk<'_> {
    /// Every part of a dotted path; operators and types of constants as they are.
    fn path(&self, path: &str) -> String {
        if path.starts_with(['$', '?', '[']) {
            return path.to_owned();
        }
        let parts: Vec<String> = path.split('.').map(|part| (self.0)(part)).collect();
        parts.join(".")
    }

    /// A string of an expression: a field path, a variable, or the type of a constant.
    fn reference(&self, text: &str) -> String {
        let Some(name) = text.strip_prefix("$$") else {
            return match text.strip_prefix('$') {
                Some(path) => format!("${}", self.path(path)),
                None => self.path(text),
            };
        };
        let (variable, rest) = name.split_once('.').unwrap_or((name, ""));
        // Variables of the system begin with a capital letter.
        let is_system = variable.starts_with(|first: char| first.is_ascii_uppercase());
        let is_own = is_system || matches!(variable, "this" | "value");
        let variable = match is_own {
            true => variable.to_owned(),
            false => (self.0)(variable),
        };
        match rest {
            "" => format!("$${variable}"),
            rest => format!("$${variable}.{}", self.path(rest)),
        }
    }

    /// A document of names: values are identifiers.
    fn names(&self, key: &str, doc: RawDoc<'_>, out: &mut DocBuilder) {
        out.begin_document(key);
        doc.iter().for_each(|element| self.name(element, out));
        out.end();
    }

    /// A name, a list of names, or a document of names.
    fn name(&self, element: RawElement<'_>, out: &mut DocBuilder) {
        let key = element.key();
        match element.value() {
            RawValue::String(text) => drop(out.append(key, self.reference(text).as_str())),
            RawValue::Array(list) => {
                out.begin_array(key);
                for value in list.iter() {
                    match value.as_str() {
                        Some(text) => out.push(self.reference(text).as_str()),
                        None => out.push(value),
                    };
                }
                out.end();
            }
            RawValue::Document(doc) => self.names(key, doc, out),
            value => drop(out.append(key, value)),
        }
    }

    /// A document whose keys are paths, and whose values stay unless they are documents.
    fn keys(&self, key: &str, doc: RawDoc<'_>, out: &mut DocBuilder) {
        out.begin_document(key);
        for element in doc.iter() {
            out.append(self.path(element.key()), element.value());
        }
        out.end();
    }

    fn filter(&self, key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
        match value {
            RawValue::Document(doc) => {
                out.begin_document(key);
                for element in doc.iter() {
                    match element.key() {
                        "$expr" => self.expression("$expr", element.value(), false, out),
                        "$type" => drop(out.append("$type", element.value())),
                        name => self.filter(&self.path(name), element.value(), out),
                    }
                }
                out.end();
            }
            RawValue::Array(array) => {
                out.begin_array(key);
                for (at, value) in array.iter().enumerate() {
                    self.filter(&at.to_string(), value, out);
                }
                out.end();
            }
            value => drop(out.append(key, value)),
        }
    }

    /// An expression. `of_fields`: the keys of a document are fields, not parameters.
    fn expression(&self, key: &str, value: RawValue<'_>, of_fields: bool, out: &mut DocBuilder) {
        match value {
            RawValue::String(text) if matches!(key, "unit" | "$meta") => {
                out.append(key, text);
            }
            RawValue::String(text) => drop(out.append(key, self.reference(text).as_str())),
            RawValue::Document(doc) => {
                out.begin_document(key);
                for element in doc.iter() {
                    let name = element.key();
                    // The operand of an operator has parameters; its variables are named.
                    let (shown, inner) = match name {
                        name if name.starts_with('$') => (name.to_owned(), false),
                        "vars" if !of_fields => (name.to_owned(), true),
                        name if of_fields => (self.path(name), true),
                        name => (name.to_owned(), true),
                    };
                    self.expression(&shown, element.value(), inner, out);
                }
                out.end();
            }
            RawValue::Array(array) => {
                out.begin_array(key);
                // Only the branches of a `$switch` are documents with parameters.
                let of_fields = key != "branches";
                for (at, value) in array.iter().enumerate() {
                    self.expression(&at.to_string(), value, of_fields, out);
                }
                out.end();
            }
            value => drop(out.append(key, value)),
        }
    }

    fn pipeline(&self, key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
        let RawValue::Array(stages) = value else {
            out.append(key, value);
            return;
        };
        out.begin_array(key);
        for stage in stages.iter().filter_map(|stage| stage.as_document()) {
            out.push_begin_document();
            for element in stage.iter() {
                let operand = stages::operand_of(element.key());
                self.operand(element.key(), operand, element.value(), out);
            }
            out.end();
        }
        out.end();
    }

    /// The operand of a stage, or a field of one, which the table of stages describes.
    fn operand(&self, key: &str, operand: Operand, value: RawValue<'_>, out: &mut DocBuilder) {
        match (operand, value) {
            (Operand::Name, value) => self.name_under(key, value, out),
            (Operand::Filter, value) => self.filter(key, value, out),
            (Operand::Expression, value) => self.expression(key, value, true, out),
            (Operand::Expressions | Operand::Projection, RawValue::Document(doc)) => {
                out.begin_document(key);
                for element in doc.iter() {
                    // `_id` is the key of a group, and of every document.
                    let name = match element.key() {
                        "_id" => "_id".to_owned(),
                        name => self.path(name),
                    };
                    self.expression(&name, element.value(), true, out);
                }
                out.end();
            }
            (Operand::Sort, RawValue::Document(doc)) => self.keys(key, doc, out),
            (Operand::Pipeline, value) => self.pipeline(key, value, out),
            (Operand::Pipelines | Operand::Each(_), RawValue::Document(doc)) => {
                out.begin_document(key);
                for element in doc.iter() {
                    let inner = match operand {
                        Operand::Each(rows) => Operand::Fields(rows),
                        _ => Operand::Pipeline,
                    };
                    self.operand(&self.path(element.key()), inner, element.value(), out);
                }
                out.end();
            }
            (Operand::Fields(rows), RawValue::Document(doc)) => {
                out.begin_document(key);
                for element in doc.iter() {
                    let row = rows.iter().find(|row| row.0 == element.key());
                    let inner = row.map_or(Operand::Literal, |row| row.1);
                    self.operand(element.key(), inner, element.value(), out);
                }
                out.end();
            }
            // Instead of a structure, a name: `$unwind: "$a"`, `$unionWith: "c"`.
            (Operand::Fields(_), value @ RawValue::String(_)) => self.name_under(key, value, out),
            (_, value) => drop(out.append(key, value)),
        }
    }

    fn name_under(&self, key: &str, value: RawValue<'_>, out: &mut DocBuilder) {
        let mut doc = DocBuilder::new();
        doc.append(key, value);
        let doc = doc.finish();
        doc.iter().for_each(|element| self.name(element, out));
    }
}
