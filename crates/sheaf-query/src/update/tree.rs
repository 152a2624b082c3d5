//! A tree of all paths of an update.
//!
//! ```text
//! {$set: {"a.b": 1, c: 2}, $inc: {"a.d": 1}}
//!
//!   ├─ a ├─ b  $set 1
//!   │    └─ d  $inc 1
//!   └─ c  $set 2
//! ```
//!
//! Invariant: no leaf is an ancestor of another node, so the order of operators does not matter; an
//! update that violates this is rejected (40). Children are sorted; missing fields are created in
//! that order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sheaf_bson::error_code::{Error, ErrorCode, Result};

use super::operator::Operator;
use super::path::Component;
use crate::interrupt;

/// A node of the tree.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// An operator on this path: its position in [`Tree::leaves`].
    Leaf(usize),
    /// Children, sorted by component.
    Inner(BTreeMap<Component, Node>),
}

/// An operator and its path.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// The operator to apply.
    pub(super) operator: Operator,
    /// The path as written.
    pub(super) path: Box<str>,
}

/// The merged paths of an update.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Node,
    pub(super) leaves: Vec<Leaf>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            root: Node::Inner(BTreeMap::new()),
            leaves: Vec::new(),
        }
    }
}

impl Tree {
    /// Adds an operator.
    ///
    /// Errors: ConflictingUpdateOperators (40) if the path of another operator is equal to this
    /// one, above it or below it.
    pub(super) fn insert(
        &mut self,
        path: &str,
        components: Vec<Component>,
        operator: Operator,
    ) -> Result<()> {
        let leaf = self.leaves.len();
        self.leaves.push(Leaf {
            operator,
            path: path.into(),
        });
        let mut node = &mut self.root;
        let count = components.len();
        for (depth, component) in components.into_iter().enumerate() {
            interrupt::step()?;
            let Node::Inner(children) = node else {
                return Err(conflict(path, depth));
            };
            let mixes = children
                .first_key_value()
                .is_some_and(|(sibling, _)| sibling.needs_array() != component.needs_array());
            if mixes {
                return Err(conflict(path, depth));
            }
            let last = depth + 1 == count;
            let new = match last {
                true => Node::Leaf(leaf),
                false => Node::Inner(BTreeMap::new()),
            };
            node = match children.entry(component) {
                Entry::Occupied(_) if last => return Err(conflict(path, depth + 1)),
                Entry::Occupied(child) => child.into_mut(),
                Entry::Vacant(place) => place.insert(new),
            };
        }
        Ok(())
    }

    /// Whether some path begins with this top-level field.
    pub(super) fn touches(&self, field: &str) -> bool {
        let Node::Inner(children) = &self.root else {
            return false;
        };
        children
            .iter()
            .any(|(c, _)| matches!(c, Component::Field { name, .. } if &**name == field))
    }
}

fn conflict(path: &str, depth: usize) -> Error {
    let at = path.split('.').take(depth).collect::<Vec<_>>().join(".");
    Error::new(
        ErrorCode::CONFLICTING_UPDATE_OPERATORS,
        format!("updating the path '{path}' would create a conflict at '{at}'"),
    )
}
