//! Which parts of a document an expression reads.

use super::Expression;
use super::field_path::Base;
use crate::matcher::Dependencies;

impl Expression {
    /// Adds what an evaluation may read of the root document.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        match self {
            Expression::Constant(_) => {}
            Expression::FieldPath(path) => match path.base {
                Base::Root if path.components.is_empty() => found.whole_document = true,
                Base::Root => found.insert(&path.components.join(".")),
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
            Expression::Collated { body, .. } => visit(body),
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
