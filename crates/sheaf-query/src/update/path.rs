//! Paths of update operators, which are dotted and may have positional components.
//!
//! ```text
//!   a.b       field b of a          a.0       element 0 of an array a, field "0" of a document a
//!   a.$       the element that the query matched
//!   a.$[]     every element         a.$[x]    elements that array filter x accepts
//! ```

use std::cmp::Ordering;

use sheaf_bson::error_code::{Error, ErrorCode, Result};
use sheaf_bson::path::array_index;

use super::array_filters::ArrayFilters;

/// Maximum number of components of a path.
const COMPONENTS_MAX: usize = 200;

/// One component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Component {
    /// A field, or an array element if the name is a number.
    Field {
        /// The name as written.
        name: Box<str>,
        /// The array position, if the name is one.
        index: Option<u32>,
    },
    /// `$`.
    Matched,
    /// `$[]`.
    All,
    /// `$[identifier]`: the position of the array filter.
    Filtered(usize),
}

impl Component {
    /// Whether the component only applies to arrays.
    pub(super) fn needs_array(&self) -> bool {
        matches!(self, Component::All | Component::Filtered(_))
    }
}

/// The order in which new fields are appended: numbers by value, then other names by bytes.
/// Positional components are last; their order is not visible.
impl Ord for Component {
    fn cmp(&self, other: &Component) -> Ordering {
        fn rank(component: &Component) -> (u8, u64, &str) {
            match component {
                Component::Field { index: Some(n), .. } => (0, u64::from(*n), ""),
                Component::Field { name, index: None } => (1, 0, name),
                Component::Matched => (2, 0, ""),
                Component::All => (3, 0, ""),
                Component::Filtered(n) => (4, *n as u64, ""),
            }
        }
        rank(self).cmp(&rank(other))
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Component) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Parses the path of an update operator.
///
/// Errors: an empty path or component (56), a name that begins with `$` (52), positional components
/// that are misplaced, repeated or without a filter (2).
pub(super) fn parse(path: &str, filters: &mut ArrayFilters) -> Result<Vec<Component>> {
    let first = path.split('.').next().unwrap_or(path);
    if first.starts_with('$') && first.len() > 1 && !first.starts_with("$[") {
        return Err(dollar_prefixed(first, path));
    }
    parse_for_insert(path, filters)
}

/// Like [`parse`], for `$setOnInsert`: a document that is inserted may have top-level names that
/// begin with `$`.
/// Errors: those of [`parse`], except for such a name.
pub(super) fn parse_for_insert(path: &str, filters: &mut ArrayFilters) -> Result<Vec<Component>> {
    if path.is_empty() {
        return Err(Error::new(
            ErrorCode::EMPTY_FIELD_NAME,
            "an update path must not be empty",
        ));
    }
    let mut components = Vec::new();
    for name in path.split('.') {
        if components.len() == COMPONENTS_MAX {
            return Err(Error::new(
                ErrorCode::OVERFLOW,
                format!("an update path must not have more than {COMPONENTS_MAX} components"),
            ));
        }
        let component = component(name, path, filters)?;
        if components.is_empty() && !matches!(component, Component::Field { .. }) {
            return Err(Error::bad_value(format!(
                "the positional element '{name}' must not come first in the path '{path}'"
            )));
        }
        if component == Component::Matched && components.contains(&Component::Matched) {
            return Err(Error::bad_value(format!(
                "too many positional (i.e. '$') elements in the path '{path}': one is allowed"
            )));
        }
        components.push(component);
    }
    Ok(components)
}

fn component(name: &str, path: &str, filters: &mut ArrayFilters) -> Result<Component> {
    if name.is_empty() {
        return Err(Error::new(
            ErrorCode::EMPTY_FIELD_NAME,
            format!("the update path '{path}' contains an empty field name, which is not allowed"),
        ));
    }
    if !name.starts_with('$') || matches!(name, "$id" | "$ref" | "$db") {
        return Ok(Component::Field {
            name: name.into(),
            index: array_index(name),
        });
    }
    if name == "$" {
        return Ok(Component::Matched);
    }
    if let Some(identifier) = name
        .strip_prefix("$[")
        .and_then(|rest| rest.strip_suffix(']'))
    {
        if identifier.is_empty() {
            return Ok(Component::All);
        }
        return match filters.take(identifier) {
            Some(filter) => Ok(Component::Filtered(filter)),
            None => Err(Error::bad_value(format!(
                "no array filter found for identifier '{identifier}' in path '{path}'"
            ))),
        };
    }
    if name.starts_with("$[") {
        return Err(dollar_prefixed(name, path));
    }
    // Below the top, a dollar sign is a part of the name.
    Ok(Component::Field {
        name: name.into(),
        index: None,
    })
}

fn dollar_prefixed(name: &str, path: &str) -> Error {
    Error::new(
        ErrorCode::DOLLAR_PREFIXED_FIELD_NAME,
        format!(
            "the dollar ($) prefixed field '{name}' in '{path}' is not allowed in an update path"
        ),
    )
}
