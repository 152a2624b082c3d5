//! Which parts of a document an expression reads.

use super::field_path::Base;
use super::{Expression, random};
use crate::matcher::Dependencies;

impl Expression {
    /// Adds the paths of the root document that an evaluation may read.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        match self {
            Expression::Constant(_) => {}
            Expression::FieldPath(path) => match path.base {
                Base::Root if path.components.is_empty() => found.whole_document = true,
                Base::Root => found.insert(&path.components.join(".")),
                // The value of the variable was counted where it is bound.
                Base::Slot(_) => {}
            },
            _ => self.for_each_child(&mut |child| child.add_dependencies(found)),
        }
    }

    /// Whether two evaluations on the same document have the same result: the expression contains
    /// neither `$rand` nor a user's function.
    pub fn is_deterministic(&self) -> bool {
        if let Expression::Script(_) = self {
            return false;
        }
        if let Expression::Call { operator, .. } = self
            && random::is_random(operator.name)
        {
            return false;
        }
        let mut all = true;
        self.for_each_child(&mut |child| all = all && child.is_deterministic());
        all
    }

    /// The expression with `path` of the document replaced by the variable in slot 0; all other
    /// slots move up by one. `None` if a variable in place of the path does not suffice, because
    /// the expression reads the whole document or an ancestor of the path.
    pub(crate) fn with_path_as_variable(&self, path: &[Box<str>]) -> Option<Expression> {
        let mut out = self.clone();
        out.rebase(path).then_some(out)
    }

    fn rebase(&mut self, path: &[Box<str>]) -> bool {
        let Expression::FieldPath(own) = self else {
            let mut all = true;
            self.for_each_child_mut(&mut |child| all &= child.rebase(path));
            return all;
        };
        match own.base {
            // A variable that is only declared has no slot.
            Base::Slot(usize::MAX) => true,
            Base::Slot(slot) => {
                own.base = Base::Slot(slot + 1);
                true
            }
            Base::Root => {
                if let Some(rest) = own.components.strip_prefix(path) {
                    own.components = rest.into();
                    own.base = Base::Slot(0);
                    return true;
                }
                !path.starts_with(&own.components)
            }
        }
    }

    /// Calls `visit` for each direct child.
    fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut Expression)) {
        match self {
            Expression::Constant(_) | Expression::FieldPath(_) => {}
            Expression::Object(fields) => fields.iter_mut().for_each(|(_, e)| visit(e)),
            Expression::Array(values) => values.iter_mut().for_each(visit),
            Expression::Call { args, .. } => args.iter_mut().for_each(visit),
            Expression::Let { values, body } => {
                values.iter_mut().for_each(&mut *visit);
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
            Expression::InSet { value, .. } => visit(value),
            Expression::Script(script) => visit(script.operand_mut()),
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
            Expression::InSet { value, .. } => visit(value),
            Expression::Script(script) => visit(script.operand()),
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
