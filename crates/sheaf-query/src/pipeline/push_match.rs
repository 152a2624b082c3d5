//! Which part of a `$match` may be done before the stage in front of it.
//!
//! ```text
//!   $addFields b, $match {a: 1, b: 2}     ->  $match {a: 1}, $addFields b, $match {b: 2}
//!   $group by "$a", $match {_id: 5}       ->  $match {a: 5}, $group by "$a"
//!   $sort, $match                         ->  $match, $sort
//! ```
//!
//! A filter is taken apart where all parts must hold; each part goes as far as
//! it can by itself.

use std::sync::Arc;

use sheaf_bson::DocBuf;
use sheaf_bson::path::FieldPath;

use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::matcher::{Comparison, In, MatchExpression, RegexMatch};

use super::Stage;
use super::group::Group;

/// The parts of a filter that pass a stage, and those that stay behind it.
pub(super) struct Split {
    pub(super) before: Stage,
    /// `None`: all of it passes.
    pub(super) behind: Option<Stage>,
}

/// Takes a `$match` apart. `None` when no part passes.
pub(super) fn split(stage: &Stage, spec: &DocBuf, filter: &Arc<MatchExpression>) -> Option<Split> {
    let parts: &[MatchExpression] = match &**filter {
        MatchExpression::And(parts) if !parts.is_empty() => parts,
        other => std::slice::from_ref(other),
    };
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for part in parts {
        match passing(stage, part) {
            Some(changed) => before.push(changed),
            None => behind.push(part.clone()),
        }
    }
    if before.is_empty() {
        return None;
    }
    if behind.is_empty() && !matches!(stage, Stage::Group(_)) {
        let before = Stage::Match {
            spec: spec.clone(),
            filter: filter.clone(),
        };
        return Some(Split {
            before,
            behind: None,
        });
    }
    Some(Split {
        before: match_of(before),
        behind: (!behind.is_empty()).then(|| match_of(behind)),
    })
}

fn match_of(mut parts: Vec<MatchExpression>) -> Stage {
    let filter = match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        (Some(last), false) => {
            parts.push(last);
            MatchExpression::And(parts)
        }
        (None, _) => MatchExpression::AlwaysTrue,
    };
    Stage::Match {
        spec: filter.serialize(),
        filter: Arc::new(filter),
    }
}

/// The part as it is to stand before the stage; `None` when it must stay behind.
fn passing(stage: &Stage, part: &MatchExpression) -> Option<MatchExpression> {
    let reads = part.dependencies();
    let passes = match stage {
        Stage::Sort { .. } => true,
        Stage::Project { projection, .. } => {
            !reads.whole_document && reads.paths.iter().all(|path| projection.preserves(path))
        }
        Stage::Unwind(unwind) => {
            reads.is_independent_of(&unwind.path())
                && unwind
                    .index_path()
                    .is_none_or(|path| reads.is_independent_of(&path))
        }
        Stage::Other(stage) => {
            !reads.whole_document && reads.paths.iter().all(|path| stage.preserves(path))
        }
        Stage::Group(group) => return before_group(group, part),
        _ => false,
    };
    passes.then(|| part.clone())
}

/// A condition on a group's `_id` as one on the documents that are gathered: all of a group have the
/// same `_id`, so it holds for all of them or for none.
///
/// For paths of one name only: along a dotted path a filter walks arrays in another way than an
/// expression does. And for comparisons only: they alone take null and missing for the same.
fn before_group(group: &Group, part: &MatchExpression) -> Option<MatchExpression> {
    // Texts that a collation takes for the same, a pattern may tell apart.
    if group.collator.is_some() {
        return None;
    }
    rename(part, &|path| {
        let source = match (path.dotted().split_once('.'), &group.id) {
            (None, id) if path.dotted() == "_id" => id,
            (Some(("_id", field)), Expression::Object(fields)) if !field.contains('.') => {
                let (_, source) = fields.iter().find(|(name, _)| **name == *field)?;
                source
            }
            _ => return None,
        };
        match source {
            Expression::FieldPath(path) if path.base == Base::Root => match &*path.components {
                [name] => FieldPath::parse(name).ok().map(Arc::new),
                _ => None,
            },
            _ => None,
        }
    })
}

/// The filter with its paths replaced; `None` where one has no replacement, or is not of a comparison.
fn rename(
    filter: &MatchExpression,
    path_for: &dyn Fn(&FieldPath) -> Option<Arc<FieldPath>>,
) -> Option<MatchExpression> {
    let all = |children: &[MatchExpression]| -> Option<Vec<MatchExpression>> {
        children.iter().map(|c| rename(c, path_for)).collect()
    };
    Some(match filter {
        MatchExpression::And(children) => MatchExpression::And(all(children)?),
        MatchExpression::Or(children) => MatchExpression::Or(all(children)?),
        MatchExpression::Nor(children) => MatchExpression::Nor(all(children)?),
        MatchExpression::Not(child) => MatchExpression::Not(Box::new(rename(child, path_for)?)),
        MatchExpression::Comparison(comparison) => MatchExpression::Comparison(Comparison {
            path: path_for(&comparison.path)?,
            ..comparison.clone()
        }),
        MatchExpression::In(list) => MatchExpression::In(In {
            path: path_for(&list.path)?,
            ..list.clone()
        }),
        MatchExpression::Regex(regex) => MatchExpression::Regex(RegexMatch {
            path: path_for(&regex.path)?,
            ..regex.clone()
        }),
        _ => return None,
    })
}
