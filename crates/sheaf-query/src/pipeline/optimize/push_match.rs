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

use sheaf_bson::Value;
use sheaf_bson::path::FieldPath;

use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::expression::projection_exec::Preserved;
use crate::matcher::{Comparison, In, MatchExpression, RegexMatch};

use crate::pipeline::Stage;
use crate::pipeline::group::Group;

/// A `$match`, or the parts of it that can, before the stage.
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

/// The part as it is before the stage; `None` when it must stay after it.
///
/// Condition: whether a document passes the filter does not change by the stage, and whether it
/// passes changes nothing else that the stage gives. In particular a stage that adds documents, or
/// that looks at several of them, is passed by no filter, not even by one that reads no field
/// (`{a: {$in: []}}`, `$expr` of constants).
///
/// ```text
///   $sort (all documents)    every filter
///   $project, $addFields     what it reads is kept as it was
///   $unwind, $lookup, ...    the same, see `PipelineStage::lets_through`
///   $group                   conditions on the _id, see `before_group`
///   others                   none
/// ```
///
/// A filter that draws random numbers must be asked as often as before: it does not pass a stage
/// that makes several documents of one.
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

/// Whether the filter never holds of a path without a value, so that it does not see whether a path
/// ends in nothing or at something that is no document.
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
