//! Which part of a pipeline the find layer can do, and a better order for the rest.
//!
//! Rules on neighbours, until none applies:
//!
//! ```text
//!   $sort, $match            ->  $match, $sort             a part of a match passes where it can, see
//!   $project..., $match      ->  $match, $project...       `push_match`
//!   $unwind a, $match on b   ->  $match, $unwind
//!   $group, $match on _id    ->  $match, $group
//!   $lookup as a, $sort by b ->  $sort, $lookup            one document in, one out, b unchanged
//!   $project..., $limit      ->  $limit, $project...     (and $skip): one document in, one out
//!   $match, $match           ->  one $match
//!   $limit, $limit           ->  the lesser;  $skip, $skip  ->  their sum
//!   $sort, $sort             ->  the second
//!   $sort, $skip?, $limit    ->  a sort of skip + limit documents, $skip?
//! ```
//!
//! Then the longest beginning of the form `$match? $sort? ($skip|$limit)*
//! $project?` becomes the [`CursorPrefix`], where `$project` keeps or drops
//! fields only.

use std::sync::Arc;

use sheaf_bson::{DocBuf, DocBuilder, RawValue, Value};

use crate::canonical::FindSpec;
use crate::expression::Expression;
use crate::expression::field_path::Base;
use crate::expression::projection_exec::Mode;
use crate::matcher::{Dependencies, MatchExpression};

use super::accumulator::AccumulatorKind;
use super::group::Group;
use super::push_match::{self, Split};
use super::stage::Passes;
use super::{Pipeline, PipelineSource, Stage};

/// What the find layer does before the first stage runs.
#[derive(Debug, Clone, Default)]
pub struct CursorPrefix {
    /// Empty matches everything.
    pub filter: DocBuf,
    /// `None`: any order will do.
    pub sort: Option<DocBuf>,
    /// Documents passed over first.
    pub skip: u64,
    /// `None` is unlimited; never 0.
    pub limit: Option<u64>,
    /// A projection that keeps or drops fields; it must be applied.
    pub projection: Option<DocBuf>,
    /// Fields that the projection does not name go, even if all that it names are `$meta`.
    pub inclusion: bool,
    /// The paths that the remaining stages read; an empty set is a mere count.
    /// `None`: whole documents (or `projection` says it). A hint: whole documents serve as well.
    pub dependencies: Option<Dependencies>,
    /// The remaining stages begin with a `$group` that one document for each value can answer.
    pub distinct: Option<DistinctLike>,
    /// To the remaining stages a dependency that is missing is the same as one that is null.
    pub null_serves: bool,
}

impl CursorPrefix {
    /// What it asks of the find layer.
    pub fn find_spec(&self) -> FindSpec<'_> {
        FindSpec {
            filter: Some(self.filter.as_raw()),
            sort: self.sort.as_ref().map(DocBuf::as_raw),
            projection: self.projection.as_ref().map(DocBuf::as_raw),
            inclusion: self.inclusion,
            null_serves: self.null_serves,
            skip: self.skip,
            limit: self.limit,
            ..FindSpec::default()
        }
    }
}

/// A `$group` by one field that needs one document of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinctLike {
    /// The dotted path. A scan may serve when no array lies on it.
    pub path: String,
    /// Which document of each group.
    pub take: DistinctTake,
}

/// Which document of a group is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DistinctTake {
    /// Any: there are no accumulators.
    Any,
    /// The first in the prefix's sort: all accumulators are `$first`.
    First,
    /// The last: all are `$last`.
    Last,
    /// That of the least value of this path, null left out: all are `$min` of it.
    Least(String),
    /// That of the greatest one: all are `$max` of it.
    Greatest(String),
}

/// A pipeline, split.
#[derive(Debug, Clone)]
pub struct OptimizedPipeline {
    /// What the find layer does. Empty unless documents come from the collection.
    pub prefix: CursorPrefix,
    /// What is left.
    pub rest: Pipeline,
}

impl CursorPrefix {
    /// The dependencies as a projection: `{a: 1, "b.c": 1, _id: 0}`. `None`
    /// without dependencies; an empty set gives `{_id: 0}`, and the caller may count instead.
    pub fn dependency_projection(&self) -> Option<DocBuf> {
        let dependencies = self.dependencies.as_ref()?;
        let mut out = DocBuilder::new();
        // Of an `_id` that is read in part all is asked for: a projection cannot drop it and keep a part.
        let is_of_id = |path: &&String| path.split('.').next() == Some("_id");
        for path in dependencies.paths.iter().filter(|path| !is_of_id(path)) {
            out.append(path, 1);
        }
        let reads_id = dependencies.paths.iter().any(|path| is_of_id(&path));
        out.append("_id", i32::from(reads_id));
        Some(out.finish())
    }

    /// Whether the remaining stages read no field at all.
    pub fn counts_only(&self) -> bool {
        self.projection.is_none()
            && self
                .dependencies
                .as_ref()
                .is_some_and(|d| !d.whole_document && d.paths.is_empty())
    }
}

impl Pipeline {
    /// Reorders the stages and splits off what the find layer can do.
    pub fn optimize(self) -> OptimizedPipeline {
        let Pipeline {
            source,
            stages,
            sink,
        } = self;
        let mut stages = rewrite(stages);
        narrow(&mut stages);
        let mut prefix = CursorPrefix::default();
        if matches!(source, PipelineSource::Collection) {
            let taken = take_prefix(&stages, &mut prefix);
            stages.drain(..taken);
            if prefix.projection.is_none() {
                prefix.dependencies = dependencies(&stages);
            }
            prefix.distinct = distinct_like(&stages, &prefix);
            prefix.null_serves = null_serves(&stages);
        }
        limit_sorts(&mut stages);
        OptimizedPipeline {
            prefix,
            rest: Pipeline {
                source,
                stages,
                sink,
            },
        }
    }
}

/// Tells stages which fields of what they give are read.
fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        if let Stage::Other(stage) = &stages[at]
            && let Some(wanted) = dependencies(&stages[at + 1..])
            && let Some(narrowed) = stage.giving(&wanted)
        {
            stages[at] = narrowed;
        }
    }
}

/// The stages in a better order, none of them taken by the find layer.
pub(super) fn reorder(stages: Vec<Stage>) -> Vec<Stage> {
    let mut stages = rewrite(stages);
    narrow(&mut stages);
    limit_sorts(&mut stages);
    stages
}

fn rewrite(mut stages: Vec<Stage>) -> Vec<Stage> {
    for stage in &mut stages {
        if let Stage::Other(other) = stage
            && let Some(optimized) = other.optimized()
        {
            *stage = optimized;
        }
    }
    let mut at = 0;
    while at + 1 < stages.len() {
        if let Stage::Match { spec, filter } = &stages[at + 1]
            && !matches!(stages[at], Stage::Match { .. })
            && let Some(Split { before, behind }) = push_match::split(&stages[at], spec, filter)
        {
            stages.splice(at + 1..at + 2, behind);
            stages.insert(at, before);
            at = at.saturating_sub(1);
            continue;
        }
        let changed = match (&stages[at], &stages[at + 1]) {
            (Stage::Match { spec: a, filter: f }, Stage::Match { spec: b, filter: g }) => {
                let merged = merge(a, f, b, g);
                stages.splice(at..at + 2, [merged]);
                true
            }
            (Stage::Limit(a), Stage::Limit(b)) => {
                let least = *a.min(b);
                stages.splice(at..at + 2, [Stage::Limit(least)]);
                true
            }
            (Stage::Skip(a), Stage::Skip(b)) => {
                let sum = a.saturating_add(*b);
                stages.splice(at..at + 2, [Stage::Skip(sum)]);
                true
            }
            (Stage::Sort { .. }, Stage::Sort { .. }) => {
                stages.remove(at);
                true
            }
            (
                Stage::Project { .. } | Stage::ReplaceRoot { .. },
                Stage::Skip(_) | Stage::Limit(_),
            ) => {
                stages.swap(at, at + 1);
                true
            }
            (Stage::Other(stage), Stage::Skip(_) | Stage::Limit(_)) if stage.is_one_to_one() => {
                stages.swap(at, at + 1);
                true
            }
            // Fewer and smaller documents are sorted, perhaps by an index.
            (Stage::Other(stage), Stage::Sort { pattern, .. })
                if stage.is_one_to_one() && pattern.paths().all(|path| stage.preserves(path)) =>
            {
                stages.swap(at, at + 1);
                true
            }
            (Stage::Other(stage), next) => match stage.absorb(next) {
                Some(together) => {
                    stages.splice(at..at + 2, together);
                    true
                }
                None => false,
            },
            _ => false,
        };
        // A stage that moved forward may now meet one that another rule knows.
        if changed {
            at = at.saturating_sub(1)
        } else {
            at += 1
        }
    }
    stages
}

fn merge(a: &DocBuf, f: &Arc<MatchExpression>, b: &DocBuf, g: &Arc<MatchExpression>) -> Stage {
    let mut spec = DocBuilder::new();
    spec.begin_array("$and");
    for part in [a, b] {
        // What was merged before is taken apart again, so that three are not nested.
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
    let both = MatchExpression::And(vec![(**f).clone(), (**g).clone()]);
    Stage::Match {
        spec: spec.finish(),
        filter: Arc::new(both.normalize()),
    }
}

/// Makes limits behind a sort the sort's own: it keeps no more than they let through.
fn limit_sorts(stages: &mut Vec<Stage>) {
    let mut at = 0;
    while at < stages.len() {
        if let Stage::Sort { pattern, limit } = &stages[at] {
            let mut skipped: u64 = 0;
            let mut next = at + 1;
            while let Some(Stage::Skip(n)) = stages.get(next) {
                skipped = skipped.saturating_add(*n);
                next += 1;
            }
            if let Some(Stage::Limit(n)) = stages.get(next) {
                let all = skipped.saturating_add(*n);
                let limit = limit.map_or(all, |limit| limit.min(all));
                stages[at] = Stage::Sort {
                    pattern: pattern.clone(),
                    limit: Some(limit),
                };
                stages.remove(next);
                // There may be another limit.
                continue;
            }
        }
        at += 1;
    }
}

/// Fills the prefix from the first stages; gives how many it took.
fn take_prefix(stages: &[Stage], prefix: &mut CursorPrefix) -> usize {
    let mut taken = 0;
    if let Some(Stage::Match { spec, .. }) = stages.first() {
        prefix.filter = spec.clone();
        taken += 1;
    }
    if let Some(Stage::Sort { pattern, .. }) = stages.get(taken) {
        prefix.sort = Some(pattern.serialize());
        taken += 1;
    }
    loop {
        match stages.get(taken) {
            Some(Stage::Skip(n)) => match prefix.limit {
                None => prefix.skip = prefix.skip.saturating_add(*n),
                // Of the limit's documents the first n go. None left is no limit at all: leave it.
                Some(limit) if limit > *n => {
                    prefix.skip = prefix.skip.saturating_add(*n);
                    prefix.limit = Some(limit - n);
                }
                Some(_) => break,
            },
            Some(Stage::Limit(n)) => {
                prefix.limit = Some(prefix.limit.map_or(*n, |limit| limit.min(*n)));
            }
            _ => break,
        }
        taken += 1;
    }
    if let Some(Stage::Project {
        projection,
        spec,
        name,
    }) = stages.get(taken)
        && (projection.asks_for_metadata()
            || projection.is_plain() && projection.mode() != Mode::AddFields)
    {
        prefix.projection = match spec {
            Value::Document(spec) if *name != "$unset" => Some(spec.clone()),
            other => excluded(other.as_raw()),
        };
        prefix.inclusion = projection.mode() == Mode::Inclusion;
        taken += usize::from(prefix.projection.is_some());
    }
    taken
}

/// `$unset`'s operand as an exclusion.
fn excluded(spec: RawValue<'_>) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    match spec {
        RawValue::String(path) => {
            out.append(path, 0);
        }
        RawValue::Array(paths) => {
            for path in paths {
                out.append(path.as_str()?, 0);
            }
        }
        _ => return None,
    }
    Some(out.finish())
}

/// The paths that the stages read; `None` when whole documents come out of them.
pub(super) fn dependencies(stages: &[Stage]) -> Option<Dependencies> {
    let mut found = Dependencies::default();
    for stage in stages {
        let closed = match stage {
            Stage::Match { filter, .. } => {
                filter.add_dependencies(&mut found);
                false
            }
            Stage::Sort { pattern, .. } => {
                pattern.paths().for_each(|path| found.insert(path));
                false
            }
            Stage::Skip(_) | Stage::Limit(_) => false,
            Stage::Unwind(unwind) => {
                found.insert(&unwind.path());
                false
            }
            Stage::Project { projection, .. } => projection.add_dependencies(&mut found),
            Stage::ReplaceRoot { expression, .. } => {
                expression.add_dependencies(&mut found);
                true
            }
            Stage::Group(group) => {
                group.add_dependencies(&mut found);
                true
            }
            Stage::Other(stage) => stage.add_dependencies(&mut found) == Passes::Computed,
        };
        if found.whole_document {
            return None;
        }
        if closed {
            return Some(found);
        }
    }
    None
}

fn distinct_like(stages: &[Stage], prefix: &CursorPrefix) -> Option<DistinctLike> {
    let Some(Stage::Group(group)) = stages.first() else {
        return None;
    };
    let whole = prefix.skip == 0 && prefix.limit.is_none() && prefix.projection.is_none();
    // A number names an element to an index, and a field to an expression.
    let by_name = |path: &String| !path.split('.').any(|name| name.parse::<u32>().is_ok());
    let path = single_path(group).filter(|path| whole && by_name(path))?;
    let all = |kind| {
        group
            .fields
            .iter()
            .all(|field| field.accumulator.kind == kind)
    };
    let sorted_by_it = || {
        let first = prefix.sort.as_ref().and_then(|sort| sort.as_raw().first());
        first.is_some_and(|field| field.key() == path)
    };
    let take = if group.fields.is_empty() {
        DistinctTake::Any
    } else if all(AccumulatorKind::First) && sorted_by_it() {
        DistinctTake::First
    } else if all(AccumulatorKind::Last) && sorted_by_it() {
        DistinctTake::Last
    } else if all(AccumulatorKind::Min) && prefix.sort.is_none() {
        DistinctTake::Least(only_argument(group)?)
    } else if all(AccumulatorKind::Max) && prefix.sort.is_none() {
        DistinctTake::Greatest(only_argument(group)?)
    } else {
        return None;
    };
    Some(DistinctLike { path, take })
}

/// Whether the stages take null and a missing field for the same: groups gather both under null, and
/// these accumulators pass over both or give null for both.
fn null_serves(stages: &[Stage]) -> bool {
    use AccumulatorKind::{Avg, First, Last, Max, Min, StdDevPop, StdDevSamp, Sum};
    let Some(Stage::Group(group)) = stages.first() else {
        return false;
    };
    let serves = |expression: &Expression| {
        matches!(expression, Expression::Constant(_)) || root_path(expression).is_some()
    };
    serves(&group.id)
        && group.fields.iter().all(|field| {
            matches!(
                field.accumulator.kind,
                Avg | First | Last | Max | Min | StdDevPop | StdDevSamp | Sum
            ) && serves(&field.accumulator.argument)
        })
}

/// The one path a group gathers by, if it is one.
fn single_path(group: &Group) -> Option<String> {
    root_path(&group.id)
}

/// The one path of which all accumulators take the values.
fn only_argument(group: &Group) -> Option<String> {
    let mut paths = group
        .fields
        .iter()
        .map(|f| root_path(&f.accumulator.argument));
    let first = paths.next()??;
    paths
        .all(|path| path.as_ref() == Some(&first))
        .then_some(first)
}

fn root_path(expression: &Expression) -> Option<String> {
    match expression {
        Expression::FieldPath(path) if path.base == Base::Root && !path.components.is_empty() => {
            path.root_path()
        }
        _ => None,
    }
}
