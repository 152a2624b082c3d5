//! Which parts of a document an expression reads.

use std::collections::BTreeSet;

use super::Expression;
use super::field_path::Base;

/// Paths that are read. A path in the set covers everything below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// `$$ROOT` itself is read.
    pub whole_document: bool,
    /// Dotted paths.
    pub fields: BTreeSet<String>,
}

impl Dependencies {
    /// Nothing is read: the result is the same for every document.
    pub fn is_empty(&self) -> bool {
        !self.whole_document && self.fields.is_empty()
    }

    /// The set without paths that lie below another one in it.
    pub fn minimal(&self) -> BTreeSet<String> {
        let covered = |path: &str| {
            path.match_indices('.')
                .any(|(dot, _)| self.fields.contains(&path[..dot]))
        };
        self.fields
            .iter()
            .filter(|path| !covered(path))
            .cloned()
            .collect()
    }
}

impl Expression {
    /// Adds what an evaluation may read of the root document.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        match self {
            Expression::Constant(_) => {}
            Expression::FieldPath(path) => match path.base {
                Base::Root if path.components.is_empty() => found.whole_document = true,
                Base::Root => {
                    found.fields.insert(path.components.join("."));
                }
                // What the variable holds was counted where it was bound.
                Base::Slot(_) => {}
            },
            _ => self.for_each_child(&mut |child| child.add_dependencies(found)),
        }
    }

    /// Calls `visit` for each direct child.
    pub fn for_each_child<'e>(&'e self, visit: &mut dyn FnMut(&'e Expression)) {
        match self {
            Expression::Constant(_) | Expression::FieldPath(_) => {}
            Expression::Object(fields) => fields.iter().for_each(|(_, e)| visit(e)),
            Expression::Array(values) => values.iter().for_each(visit),
            Expression::Call { args, .. } => args.iter().for_each(visit),
            Expression::Let { values, body } => {
                values.iter().for_each(&mut *visit);
                visit(body);
            }
            Expression::Loop {
                input, extra, body, ..
            } => {
                visit(input);
                if let Some(extra) = extra {
                    visit(extra);
                }
                visit(body);
            }
            Expression::Switch { branches, default } => {
                for (case, then) in branches {
                    visit(case);
                    visit(then);
                }
                if let Some(default) = default {
                    visit(default);
                }
            }
        }
    }
}
