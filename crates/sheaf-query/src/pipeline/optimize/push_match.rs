//! Moves a `$match`, or parts of it, before the preceding stage.
//!
//! ```text
//!   $addFields b, $match {a: 1, b: 2}     ->  $match {a: 1}, $addFields b, $match {b: 2}
//!   $group by "$a", $match {_id: 5}       ->  $match {a: 5}, $group by "$a"
//!   $sort, $match                         ->  $match, $sort
//! ```
//!
//! A conjunction is split, and each part moves as far forward as possible by itself.

use std::sync::Arc;

use sheaf_bson::Value;
use sheaf_bson::path::FieldPath;

use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::expression::projection_exec::Preserved;
use crate::matcher::{Comparison, In, MatchExpression, RegexMatch};

use crate::pipeline::Stage;
use crate::pipeline::group::Group;

/// Moves a `$match`, or those parts of it that can move, before the stage.
///
/// Condition for each part: see [`passing`].
pub(super) fn match_first(stage: &Stage, next: &Stage) -> Option<Vec<Stage>> {
    let Stage::Match { spec, filter } = next else {
        return None;
    };
    if matches!(stage, Stage::Match { .. }) {
        return None;
    }
    let parts: &[MatchExpression] = match &**filter {
        MatchExpression::And(parts) if !parts.is_empty() => parts,
        other => std::slice::from_ref(other),
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for part in parts {
        match passing(stage, part) {
            Some(changed) => before.push(changed),
            None => after.push(part.clone()),
        }
    }
    if before.is_empty() {
        return None;
    }
    if after.is_empty() && !matches!(stage, Stage::Group(_)) {
        let whole = Stage::Match {
            spec: spec.clone(),
            filter: filter.clone(),
        };
        return Some(vec![whole, stage.clone()]);
    }
    let mut stages = vec![match_of(before), stage.clone()];
    if !after.is_empty() {
        stages.push(match_of(after));
    }
    Some(stages)
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

/// The part in the form that applies before the stage; `None` if it must stay after the stage.
///
/// Condition: the stage does not change whether a document passes the filter, and the filter does
/// not change any other output of the stage. In particular, no filter moves before a stage that
/// adds documents, or that depends on several of them, not even one that reads no field (`{a: {$in:
/// []}}`, `$expr` of constants).
///
/// ```text
///   $sort (all documents)    every filter
///   $project, $addFields     if the stage preserves the paths that it reads
///   $unwind, $lookup, ...    the same, see `PipelineStage::lets_through`
///   $group                   conditions on the _id, see `before_group`
///   others                   none
/// ```
///
/// A filter that draws random numbers must be evaluated as often as before, so it does not move
/// before a stage that produces several documents from one.
fn passing(stage: &Stage, part: &MatchExpression) -> Option<MatchExpression> {
    let reads = part.dependencies();
    let passes = match stage {
        Stage::Sort { limit, .. } => limit.is_none(),
        Stage::Project { projection, .. } => {
            !reads.whole_document
                && reads
                    .paths
                    .iter()
                    .all(|path| match projection.preserves(path) {
                        Preserved::Whole => true,
                        Preserved::IfPresent => needs_a_value(part),
                        Preserved::No => false,
                    })
        }
        Stage::Unwind(unwind) => unwind.lets_through(&reads) && part.is_deterministic(),
        Stage::Other(stage) => {
            stage.lets_through(&reads) && (stage.is_one_to_one() || part.is_deterministic())
        }
        Stage::Group(group) => return before_group(group, part),
        _ => false,
    };
    passes.then(|| part.clone())
}

/// Whether the filter is false for every path without a value, so that it does not distinguish a
/// missing field from a path through a value that is not a document.
fn needs_a_value(filter: &MatchExpression) -> bool {
    match filter {
        MatchExpression::And(children) | MatchExpression::Or(children) => {
            children.iter().all(needs_a_value)
        }
        MatchExpression::Comparison(comparison) => !matches!(
            *comparison.value,
            Value::Null | Value::Undefined | Value::MinKey | Value::MaxKey
        ),
        MatchExpression::In(list) => {
            let null = |value: &Value| matches!(value, Value::Null | Value::Undefined);
            !list.equalities.iter().any(null)
        }
        MatchExpression::Regex(_)
        | MatchExpression::Exists { .. }
        | MatchExpression::Type { .. }
        | MatchExpression::Mod { .. }
        | MatchExpression::Bits(_) => true,
        _ => false,
    }
}

/// Converts a condition on the `_id` of a group to one on the input documents: all documents of a
/// group have the same `_id`, so it is true for all of them or for none.
///
/// Only for paths with one component, because a filter and an expression traverse arrays on dotted
/// paths differently. And only for comparisons, because only they treat null and missing as equal.
fn before_group(group: &Group, part: &MatchExpression) -> Option<MatchExpression> {
    // A pattern may distinguish strings that are equal by the collation.
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

/// The filter with its paths replaced; `None` if a path has no replacement or does not belong to a
/// comparison.
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
