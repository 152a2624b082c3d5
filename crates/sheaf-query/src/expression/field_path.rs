//! `"$a.b"`: reads a dotted path from a document or a variable.
//!
//! An array on the path is mapped: the remaining path is applied to its documents and other
//! elements are skipped, so the result has at most as many elements as the array. Numbers in a path
//! are field names, never positions.
//!
//! ```text
//! {a: [{b: 1}, 5, {c: 2}, {b: [3]}]}    "$a.b"  [1, [3]]
//! ```

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::{ArrayBuilder, RawArray, RawDoc, RawValue, Value};

use super::eval::{EvalContext, EvalValue};
use super::location;

/// Maximum number of components of a path.
const COMPONENTS_MAX: usize = 200;

/// A path and its starting point.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPathExpr {
    /// The starting point.
    pub base: Base,
    /// Field names; empty means the base itself.
    pub components: Box<[Box<str>]>,
}

/// Names of a DBRef's fields: the only ones with a dollar sign that a path may contain.
pub(crate) const DBREF_NAMES: [&str; 3] = ["$ref", "$id", "$db"];

/// The starting point of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The root document.
    Root,
    /// The variable in this slot.
    Slot(usize),
}

/// Splits and validates a path without its `$`. Errors: an empty component, one that starts with
/// `$` and is not a DBRef's, a zero byte, too many components.
pub fn split(path: &str) -> Result<Box<[Box<str>]>> {
    if path.is_empty() {
        return Err(location(40352, "a field path must not be empty"));
    }
    if path.ends_with('.') {
        return Err(location(
            40353,
            format!("the field path '{path}' must not end with a '.'"),
        ));
    }
    let components: Box<[Box<str>]> = path.split('.').map(Into::into).collect();
    if components.len() > COMPONENTS_MAX {
        let message = format!("a field path must not have more than {COMPONENTS_MAX} components");
        return Err(Error::new(ErrorCode::OVERFLOW, message));
    }
    components
        .iter()
        .try_for_each(|c| check_component(c, path))?;
    Ok(components)
}

/// Validates a field name. Errors: empty, starts with `$` and is not a DBRef's, contains a zero
/// byte.
pub(super) fn check_component(component: &str, path: &str) -> Result<()> {
    if component.is_empty() {
        return Err(location(
            15998,
            format!("the field path '{path}' contains an empty field name"),
        ));
    }
    if component.starts_with('$') && !DBREF_NAMES.contains(&component) {
        return Err(location(
            16410,
            format!(
                "the field name '{component}' in '{path}' must not start with '$'; consider $getField or $setField"
            ),
        ));
    }
    if component.contains('\0') {
        return Err(location(16411, "a field name must not contain a zero byte"));
    }
    Ok(())
}

impl FieldPathExpr {
    /// The dotted path, if it starts at the root document.
    pub fn root_path(&self) -> Option<String> {
        (self.base == Base::Root).then(|| self.components.join("."))
    }

    pub(super) fn evaluate<'e>(&'e self, ctx: EvalContext<'e>) -> EvalValue<'e> {
        match self.base {
            Base::Root if self.components.is_empty() => {
                EvalValue::Raw(RawValue::Document(ctx.root))
            }
            Base::Root => in_document(ctx.root, &self.components),
            Base::Slot(slot) => match ctx.slot(slot).and_then(EvalValue::as_raw) {
                None => EvalValue::Missing,
                Some(value) if self.components.is_empty() => EvalValue::Raw(value),
                Some(value) => in_value(value, &self.components),
            },
        }
    }
}

/// Reads a path from a document; the empty path is the document.
pub fn in_document<'e>(doc: RawDoc<'e>, path: &[Box<str>]) -> EvalValue<'e> {
    let Some((first, rest)) = path.split_first() else {
        return EvalValue::Raw(RawValue::Document(doc));
    };
    let mut rest = rest;
    let mut value = match doc.get(first) {
        Some(value) => value,
        None => return EvalValue::Missing,
    };
    while let Some((next, after)) = rest.split_first() {
        value = match value {
            RawValue::Document(inner) => match inner.get(next) {
                Some(value) => value,
                None => return EvalValue::Missing,
            },
            RawValue::Array(array) => return in_array(array, rest),
            _ => return EvalValue::Missing,
        };
        rest = after;
    }
    EvalValue::Raw(value)
}

/// Reads a path of at least one component from any value.
pub fn in_value<'e>(value: RawValue<'e>, path: &[Box<str>]) -> EvalValue<'e> {
    match value {
        RawValue::Document(doc) => in_document(doc, path),
        RawValue::Array(array) => in_array(array, path),
        _ => EvalValue::Missing,
    }
}

fn in_array<'e>(array: RawArray<'e>, path: &[Box<str>]) -> EvalValue<'e> {
    let mut out = ArrayBuilder::new();
    for value in array {
        if let RawValue::Document(doc) = value
            && let Some(found) = in_document(doc, path).as_raw()
        {
            out.push(found);
        }
    }
    EvalValue::Owned(Value::Array(out.finish()))
}
