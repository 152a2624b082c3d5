//! Rewrite rules for two adjacent stages.
//!
//! ```text
//!   $project..., $match      ->  $match, $project...       match_first, see `push_match`
//!   $match, $match           ->  one $match                one_match
//!   $limit, $limit           ->  the lesser                least_limit
//!   $skip, $skip             ->  their sum                 one_skip
//!   $sort, $sort             ->  the second                last_sort
//!   $project..., $limit      ->  $limit, $project...       page_first (and $skip)
//!   $lookup as a, $sort by b ->  $sort, $lookup            sort_first
//!   $lookup as a, $unwind a  ->  one $lookup               absorbed, by the first stage
//! ```

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, RawValue};

use crate::matcher::{Dependencies, MatchExpression};
use crate::pipeline::Stage;

use super::push_match;

/// A rewrite of two adjacent stages.
pub(super) struct Rule {
    /// For tests, each of which covers one rule.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) name: &'static str,
    /// Returns the replacement of both stages; `None` if the condition of the rule is false.
    pub(super) apply: fn(&Stage, &Stage) -> Option<Vec<Stage>>,
}

/// All rules; the first that applies is used.
pub(super) static RULES: &[Rule] = &[
    Rule {
        name: "match_first",
        apply: push_match::match_first,
    },
    Rule {
        name: "one_match",
        apply: one_match,
    },
    Rule {
        name: "least_limit",
        apply: least_limit,
    },
    Rule {
        name: "one_skip",
        apply: one_skip,
    },
    Rule {
        name: "last_sort",
        apply: last_sort,
    },
    Rule {
        name: "page_first",
        apply: page_first,
    },
    Rule {
        name: "sort_first",
        apply: sort_first,
    },
    Rule {
        name: "absorbed",
        apply: absorbed,
    },
];

/// Merges two filters to their conjunction.
///
/// Condition: none.
fn one_match(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    let (Stage::Match { spec: a, filter: f }, Stage::Match { spec: b, filter: g }) =
        (first, second)
    else {
        return None;
    };
    let both = MatchExpression::And(vec![(**f).clone(), (**g).clone()]);
    Some(vec![Stage::Match {
        spec: conjunction(a, b),
        filter: Arc::new(both.normalize()),
    }])
}

/// `{$and: [a, b]}`. Flattens earlier merges, so that three filters are not nested.
fn conjunction(a: &DocBuf, b: &DocBuf) -> DocBuf {
    let mut spec = DocBuilder::new();
    spec.begin_array("$and");
    for part in [a, b] {
        let mut fields = part.iter();
        match (fields.next(), fields.next()) {
            (Some(and), None) if and.key() == "$and" => match and.value() {
                RawValue::Array(parts) => parts.iter().for_each(|p| {
                    spec.push(p);
                }),
                _ => {
                    spec.push(part);
                }
            },
            _ => {
                spec.push(part);
            }
        }
    }
    spec.end();
    spec.finish()
}

/// Condition: none.
fn least_limit(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    match (first, second) {
        (Stage::Limit(a), Stage::Limit(b)) => Some(vec![Stage::Limit(*a.min(b))]),
        _ => None,
    }
}

/// Condition: none. More than `u64::MAX` documents are never skipped.
fn one_skip(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    match (first, second) {
        (Stage::Skip(a), Stage::Skip(b)) => Some(vec![Stage::Skip(a.saturating_add(*b))]),
        _ => None,
    }
}

/// Drops the first of two sorts.
///
/// Condition: the first keeps all documents (it has no limit). The order of documents that are
/// equal in the second sort may change: `$sort` is not guaranteed to be stable.
fn last_sort(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    match (first, second) {
        (Stage::Sort { limit: None, .. }, Stage::Sort { .. }) => Some(vec![second.clone()]),
        _ => None,
    }
}

/// Moves `$skip` and `$limit` before stages, which then process fewer documents.
///
/// Condition: the stage produces exactly one document for each input document, in order.
fn page_first(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    let (Stage::Skip(_) | Stage::Limit(_)) = second else {
        return None;
    };
    let is_one_to_one = match first {
        Stage::Project { .. } | Stage::ReplaceRoot { .. } => true,
        Stage::Other(stage) => stage.is_one_to_one(),
        _ => false,
    };
    is_one_to_one.then(|| vec![second.clone(), first.clone()])
}

/// Moves a sort before a join: it sorts smaller documents, and may use an index.
///
/// Condition: the stage produces exactly one document for each input document, in order, and
/// preserves the paths that the sort reads.
fn sort_first(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    let (Stage::Other(stage), Stage::Sort { pattern, .. }) = (first, second) else {
        return None;
    };
    let mut reads = Dependencies::default();
    pattern.paths().for_each(|path| reads.insert(path));
    (stage.is_one_to_one() && stage.lets_through(&reads))
        .then(|| vec![second.clone(), first.clone()])
}

/// Lets the first stage absorb the second.
///
/// Condition: stated at the stage's `absorb`.
fn absorbed(first: &Stage, second: &Stage) -> Option<Vec<Stage>> {
    match first {
        Stage::Other(stage) => stage.absorb(second),
        _ => None,
    }
}
