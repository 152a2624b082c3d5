//! The fields that a filter reads.

use super::MatchExpression;
use crate::dependencies::Dependencies;

impl MatchExpression {
    /// The fields that the filter reads.
    pub fn dependencies(&self) -> Dependencies {
        let mut found = Dependencies::default();
        self.add_dependencies(&mut found);
        found
    }

    /// Whether no change of these paths can change the result of the filter.
    pub fn is_independent_of<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> bool {
        let reads = self.dependencies();
        paths.into_iter().all(|path| reads.is_independent_of(path))
    }

    /// Whether the filter always has the same result for a document; false if it contains `$rand`.
    pub fn is_deterministic(&self) -> bool {
        match self {
            MatchExpression::And(children)
            | MatchExpression::Or(children)
            | MatchExpression::Nor(children) => children.iter().all(Self::is_deterministic),
            MatchExpression::Not(child) => child.is_deterministic(),
            MatchExpression::Expr(bound) => bound.expression().is_deterministic(),
            _ => true,
        }
    }

    /// Adds the fields that the filter reads to `found`.
    pub fn add_dependencies(&self, found: &mut Dependencies) {
        match self {
            MatchExpression::And(children)
            | MatchExpression::Or(children)
            | MatchExpression::Nor(children) => {
                for child in children {
                    child.add_dependencies(found);
                }
            }
            MatchExpression::Not(child) => child.add_dependencies(found),
            MatchExpression::Expr(bound) => match bound.fields() {
                Some(fields) => fields.iter().for_each(|path| found.insert(path)),
                None => found.whole_document = true,
            },
            MatchExpression::JsonSchema(_) => found.whole_document = true,
            // An $elemMatch reads whole elements, regardless of the fields it tests in them.
            leaf => {
                if let Some(path) = leaf.path() {
                    found.insert(path.dotted());
                }
            }
        }
    }
}
